"""The HTTP client: conditional requests for documents of limited size, in limited time, from public
addresses.

An address is resolved once, checked, and then connected to, so that a name that leads to another
address the second time gains nothing. Redirects are followed here, each checked as the first URL
is. Cookies are not kept.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address
from itertools import zip_longest
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies

import httpcore
import httpx

from crawl_env import __version__
from crawl_env.errors import shown
from ephemeral_crawl.crawl.documents import GZIP, CutOff, unpacked
from ephemeral_crawl.crawl.urls import ENCODED, check_url, is_public
from ephemeral_crawl.live.reasons import Kind

USER_AGENT = f"ephemeral-crawl/{__version__}"
MOST_BYTES = 10 << 20  # of a document, unpacked
_MOST_REDIRECTS = 5
_MOST_ADDRESSES = 4  # of a name that are tried
_LONGEST_FIELD = 1000  # characters of an ETag that is kept
_REDIRECTS = (301, 302, 303, 307, 308)
_REDIRECTS_OF_FORMS = (307, 308)
_PERMANENT = (301, 308)
_PACKED = frozenset(("gzip", "x-gzip", "deflate", "compress", "x-compress", "br", "zstd"))
_MAX_AGE = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?(\d{1,10})", re.ASCII | re.IGNORECASE)

Resolve = Callable[[str, int], Awaitable[list[str]]]


class FetchError(Exception):
    """A document could not be fetched; the message says why.

    Attributes:
        kind: one of `reasons.KINDS`: "dns": the name has no address; "connection": there is none,
            or it broke off; "timeout"; "tls": there is no secure connection; "http": the status is
            not that of a document; "incomplete": the answer was cut off; "content": it cannot be
            read, or is too large; "format": it is not a feed; "refused": by this program, such as a
            redirect to an address that is not public.
    """

    def __init__(self, kind: Kind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class NotAllowed(FetchError):
    """The URL or its address may not be fetched, so that nothing was requested."""


@dataclass(frozen=True)
class Response:
    """What a server answered, after redirects."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    url: str
    permanent: str | None  # where the document has moved for good, if it has
    received: int = 0  # bytes of the headers and of the body as it was sent, redirects included

    @property
    def is_document(self) -> bool:
        """Whether it is a whole document: others of 2xx have none, or, 206, a part, which nobody
        asked for."""
        return self.status in (200, 203)

    @property
    def etag(self) -> str:
        return self._field("etag")

    @property
    def modified(self) -> str:
        return self._field("last-modified")

    def _field(self, name: str) -> str:
        """Return a field for the next request; "" if it could not be sent again as it is."""
        text = self.headers.get(name, "")
        return text if len(text) <= _LONGEST_FIELD and text.isascii() else ""

    @property
    def max_age(self) -> float:
        """Seconds for which the answer is fresh, by Cache-Control; 0 if it does not say."""
        control = self.headers.get("cache-control", "")
        match = _MAX_AGE.search(control)
        if not match or "no-cache" in control.lower() or "no-store" in control.lower():
            return 0.0
        age = self.headers.get("age", "")
        return max(float(match[1]) - (float(age) if age.isdecimal() and len(age) < 10 else 0), 0.0)


class Client:
    """Fetches documents.

    Arguments:
        timeout: seconds for a document, redirects included.
        most_bytes: size of a document, unpacked.
        allow_private: whether addresses that are not public may be fetched: loopback, private
            networks, link-local ones.
        user_agent: what servers are told.
        use_proxies: whether proxies named by the environment are used. They resolve names
            themselves, so that only addresses that a URL states are checked.
        resolve: function that returns the addresses of a name, instead of the system's.

    Raises:
        ValueError: the user agent cannot be sent, or what the environment names cannot be used:
            a proxy, or authorities (`SSL_CERT_FILE`, `SSL_CERT_DIR`).
    """

    def __init__(
        self,
        *,
        timeout: float = 30.0,
        most_bytes: int = MOST_BYTES,
        allow_private: bool = False,
        user_agent: str = USER_AGENT,
        use_proxies: bool = False,
        resolve: Resolve | None = None,
    ) -> None:
        if not (user_agent.isascii() and user_agent.isprintable() and user_agent.strip()):
            raise ValueError(f"user agent is {shown(user_agent)}; give printable ASCII text")
        self._timeout, self._most, self._private = timeout, most_bytes, allow_private
        self.user_agent = user_agent
        proxies = getproxies() if use_proxies else {}
        self._has_proxies = bool(proxies.keys() - {"no"})
        authorities = certificates()
        guard = None if use_proxies else _Transport(allow_private, resolve or _resolve)
        try:
            for name in proxies.keys() & {"http", "https", "all"}:
                _ = urlsplit(f"//{proxies[name].rpartition('//')[2]}").port  # it is a number
            self._client = httpx.AsyncClient(
                transport=guard,
                verify=authorities,
                trust_env=use_proxies,
                timeout=timeout,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                headers={"User-Agent": user_agent, "Accept-Encoding": "gzip"},
            )
        except (httpx.InvalidURL, ValueError, ImportError) as error:
            text = f"a proxy that the environment names cannot be used: {error}"
            raise ValueError(text) from None

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def get(self, url: str, etag: str = "", modified: str = "") -> Response:
        """Return what the server of a URL answers.

        Arguments:
            etag, modified: those of the answer before, for a conditional request.

        Raises:
            NotAllowed: the URL is refused before any request.
            FetchError: there was no answer, or one that is refused.
        """
        headers = {
            "Accept": "application/atom+xml, application/rss+xml, application/xml;q=0.9, */*;q=0.5"
        }
        if etag:
            headers["If-None-Match"] = etag
        if modified:
            headers["If-Modified-Since"] = modified
        return await self._ask(url, headers)

    async def post(self, url: str, form: bytes) -> Response:
        """Return what the server of a URL answers to a form, as browsers encode it.

        Raises:
            NotAllowed, FetchError: as for `get`.
        """
        return await self._ask(url, {"Content-Type": "application/x-www-form-urlencoded"}, form)

    async def _ask(self, url: str, headers: dict[str, str], form: bytes | None = None) -> Response:
        try:
            url = check_url(url)
        except ValueError as error:
            raise NotAllowed("refused", str(error)) from None
        try:
            async with asyncio.timeout(self._timeout):
                return await self._follow(url, headers, form)
        except _TIMEOUTS:
            raise FetchError("timeout", f"no whole answer within {self._timeout:g} s") from None
        except _ERRORS as error:
            failure = _failure(error)
            is_named = isinstance(error, httpx.ProxyError)
            if self._has_proxies and failure.kind == "connection" and not is_named:
                failure = FetchError("connection", f"{failure}; this may concern the proxy")
            raise failure from None

    async def _follow(
        self, url: str, headers: dict[str, str], form: bytes | None = None
    ) -> Response:
        permanent, permanent_url, received = True, None, 0
        for hop in range(_MOST_REDIRECTS + 1):
            try:
                self._check(url)
                method = "GET" if form is None else "POST"
                request = self._client.build_request(method, url, headers=headers, content=form)
                answer = await self._send(request)
            except _NotPublic as error:
                raise (FetchError if hop else NotAllowed)("refused", str(error)) from None
            received += sum(len(name) + len(value) + 4 for name, value in answer.headers.raw)
            try:
                target = answer.headers.get("location")
                redirects = _REDIRECTS if form is None else _REDIRECTS_OF_FORMS
                if answer.status_code not in redirects or not target:
                    body = b""
                    if 200 <= answer.status_code < 300:
                        body, size = await self._body(answer)
                        received += size
                    return Response(
                        answer.status_code,
                        {name.lower(): value for name, value in answer.headers.items()},
                        body,
                        url,
                        permanent_url,
                        received,
                    )
            finally:
                await answer.aclose()
            permanent = permanent and answer.status_code in _PERMANENT
            url = _target(url, target)
            if permanent:
                permanent_url = url
        raise FetchError("content", f"more than {_MOST_REDIRECTS} redirects")

    async def _send(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and again if a connection that was kept turns out to be closed: servers
        may close it at any time, and many say nothing of it (RFC 9112, 9.3.1)."""
        is_new = False

        async def note(event: str, _: object) -> None:
            nonlocal is_new
            is_new = is_new or "connect_tcp" in event

        request.extensions = {**request.extensions, "trace": note}
        while True:
            try:
                return await self._client.send(request, stream=True, follow_redirects=False)
            except _LOST:
                if is_new or request.method != "GET":
                    raise

    def _check(self, url: str) -> None:
        """Refuse addresses that are not public, also where a proxy would resolve the name."""
        host = urlsplit(url).hostname or ""
        try:
            ip_address(host)
        except ValueError:
            return
        if not (self._private or is_public(host)):
            raise _NotPublic(host)

    async def _body(self, answer: httpx.Response) -> tuple[bytes, int]:
        """Return the body of an answer, unpacked, and the number of bytes that were sent."""
        encoding = answer.headers.get("content-encoding", "").strip().lower()
        # Many servers name what is no compression here, such as "utf-8", "none", "aws-chunked".
        packings = [name for name in map(str.strip, encoding.split(",")) if name in _PACKED]
        if packings not in ([], ["gzip"], ["x-gzip"]):
            raise FetchError("content", f"the encoding {shown(encoding)} was not asked for")
        # Of gzip, many servers state the unpacked length, which gzip ends with, and keep connected.
        length = answer.headers.get("content-length", "") if packings else ""
        end = (int(length) % 2**32).to_bytes(4, "little") if length.isdecimal() else None
        body = bytearray()
        try:
            async for part in answer.aiter_raw():
                body += part
                if len(body) > self._most:
                    raise FetchError("content", f"the document has more than {self._most:,} bytes")
                if end and body.endswith(end):
                    with suppress(CutOff):  # where these bytes are there by chance
                        return unpacked(bytes(body), self._most), len(body)
                    end = None
        except _LOST:  # gzip tells whether it is whole, whatever length is stated
            if not (packings and body.startswith(GZIP)):
                raise
        whole = bytes(body)
        return unpacked(whole, self._most) if packings else whole, len(whole)


def _target(url: str, location: str) -> str:
    """Return the URL to which a redirect leads, percent-encoded where servers forget to."""
    try:
        return check_url(urljoin(url, location.strip().translate(ENCODED)), "redirect")
    except ValueError as error:
        reason = str(error).partition(";")[0]
        raise FetchError("content", f"the redirect cannot be followed: {reason}") from None


class _NotKnown(httpcore.ConnectError):
    """A name without an address, or about which nothing could be learnt; the message says so."""

    def __init__(self, kind: Kind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


_LOST = (
    *(httpcore.NetworkError, httpcore.RemoteProtocolError),
    *(httpx.NetworkError, httpx.RemoteProtocolError),
)
_TIMEOUTS = (TimeoutError, httpcore.TimeoutException, httpx.TimeoutException)
_BROKEN = (
    OSError,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ConnectionNotAvailable,
    httpx.TransportError,
)
_ERRORS = (
    *(*_TIMEOUTS, *_BROKEN, httpcore.UnsupportedProtocol, ValueError),
    *(httpx.HTTPError, httpx.InvalidURL, httpx.StreamError),
)


def _failure(error: BaseException) -> FetchError:
    """Return what an error of a request means, in words that need no knowledge of the libraries."""
    for cause in _causes(error):
        match cause:
            case _NotKnown():
                return FetchError(cause.kind, str(cause))
            case ssl.SSLCertVerificationError():
                reason = _INVALID.get(cause.verify_code) or cause.verify_message
                return FetchError("tls", f"the server's certificate is not valid: {reason}")
            case ssl.SSLError():
                reason = getattr(cause, "reason", None) or "the server does not keep to TLS"
                text = f"no secure connection to the server: {reason.lower().replace('_', ' ')}"
                return FetchError("tls", text)
            case httpx.ProxyError():
                return FetchError("connection", f"the proxy refuses to connect: {cause}")
            case OSError(errno=number) if number in _MEANINGS:
                return FetchError("connection", _MEANINGS[number])
    match error:
        case httpx.ConnectError() | httpcore.ConnectError():
            return FetchError("connection", "no connection to the server")
        case httpx.RemoteProtocolError() | httpcore.RemoteProtocolError() if "disconnected" in str(
            error
        ):
            return FetchError("connection", "the server closed the connection without an answer")
        case httpx.RemoteProtocolError() | httpcore.RemoteProtocolError():
            if "closed connection" in str(error):
                return FetchError("incomplete", "the answer was cut off")
            return FetchError("connection", "the answer is not HTTP")
        case httpx.InvalidURL():  # that of the request was checked
            return FetchError("content", "the redirect cannot be followed: it leads to no URL")
        case UnicodeError():  # of the names of hosts
            return FetchError("dns", "the name of the host is not a valid one")
        case CutOff():
            return FetchError("incomplete", str(error))
    if isinstance(error, _BROKEN):
        return FetchError("connection", "the connection to the server broke off")
    return FetchError("content", str(error)[:300] or "the answer cannot be read")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Return an error and those that caused it."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        else:
            error = error.__cause__ or error.__context__


_MEANINGS = {
    errno.ECONNREFUSED: "the server refuses connections at this port",
    errno.ECONNRESET: "the server broke off the connection",
    errno.EPIPE: "the server broke off the connection",
    errno.EHOSTUNREACH: "no route to the server",
    errno.ENETUNREACH: "no route to the server",
    errno.EMFILE: "this program has too many files open; lower --parallel",
}


# What is wrong with certificates, by the numbers of OpenSSL.
_INVALID = {
    9: "it becomes valid later",
    10: "it has expired",
    18: "it is not signed by an authority, but by itself",
    **dict.fromkeys(
        (2, 19, 20, 21),
        "no trusted authority has signed it, or the server omits certificates in between",
    ),
    **dict.fromkeys((62, 64), "it belongs to another host"),
}


async def _resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a name, by the system's resolver.

    It can take half a minute, and cannot be stopped. In a thread of its own it delays neither other
    names nor the end of the program.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def tell(result: list[str] | OSError) -> None:
        if answer.done():  # given up
            return
        if isinstance(result, OSError):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    def look() -> None:
        result: list[str] | OSError
        try:
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            result = list(dict.fromkeys(str(address[0]) for *_, address in addresses))
        except OSError as error:
            result = error
        except ValueError as error:  # the name is not one
            result = OSError(None, str(error))
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(tell, result)

    threading.Thread(target=look, daemon=True).start()
    return await answer


def _by_turns(addresses: Sequence[str]) -> list[str]:
    """Return addresses of IPv4 and IPv6 by turns, each kind in its order.

    >>> _by_turns(["::1", "::2", "127.0.0.1", "::3"])
    ['::1', '127.0.0.1', '::2', '::3']
    """
    kinds: dict[bool, list[str]] = {}
    for address in addresses:
        kinds.setdefault(":" in address, []).append(address)
    return [a for turn in zip_longest(*kinds.values()) for a in turn if a is not None]


class _NotPublic(httpcore.ConnectError):
    def __init__(self, host: str) -> None:
        super().__init__(f"{host} is not a public address; --allow-private permits it")


class _Backend(httpcore.AsyncNetworkBackend):
    """Connects to addresses that were checked."""

    def __init__(self, allow_private: bool, resolve: Resolve) -> None:
        self._private, self._resolve = allow_private, resolve
        self._inner = httpcore.AnyIOBackend()
        self._prefers_ipv6: bool | None = None  # the kind that answered after one that did not

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            addresses = await self._resolve(host, port)
        except OSError as error:
            if error.errno == socket.EAI_AGAIN:  # which may be our own name server's fault
                text = f"the name server did not answer about {host}"
                raise _NotKnown("connection", text) from None
            raise _NotKnown("dns", f"the name {host} does not resolve") from None
        if not self._private and not all(map(is_public, addresses)):
            raise _NotPublic(host)
        failure: Exception = _NotKnown("dns", f"the name {host} has no address")
        addresses = _by_turns(addresses)[:_MOST_ADDRESSES]
        # Where a network drops what is sent by IPv6, there is time left for IPv4, which is then
        # tried first, at all hosts.
        share = timeout and timeout / max(len(addresses), 1)
        for address in sorted(addresses, key=lambda a: (":" in a) != self._prefers_ipv6):
            try:
                stream = await self._inner.connect_tcp(
                    address, port, share, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
                continue
            if isinstance(failure, httpcore.ConnectTimeout):
                self._prefers_ipv6 = ":" in address
            return stream
        raise failure

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        raise httpcore.ConnectError("sockets in the file system are not fetched from")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Stream(httpx.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


@cache
def certificates() -> ssl.SSLContext:
    """Return the authorities that are trusted, which take 30 ms to read: those of certifi, or of
    the file or, without one, the folders that the environment names, as for OpenSSL and curl.

    Raises:
        ValueError: that cannot be read.
    """
    file, folders = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file and not os.path.isfile(file):
        raise ValueError(f"SSL_CERT_FILE is {shown(file)}, but there is no such file")
    if folders and not file and not any(map(os.path.isdir, folders.split(os.pathsep))):
        raise ValueError(f"SSL_CERT_DIR is {shown(folders)}, but there is no such folder")
    try:
        return httpx.create_ssl_context()
    except OSError:  # ssl.SSLError is one
        raise ValueError(
            f"SSL_CERT_FILE is {shown(file)}, which has no certificates in PEM format, or cannot "
            "be read"
        ) from None


class _Transport(httpx.AsyncBaseTransport):
    """Sends requests over connections to checked addresses."""

    def __init__(self, allow_private: bool, resolve: Resolve) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=certificates(),
            max_connections=None,  # the crawler limits them
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=_Backend(allow_private, resolve),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        answer = await self._pool.handle_async_request(
            httpcore.Request(
                request.method,
                url,
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(
            answer.status,
            headers=answer.headers,
            stream=_Stream(answer.stream),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        await self._pool.aclose()
