"""The HTTP client against servers that mean no good."""

import asyncio
import contextlib
import errno
import os
import re
import socket
import ssl
import sys
import threading
import time

import httpcore
import httpx
import pytest

from ephemeral_crawl.crawl.client import (
    Client,
    FetchError,
    NotAllowed,
    Response,
    _failure,
    certificates,
)
from ephemeral_crawl.live.arguments import retry_after
from experiments.live.over_http import WarpedClient, WarpedLoop
from tests.ephemeral_crawl.crawl.site import CERTIFICATE, Site, feed, message, packed

BOMB = packed(b"\0" * 50_000_000, 1)
NOW = 1_700_000_000.0


def get(answers, path="/", *, silence=0.0, host="127.0.0.1", form=None, secure=False, **options):
    """Return what the client makes of answers, each given by its path."""
    loop = WarpedLoop()
    site = Site(loop, secure=secure)

    async def main():
        async with (
            site.open(),
            WarpedClient(loop, **{"most_bytes": 1_000_000, **options}) as client,
        ):
            site.silence = silence
            site.answers = {
                p: a.replace(b"PORT", b"%d" % site.port) if isinstance(a, bytes) else a
                for p, a in answers.items()
            }
            url = site.url(path, host)
            return await (client.get(url) if form is None else client.post(url, form))

    return loop.run(main()), site


BAD = {
    "a bomb": (message(200, BOMB, Content_Encoding="gzip"), "more than 1,000,000 bytes"),
    "empty parts": (message(200, 20_001 * packed(b""), Content_Encoding="gzip"), "20,000 parts"),
    "too large": (message(200, b"x" * 1_000_001), "more than 1,000,000 bytes"),
    "cut off": (message(200, packed(feed(1))[:-9], Content_Encoding="gzip"), "cut off"),
    "damaged": (message(200, b"\x1f\x8bhello", Content_Encoding="gzip"), "document is damaged"),
    "other encoding": (message(200, b"x", Content_Encoding="br"), "was not asked for"),
    "two encodings": (message(200, b"x", Content_Encoding="gzip, gzip"), "was not asked for"),
    "gzip without a byte": (message(200, Content_Encoding="gzip", Content_Length="9"), "cut off"),
    "not HTTP": (b"SSH-2.0-OpenSSH_9.2\r\n", "closed the connection"),
    "nothing": (b"", "closed the connection without an answer"),
    "shorter than it says": (message(200, b"abc", Content_Length="10"), "the answer was cut off"),
    "endless headers": (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 200_000, "is not HTTP"),
    "a loop": (message(302, Location="/"), "more than 5 redirects"),
    "to a file": (message(301, Location="file:///etc/passwd"), "cannot be followed: redirect is"),
    "to no place": (message(302, Location="data:text/xml,x"), "redirect cannot be followed"),
    "to nowhere": (message(301, Location="http://:80/"), "cannot be followed"),
    "with credentials": (message(301, Location="http://a:geheim@127.0.0.1:PORT/"), "credentials"),
    "with control characters": (message(301, Location="/\x1b[2J"), ""),
}
KIND = {
    **dict.fromkeys(["cut off", "gzip without a byte", "shorter than it says"], "incomplete"),
    **dict.fromkeys(
        ["not HTTP", "nothing", "endless headers", "with control characters"], "connection"
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_answers_that_are_refused(name):
    answer, reason = BAD[name]
    with pytest.raises(FetchError) as error:
        get({"/": answer})
    assert reason in str(error.value)
    assert error.value.kind == KIND.get(name, "content")
    assert "geheim" not in str(error.value)


FAILURES = [
    (OSError(errno.ECONNREFUSED, "x"), "connection", "refuses connections"),
    (OSError(errno.ENETUNREACH, "x"), "connection", "no route"),
    (OSError("All connection attempts failed"), "connection", "no connection to the server"),
    (ssl.SSLCertVerificationError(1, "x"), "tls", "certificate is not valid: it has expired"),
    (ssl.SSLError(1, "[SSL: X] x (_ssl.c:1)"), "tls", "no secure connection"),
    (httpx.ProxyError("407 Proxy Authentication Required"), "connection", "the proxy refuses"),
]


@pytest.mark.parametrize(("cause", "kind", "words"), FAILURES)
def test_failures_are_told_without_the_words_of_libraries(cause, kind, words):
    if isinstance(cause, ssl.SSLCertVerificationError):
        cause.verify_code, cause.verify_message = 10, "certificate has expired"
    error = httpcore.ConnectError("All connection attempts failed")
    error.__cause__ = ExceptionGroup("all", [cause])
    failure = _failure(error)
    assert failure.kind == kind
    assert words in str(failure)
    assert not re.search(r"attempts|_ssl|Error|\[|\.$", str(failure))


def test_a_server_without_tls():
    loop = WarpedLoop()
    site = Site(loop)

    async def main():
        async with site.open(), WarpedClient(loop) as client:
            await client.get(site.url("/").replace("http:", "https:"))

    with pytest.raises(FetchError, match="no secure connection to the server") as error:
        loop.run(main())
    assert error.value.kind == "tls"


@pytest.fixture
def trusting(monkeypatch):
    """Return a function after which the authorities of a file are trusted, or of a folder."""
    for variable in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(variable, raising=False)

    def trust(path, variable="SSL_CERT_FILE"):
        monkeypatch.setenv(variable, str(path))
        certificates.cache_clear()

    certificates.cache_clear()
    yield trust
    certificates.cache_clear()


def test_authorities_that_the_environment_names_are_trusted(trusting):
    answers = {"/": message(200, feed(1))}
    with pytest.raises(FetchError, match="not signed by an authority, but by itself") as error:
        get(answers, secure=True)
    assert error.value.kind == "tls"
    trusting(CERTIFICATE)
    assert get(answers, secure=True)[0].body == feed(1)
    with pytest.raises(FetchError, match="certificate is not valid: it belongs to another host"):
        get(answers, secure=True, host="localhost")


def test_authorities_that_cannot_be_read_are_refused_at_the_start(trusting, tmp_path):
    for name, text in {"missing.pem": "there is no such file", "x.py": "in PEM format"}.items():
        (tmp_path / "x.py").write_text("no certificate")
        trusting(tmp_path / name)
        with pytest.raises(ValueError, match=text):
            Client()
    trusting(tmp_path / "missing", "SSL_CERT_DIR")
    trusting("")
    with pytest.raises(ValueError, match=r"SSL_CERT_DIR is .* there is no such folder"):
        Client()
    trusting(f"{tmp_path / 'missing'}{os.pathsep}{tmp_path}", "SSL_CERT_DIR")  # as for OpenSSL
    Client()
    trusting(tmp_path / "missing", "SSL_CERT_DIR")
    trusting(CERTIFICATE)  # by which the folders do not count
    Client()


def test_certificates_are_read_by_the_first_client_alone(monkeypatch):
    async def main():
        async with Client():
            monkeypatch.setattr("httpx.create_ssl_context", None)
            async with Client():
                pass

    asyncio.run(main())


def test_slow_servers_are_given_up():
    with pytest.raises(FetchError, match="no whole answer within 30 s") as error:
        get({"/": message(200, feed(1))}, silence=31.0)
    assert error.value.kind == "timeout"


def test_what_follows_a_gzipped_document_is_not_read():
    endless = message(200, packed(feed(1)) + b"x" * 400_000, Content_Encoding="gzip")
    assert get({"/": endless})[0].body == feed(1)
    nothing = packed(b"", 0)[:10] + b"\0\0\0\xff\xff" * 300_000  # empty blocks
    with pytest.raises(FetchError, match="more than 1,000,000 bytes"):
        get({"/": message(200, nothing, Content_Encoding="gzip")})


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", None),
        ("localhost", None),
        ("2130706433", None),
        ("[::ffff:127.0.0.1]", None),
        ("feed.example", "127.0.0.1"),
        ("feed.example", "10.0.0.1"),
        ("feed.example", "::1"),
    ],
)
def test_private_addresses_are_not_asked(host, address):
    async def resolve(name, port):
        return ["93.184.215.14", address or "127.0.0.1"]

    with pytest.raises(FetchError, match="not a public address"):
        get({}, host=host, allow_private=False, resolve=resolve)


def test_a_redirect_to_a_private_address_is_not_followed():
    async def resolve(name, port):
        return ["127.0.0.1"]

    import ephemeral_crawl.crawl.client as module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "is_public", lambda address: address != "169.254.169.254")
        with pytest.raises(FetchError, match="not a public address") as error:
            get(
                {"/": message(302, Location="http://169.254.169.254/latest/meta-data")},
                host="feed.example",
                allow_private=False,
                resolve=resolve,
            )
        assert not isinstance(error.value, NotAllowed)  # a request was made, which costs


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (OSError(socket.EAI_NONAME, "Name or service not known"), "dns"),
        (OSError(socket.EAI_AGAIN, "Temporary failure in name resolution"), "connection"),
        ([], "dns"),
        (["127.0.0.1"] * 3, "connection"),  # where nothing listens
    ],
)
def test_names_without_an_address(found, kind):
    async def resolve(name, port):
        if isinstance(found, OSError):
            raise found
        return found

    async def main():
        async with Client(allow_private=True, resolve=resolve) as client:
            return await client.get("http://no-such.example:1/")

    with pytest.raises(FetchError) as error:
        asyncio.run(main())
    assert error.value.kind == kind
    assert kind == "connection" or "no-such.example" in str(error.value)


def test_addresses_that_do_not_answer_leave_time_for_others(monkeypatch):
    """As where IPv6 is resolved, and a firewall drops it."""
    tried = []

    async def connect(self, host, port, timeout=None, *_):
        tried.append(host)
        if ":" in host:
            await asyncio.sleep(timeout)
            raise httpcore.ConnectTimeout
        raise httpcore.ConnectError from ConnectionRefusedError(errno.ECONNREFUSED, "x")

    async def resolve(name, port):
        return ["::2", "::3", "::4", "::5", "127.0.0.1"]

    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect)

    async def main():
        async with Client(allow_private=True, resolve=resolve, timeout=0.2) as client:
            await client.get("http://feed.example/")

    with pytest.raises(FetchError):
        asyncio.run(main())
    assert tried[:3] == ["::2", "127.0.0.1", "::3"]


def test_where_ipv6_does_not_answer_it_is_not_tried_first_again(monkeypatch):
    tried, connect = [], httpcore.AnyIOBackend.connect_tcp

    async def slow(self, host, port, timeout=None, *rest):
        tried.append(host)
        if ":" in host:
            raise httpcore.ConnectTimeout
        return await connect(self, host, port, timeout, *rest)

    async def resolve(name, port):
        return ["::2", "127.0.0.1"]

    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", slow)
    answers = {"/": message(302, Location="http://b.example:PORT/b"), "/b": message(200, feed(1))}
    assert get(answers, host="a.example", resolve=resolve)[0].body == feed(1)
    assert tried == ["::2", "127.0.0.1", "127.0.0.1"]


@pytest.mark.parametrize(
    "proxy",
    ["http://x:geheim@[::1", "socks5://x:geheim@a", "ftp://x:geheim@a", "x:geheim@a:99999"],
)
def test_proxies_that_cannot_be_used_are_refused_at_the_start(proxy, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.setitem(sys.modules, "socksio", None)
    with pytest.raises(ValueError, match="a proxy that the environment names") as error:
        Client(use_proxies=True)
    assert "geheim" not in str(error.value)


@pytest.mark.parametrize(
    ("variable", "end"), [("HTTP_PROXY", "; this may concern the proxy"), ("NO_PROXY", "")]
)
def test_a_failure_that_may_be_that_of_the_proxy_says_so(variable, end, monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv(variable, "http://user:geheim@127.0.0.1:1")

    async def main():
        async with Client(use_proxies=True, allow_private=True) as client:
            await client.get("http://127.0.0.1:1/")

    with pytest.raises(FetchError, match=f"refuses connections at this port{end}$"):
        asyncio.run(main())


def test_a_proxy_that_refuses_is_named_once(monkeypatch):
    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(message(407))
        writer.close()

    async def main():
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{port}")
        async with server, Client(use_proxies=True) as client:
            await client.get("https://feed.example/")

    with pytest.raises(FetchError, match=r"the proxy refuses to connect: 407 [^;]*$"):
        asyncio.run(main())


def test_name_servers_that_do_not_answer_hold_up_no_other_name(monkeypatch):
    silent, asked = threading.Event(), []

    def look(host, *_, **__):
        asked.append(host)
        if host != "living.example":
            silent.wait()
        return [(0, 0, 0, "", ("127.0.0.1", 1))]

    monkeypatch.setattr(socket, "getaddrinfo", look)

    async def main():
        async with Client(allow_private=True) as client:
            dead = [client.get(f"http://{i}.example/") for i in range(100)]
            tasks = [asyncio.create_task(get) for get in dead]
            while len(asked) < len(tasks):
                await asyncio.sleep(0)
            with pytest.raises(FetchError) as error:
                await client.get("http://living.example:1/")
            for task in tasks:
                task.cancel()
            return error.value.kind

    assert asyncio.run(main()) == "connection"
    silent.set()


def test_a_kept_connection_that_was_closed_is_opened_anew():
    """By a server that closes it after each answer, and does not say so; forms are sent once."""
    numbers = []  # of requests, of each connection

    async def handle(reader, writer):
        numbers.append(0)
        with contextlib.suppress(asyncio.IncompleteReadError):
            for _ in range(2):
                await reader.readuntil(b"\r\n\r\n")
                numbers[-1] += 1
                writer.write(b"" if numbers[-1] == 2 else message(200, feed(1)))
        writer.close()

    async def main():
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with server, Client(allow_private=True) as client:
            bodies = [(await client.get(url)).body for _ in range(2)]
            with pytest.raises(FetchError, match="closed the connection without an answer"):
                await client.post(url, b"x=1")
            return bodies

    assert asyncio.run(main()) == [feed(1)] * 2
    assert numbers == [2, 2]


def test_permanent_redirects_are_told_from_others():
    answers = {
        "/": message(301, Location="/b"),
        "/b": message(308, Location="/c"),
        "/c": message(200, feed(1)),
        "/d": message(308, Location="/e"),
        "/e": message(302, Location="/f"),
        "/f": message(301, Location="/c"),
        "/g": message(302, Location="/d"),
    }
    found = [(r.permanent or "").rpartition("/")[2] for r, _ in (get(answers, p) for p in answers)]
    assert found == ["c", "c", "", "e", "", "c", ""]
    assert get({"/": message(301)})[0].status == 301  # it says not where to


def test_addresses_of_redirects_are_encoded_where_servers_forget_to():
    answers = {"/": message(302, Location="/a b?c={d|e}"), "/a%20b?c=%7Bd%7Ce%7D": message(200)}
    assert get(answers)[0].status == 200


def test_a_form_is_sent_to_where_a_redirect_leads_only_if_that_keeps_the_method():
    answers = {"/a": message(302, Location="/c"), "/b": message(307, Location="/c")}
    answers["/c"] = message(202)
    assert [get(answers, path, form=b"x=1")[0].status for path in ("/a", "/b")] == [302, 202]


def test_gzip_cookies_and_what_is_sent():
    answers = {"/": message(200, packed(feed(1)), Content_Encoding="gzip", Set_Cookie="a=b")}
    response, site = get(answers, user_agent="robot/1 (mailto:me@example.org)")
    assert response.body == feed(1)
    ((_, headers),) = site.asked
    assert headers["user-agent"] == "robot/1 (mailto:me@example.org)"
    assert headers["accept-encoding"] == "gzip"
    assert not {"cookie", "if-none-match", "authorization"} & set(headers)


@pytest.mark.parametrize(
    ("body", "length"),
    [
        (packed(feed(1)[:50]) + packed(feed(1)[50:]), None),  # in several parts, as for gunzip
        (packed(feed(1)), 99_999),  # the length of what was packed
        (feed(1), None),  # not packed, whatever is said
    ],
)
def test_gzip_of_servers_that_are_not_exact(body, length):
    headers = {"Content_Length": str(length)} if length else {}
    assert get({"/": message(200, body, Content_Encoding="gzip", **headers)})[0].body == feed(1)


@pytest.mark.parametrize("parts", ["as one", "with an end in two", "with the length before it"])
def test_gzip_whose_stated_length_is_the_unpacked_one_on_a_connection_that_stays_open(parts):
    """It is read without waiting for what never comes."""
    body, ended = feed(1), asyncio.Event()
    whole, length = packed(body), len(body).to_bytes(4, "little")
    sent = {"as one": [whole], "with an end in two": [whole[:-2], whole[-2:]]}.get(parts)
    if sent is None:  # in a field of the header of gzip; the connection is closed then
        sent = [whole[:3] + b"\4" + whole[4:10] + b"\4\0" + length, whole[10:]]

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        head = {"Content_Encoding": "gzip", "Content_Length": str(len(body))}
        writer.write(message(200, b"", **head))
        for part in sent:
            writer.write(part)
            await asyncio.sleep(0.05)
        if parts != "with the length before it":
            await reader.read()
        writer.close()
        ended.set()

    async def main():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server, Client(allow_private=True, timeout=5.0) as client:
            port = server.sockets[0].getsockname()[1]
            response = await client.get(f"http://127.0.0.1:{port}/")
            await ended.wait()  # the connection is not kept
            return response

    assert asyncio.run(main()).body == body


@pytest.mark.parametrize("name", ["utf-8", "none", "aws-chunked", "gzip,aws-chunked", "X-GZIP"])
def test_encodings_that_name_no_compression(name):
    body = packed(feed(1)) if "gzip" in name.lower() else feed(1)
    assert get({"/": message(200, body, Content_Encoding=name)})[0].body == feed(1)


def test_names_that_are_none_are_said_to_be():
    with pytest.raises(FetchError, match="name of the host is not a valid one") as error:
        get({}, host="xn--0.example")
    assert error.value.kind == "dns"


def test_user_agents_that_would_add_headers():
    with pytest.raises(ValueError, match="printable"):
        Client(user_agent="a\r\nX: y")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        ("Tue, 14 Nov 2023 22:23:20 GMT", 600.0),
        ("Tue Nov 14 22:23:20 2023", 600.0),  # of asctime, which is in UTC
        ("Tue, 14 Nov 2023 22:23:20 -0000", 600.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Thu, 99 Foo 9999 00:00:00 GMT", None),
        ("-5", None),
        ("1e3", None),
        ("soon", None),
        ("", None),
        ("9" * 400, 31_536_000.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 31_536_000.0),
        ("٣", None),
    ],
)
def test_retry_after(text, seconds, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert retry_after(text, NOW) == seconds
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("max-age=600", 600.0),
        ("public, Max-Age = 60", 60.0),
        ("no-cache, max-age=600", 0.0),
        ("max-age=600, No-Store", 0.0),
        ("s-maxage=600", 0.0),
        ("max-age=-1", 0.0),
        ("max-age=soon", 0.0),
        ("", 0.0),
    ],
)
def test_cache_control(text, seconds):
    assert Response(200, {"cache-control": text}, b"", "", None).max_age == seconds


def test_the_age_of_an_answer_counts():
    headers = {"cache-control": "max-age=600", "age": "100"}
    assert Response(200, headers, b"", "", None).max_age == 500.0
