"""The application: routes, metrics and the page behind one check of requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, PlainTextResponse

from crawl_env import __version__
from ephemeral_crawl.live import UnknownSource
from ephemeral_crawl.serve.admission import Admission, Limits, Token
from ephemeral_crawl.serve.errors import Refused, answer_errors, responses
from ephemeral_crawl.serve.metrics import Requests
from ephemeral_crawl.serve.page import POLICY, show
from ephemeral_crawl.serve.routes import direct, hooks, routes
from ephemeral_crawl.serve.service import Service

if TYPE_CHECKING:
    from ephemeral_crawl.serve.receiver import Receiver

_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_ABOUT = """\
Which source to fetch next, when, and why.

Lease what is due, fetch it, record what became of it; or ask for `next_due` if you keep a queue of
your own. The methods of `Scheduler` for crawlers are routes of the same names, with the same
arguments; those that change something take a JSON object by POST. Durations are strings such as
`5min`, or seconds; times are ISO 8601 with a time zone, or seconds since 1970. Answers other than
2xx hold `error`, a word, and `message`, a sentence.
"""


def make_app(
    service: Service,
    token: Token | None = None,
    limits: Limits | None = None,
    receiver: Receiver | None = None,
) -> Admission:
    """Return the application.

    Arguments:
        service: of the scheduler, which is closed when the application ends.
        token: what clients must send; without one, only requests under a name of this machine are
            answered, such as localhost.
        receiver: of what hubs and sites send.
    """
    limits, requests = limits or Limits(), Requests()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(service.keep_sampling())]
        if receiver is not None:
            tasks.append(asyncio.create_task(receiver.run()))
        yield
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="ephemeral-crawl",
        version=__version__,
        summary="The live scheduler over HTTP",
        description=_ABOUT,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,  # their scripts come from elsewhere
        redoc_url=None,
    )
    answer_errors(app)
    router = routes(service, limits)
    app.router.routes += router.routes  # to include it would make each of them again
    if receiver is not None:
        app.include_router(receiver.routes())
    if token is not None:
        app.include_router(hooks(service, token))
    else:

        @app.get("/v1/hook", include_in_schema=False)
        async def hook() -> None:
            """Refuse the request, and explain why there are no hooks."""
            raise Refused(
                404, "no_route", "hooks need a server with a token; start it with --token-file"
            )

    @app.get("/healthz", tags=["operation"], response_class=PlainTextResponse)
    async def healthz() -> PlainTextResponse:
        """Answer "ok" if the scheduler answers, without a token."""
        await service.call(len, service.scheduler)
        return PlainTextResponse("ok\n")

    @app.get(
        "/metrics", tags=["operation"], response_class=PlainTextResponse, responses=responses()
    )
    async def metrics() -> PlainTextResponse:
        """Return metrics in the text format of Prometheus."""
        return PlainTextResponse(requests.text(await service.sample()), media_type=_METRICS)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def page(source: str = "") -> HTMLResponse:
        status, fleet = await service.sample(), await service.overview()
        explanation, names = None, list[str]()
        if source:
            try:
                explanation = await service.call(service.scheduler.explain, source)
            except UnknownSource:
                names, _ = await service.call(service.scheduler.find, source, limit=20)
        settings = await service.call(service.scheduler.settings)
        budget = f"{status.budget:.6g}/h"
        if ":" in settings["budget"]:
            budget = f"{settings['budget']} ({settings['zone']}), now {budget}"
        text = show(service, status, fleet, source, explanation, names, budget)
        return HTMLResponse(text, headers={"Content-Security-Policy": POLICY})

    return Admission(app, direct(router), token, limits, requests)
