"""The routes: each method of `Scheduler` at /v1/METHOD, those that change something by POST."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, get_type_hints
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel

from crawl_env.errors import NOTATION, check_whole, shown
from ephemeral_crawl.live import Explanation, Scheduler, Status
from ephemeral_crawl.live.arguments import seconds
from ephemeral_crawl.serve import bodies
from ephemeral_crawl.serve.access import Token
from ephemeral_crawl.serve.admission import Direct, Limits, strict_json
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
    found = [route for route in router.routes if isinstance(route, APIRoute)]
    return {route.path: _direct(route.endpoint) for route in found if route.body_field is not None}


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
    _sources(router, service, service.scheduler, limits)
    _asking(router, service, service.scheduler)
    return router


def _fetching(router: APIRouter, service: Service, s: Scheduler, limits: Limits) -> None:
    @router.post("/lease", tags=["fetching"], responses=responses(*WITH_BODY))
    async def lease(body: bodies.LeaseBody, request: Request) -> bodies.Leases:
        """Lease the sources that are due, best first; nobody else is given them until they expire.

        With `wait`, the answer comes when something is due, or when that time is over.
        """
        limit = min(check_whole("limit", body.limit), limits.batch)
        wait = seconds("wait", body.wait)
        leases = await service.lease(limit, body.timeout, wait, request.is_disconnected)
        return bodies.Leases(leases=leases)

    def counted(counts: bool) -> bodies.Recorded:
        if not counts:
            raise Refused(
                410,
                "reported",
                "the lease was reported before, or its source was removed; nothing was recorded",
            )
        return bodies.Recorded()

    outcome: dict[str, Any] = {"tags": ["fetching"], "responses": responses(*WITH_BODY, 404, 410)}

    @router.post("/report", **outcome)
    async def report(body: bodies.ReportBody) -> bodies.Recorded:
        """Record a successful fetch."""
        return counted(await service.change(s.report, _fetch(body), **_others(body)))

    @router.post("/failed", **outcome)
    async def failed(body: bodies.FailedBody) -> bodies.Recorded:
        """Record a fetch that failed. The source is tried again after a while."""
        return counted(await service.change(s.failed, _fetch(body), **_others(body)))

    @router.post("/release", **outcome)
    async def release(body: bodies.ReleaseBody) -> bodies.Recorded:
        """Give a lease back without a fetch; once it has expired, there is nothing to give back."""
        counts = await service.change(s.release, **body.given())
        expired = None if counts else await service.call(s.expired_at, body.lease)
        if expired is not None:
            raise Refused(
                410,
                "expired",
                f"lease {body.lease} had expired at {iso(expired)}, and counts as a fetch: the "
                "budget units that it cost are spent. Nothing needs to be done; the source is "
                "leased again when it is due",
            )
        return counted(counts)

    @router.post("/record", tags=["fetching"], responses=responses(*WITH_BODY, 404))
    async def record(body: bodies.RecordBody) -> bodies.RecordResults:
        """Record many outcomes, all or, if one is invalid, none."""
        _check_batch("outcomes", body.outcomes, limits)
        return bodies.RecordResults(results=await service.change(s.record, body.outcomes))

    @router.post("/signal", tags=["fetching"], responses=responses(*WITH_BODY, 404))
    async def signal(body: bodies.SignalBody) -> bodies.Done:
        """Record a ping: the source may have something new."""
        await service.change(s.signal, **body.given())
        return bodies.Done()

    @router.post("/signal_many", tags=["fetching"], responses=responses(*WITH_BODY, 404))
    async def signal_many(body: bodies.SignalManyBody) -> bodies.Done:
        """Record many pings, all or, if one is invalid, none."""
        _check_batch("pings", body.pings, limits)
        await service.change(s.signal_many, body.pings)
        return bodies.Done()


def _sources(router: APIRouter, service: Service, s: Scheduler, limits: Limits) -> None:
    known: dict[str, Any] = {"tags": ["sources"], "responses": responses(*WITH_BODY, 404)}

    @router.post("/add", tags=["sources"], responses=responses(*WITH_BODY, 409))
    async def add(body: bodies.AddBody) -> bodies.Done:
        """Add a source, which is due at once."""
        await service.change(s.add, **body.given())
        return bodies.Done()

    @router.post("/add_many", tags=["sources"], responses=responses(*WITH_BODY, 409))
    async def add_many(body: bodies.AddManyBody) -> bodies.Added:
        """Add many sources, all or, if one is refused, none."""
        _check_batch("sources", body.sources, limits)
        added = await service.change(s.add_many, body.sources, exist_ok=body.exist_ok)
        return bodies.Added(added=added)

    @router.post("/update", **known)
    async def update(body: bodies.UpdateBody) -> bodies.Done:
        """Change those settings of a source that are given."""
        await service.change(s.update, **body.given())
        return bodies.Done()

    @router.post("/remove", **known)
    async def remove(body: bodies.SourceBody) -> bodies.Done:
        """Remove a source and what was learnt about it."""
        await service.change(s.remove, body.source)
        return bodies.Done()

    @router.post("/rename", tags=["sources"], responses=responses(*WITH_BODY, 404, 409))
    async def rename(body: bodies.RenameBody) -> bodies.Done:
        """Change the name of a source, such as after a permanent redirect."""
        await service.change(s.rename, body.source, body.name)
        return bodies.Done()

    @router.post("/pause", **known)
    async def pause(body: bodies.SourceBody) -> bodies.Done:
        """Do not lease a source until `resume`."""
        await service.change(s.pause, body.source)
        return bodies.Done()

    @router.post("/resume", **known)
    async def resume(body: bodies.SourceBody) -> bodies.Done:
        """End a pause."""
        await service.change(s.resume, body.source)
        return bodies.Done()

    @router.post("/adopt", tags=["sources"], responses=responses(*WITH_BODY, 409))
    async def adopt(body: bodies.AdoptBody) -> bodies.Done:
        """Add sources that another scheduler has exported, with what it learnt of them."""
        await service.change(s.adopt, body.exported)
        return bodies.Done()

    @router.post("/configure", tags=["sources"], responses=responses(*WITH_BODY))
    async def configure(body: bodies.ConfigureBody) -> bodies.Done:
        """Change settings of the scheduler that are given, such as the budget, from now on."""
        await service.change(s.configure, **body.given())
        return bodies.Done()

    @router.post("/limit_host", tags=["sources"], responses=responses(*WITH_BODY))
    async def limit_host(body: bodies.HostBody) -> bodies.Done:
        """Lease one source of a host at a time, and the next one `interval` after its fetch."""
        await service.change(s.limit_host, body.host, body.interval)
        return bodies.Done()


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


def _fetch(body: bodies.Sought) -> Any:
    """Return the lease or the source of an outcome."""
    given = body.given()
    if ("lease" in given) == ("source" in given):
        raise ValueError("give a lease, or a source that was fetched without one")
    fetch = given.get("lease", given.get("source"))
    if ("source" in given) != isinstance(fetch, str):
        kind = (
            "give the name of a source, a string" if "source" in given else "give the id of a lease"
        )
        raise ValueError(f"{'source' if 'source' in given else 'lease'} is {shown(fetch)}; {kind}")
    return fetch


def _others(body: bodies.Sought) -> dict[str, Any]:
    return {name: x for name, x in body.given().items() if name not in ("lease", "source")}


def _check_batch(name: str, values: list[Any], limits: Limits) -> None:
    if len(values) > limits.batch:
        raise Refused(
            413, "too_large", f"there are {len(values)} {name}; send at most {limits.batch} at once"
        )
