"""The application: each method of `Scheduler` at /v1/METHOD, those that change something by POST,
with metrics and the page behind one check of requests.
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints
from urllib.parse import urlencode

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import HTMLResponse, PlainTextResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel

from crawl_env import __version__
from crawl_env.errors import NOTATION
from ephemeral_crawl.live import Explanation, Scheduler, Status, TagStatus, UnknownSource
from ephemeral_crawl.live.arguments import seconds, whole
from ephemeral_crawl.serve import bodies
from ephemeral_crawl.serve.admission import Admission, Direct, Limits, Token, strict_json
from ephemeral_crawl.serve.errors import WITH_BODY, Refusal, answer_errors, as_json, responses
from ephemeral_crawl.serve.metrics import Requests
from ephemeral_crawl.serve.page import POLICY, iso, show
from ephemeral_crawl.serve.service import Service

if TYPE_CHECKING:
    from ephemeral_crawl.serve.receiver import Receiver

_MOST_NAMES = 10_000  # in a page
_SourceQuery = Annotated[
    str, Query(description="Name of the source.", examples=["https://example.org/feed"])
]


def direct(router: APIRouter) -> dict[str, Direct]:
    """Return the function that answers for each route that takes JSON. FastAPI documents these
    routes, but to answer by it would take several times as long."""
    posts = [route for route in router.routes if isinstance(route, APIRoute)]
    return {route.path: _direct(route.endpoint) for route in posts if route.body_field is not None}


def _direct(endpoint: Callable[..., Awaitable[BaseModel]]) -> Direct:
    types = get_type_hints(endpoint)
    model: type[BaseModel] = types["body"]

    async def answer(body: bytes, request: Request) -> bytes:
        NOTATION.set(as_json)
        arguments = model.model_validate(strict_json(body))
        result = await (endpoint(arguments, request) if "request" in types else endpoint(arguments))
        return result.model_dump_json().encode()

    return answer


def routes(service: Service, limits: Limits) -> APIRouter:
    """Return the routes of a scheduler."""
    router = APIRouter(prefix="/v1")
    _fetching(router, service, service.scheduler, limits)
    for method, outcome in (("report", "fetched"), ("failed", "failed"), ("release", "released")):
        _recording(router, service, method, outcome)
    for method, codes in _CHANGES.items():
        _changing(router, service, method, codes)
    _asking(router, service, service.scheduler)
    return router


def _fetching(router: APIRouter, service: Service, s: Scheduler, limits: Limits) -> None:
    @router.post("/lease", tags=["fetching"], responses=responses(*WITH_BODY))
    async def lease(body: bodies.LeaseBody, request: Request) -> bodies.Leases:
        """Lease the sources that are due, best first; nobody else is given them until they expire.

        With `wait`, the answer comes when something is due, or when that time is over.
        """
        limit = min(whole("limit", body.limit), limits.batch)
        wait = seconds("wait", body.wait)
        leases = await service.lease(limit, body.timeout, wait, request.is_disconnected)
        return bodies.Leases(leases=leases)

    @router.post("/record", tags=["fetching"], responses=responses(*WITH_BODY, 404))
    async def record(body: bodies.RecordBody) -> bodies.RecordResults:
        """Record many outcomes, all or, if one is invalid, none."""
        _check_batch("outcomes", body.outcomes, limits)
        return bodies.RecordResults(results=await service.change(s.record, body.outcomes))

    @router.post("/signal_many", tags=["fetching"], responses=responses(*WITH_BODY, 404))
    async def signal_many(body: bodies.SignalManyBody) -> bodies.WorthsOfPings:
        """Record many pings, all or, if one is invalid, none."""
        _check_batch("pings", body.pings, limits)
        return bodies.WorthsOfPings(worths=await service.change(s.signal_many, body.pings))

    @router.post("/update_many", tags=["sources"], responses=responses(*WITH_BODY, 404))
    async def update_many(body: bodies.UpdateManyBody) -> bodies.Done:
        """Change settings of many sources, all or, if one is refused, none."""
        _check_batch("sources", body.sources, limits)
        await service.change(s.update_many, body.sources)
        return bodies.Done()

    @router.post("/add_many", tags=["sources"], responses=responses(*WITH_BODY, 409))
    async def add_many(body: bodies.AddManyBody) -> bodies.Added:
        """Add many sources, all or, if one is refused, none."""
        _check_batch("sources", body.sources, limits)
        added = await service.change(s.add_many, body.sources, exist_ok=body.exist_ok)
        return bodies.Added(added=added)


# Methods of which nothing is returned, but of a ping what it is worth; and the errors of their own.
_CHANGES = {
    "signal": (404,),
    "add": (409,),
    "update": (404,),
    "remove": (404,),
    "rename": (404, 409),
    "pause": (404,),
    "resume": (404,),
    "adopt": (409,),
    "configure": (),
    "limit_host": (),
    "limit_tag": (),
}


def _changing(router: APIRouter, service: Service, method: str, codes: Sequence[int]) -> None:
    """Add the route of a method that changes something."""
    function = getattr(service.scheduler, method)

    async def change(body: Any) -> bodies.Done:
        await service.change(function, **_arguments(body))
        return bodies.Done()

    async def ping(body: Any) -> bodies.WorthOfPing:
        return bodies.WorthOfPing(worth=await service.change(function, **_arguments(body)))

    tag = "fetching" if method == "signal" else "sources"
    _document(router, method, ping if method == "signal" else change, tag, codes)


def _recording(router: APIRouter, service: Service, method: str, outcome: str) -> None:
    """Add the route of a method that records an outcome."""
    s = service.scheduler

    async def record(body: Any) -> bodies.Recorded:
        arguments = _arguments(body)
        if await service.change(s.record_one, {**arguments, "outcome": outcome}):
            return bodies.Recorded()
        expiry = None
        if outcome == "released":
            expiry = await service.call(s.expired_at, arguments["lease"])
        if expiry is None:
            raise Refusal(
                410,
                "reported",
                "the lease was reported before, or its source was removed; nothing was recorded",
            )
        raise Refusal(
            410,
            "expired",
            f"lease {arguments['lease']} had expired at {iso(expiry)}, and counts as a fetch: the "
            "budget units that it cost are spent. Nothing needs to be done; the source is leased "
            "again when it is due",
        )

    _document(router, method, record, "fetching", (404, 410))


def _document(
    router: APIRouter,
    method: str,
    endpoint: Callable[[Any], Awaitable[BaseModel]],
    tag: str,
    codes: Sequence[int],
) -> None:
    """Add the route of a method, with the method's arguments and docstring."""
    endpoint.__annotations__["body"] = bodies.body_of(method)
    description = inspect.getdoc(getattr(Scheduler, method)) or ""
    router.add_api_route(
        f"/{method}",
        endpoint,
        methods=["POST"],
        name=method,
        description=description.partition("\n\nArguments:")[0],
        tags=[tag],
        responses=responses(*WITH_BODY, *codes),
    )


def _asking(router: APIRouter, service: Service, s: Scheduler) -> None:
    @router.get("/sources", tags=["asking"], responses=responses(422))
    async def sources(
        text: Annotated[str, Query(description="Only names that contain this.")] = "",
        start: Annotated[int, Query(ge=0, lt=2**63)] = 0,
        limit: Annotated[int, Query(ge=1, le=_MOST_NAMES)] = 100,
    ) -> bodies.Names:
        """Return the names of the sources, page by page."""
        names, following = await service.call(s.find, text, start=start, limit=limit)
        return bodies.Names(sources=names, next=following)

    @router.get("/explain", tags=["asking"], responses=responses(404, 422))
    async def explain(source: _SourceQuery) -> Explanation:
        """Return what is known about a source, when it is due, why, and what would change it."""
        return await service.call(s.explain, source)

    @router.get("/export", tags=["asking"], responses=responses(404, 422))
    async def export(source: _SourceQuery) -> dict[str, Any]:
        """Return what is known of a source, for `adopt` of another scheduler."""
        return await service.call(s.export, [source])

    @router.get("/next_due", tags=["asking"], responses=responses(404, 422))
    async def next_due(
        source: Annotated[
            str | None, Query(description="Default: when `lease` next gives something.")
        ] = None,
    ) -> bodies.Due:
        """Return when a source is due, or when `lease` next gives something."""
        return bodies.Due(due_at=await service.call(s.next_due, source))

    @router.get("/tags", tags=["asking"], responses=responses())
    async def tags() -> list[TagStatus]:
        """Return the tags and what they spend, first the sources that have none."""
        return await service.call(s.tags)

    @router.get("/status", tags=["asking"], responses=responses())
    async def status() -> Status:
        """Return the scheduler in numbers."""
        return await service.call(s.status)


def hooks(service: Service, token: Token) -> APIRouter:
    """Return the routes by which others may ping single sources, without the token."""
    s = service.scheduler
    return hooks_of(
        lambda source: service.call(s.next_due, source),
        lambda source, kind: service.change(s.signal, source, kind),
        token,
    )


def hooks_of(
    check_source: Callable[[str], Awaitable[Any]],
    signal: Callable[[str, str], Awaitable[Any]],
    token: Token,
) -> APIRouter:
    """Return these routes, given a function that refuses unknown sources, and one that pings."""
    router = APIRouter(tags=["hooks"])

    @router.get("/v1/hook", responses=responses(404, 422))
    async def hook(source: _SourceQuery, kind: str = "websub") -> bodies.Hook:
        """Return the path at which a WebSub hub or a webhook may ping a source."""
        await check_source(source)
        words = urlencode({"source": source, "kind": kind})
        return bodies.Hook(path=f"/hooks/{token.hook(source, kind)}?{words}")

    def check(key: str, source: str, kind: str) -> None:
        if not hmac.compare_digest(
            key.encode("utf-8", "replace"), token.hook(source, kind).encode()
        ):
            raise Refusal(404, "no_route", "there is no such hook; see GET /v1/hook")

    @router.get("/hooks/{key}", response_class=PlainTextResponse, responses=responses(404))
    async def verify(
        key: str,
        source: str,
        kind: str,
        challenge: Annotated[str, Query(alias="hub.challenge", max_length=512)] = "",
    ) -> PlainTextResponse:
        """Confirm a subscription to a WebSub hub."""
        check(key, source, kind)
        return PlainTextResponse(challenge)

    @router.post("/hooks/{key}", status_code=204, responses=responses(404))
    async def ping(key: str, source: str, kind: str) -> None:
        """Record a ping. The body is not looked at."""
        check(key, source, kind)
        await signal(source, kind)

    return router


def _arguments(body: BaseModel) -> dict[str, Any]:
    """Return the arguments that were sent."""
    return {name: getattr(body, name) for name in body.model_fields_set}


def _check_batch(name: str, values: list[Any], limits: Limits) -> None:
    if len(values) > limits.batch:
        raise Refusal(
            413, "too_large", f"there are {len(values)} {name}; send at most {limits.batch} at once"
        )


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
            raise Refusal(
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
