"""The routes: each method of `Scheduler` at /v1/METHOD, those that change something by POST."""

from __future__ import annotations

import hmac
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, get_type_hints
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel

from crawl_env.errors import NOTATION
from ephemeral_crawl.live import Explanation, Scheduler, Status, TagStatus
from ephemeral_crawl.live.arguments import seconds, whole
from ephemeral_crawl.serve import bodies
from ephemeral_crawl.serve.admission import Direct, Limits, Token, strict_json
from ephemeral_crawl.serve.errors import WITH_BODY, Refused, as_json, responses
from ephemeral_crawl.serve.page import iso
from ephemeral_crawl.serve.service import Service

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
    arguments: type[BaseModel] = types["body"]

    async def answer(body: bytes, request: Request) -> bytes:
        NOTATION.set(as_json)
        given = arguments.model_validate(strict_json(body))
        told = await (endpoint(given, request) if "request" in types else endpoint(given))
        return told.model_dump_json().encode()

    return answer


def routes(service: Service, limits: Limits) -> APIRouter:
    """Return the routes of a scheduler."""
    router = APIRouter(prefix="/v1")
    _fetching(router, service, service.scheduler, limits)
    for method, (arguments, *codes) in _CHANGES.items():
        _changing(router, service, method, arguments, codes, limits)
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

    def recorded(counts: bool) -> bodies.Recorded:
        if not counts:
            raise Refused(
                410,
                "reported",
                "the lease was reported before, or its source was removed; nothing was recorded",
            )
        return bodies.Recorded()

    one: dict[str, Any] = {"tags": ["fetching"], "responses": responses(*WITH_BODY, 404, 410)}

    @router.post("/report", **one)
    async def report(body: bodies.ReportBody) -> bodies.Recorded:
        """Record a successful fetch."""
        return recorded(await service.change(s.record_one, _sent(body, outcome="fetched")))

    @router.post("/failed", **one)
    async def failed(body: bodies.FailedBody) -> bodies.Recorded:
        """Record a fetch that failed. The source is tried again after a while."""
        return recorded(await service.change(s.record_one, _sent(body, outcome="failed")))

    @router.post("/release", **one)
    async def release(body: bodies.ReleaseBody) -> bodies.Recorded:
        """Give a lease back without a fetch; once it has expired, there is nothing to give back."""
        counts = await service.change(s.record_one, _sent(body, outcome="released"))
        expired = None if counts else await service.call(s.expired_at, body.lease)
        if expired is not None:
            raise Refused(
                410,
                "expired",
                f"lease {body.lease} had expired at {iso(expired)}, and counts as a fetch: the "
                "budget units that it cost are spent. Nothing needs to be done; the source is "
                "leased again when it is due",
            )
        return recorded(counts)

    @router.post("/record", tags=["fetching"], responses=responses(*WITH_BODY, 404))
    async def record(body: bodies.RecordBody) -> bodies.RecordResults:
        """Record many outcomes, all or, if one is invalid, none."""
        _check_batch(body, limits)
        return bodies.RecordResults(results=await service.change(s.record, body.outcomes))

    @router.post("/add_many", tags=["sources"], responses=responses(*WITH_BODY, 409))
    async def add_many(body: bodies.AddManyBody) -> bodies.Added:
        """Add many sources, all or, if one is refused, none."""
        _check_batch(body, limits)
        return bodies.Added(added=await service.change(s.add_many, **_sent(body)))


# Methods of which nothing is returned: their arguments, and the errors of their own.
_CHANGES: dict[str, tuple[Any, ...]] = {
    "signal": (bodies.SignalBody, 404),
    "signal_many": (bodies.SignalManyBody, 404),
    "add": (bodies.AddBody, 409),
    "update": (bodies.UpdateBody, 404),
    "remove": (bodies.SourceBody, 404),
    "rename": (bodies.RenameBody, 404, 409),
    "update_many": (bodies.UpdateManyBody, 404),
    "pause": (bodies.PauseBody, 404),
    "resume": (bodies.PauseBody, 404),
    "adopt": (bodies.AdoptBody, 409),
    "configure": (bodies.ConfigureBody,),
    "limit_host": (bodies.HostBody,),
    "limit_tag": (bodies.TagBody,),
}


def _changing(
    router: APIRouter,
    service: Service,
    method: str,
    arguments: type[bodies.Body],
    codes: Sequence[int],
    limits: Limits,
) -> None:
    """Add the route of a method, which is described by the first paragraph of its docstring."""
    function = getattr(service.scheduler, method)

    async def endpoint(body: Any) -> bodies.Done:
        _check_batch(body, limits)
        await service.change(function, **_sent(body))
        return bodies.Done()

    endpoint.__annotations__["body"] = arguments
    router.add_api_route(
        f"/{method}",
        endpoint,
        methods=["POST"],
        name=method,
        description=(inspect.getdoc(function) or "").partition("\n\n")[0],
        tags=["fetching" if method.startswith("signal") else "sources"],
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
    known: Callable[[str], Awaitable[Any]],
    signal: Callable[[str, str], Awaitable[Any]],
    token: Token,
) -> APIRouter:
    """Return these routes, given a function that refuses unknown sources, and one that pings."""
    router = APIRouter(tags=["hooks"])

    @router.get("/v1/hook", responses=responses(404, 422))
    async def hook(source: _SourceQuery, kind: str = "websub") -> bodies.Hook:
        """Return the path at which a WebSub hub or a webhook may ping a source."""
        await known(source)
        words = urlencode({"source": source, "kind": kind})
        return bodies.Hook(path=f"/hooks/{token.hook(source, kind)}?{words}")

    def check(key: str, source: str, kind: str) -> None:
        if not hmac.compare_digest(
            key.encode("utf-8", "replace"), token.hook(source, kind).encode()
        ):
            raise Refused(404, "no_route", "there is no such hook; see GET /v1/hook")

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


def _sent(body: bodies.Body, **others: Any) -> dict[str, Any]:
    """Return the arguments that were sent, and others."""
    return {name: getattr(body, name) for name in body.model_fields_set} | others


def _check_batch(body: bodies.Body, limits: Limits) -> None:
    """Refuse a body with too many outcomes, pings or sources."""
    for name in ("outcomes", "pings", "sources"):
        number = len(getattr(body, name, ()))
        if number > limits.batch:
            raise Refused(
                413, "too_large", f"there are {number} {name}; send at most {limits.batch} at once"
            )
