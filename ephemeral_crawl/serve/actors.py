"""Shards as actors of a Ray cluster: Ray places them, and starts each again from its store."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from starlette.types import Message, Scope

from crawl_env.errors import shown
from ephemeral_crawl.cluster.connection import connect
from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.live.errors import NewStore
from ephemeral_crawl.live.journal import file_of, store_named
from ephemeral_crawl.live.reasons import redacted
from ephemeral_crawl.serve.admission import SHARDS, Admission
from ephemeral_crawl.serve.errors import refusal_of
from ephemeral_crawl.serve.routes import make_app
from ephemeral_crawl.serve.servers import NO_HEADERS, Shards
from ephemeral_crawl.serve.service import Service
from ephemeral_crawl.shards.balancer import NEW

_NAMESPACE = "ephemeral-crawl"
_CPUS = 0.01  # that Ray reserves for a shard: if it were none, Ray would not spread them
_GRACE = 10.0  # seconds in which shards write a snapshot at the end


class ShardServer:
    """The server of a shard, to which requests come from Ray rather than from a socket.

    Arguments:
        store: of the scheduler; a new one gets next to no budget, until the balancer gives it one.
        full: whether changes survive a power failure.
        public: address under which hubs and sites reach it; None: they do not.
        allow_private: see `Receiver`.
    """

    def __init__(
        self, store: str | Path, full: bool, public: str | None = None, allow_private: bool = False
    ) -> None:
        self._store, self._full = store, full
        self._public, self._private = public, allow_private
        self._opening = asyncio.Lock()
        self._app: Admission | None = None
        self._running = AsyncExitStack()  # the application, from its beginning to its end

    async def exchange(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """Return the status and the body of the answer to a request.

        The store is opened for the first one, and as long as that fails for each that follows:
        Ray would not start an actor again that fails from the beginning.
        """
        try:
            app = await self._open()
        except Exception as error:
            refusal = refusal_of(error)
            return refusal.status_code, bytes(refusal.response().body)
        return await _answer(app, method, path, body, headers)

    async def close(self) -> None:
        """Write a snapshot, so that the next start is quick."""
        await self._running.aclose()

    async def _open(self) -> Admission:
        async with self._opening:
            if self._app is None:
                service = Service(await asyncio.to_thread(self._scheduler))
                receiver = None
                if self._public is not None:
                    from ephemeral_crawl.serve.receiver import Receiver, subscriptions_of

                    place = subscriptions_of(self._store)
                    receiver = Receiver(service, place, self._public, allow_private=self._private)
                self._app = make_app(service, receiver=receiver)
                app = self._app.app
                await self._running.enter_async_context(app.router.lifespan_context(app))
                gc.collect()
                gc.freeze()  # as in `serve`
            return self._app

    def _scheduler(self) -> Scheduler:
        try:
            return Scheduler(self._store, full=self._full)
        except NewStore:
            return Scheduler(self._store, budget=NEW, full=self._full)


class Actors(Shards):
    """Shards on Ray, which end with this process.

    A shard whose process or machine fails is started again, elsewhere if need be, and goes on from
    its store; until then requests to it are refused at once, and nobody waits for it. Hardly
    anything of a core is reserved for a shard, so that the machines that remain can take all of
    them.

    Arguments:
        stores: of the shards, each a path or an address with {shard} in the place of the number.
        number: of shards.
        address: of the cluster; None: as `connect` finds it.
        join: use the shards that another process has started with the same stores.
        public: address under which hubs and sites reach the router, which passes on what they send;
            None: they do not.

    Raises:
        ValueError: `stores` is not of several shards; they run already, or, with `join`, do not.
    """

    def __init__(
        self,
        stores: str,
        number: int,
        address: str | None = None,
        *,
        full: bool = False,
        join: bool = False,
        public: str | None = None,
        allow_private: bool = False,
    ) -> None:
        places = [place_of(stores, k) for k in range(number)]
        super().__init__([f"actor {k}" for k in range(number)])
        self._ray = connect(address=address)
        digest = hashlib.sha256(f"{number} {place_of(stores, 0)}".encode()).hexdigest()[:16]
        self._names = [f"{digest} {k}" for k in range(number)]
        self._is_guest = join
        if join:
            self._actors = [self._actor(k) for k in range(number)]
            return
        # A request is not repeated after a failure: it may have been recorded before.
        actor = self._ray.remote(num_cpus=_CPUS, max_restarts=-1, scheduling_strategy="SPREAD")(
            ShardServer
        )
        try:
            self._actors = [
                actor.options(name=name, namespace=_NAMESPACE).remote(
                    place, full, public and f"{public.rstrip('/')}{SHARDS}{k}", allow_private
                )
                for k, (name, place) in enumerate(zip(self._names, places, strict=True))
            ]
        except ValueError as error:
            raise ValueError(
                "another process has started these shards; without --budget, this one forwards "
                f"beside it ({error})"
            ) from None

    async def __aenter__(self) -> Self:
        """Return this when all shards have opened their stores.

        Raises:
            ValueError: one has not.
        """
        for k in range(len(self)):
            status, answer = await self.exchange(k, "GET", "/v1/status")
            if status != 200:
                raise ValueError(f"shard {k} does not start: {json.loads(answer)['message']}")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._is_guest:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                ends = [actor.close.remote() for actor in self._actors]
                await asyncio.gather(*ends, return_exceptions=True)
        for actor in self._actors:
            self._ray.kill(actor)

    async def exchange(
        self,
        shard: int,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> tuple[int, bytes]:
        errors = self._ray.exceptions
        try:
            answer: tuple[int, bytes] = await self._actors[shard].exchange.remote(
                method, path, body, dict(headers)
            )
        except errors.RayError as error:
            if self._is_guest and isinstance(error, errors.ActorDiedError):
                self._actors[shard] = self._actor(shard)  # who started it has started anew
            raise OSError(f"Ray says: {str(error).splitlines()[0]}") from error
        return answer

    def _actor(self, shard: int) -> Any:
        try:
            return self._ray.get_actor(self._names[shard], _NAMESPACE)
        except ValueError:
            raise ValueError(
                f"shard {shard} does not run on this cluster; give --budget, what all shards may "
                "fetch together, to start them"
            ) from None


def place_of(stores: str, shard: int) -> str | Path:
    """Return the store of a shard, at the same place whatever the folder of the process.

    >>> place_of("postgresql://db/crawl?schema=s{shard}", 3)
    'postgresql://db/crawl?schema=s3'
    """
    store = stores.replace("{shard}", str(shard))
    if store == stores or store == ":memory:":
        raise ValueError(
            f"store is {redacted(shown(stores))}; shards have a store each: give {{shard}} in the "
            "place of their number, as in shard{shard}.db or postgresql://user@host/db?schema=shard{shard}"
        )
    file = file_of(place := store_named(store))
    return place if file is None else file.absolute()


async def _answer(
    app: Admission, method: str, path: str, body: bytes, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    """Return the status and the body of what an application answers."""
    name, _, query = path.partition("?")
    scope: Scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "root_path": "",
        "path": unquote(name),
        "query_string": query.encode(),
        "headers": [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            *((name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()),
        ],
    }
    requests: list[Message] = [{"type": "http.request", "body": body}]
    messages: list[Message] = []

    async def receive() -> Message:
        return requests.pop() if requests else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, send)
    return messages[0]["status"], b"".join(message.get("body", b"") for message in messages)
