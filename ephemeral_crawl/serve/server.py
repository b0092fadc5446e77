"""The server: uvicorn, with time limits for slow clients and a graceful end; also before shards."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, Protocol

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from crawl_env.errors import counted
from ephemeral_crawl.core.logs import Form, Level, logged
from ephemeral_crawl.live.reasons import redacted
from ephemeral_crawl.serve.admission import Limits, Token
from ephemeral_crawl.serve.errors import Refusal
from ephemeral_crawl.serve.router import Router, make_router
from ephemeral_crawl.serve.servers import Shards
from ephemeral_crawl.shards.balancer import Balancer, Quote

_MOST_HEADERS = 32 * 1024  # bytes before the body of a request
_GRACE = 10  # seconds for requests under way when the server is asked to end


class Patient(HttpToolsProtocol):
    """A connection whose client must send the headers of a request in time, and not too many, and
    read the answer in time. Trailers, which follow a body, count as headers, and are left out."""

    limits: Limits

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._size = 0  # bytes of the address and of the headers so far
        self._unknown = 0  # bytes since the last of which the parser has told something
        self._after = False  # whether the headers are complete
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.abort()
            return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relax()
        self._was_read()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unknown += len(data)
        super().data_received(data)
        if self._unknown > _MOST_HEADERS:
            self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._size, self._unknown, self._after = 0, 0, False
        self._watch()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + len(": \r\n"))
        if not self._after:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._after = True
        self._relax()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unknown = 0
        super().on_body(body)

    def _count(self, size: int) -> None:
        self._unknown, self._size = 0, self._size + size
        if self._size > _MOST_HEADERS:
            raise ValueError  # which ends the parsing

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # the answer is that of the request under way
        elif self._size > _MOST_HEADERS:
            self._refuse(
                431, "too_large", f"the headers have more than {_MOST_HEADERS} bytes; send fewer"
            )
        else:
            self._refuse(400, "not_http", "this is not a request of HTTP/1.1")

    def _refuse(self, status: int, error: str, message: str) -> None:
        response = Refusal(status, error, message, {"Connection": "close"}).response()
        lines = [b"%s: %s\r\n" % header for header in response.raw_headers]
        self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", response.body]))
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.limits.patience, self.transport.abort)

    def resume_writing(self) -> None:
        self._was_read()
        super().resume_writing()

    def _was_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _watch(self) -> None:
        self._relax()
        self._timer = self.loop.call_later(self.limits.patience, self.transport.abort)

    def _relax(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Stops(Protocol):
    """A service whose leases can wait until it is stopped."""

    def stop(self) -> None: ...


class Server(uvicorn.Server):
    """A server that ends the waits of leases when it is asked to stop."""

    def __init__(self, config: uvicorn.Config, service: Stops) -> None:
        super().__init__(config)
        self._service = service
        self._loop: asyncio.AbstractEventLoop | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._captured_signals.clear()  # or uvicorn raises it again, and the end looks like a crash
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._service.stop)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        ValueError: the address cannot be used.
    """
    if not 0 <= port < 2**16:  # or the remainder would be taken
        raise ValueError(f"--port is {port}; it must be between 0 and 65535")
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        listener = socket.socket(family, kind, protocol)
        if os.name == "posix":  # on Windows, other programs could use the same port then
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(2048)
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(
            f"cannot listen on {host} port {port}: {reason}; give another --port or --host"
        ) from None
    return listener


def announce(listener: socket.socket, content: str) -> None:
    """Print the address at which requests are answered, and what is served."""
    address, port = listener.getsockname()[:2]
    place = f"[{address}]" if ":" in address else address
    print(f"Serving http://{place}:{port}/ ({content})", flush=True)


def logs(level: Level = "warning", form: Form = "text") -> AbstractContextManager[None]:
    """Return a context in which the server and the scheduler log on standard error."""
    text = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    return logged(("uvicorn.error", "ephemeral_crawl"), level, form, text, redacted)


def make_server(app: ASGIApp, service: Stops, limits: Limits) -> Server:
    """Return a server; `run([listener])` serves until SIGTERM or SIGINT. Then requests under way
    are answered, and the scheduler is closed."""
    config = uvicorn.Config(
        app,
        http=type("Limited", (Patient,), {"limits": limits}),
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=int(limits.patience),
        timeout_graceful_shutdown=_GRACE,
    )
    return Server(config, service)


_LOG = logging.getLogger(__name__)


async def keep_balanced(shards: Shards, balancer: Balancer, interval: float, once: bool) -> None:
    """Balance once, or again and again; print the quotes of the shards and their new budgets.

    Arguments:
        interval: seconds between two rounds.
    """
    while True:
        try:
            quotes = await shards.balance(balancer)
            _print(shards.addresses, quotes, balancer)
        except Exception:  # the next round is another
            if once:
                raise
            _LOG.exception("a round failed")
        if once:
            if None in quotes:
                raise ValueError("no budget was changed, since a server does not answer")
            return
        await asyncio.sleep(interval)


async def forward(
    shards: Shards,
    balancer: Balancer | None,
    interval: float,
    token: Token | None,
    limits: Limits,
    listener: socket.socket,
) -> None:
    """Forward requests to shards until SIGTERM or SIGINT, and balance meanwhile."""

    async def set_budget(budget: object, zone: object, burst: Any) -> None:
        if balancer is None:
            raise ValueError("this server does not balance; ask the one that was given --budget")
        balancer.set_budget(budget, zone, time.time(), burst)
        await shards.balance(balancer)

    router = Router(shards, balances=balancer is not None)
    app = make_router(router, token, limits, set_budget)
    announce(listener, counted(len(shards), "shard"))
    rounds = balancer and asyncio.create_task(keep_balanced(shards, balancer, interval, once=False))
    await make_server(app, router, limits).serve([listener])
    if rounds:
        rounds.cancel()


def _print(addresses: Sequence[str], quotes: Sequence[Quote | None], balancer: Balancer) -> None:
    """Print the quotes of the shards and their new budgets."""
    for address, quote, budget in zip(addresses, quotes, balancer.budgets.tolist(), strict=True):
        if quote is None:
            text = f"{budget:.4g}/h" if budget < math.inf else "what it has"
            print(f"{address}  does not answer, keeps {text}", flush=True)
        else:
            print(
                f"{address}  price {quote.price:.4g}  {quote.budget:.4g} -> {budget:.4g}/h",
                flush=True,
            )
