"""Authorisation and limits: the token, and the checks of every request before its route."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import json
import math
import os
import secrets
import stat
import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from ephemeral_crawl.serve.errors import Refusal, answer_to, route_of
from ephemeral_crawl.serve.metrics import Requests

VARIABLE = "EPHEMERAL_CRAWL_TOKEN"
_SHORTEST = 16  # characters of a token
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_MOST_CLIENTS = 10_000  # whose rates are remembered
# Where hubs and sites reach the server; those of a shard, below /shards/NUMBER of what forwards.
WEBSUB, INDEXNOW, SHARDS = "/websub/", "/indexnow", "/shards/"
_ANY_TYPE = ("/hooks/", WEBSUB, SHARDS)  # paths to which others than JSON may be sent
_MOST_OPEN, _MOST_LISTED = 1 << 20, 4 << 20  # bytes that may be sent without the token; of URLs
_UNREAD = 8  # times as many as are allowed are received and refused: many clients send all first
_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
]
_JSON = [*_HEADERS, (b"content-type", b"application/json")]

Direct = Callable[[bytes, Request], Awaitable[bytes]]


class Token:
    """A secret that is not shown, and of which only a digest is kept.

    >>> token = Token("correct horse battery")
    >>> token.fits("correct horse battery"), token.fits("guess"), token
    (True, False, Token(…))
    """

    def __init__(self, text: str) -> None:
        if len(text) < _SHORTEST or not text.isascii() or not text.isprintable():
            raise ValueError(
                f"the token has {len(text)} characters; give at least {_SHORTEST}, printable and "
                "ASCII, such as those of: openssl rand -hex 32"
            )
        self._digest = hashlib.sha256(text.encode()).digest()

    def __repr__(self) -> str:
        return "Token(…)"

    def fits(self, text: str) -> bool:
        """Return whether this is the token, in a time that does not tell how much is right."""
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        return hmac.compare_digest(digest, self._digest)

    def accepts(self, header: str | None) -> bool:
        """Return whether a header `Authorization` holds the token: as `Bearer TOKEN`, or as the
        password of `Basic`, for browsers."""
        scheme, _, value = (header or "").partition(" ")
        if scheme.lower() == "bearer":
            return self.fits(value.strip())
        if scheme.lower() == "basic":
            try:
                _, colon, password = base64.b64decode(value, validate=True).partition(b":")
            except (binascii.Error, ValueError):
                return False
            return bool(colon) and self.fits(password.decode("latin-1"))
        return False

    def hook(self, source: str, kind: str) -> str:
        """Return the key of the URL at which others may ping a source, and nothing else."""
        text = f"hook\0{kind}\0{source}".encode("utf-8", "surrogatepass")
        return hmac.new(self._digest, text, hashlib.sha256).hexdigest()[:40]


def find_token(file: Path | None) -> Token | None:
    """Return the token from a file, which is made if it does not exist, or from the environment.

    Raises:
        ValueError: there are two, or it is too short.
        OSError: the file cannot be read or made.
    """
    variable = os.environ.pop(VARIABLE, None)  # processes started from here do not inherit it
    if file is None:
        return None if variable is None else Token(variable.strip())
    if variable is not None:
        raise ValueError(f"there is a token in {VARIABLE} and one in {file}; give one of them")
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        with file.open(encoding="utf-8", errors="replace") as stream:
            token = Token(stream.read(4096).strip())
        if os.name == "posix" and file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            print(f"warning: others can read {file}; run: chmod 600 {file}", file=sys.stderr)
        return token
    text = secrets.token_urlsafe(32)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text + "\n")
    print(f"A new token was written to {file}, which only you can read.")
    return Token(text)


def is_loopback(address: str) -> bool:
    """Return whether an address to listen on is reached from this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::"), is_loopback("a.b")
    (True, True, False, False)
    """
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def is_local_name(host: str | None) -> bool:
    """Return whether a header `Host` names this machine. A page of another site whose name was made
    to point here (DNS rebinding) has another.

    >>> is_local_name("localhost:8500"), is_local_name("[::1]"), is_local_name("evil.example:8500")
    (True, True, False)
    """
    name, colon, port = (host or "").rpartition(":")
    if not (colon and port.isdecimal()):
        name = host or ""
    return name.lower() in _LOCAL


@dataclass(frozen=True)
class Limits:
    """Limits on the requests of one client."""

    body: int = 8 * 2**20  # bytes
    batch: int = 10_000  # leases, outcomes, pings or sources in a request
    rate: float = 2000.0  # requests per second of one address without the token, on average
    guesses: float = 1.0  # wrong tokens per second of one address, on average
    patience: float = 10.0  # seconds for a request to arrive, and between two of a connection
    connections: int = 1000


class Rate:
    """A token bucket for each of the most recent clients.

    >>> rate = Rate(2.0, burst=3.0)
    >>> [rate.wait("a", now=0.0) for _ in range(4)], rate.wait("b", now=0.0)
    ([0.0, 0.0, 0.0, 0.5], 0.0)
    """

    def __init__(self, per_second: float, burst: float) -> None:
        self._rate, self._burst = per_second, burst
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str, now: float, cost: float = 1.0) -> float:
        """Take from a client's bucket and return 0, or the seconds until that is possible."""
        level, at = self._levels.pop(client, (self._burst, now))
        level = min(level + (now - at) * self._rate, self._burst)
        is_allowed = level >= cost
        self._levels[client] = (level - cost if is_allowed else level, now)
        if len(self._levels) > _MOST_CLIENTS:
            self._levels.popitem(last=False)
        return 0.0 if is_allowed else max((cost - level) / self._rate, 1e-3)


@dataclass
class Admission:
    """Checks that the client is authorised, and that the request is small and arrives in time;
    answers requests that send JSON, and passes the others on to the app.

    Arguments:
        direct: for each path to which JSON is sent, the function that returns the answer to a body.
        token: without one, only requests under a name of this machine pass.
    """

    app: FastAPI
    direct: Mapping[str, Direct]
    token: Token | None
    limits: Limits
    requests: Requests
    _rate: Rate = field(init=False)
    _guesses: Rate = field(init=False)

    def __post_init__(self) -> None:
        self._rate = Rate(self.limits.rate, max(2.0 * self.limits.rate, 1.0))
        self._guesses = Rate(self.limits.guesses, max(10.0 * self.limits.guesses, 1.0))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, path = time.perf_counter(), 0, scope["path"]
        if scope["method"] == "HEAD" and not path.startswith((INDEXNOW, WEBSUB, SHARDS)):
            # These change something by GET, too. Elsewhere, uvicorn leaves out the body.
            scope = {**scope, "method": "GET"}

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                names = {name.lower() for name, _ in message["headers"]}
                missing = [header for header in _HEADERS if header[0] not in names]
                message["headers"] = [*message["headers"], *missing]
            await send(message)

        direct = self.direct.get(path) if scope["method"] == "POST" else None
        try:
            try:
                self._admit(scope)
                body = await self._body(scope, receive)
            except Refusal as refusal:
                response = refusal.response()
                response.headers["Connection"] = "close"  # there may be a body that nobody reads
                await response(scope, receive, answer)
                return
            if direct is None:
                await self.app(scope, _replay(body, receive), answer)
                return
            try:
                text = await direct(body, Request(scope, receive))
            except Exception as error:
                await answer_to(error, path)(scope, receive, answer)
                return
            status, length = 200, (b"content-length", b"%d" % len(text))
            await send(
                {"type": "http.response.start", "status": status, "headers": [*_JSON, length]}
            )
            await send({"type": "http.response.body", "body": text})
        finally:
            route = route_of(scope) if direct is None else path
            self.requests.number.labels(route, str(status)).inc()
            self.requests.time.labels(route).observe(time.perf_counter() - start)

    def _admit(self, scope: Scope) -> None:
        """Raise Refusal unless the client is authorised for this request."""
        headers = dict(scope["headers"])
        hosts = 1 if b"host" in headers else 0
        if len(headers) < len(scope["headers"]):  # some are repeated
            hosts = sum(name == b"host" for name, _ in scope["headers"])
        if hosts > 1 or (hosts == 0 and scope["http_version"] == "1.1"):
            text = f"the request has {hosts} headers 'Host'; send one"
            raise Refusal(400, "host", text)
        if self.token is None:
            if not is_local_name(headers.get(b"host", b"").decode("latin-1")):
                raise Refusal(
                    403,
                    "host",
                    "without a token, this server answers only under the names localhost, "
                    "127.0.0.1 and [::1]; start it with --token-file",
                )
        elif not self.token.accepts(headers.get(b"authorization", b"").decode("latin-1")):
            self._limit_strangers(scope)
        if scope["method"] == "POST" and not scope["path"].startswith(_ANY_TYPE):
            kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
            if kind != b"application/json":
                message = "send JSON, with the header 'Content-Type: application/json'"
                raise Refusal(415, "content_type", message)

    def _limit_strangers(self, scope: Scope) -> None:
        """Raise Refusal if a client without the token may not ask for this, or asks too often."""
        client, now = (scope.get("client") or ("",))[0], time.monotonic()
        wait = self._rate.wait(client, now)
        if wait:
            raise too_many("requests from this address", wait)
        if _is_open(scope):
            return
        wait = self._guesses.wait(client, now)
        if wait:
            raise too_many("wrong tokens from this address", wait)
        raise Refusal(
            401,
            "token",
            "the token is missing or wrong; send the header 'Authorization: Bearer TOKEN'",
            {"WWW-Authenticate": 'Basic realm="ephemeral-crawl", charset="UTF-8"'},
        )

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body of a request; an empty one where the route does not use it."""
        keep = not scope["path"].startswith(("/hooks/", "/healthz"))
        most = self.limits.body
        if _is_open(scope):
            most = min(most, _MOST_LISTED if scope["path"] == INDEXNOW else _MOST_OPEN)
        last = most if _is_open(scope) else _UNREAD * most
        size = dict(scope["headers"]).get(b"content-length", b"0")
        if not size.isdigit() or len(size) > 15 or int(size) > last:
            raise _too_large(most)
        parts, length = [], 0
        try:
            async with asyncio.timeout(self.limits.patience):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refusal(400, "gone", "the client left")
                    part = message.get("body", b"")
                    length += len(part)
                    if keep and length <= most:
                        parts.append(part)
                    is_last = not message.get("more_body")
                    if length > (most if is_last else last):
                        raise _too_large(most)
                    if is_last:
                        return b"".join(parts)
        except TimeoutError:
            text = f"the body did not arrive within {self.limits.patience:g} s"
            raise Refusal(408, "slow", text) from None


def _too_large(most: int) -> Refusal:
    message = f"the body is larger than {most} bytes; send smaller batches"
    return Refusal(413, "too_large", message)


def _is_open(scope: Scope) -> bool:
    """Return whether no token is needed."""
    return scope["path"] in ("/healthz", INDEXNOW) or scope["path"].startswith(_ANY_TYPE)


def too_many(requests: str, wait: float) -> Refusal:
    """Return the refusal of requests that came too often; `wait`: seconds until the next may."""
    return Refusal(429, "rate", f"too many {requests}; wait", {"Retry-After": str(math.ceil(wait))})


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a function that returns the body first, and later messages after it."""
    is_read = False

    async def again() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def strict_json(body: bytes) -> Any:
    """Parse JSON strictly.

    Raises:
        Refusal: it is not JSON, not UTF-8, nested too deeply, has numbers that JSON has not, or
            names an argument twice.

    >>> strict_json(b'{"limit": NaN}')
    Traceback (most recent call last):
    ...
    ephemeral_crawl.serve.errors.Refusal: the body is not JSON: NaN is not a number
    """
    try:
        return _DECODER.decode(body.decode("utf-8"))
    except RecursionError:
        message = "the body is nested too deeply"
    except UnicodeDecodeError:
        message = "the body is not UTF-8"
    except json.JSONDecodeError as error:
        message = f"the body is not JSON: {error.msg} at character {error.pos}"
    except ValueError as error:
        message = f"the body is not JSON: {error}"
    raise Refusal(400, "not_json", message)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # As for files of changes, but here: a request is seen through in few files.
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("an object has two values of the same name")
    return values


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number")


_DECODER = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_each_once)
