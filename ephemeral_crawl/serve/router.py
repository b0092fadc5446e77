"""One address for all shards: requests are forwarded to the shard that owns the source."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, astuple, replace
from functools import partial
from typing import Any
from urllib.parse import urlencode

import numpy as np
from fastapi import FastAPI
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.requests import Request
from starlette.responses import Response

from crawl_env.errors import check_whole, shown
from ephemeral_crawl.crawl.urls import check_url
from ephemeral_crawl.live import Counts, Status
from ephemeral_crawl.live.arguments import name_of, seconds
from ephemeral_crawl.live.tags import bounds_of, text_of
from ephemeral_crawl.serve.admission import (
    INDEXNOW,
    SHARDS,
    WEBSUB,
    Admission,
    Limits,
    Token,
    strict_json,
)
from ephemeral_crawl.serve.errors import Refusal, answer_errors
from ephemeral_crawl.serve.metrics import Requests
from ephemeral_crawl.serve.page import POLICY
from ephemeral_crawl.serve.routes import hooks_of
from ephemeral_crawl.serve.servers import Shards
from ephemeral_crawl.shards.owner import domain_of, owner_of, shard_of
from ephemeral_crawl.shards.tag_budgets import is_rate, together

MOST_SHARDS = 1000  # a lease's id is that of its shard times this, plus the number of the shard
_OF_ONE = (
    *("report", "failed", "release", "signal", "add", "update", "remove", "pause", "resume"),
    *("limit_host", "limit_tag", "rename"),
)
_OF_MANY = {
    "record": "outcomes",
    "signal_many": "pings",
    "add_many": "sources",
    "update_many": "sources",
}
_KEY = re.compile(r"[\w-]{1,100}", re.ASCII)  # of a subscription
_NUMBERED = re.compile(r"^(outcome|ping|source) (\d+):")
_OLD = 1.0  # seconds for which it is remembered how much is due where
_ROUNDS = 3  # in which shards are asked for leases that others do not have
_AGAIN = 0.5  # seconds after which a lease that waits asks again
_MOST_WAIT = 60.0  # seconds


class Router:
    """Requests to shards, and what their answers are together.

    Arguments:
        balances: whether the budgets of the shards are divided here.
    """

    def __init__(self, servers: Shards, balances: bool = False) -> None:
        if len(servers) > MOST_SHARDS:
            raise ValueError(f"there are {len(servers)} servers; give at most {MOST_SHARDS}")
        self.servers, self.balances = servers, balances
        self._due = np.ones(len(servers))  # number of sources, plus 1
        self._due_at = -np.inf
        self._looking: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End the waits of leases."""
        self._stopping.set()

    async def one(self, method: str, arguments: dict[str, Any]) -> Any:
        """Forward a request to the shard of its source, host or lease; of a tag, to all shards."""
        if method in ("pause", "resume"):  # null is as if it were not given
            arguments = {name: value for name, value in arguments.items() if value is not None}
        if "tag" in arguments and (method == "limit_tag" or "source" not in arguments):
            return await self._of_tag(method, arguments)
        shard, body = self._route(arguments)
        if method == "rename" and arguments.keys() == {"source", "name"}:
            source, name = arguments["source"], arguments["name"]
            if isinstance(name, str) and (home := owner_of(name, len(self.servers))) != shard:
                return await self._move(shard, home, source, name)
        try:
            return await self.servers.post(shard, method, body)
        except Refusal as refusal:
            if "lease" not in body:
                raise
            text = refusal.message.replace(f"lease {body['lease']}", f"lease {arguments['lease']}")
            raise Refusal(refusal.status_code, refusal.error, text, refusal.headers) from None

    async def _of_tag(self, method: str, arguments: dict[str, Any]) -> Any:
        """Forward a request about a tag to all shards, since its sources may be on any of them."""
        names = {"tag", "least", "most"}
        if method == "limit_tag" and arguments.keys() <= names:
            bounds = [text_of(x) for x in bounds_of(arguments.get("least"), arguments.get("most"))]
            tag = name_of("tag", arguments["tag"])
            if self.balances and (tag in self.servers.tags or any(map(is_rate, bounds))):
                await self.servers.limit_tag(tag, (bounds[0], bounds[1]))
                return {"done": True}
            if any(map(is_rate, bounds)):
                raise ValueError(
                    "a rate of a tag is divided among the shards by the server that balances; ask "
                    "the one that was given --budget, or give a part of the budget such as '20%'"
                )
        requests = (self.servers.post(k, method, arguments) for k in range(len(self.servers)))
        return (await _all(requests))[0]

    async def _move(self, shard: int, home: int, source: str, name: str) -> Any:
        """Rename a source that then belongs to another shard, with its estimates."""
        words = urlencode({"source": source})
        export = await self.servers.ask(shard, "GET", f"/v1/export?{words}")
        ((_, host, *more),) = export["sources"]
        export["sources"] = [[name, host and domain_of(name), *more]]
        export |= {"hosts": [], "limits": {}, "paused_hosts": []}  # those of the other domain
        await self.servers.post(home, "adopt", {"exported": export})
        return await self.servers.post(shard, "remove", {"source": source})

    async def many(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Forward many requests at once, each to its shard, which accepts all of them or none."""
        name = _OF_MANY[method]
        values = arguments.get(name)
        if not isinstance(values, list):
            return dict(await self.servers.post(0, method, arguments))  # which says what is wrong
        parts: dict[int, list[int]] = {}
        routes = [self._route(value) for value in values]
        for number, (shard, _) in enumerate(routes):
            parts.setdefault(shard, []).append(number)

        async def ask(shard: int, numbers: list[int]) -> Any:
            try:
                part = {**arguments, name: [routes[number][1] for number in numbers]}
                return await self.servers.post(shard, method, part)
            except Refusal as refusal:
                text = _NUMBERED.sub(lambda m: f"{m[1]} {numbers[int(m[2])]}:", refusal.message)
                if len(parts) > 1:
                    text += f" (the {name} of other shards count, unless refused there)"
                code = refusal.status_code
                raise Refusal(code, refusal.error, text, refusal.headers) from None

        answers = await _all(ask(*part) for part in parts.items())
        if method == "add_many":
            return {"added": sum(answer["added"] for answer in answers)}
        if method == "update_many":
            return {"done": True}
        key = "worths" if method == "signal_many" else "results"
        results: list[Any] = [0.0] * len(values)
        for numbers, answer in zip(parts.values(), answers, strict=True):
            for number, result in zip(numbers, answer[key], strict=True):
                results[number] = result
        return ({"done": True} if method == "signal_many" else {}) | {key: results}

    def _route(self, arguments: Any) -> tuple[int, Any]:
        """Return the shard that a request concerns, and what to send to it."""
        if not isinstance(arguments, dict):
            return 0, arguments
        lease, name = arguments.get("lease"), arguments.get("source", arguments.get("host"))
        if type(lease) is int:
            number, shard = divmod(lease, MOST_SHARDS)
            if not 0 <= shard < len(self.servers):
                raise Refusal(404, "unknown_lease", f"there is no lease {lease}")
            return shard, {**arguments, "lease": number}
        if not isinstance(name, str):
            return 0, arguments  # which says what is wrong
        domain, host = domain_of(name), arguments.get("host")
        if isinstance(host, str) and (domain_of(host) != domain or domain.startswith("*.")):
            raise Refusal(
                422,
                "invalid",
                f"host is {shown(host)}, which is not of the registered domain of "
                f"{shown(name)}: hosts that sources of several domains share cannot be kept on one "
                "shard; leave it out, or give a name in that domain",
            )
        return shard_of(domain, len(self.servers)), arguments

    async def lease(self, arguments: dict[str, Any], request: Request) -> dict[str, Any]:
        """Lease from the shards in proportion to what is due on each, best first; what one cannot
        give, others do. If nothing is due, wait."""
        body = {name: arguments[name] for name in arguments if name != "wait"}
        limit = check_whole("limit", arguments.get("limit", 1))
        end = time.monotonic() + min(seconds("wait", arguments.get("wait", 0.0)), _MOST_WAIT)
        if leases := await self._lease(limit, body):
            return {"leases": leases}
        try:
            async with asyncio.timeout(max(end - time.monotonic(), 0.0)):
                await self._turn.acquire()
        except TimeoutError:
            return {"leases": []}
        try:  # of those that wait, only the first asks again and again
            while not leases and time.monotonic() < end:
                try:
                    async with asyncio.timeout(_AGAIN):
                        await self._stopping.wait()
                        break
                except TimeoutError:
                    if await request.is_disconnected():
                        break
                    leases = await self._lease(limit, body)
        finally:
            self._turn.release()
        return {"leases": leases}

    async def _lease(self, limit: int, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        if time.monotonic() - self._due_at > _OLD and (not self._looking or self._looking.done()):
            self._looking = asyncio.create_task(self._look())  # nobody waits for a slow shard
        weights, leases = self._due.copy(), list[dict[str, Any]]()
        for _ in range(_ROUNDS):
            parts = shares(limit - len(leases), weights, random.random())
            numbers = [(k, part) for k, part in enumerate(parts) if part]
            answers = await asyncio.gather(
                *(self.servers.post(k, "lease", {**arguments, "limit": n}) for k, n in numbers),
                return_exceptions=True,
            )
            for (k, part), answer in zip(numbers, answers, strict=True):
                if isinstance(answer, BaseException):
                    if not isinstance(answer, Refusal) or answer.status_code < 500:
                        raise answer
                    answer = {"leases": []}  # the others go on
                for lease in answer["leases"]:
                    leases.append({**lease, "id": lease["id"] * MOST_SHARDS + k})
                if len(answer["leases"]) < part:
                    weights[k] = 0.0
            if len(leases) >= limit or not weights.any():
                break
        return sorted(leases, key=lambda lease: -lease["index"])

    async def _look(self) -> None:
        """Ask the shards how much is due on each; 0 if a shard does not answer."""
        statuses = await self.servers.statuses()
        self._due = np.array([0.0 if status is None else status.due + 1.0 for status in statuses])
        self._due_at = time.monotonic()

    async def status(self) -> tuple[Status, list[Status | None]]:
        """Return the status of all shards that answer, taken together, and of each shard, (S,).

        Raises:
            Refusal: none answers.
        """
        statuses = await self.servers.statuses()
        answers = [status for status in statuses if status is not None]
        if not answers:
            raise Refusal(503, "shard", "no server of a shard answers; see the logs of the servers")
        budget = sum(status.budget for status in answers)
        counts = Counts(*np.sum([astuple(status.counts) for status in answers], axis=0).tolist())
        sums = {
            name: sum(getattr(status, name) for status in answers)
            for name in ("sources", "paused", "new", "failing", "leased", "due", "balance")
        }
        price = sum(status.price * status.budget for status in answers) / budget
        return replace(answers[0], **sums, price=price, budget=budget, counts=counts), statuses

    async def names(self, text: str, start: int, limit: int) -> dict[str, Any]:
        """Return names of sources, page by page, one shard after the other."""
        following, shard = divmod(start, MOST_SHARDS)
        words = urlencode({"text": text, "start": following, "limit": limit})
        if shard >= len(self.servers):
            raise ValueError(f"start is {start}; give 0, or `next` of the page before")
        page = await self.servers.ask(shard, "GET", f"/v1/sources?{words}")
        if page["next"]:
            page["next"] = page["next"] * MOST_SHARDS + shard
        elif shard + 1 < len(self.servers):
            page["next"] = shard + 1
        return dict(page)

    async def next_due(self) -> float | None:
        """Return when the first shard has something to lease, seconds since 1970."""
        requests = [self.servers.ask(k, "GET", "/v1/next_due") for k in range(len(self.servers))]
        answers = [answer["due_at"] for answer in await asyncio.gather(*requests)]
        return min((due for due in answers if due is not None), default=None)


async def _all(requests: Iterable[Awaitable[Any]]) -> list[Any]:
    """Return the answers of several shards, once all of them have answered; raise the first error
    among them."""
    answers = await asyncio.gather(*requests, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers


def shares(number: int, weights: np.ndarray, start: float) -> list[int]:
    """Divide a number in proportion to weights, (S,), by systematic sampling: each part is rounded
    up or down, and is right on average over a uniform `start`.

    >>> shares(5, np.array([3.0, 0.0, 1.0]), 0.5), shares(1, np.array([1.0, 1.0]), 0.6)
    ([4, 0, 1], [1, 0])
    """
    total = float(weights.sum())
    if not total > 0.0:
        return [0] * len(weights)
    ends = np.floor(number * np.cumsum(weights) / total + start + 1e-9)
    return np.diff(ends, prepend=np.floor(start + 1e-9)).astype(int).tolist()


def make_router(router: Router, token: Token | None, limits: Limits, budget: Any) -> Admission:
    """Return the application that forwards.

    Arguments:
        budget: function that sets the budget of all, given a rate such as "20/h" or a table of
            hours, its time zone, and what can be spent at once; each of them may be None.
    """
    requests = Requests()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        router.stop()

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    answer_errors(app)

    @app.get("/healthz")
    async def healthz() -> PlainTextResponse:
        _, statuses = await router.status()
        silent = [
            router.servers.addresses[k] for k, status in enumerate(statuses) if status is None
        ]
        if silent:
            raise Refusal(503, "shard", f"these servers do not answer: {', '.join(silent)}")
        return PlainTextResponse("ok\n")

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        status, _ = await router.status()
        return PlainTextResponse(requests.text(status))

    @app.get("/", response_class=HTMLResponse)
    async def page(source: str = "", shard: int = 0) -> HTMLResponse:
        number = len(router.servers)
        k = owner_of(source, number) if source else shard
        if not 0 <= k < number:
            raise Refusal(404, "no_route", f"there is no shard {k}; there are 0 to {number - 1}")
        text = await router.servers.ask(k, "GET", f"/?{urlencode({'source': source})}")
        links = " ".join(f'<a href="/?shard={i}">{i}</a>' for i in range(number))
        about = (
            f"Shard {k} of {links}. Budgets and pauses that are set here are those of all shards."
        )
        text = text.replace("<body>", f"<body><nav><p>{about}</p></nav>", 1)
        return HTMLResponse(text, headers={"Content-Security-Policy": POLICY})

    @app.get("/v1/status")
    async def status() -> JSONResponse:
        total, statuses = await router.status()
        shards = [status and asdict(status) for status in statuses]
        return JSONResponse({**asdict(total), "shards": shards})

    @app.get("/v1/tags")
    async def tags() -> JSONResponse:
        tag_lists = [tags for tags in await router.servers.each_tags() if tags is not None]
        return JSONResponse([asdict(tag) for tag in together(tag_lists)])

    @app.get("/v1/sources")
    async def sources(text: str = "", start: int = 0, limit: int = 100) -> JSONResponse:
        return JSONResponse(await router.names(text, start, limit))

    @app.get("/v1/next_due")
    async def next_due(source: str | None = None) -> JSONResponse:
        if source is not None:
            return await of_source("next_due", source)
        return JSONResponse({"due_at": await router.next_due()})

    @app.get("/v1/explain")
    async def explain(source: str) -> JSONResponse:
        return await of_source("explain", source)

    async def of_source(method: str, source: str) -> JSONResponse:
        shard = owner_of(source, len(router.servers))
        words = urlencode({"source": source})
        return JSONResponse(await router.servers.ask(shard, "GET", f"/v1/{method}?{words}"))

    async def signal(source: str, kind: str) -> None:
        await router.one("signal", {"source": source, "kind": kind})

    async def pass_on(shard: int, path: str, request: Request) -> Response:
        """Return what a shard answers to a hub or a site."""
        signature = request.headers.get("x-hub-signature")
        headers = {} if signature is None else {"X-Hub-Signature": signature}
        query = f"?{request.url.query}" if request.url.query else ""
        status, text = await router.servers.send(
            shard, request.method, path + query, await request.body(), headers
        )
        kind = "application/json" if text.startswith(b"{") else "text/plain"
        return Response(text, status, media_type=kind)

    @app.api_route(SHARDS + "{shard}" + WEBSUB + "{key}", methods=["GET", "POST"])
    async def of_hub(shard: int, key: str, request: Request) -> Response:
        if not (0 <= shard < len(router.servers) and _KEY.fullmatch(key)):
            raise Refusal(404, "no_route", "there is no such subscription")
        return await pass_on(shard, WEBSUB + key, request)

    @app.api_route(INDEXNOW, methods=["GET", "POST"])
    async def of_site(request: Request) -> Response:
        url: Any = request.query_params.get("url")
        if request.method == "POST":
            content = strict_json(await request.body())
            urls = content.get("urlList") if isinstance(content, dict) else None
            url = urls[0] if isinstance(urls, list) and urls else None
        shard = 0  # which says what is wrong
        with suppress(ValueError):
            shard = owner_of(check_url(url), len(router.servers))
        return await pass_on(shard, INDEXNOW, request)

    if token is not None:
        app.include_router(hooks_of(partial(of_source, "next_due"), signal, token))

    async def configure(arguments: dict[str, Any]) -> dict[str, Any]:
        parts = [arguments.pop(name, None) for name in ("budget", "zone", "burst")]
        if parts[0] is None and parts[1] is not None:
            raise ValueError("give the budget by the hour together with its zone")
        if parts[0] is not None or parts[2] is not None:
            await budget(*parts)
        for k in range(len(router.servers)) if arguments else ():
            await router.servers.post(k, "configure", arguments)
        return {"done": True}

    def direct(function: Any, with_request: bool = False) -> Any:
        async def answer(body: bytes, request: Request) -> bytes:
            arguments = strict_json(body)
            if not isinstance(arguments, dict):
                raise Refusal(422, "invalid", "the body must be an object, {…}")
            result = await (function(arguments, request) if with_request else function(arguments))
            return json.dumps(result).encode()

        return answer

    posts = {name: direct(partial(router.one, name)) for name in _OF_ONE}
    posts |= {name: direct(partial(router.many, name)) for name in _OF_MANY}
    posts |= {"lease": direct(router.lease, with_request=True), "configure": direct(configure)}
    paths = {f"/v1/{name}": function for name, function in posts.items()}
    return Admission(app, paths, token, limits, requests)
