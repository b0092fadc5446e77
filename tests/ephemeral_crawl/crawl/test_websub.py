"""Subscriptions at a hub on loopback: asked for, verified, signed, renewed and ended."""

import asyncio
import contextlib
import hmac
import re
import sqlite3
from urllib.parse import parse_qs, urlencode

import pytest

from ephemeral_crawl.crawl import websub
from ephemeral_crawl.crawl.client import Client, FetchError, Response
from ephemeral_crawl.crawl.command import CrawlFeeds
from ephemeral_crawl.crawl.feeds import parse_feed
from ephemeral_crawl.crawl.websub import ACTIVE, ASKED, LEASE, NONE, NotYet, Subscriptions
from ephemeral_crawl.live import Scheduler
from tests.ephemeral_crawl.crawl.site import feed, message
from tests.ephemeral_crawl.crawl.test_crawler import Bench
from tests.refusals import refused

FEED, TOPIC = "https://example.org/feed", "https://example.org/feed.xml"


class Hub:
    """A hub, the program that subscribes to it, and a clock; `asked` holds what it was sent."""

    def __init__(self, allow_private=True):
        self.now, self.status, self.asked = 1e9, 202, []
        self.sources, self.pings = {FEED}, []
        self.client = Client(allow_private=allow_private, timeout=5.0)

    @contextlib.asynccontextmanager
    async def open(self):
        async def handle(reader, writer):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].split()[0])
            body = (await reader.readexactly(length)).decode()
            self.asked.append({name: value for name, (value,) in parse_qs(body).items()})
            writer.write(message(self.status))
            await writer.drain()
            writer.close()

        async def is_source(name):
            return name in self.sources

        async def ping(name):
            self.pings.append(name)

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        self.subscriptions = Subscriptions(
            ":memory:", "http://127.0.0.1:9/own/", self.client, is_source, ping, lambda: self.now
        )
        answering = await websub.listen(self.subscriptions, "127.0.0.1", 0, patience=1.0)
        self.port = answering.sockets[0].getsockname()[1]
        async with self.client:
            yield self
        server.close()
        answering.close()
        self.subscriptions.close()

    async def send(self, method, key, body=b"", lines="", path="/websub/", **query):
        """Send a request to the subscriber; return status and text of the answer."""
        words = urlencode({f"hub.{name}": value for name, value in query.items()})
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"{method} {path}{key}?{words} HTTP/1.1\r\nHost: me\r\n{lines}"
        length = (
            "" if "length" in lines or "chunked" in lines else f"Content-Length: {len(body)}\r\n"
        )
        writer.write(f"{head}{length}\r\n".encode() + body)
        answer = (await reader.read()).decode()
        writer.close()
        return int(answer.split()[1]), answer.partition("\r\n\r\n")[2]

    @property
    def key(self):
        return self.asked[-1]["hub.callback"].removeprefix("http://127.0.0.1:9/own/websub/")

    async def subscribe(self, lease=1000):
        self.subscriptions.note_hub(FEED, self.url, TOPIC)
        await self.subscriptions.round()
        asked = {"mode": "subscribe", "topic": TOPIC, "challenge": "abc", "lease_seconds": lease}
        assert await self.send("GET", self.key, **asked) == (200, "abc")


def run(test, **options):
    async def main():
        async with Hub(**options).open() as hub:
            await test(hub)

    asyncio.run(main())


def test_a_subscription_is_asked_for_verified_renewed_and_ended():
    async def test(hub):
        await hub.subscribe()
        (asked,) = hub.asked
        assert (asked["hub.mode"], asked["hub.topic"]) == ("subscribe", TOPIC)
        assert float(asked["hub.lease_seconds"]) == LEASE
        assert len(asked["hub.secret"]) > 30
        known = hub.subscriptions.of(FEED)
        assert (known.state, known.again) == (ACTIVE, hub.now + 800)
        hub.subscriptions.note_hub(FEED, hub.url, TOPIC)  # as before
        await hub.subscriptions.round()
        assert len(hub.asked) == 1
        hub.now += 801  # the lease is about to end
        await hub.subscriptions.round()
        assert hub.asked[1] == asked
        hub.sources.clear()
        hub.now += 3601
        await hub.subscriptions.round()
        assert hub.asked[2]["hub.mode"] == "unsubscribe"
        ended = {"mode": "unsubscribe", "topic": TOPIC, "challenge": "x"}
        assert await hub.send("GET", hub.key, **ended) == (200, "x")
        assert hub.subscriptions.of(FEED) is None
        assert (await hub.send("GET", hub.key, **ended))[0] == 404

    run(test)


def test_a_proxy_may_leave_or_remove_the_path_of_the_public_address():
    async def test(hub):
        hub.subscriptions.note_hub(FEED, hub.url, TOPIC)
        await hub.subscriptions.round()
        meant = {"mode": "subscribe", "topic": TOPIC, "challenge": "abc"}
        for path in ("/websub/", "/own/websub/"):
            assert await hub.send("GET", hub.key, path=path, **meant) == (200, "abc")
        assert (await hub.send("GET", hub.key, path="/own/", **meant))[0] == 404

    run(test)


def test_a_hub_that_denies_what_it_has_confirmed_is_asked_again_after_a_while():
    async def test(hub):
        await hub.subscribe()
        assert await hub.send("GET", hub.key, mode="denied", topic=TOPIC) == (200, "")
        known = hub.subscriptions.of(FEED)
        assert (known.again, known.failures) == (hub.now + 600.0, 1)

    run(test)


@pytest.mark.parametrize(
    ("lease", "believed"),
    [("60", 300.0), ("1e12", 90 * 86_400.0), ("-5", LEASE), ("nan", LEASE), ("soon", LEASE)],
)
def test_leases_that_are_not_believed(lease, believed):
    async def test(hub):
        await hub.subscribe(lease)
        assert hub.subscriptions.of(FEED).again - hub.now == pytest.approx(0.8 * believed)

    run(test)


def test_what_was_not_asked_for_is_refused(monkeypatch):
    monkeypatch.setattr(websub, "_MOST_CONNECTIONS", 1)  # at once

    async def test(hub):
        hub.subscriptions.note_hub(FEED, hub.url, TOPIC)
        await hub.subscriptions.round()
        meant = {"mode": "subscribe", "topic": TOPIC, "challenge": "abc"}
        for other in ({"topic": FEED}, {"mode": "unsubscribe"}, {"mode": "publish"}):
            assert (await hub.send("GET", hub.key, **{**meant, **other}))[0] == 404
        assert (await hub.send("GET", "guess", **meant))[0] == 404
        assert hub.subscriptions.of(FEED).state == ASKED
        assert await hub.send("GET", hub.key, mode="denied", topic=TOPIC) == (200, "")
        assert hub.subscriptions.of(FEED).again > hub.now
        assert (await hub.send("PUT", hub.key))[0] == 405
        packed = "Transfer-Encoding: gzip, chunked\r\n"
        assert (await hub.send("POST", hub.key, lines=packed))[0] == 411
        assert (await hub.send("GET", "x" * 40_000))[0] == 431
        reader, writer = await asyncio.open_connection("127.0.0.1", hub.port)
        writer.write(b"GET //[ HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 404")
        writer.close()

    run(test)


@pytest.mark.parametrize("method", ["sha1", "sha256", "sha512"])
def test_only_notices_that_are_signed_are_pings(method):
    async def test(hub):
        await hub.subscribe()
        secret, body = hub.asked[0]["hub.secret"], b"<feed/>"

        def signed(secret, body=body):
            digest = hmac.new(secret.encode(), body, method).hexdigest()
            return f"X-Hub-Signature: {method}={digest}\r\n"

        for lines in ("", signed("other"), signed(secret, b"other"), "X-Hub-Signature: md5=0\r\n"):
            assert (await hub.send("POST", hub.key, body, lines))[0] == 202
        assert hub.pings == []
        assert (await hub.send("POST", hub.key, body, signed(secret)))[0] == 202
        assert hub.pings == [FEED]
        chunked = "Transfer-Encoding: chunked\r\n"
        chunks = [b"4;a=b\r\n<fee\r\n", b"003\r\nd/>\r\n", b"0\r\nX: y\r\n\r\n"]
        lines = chunked + signed(secret)
        assert (await hub.send("POST", hub.key, b"".join(chunks), lines))[0] == 202
        assert hub.pings == [FEED, FEED]
        del hub.pings[0]
        for text in (b"\r\n", b"-1\r\n", b"x\r\n"):
            assert (await hub.send("POST", hub.key, text, lines))[0] == 400
        chunks = b"80000\r\n" + b"x" * 0x80000 + b"\r\n"
        assert (await hub.send("POST", hub.key, 3 * chunks, lines))[0] == 413
        assert (await hub.send("POST", "guess", body, signed(secret)))[0] == 410
        large = f"content-length: {websub.MOST_BYTES + 1}\r\n"
        assert (await hub.send("POST", hub.key, lines=large))[0] == 413
        assert hub.pings == [FEED]

    run(test)


@pytest.mark.parametrize(("status", "first"), [(503, 600.0), (202, 3600.0)])
def test_a_hub_that_fails_or_never_asks_back_is_asked_more_and_more_rarely(status, first, caplog):
    async def test(hub):
        hub.status = status
        hub.subscriptions.note_hub(FEED, hub.url, TOPIC)
        waits = []
        for _ in range(10):
            await hub.subscriptions.round()
            waits.append(hub.subscriptions.of(FEED).again - hub.now)
            hub.now += waits[-1]
        assert waits[:3] == [first, 2 * first, 4 * first]
        assert waits[-1] == 86_400.0
        hub.sources.clear()
        await hub.subscriptions.round()
        assert hub.subscriptions.of(FEED) is None
        assert len(hub.asked) == 10

    run(test)
    unreached = [text for text in caplog.messages if "check that hubs can reach" in text]
    assert len(unreached) == (status == 202)


def test_hubs_at_private_addresses_are_not_asked():
    async def test(hub):
        hub.subscriptions.note_hub(FEED, hub.url, TOPIC)
        await hub.subscriptions.round()
        assert hub.asked == []
        assert hub.subscriptions.of(FEED).failures == 1

    run(test, allow_private=False)


def test_a_feed_that_names_another_hub_or_none_has_another_subscription_or_none():
    async def test(hub):
        await hub.subscribe()
        first = hub.key
        hub.subscriptions.note_hub(FEED, hub.url, FEED)
        await hub.subscriptions.round()
        modes = {asked["hub.topic"]: asked["hub.mode"] for asked in hub.asked[1:]}
        assert modes == {FEED: "subscribe", TOPIC: "unsubscribe"}
        assert (await hub.send("POST", first))[0] == 410
        ended = {"mode": "unsubscribe", "topic": TOPIC, "challenge": "x"}
        assert await hub.send("GET", first, **ended) == (200, "x")
        assert (await hub.send("GET", first, **ended))[0] == 404
        hub.subscriptions.note_hub(FEED, "", "")
        await hub.subscriptions.round()
        assert hub.asked[-1]["hub.mode"] == "unsubscribe"
        hub.now += 3601
        await hub.subscriptions.round()  # which the hub does not confirm
        assert (hub.subscriptions.of(FEED), len(hub.asked)) == (None, 4)
        hub.subscriptions.note_hub("other", "", "")
        assert hub.subscriptions.of("other").state == NONE
        assert not hub.subscriptions.wants("other")
        hub.now += 8 * 86_400
        await hub.subscriptions.round()
        assert hub.subscriptions.wants("other")

    run(test)


def subscriptions(post, **options):
    """Return subscriptions whose requests to hubs a function answers, and a clock."""

    class Hubs:
        async def post(self, hub, body):
            form = {name: value for name, (value,) in parse_qs(body.decode()).items()}
            return await post(hub, form)

    async def is_source(name):
        return True

    now = [1e9]
    return Subscriptions(
        ":memory:", "http://me.example", Hubs(), is_source, None, lambda: now[0], **options
    ), now


def test_a_hub_that_is_slow_or_fails_keeps_no_other_waiting():
    asked, go_on = [], asyncio.Event()

    async def post(hub, form):
        asked.append((hub, form["hub.topic"]))
        if "slow" in hub:
            await go_on.wait()
        return Response(503 if "bad" in hub else 202, {}, b"", hub, None)

    async def main():
        live, _ = subscriptions(post)
        for kind in ("slow", "bad", "good"):
            for k in range(3):
                live.note_hub(f"{kind}{k}", f"https://{kind}.example/", f"https://a.example/{k}")
        under_way = asyncio.create_task(live.round())
        while sum("good" in hub for hub, _ in asked) < 3:
            await asyncio.sleep(0)
        others = sorted(hub for hub, _ in asked if "good" not in hub)
        assert others == ["https://bad.example/", "https://slow.example/"]  # once each
        go_on.set()
        await under_way
        assert sum("slow" in hub for hub, _ in asked) == 3

    asyncio.run(asyncio.wait_for(main(), 60.0))


def test_a_hub_that_has_changed_is_noticed_before_the_subscription_is_renewed():
    asked, names = [], ["https://old.example/", FetchError("http", "HTTP 503")]
    names.append("https://new.example/")

    async def post(hub, form):
        asked.append((form["hub.mode"], hub))
        if form["hub.mode"] == "subscribe":
            key = form["hub.callback"].rpartition("/")[2]
            query = {"hub.mode": "subscribe", "hub.topic": TOPIC, "hub.lease_seconds": "1000"}
            live.verify(key, query)
        return Response(202, {}, b"", hub, None)

    async def look(source):
        hub = names.pop(0)
        if isinstance(hub, FetchError):
            raise hub
        return hub, TOPIC

    async def main():
        live.note_hub(FEED, "https://old.example/", TOPIC)
        for _ in range(5):
            await live.round()
            now[0] += 801.0 if len(names) else 1.0

    live, now = subscriptions(post, look=look)
    asyncio.run(main())
    assert asked[:3] == [("subscribe", "https://old.example/")] * 3
    assert sorted(asked[3:]) == [
        ("subscribe", "https://new.example/"),
        ("unsubscribe", "https://old.example/"),
    ]


def test_a_file_of_subscriptions_that_is_locked_is_waited_for(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(websub, "_PATIENCE", 0.0)
    known = Subscriptions(tmp_path / "hubs", "https://me.example", Client(), None, None)
    bench = Bench(subscriptions=known)
    other = sqlite3.connect(tmp_path / "hubs", isolation_level=None)

    def answer(headers):
        other.execute("BEGIN IMMEDIATE")
        bench.loop.call_later(60.0, other.execute, "ROLLBACK")
        return message(200, NAMING["rss"])

    bench.site.answers["/a"] = answer
    bench.run(0.5, "/a")
    assert f"{tmp_path / 'hubs'} is locked" in caplog.text
    assert known.of(bench.site.url("/a")).topic == TOPIC
    known.close()
    other.close()


def test_hubs_of_one_host_are_asked_one_after_the_other():
    under_way, most = set(), []

    async def post(hub, form):
        under_way.add(hub)
        most.append(len(under_way))
        await asyncio.sleep(0.0)
        under_way.remove(hub)
        return Response(202, {}, b"", hub, None)

    live, _ = subscriptions(post)
    for k in range(30):
        live.note_hub(str(k), f"https://h{k}.hub.example/", f"https://a.example/{k}")
    asyncio.run(live.round())
    assert most == [1] * 20


def test_a_renewal_waits_until_the_host_of_its_source_may_be_asked():
    asked, waits = [], [40.0, None]

    async def post(hub, form):
        asked.append(hub)
        live.verify(form["hub.callback"].rpartition("/")[2], {
            "hub.mode": "subscribe", "hub.topic": TOPIC, "hub.lease_seconds": "1000"
        })  # fmt: skip
        return Response(202, {}, b"", hub, None)

    async def look(source):
        if wait := waits.pop(0):
            raise NotYet(wait)
        return "https://hub.example/", TOPIC

    live, now = subscriptions(post, look=look)
    live.note_hub(FEED, "https://hub.example/", TOPIC)
    times = []
    for _ in range(3):
        asyncio.run(live.round())
        times.append(len(asked))
        now[0] = live.of(FEED).again
    assert times == [1, 1, 2]
    assert now[0] == 1e9 + 800.0 + 40.0 + 800.0


ELEMENTS = f"<link rel='hub' href='https://hub.example/'/><link rel='self' href='{TOPIC}'/>"
NAMING = {
    "rss": feed(1, head=ELEMENTS.replace("<link", "<a:link xmlns:a='http://www.w3.org/2005/Atom'")),
    "atom": f"<feed xmlns='http://www.w3.org/2005/Atom'>{ELEMENTS}</feed>".encode(),
    "json": b'{"version": "https://jsonfeed.org/version/1.1", "items": [], "feed_url": "%b",'
    b'"hubs": [3, {"type": "rssCloud"}, {"type": "WebSub", "url": "https://hub.example/"}]}'
    % TOPIC.encode(),
}


@pytest.mark.parametrize("kind", NAMING)
def test_feeds_name_hubs(kind):
    found = parse_feed(NAMING[kind])
    assert (found.hub, found.topic) == ("https://hub.example/", TOPIC)


def test_the_crawl_finds_the_hubs_that_feeds_name():
    async def nothing(name):
        return None

    known = Subscriptions(":memory:", "https://me.example", Client(), nothing, nothing)
    bench = Bench(subscriptions=known)
    link = '<https://hub.example/>; rel="hub", <https://example.org/f>; rel="self"'
    bench.site.answers["/element"] = message(200, NAMING["rss"])
    bench.site.answers["/header"] = message(200, feed(1), Link=link)
    bench.site.answers["/none"] = message(200, feed(1))
    bench.run(1, "/element", "/header", "/none")
    found = {path: known.of(bench.site.url(path)) for path in ("/element", "/header", "/none")}
    assert {path: x.topic for path, x in found.items()} == {
        "/element": TOPIC,
        "/header": "https://example.org/f",
        "/none": "",
    }


def test_an_explanation_says_whether_a_feed_is_subscribed(tmp_path, capsys):
    store = tmp_path / "crawl.db"
    names = [f"https://{name}.example/" for name in ("new", "none", "asked", "active", "leaving")]
    Scheduler(store, budget="20/h").add_many({"source": name} for name in names)

    def said(name):
        CrawlFeeds(store=store, explain=name).run()
        return capsys.readouterr().out

    assert "hub" not in said(names[0])
    assert sorted(path.name for path in tmp_path.iterdir() if "hubs" in path.name) == []
    hub, topic = "https://hub.example/", "https://a.example/topic"
    live = Subscriptions(
        tmp_path / "crawl.db.hubs", "https://me.example", Client(), None, None, lambda: 1e9
    )
    live.note_hub(names[1], "", "")
    for name in names[2:]:
        live.note_hub(name, hub, topic)
    for name in names[3:]:
        query = {"hub.mode": "subscribe", "hub.topic": topic, "hub.lease_seconds": "864000"}
        assert live.verify(live.of(name).key, query).status == 200
    live.note_hub(names[4], "", "")
    for name, words in zip(
        names,
        (
            "It is not known yet whether it names a WebSub hub.",
            "It names no WebSub hub.",
            f"The hub {hub} has not confirmed a subscription; it is asked at 2001-09-09 01:",
            f"It is subscribed at the hub {hub}, to be renewed at 2001-09-17 01:46:40 UTC.",
            f"Its subscription at the hub {hub} ends.",
        ),
        strict=True,
    ):
        assert words in said(name)
    live.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "crawl.db.hubs")) as other:
        other.execute("BEGIN IMMEDIATE")  # as a crawl that writes
        assert "It names no WebSub hub." in said(names[1])
    (tmp_path / "crawl.db.hubs").write_bytes(b"x" * 1000)
    explanation = said(names[1])
    assert "Due: " in explanation
    assert re.search(r"since .*crawl\.db\.hubs cannot be read: ", explanation)


def test_the_secrets_of_subscriptions_are_for_their_owner_alone(tmp_path):
    file = tmp_path / "crawl.db.hubs"
    Subscriptions(file, "https://example.org", Client(), None, None).close()
    assert file.stat().st_mode & 0o077 == 0
    file.write_text("something else" * 100)
    with refused("crawl.db.hubs is not a file of subscriptions at hubs: file is not a database"):
        Subscriptions(file, "https://example.org", Client(), None, None)
