"""What hubs of WebSub and sites send to the server: IndexNow and notices."""

import asyncio
import hmac
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, urlencode
from urllib.request import urlopen

import pytest

from ephemeral_crawl.crawl import websub
from ephemeral_crawl.crawl.client import Response
from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.live.journal import NoJournal
from ephemeral_crawl.serve import receiver
from ephemeral_crawl.serve.errors import Refusal
from ephemeral_crawl.serve.receiver import IndexNow
from ephemeral_crawl.serve.service import Service
from tests.ephemeral_crawl.crawl.site import feed
from tests.ephemeral_crawl.serve.running import BEARER, SECRET, running

KEY = "0123-abcd"
LINK = "<link xmlns='http://www.w3.org/2005/Atom' rel='hub' href='/hub'/>"


class Site(BaseHTTPRequestHandler):
    """A site with a key file, a feed that names a hub, and the hub, which asks back at once."""

    asked: ClassVar[list] = []  # paths, or forms
    rules = b"User-agent: *\nDisallow: /private\nCrawl-delay: 0.01"
    subscribed = threading.Event()

    def do_GET(self):
        self.asked.append(self.path)
        held = {"/feed": feed(1, head=LINK), "/robots.txt": self.rules} | dict.fromkeys(
            KEYS, KEY.encode() + b"\n"
        )
        self.send_response(200 if self.path in held else 404)
        self.end_headers()
        self.wfile.write(held.get(self.path, b""))

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: value for name, (value,) in parse_qs(body).items()}
        query = {f"hub.{name}": form[f"hub.{name}"] for name in ("mode", "topic", "lease_seconds")}
        with urlopen(f"{form['hub.callback']}?{urlencode({**query, 'hub.challenge': 'c'})}") as a:
            assert a.read() == b"c"
        self.asked.append(form)
        self.send_response(202)
        self.end_headers()
        self.subscribed.set()

    def log_message(self, *_):
        pass


KEYS = (f"/{KEY}.txt", f"/news/{KEY}.txt")


@contextmanager
def site():
    Site.asked.clear()
    Site.subscribed.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def pings(client):
    return client.get("/v1/status", **BEARER).json["counts"]["pings"]


def test_sites_announce_pages_by_index_now(monkeypatch):
    monkeypatch.setattr(websub, "_EVERY", 3600.0)
    scheduler = Scheduler(":memory:", budget="60/h")
    with site() as place, running(scheduler, SECRET, public=True) as client:
        host = place.removeprefix("http://")
        page, other, word = f"{place}/a", f"{place}/news/b", f"{place}/caf%C3%A9"
        client.post("add_many", {"sources": [{"source": x} for x in (page, other, word)]}, **BEARER)

        def get(url, key=KEY, **more):
            return client.get(f"/indexnow?{urlencode({'url': url, 'key': key, **more})}").status

        def post(urls, host=host, **more):
            body = json.dumps({"host": host, "key": KEY, "urlList": urls, **more}).encode()
            return client.ask("POST", "/indexnow", body, Content_Type="application/json").status

        assert get(f"{place}/unknown") == 200  # no source: the key is not asked for
        assert KEYS[0] not in Site.asked
        query = urlencode({"url": page, "key": KEY})
        assert client.ask("HEAD", f"/indexnow?{query}").status == 405
        assert (get(page), pings(client)) == (200, 1)
        assert (get(page, "another-key"), pings(client)) == (403, 1)
        assert post([page, other, page, f"{place}/unknown"]) == 200
        assert pings(client) == 3
        assert post([word.replace("%C3%A9", "%c3%a9"), f"{place}/café"]) == 200
        assert pings(client) == 4
        assert Site.asked.count(KEYS[0]) == 1  # it is known for a while
        assert get(other, keyLocation=place + KEYS[1]) == 200
        assert get(page, keyLocation=place + KEYS[1]) == 422  # not below /news/
        assert get(page, keyLocation="http://elsewhere.example/k.txt") == 422
        assert get(page, key="short") == get("x", KEY) == 422
        assert post([page], host="elsewhere.example") == 422
        assert post([page, "https://elsewhere.example/"]) == 422
        assert post("a page") == post([]) == post([page] * 10_001) == 400
        assert client.ask("POST", "/indexnow", b"[", Content_Type="application/json").status == 400
        before = pings(client)
        many = [f"{place}/{'long-' * 40}{k}" for k in range(6_000)]
        looks, since = [], NoJournal.since
        monkeypatch.setattr(
            NoJournal, "since", lambda self, number: looks.append(number) or since(self, number)
        )
        assert (post(many), post(many)) == (200, 429)  # for this host alone
        assert len(looks) < 100  # a database would be asked each time
        assert post(["http://elsewhere.example/"] * 100, host="elsewhere.example") == 200
        assert pings(client) == before


def test_a_host_that_is_slow_or_floods_with_keys_delays_no_other():
    scheduler = Scheduler(":memory:", budget="60/h")
    slow, other = "https://slow.example/a", "https://other.example/a"
    moved = "https://redirects.example/a"
    scheduler.add_many({"source": name} for name in (slow, other, moved))
    asked = []

    class Files:
        async def get(self, file):
            asked.append(file)
            if file == f"https://slow.example/{KEY}.txt":
                await asyncio.Event().wait()
            end = file.replace("redirects.example", "elsewhere.example")
            return Response(200, {}, KEY.encode(), end, None)

    async def submit():
        service = Service(scheduler)
        try:
            index_now = IndexNow(service, Files(), clock=lambda: 0.0)
            with pytest.raises(Refusal, match="does not hold the key"):
                await index_now.submit(KEY, [moved], None, None)
            waiting = asyncio.create_task(index_now.submit(KEY, [slow], None, None))
            while len(asked) < 2:
                await asyncio.sleep(0)
            await index_now.submit(KEY, [other], None, None)
            await index_now.submit(KEY, ["https://bücher.example/"], "Bücher.example", None)
            statuses = []
            for k in range(25):
                with pytest.raises(Refusal) as refused:
                    await index_now.submit(f"wrong-key-{k}", [other], None, None)
                statuses.append(refused.value.status_code)
            await index_now.submit(KEY, [other], None, None)  # a key that is known needs no look
            wrong = [index_now.submit(f"wrong-key-{k}", [slow], None, None) for k in range(25)]
            tasks = [*map(asyncio.create_task, wrong), waiting]
            refused_now, left = await asyncio.wait(
                tasks, timeout=9.0, return_when=asyncio.FIRST_COMPLETED
            )
            assert {task.exception().status_code for task in refused_now} == {429}  # nor wait
            for task in left:
                task.cancel()
            return statuses, scheduler.status().counts.pings
        finally:
            service.close()

    assert asyncio.run(submit()) == ([403] * 19 + [429] * 6, 2)
    assert len(asked) == 22


def test_strangers_use_up_nothing_that_the_owner_of_a_site_has(monkeypatch):
    monkeypatch.setattr(receiver, "_MOST_KEYS", 5)
    scheduler = Scheduler(":memory:", budget="60/h")
    page = "https://a.example/a"
    scheduler.add(page)
    pages = [page] + [f"https://a.example/{k}" for k in range(5_999)]

    class Files:
        async def get(self, file):
            return Response(200, {}, held[-1], file, None)

    now, held = [0.0], [KEY.encode()]

    async def submit():
        service = Service(scheduler)
        try:
            index_now, statuses = IndexNow(service, Files(), clock=lambda: now[0]), []

            async def send(key, urls):
                try:
                    await index_now.submit(key, urls, None, None)
                    return 200
                except Refusal as refused:
                    return refused.status_code

            first = await send(KEY, [page])
            statuses = [await send(f"wrong-key-{k}", [page]) for k in range(10)]
            many = [await send("wrong-key", pages) for _ in range(3)]
            own = [await send(KEY, pages) for _ in range(2)]
            assert len(index_now._refused) == 5
            now[0] += 660.0
            held.append(b"wrong-key-9")  # whose file did not hold it ten minutes ago
            assert await send("wrong-key-9", [page]) == 200
            return first, statuses, many, own
        finally:
            service.close()

    first, statuses, many, own = asyncio.run(submit())
    assert first == 200
    assert statuses == [403] * 10
    assert many == [403, 429, 429]  # nobody's addresses are looked up without end
    assert own == [200, 429]


def test_the_server_subscribes_to_the_hubs_that_feeds_name(monkeypatch):
    monkeypatch.setattr(websub, "_EVERY", 0.02)
    monkeypatch.setattr(receiver, "_PAUSE", 0.02)
    scheduler = Scheduler(":memory:", budget="60/h")
    find, failures = scheduler.find, [OSError("the store is locked")]

    def fails_once(*given, **more):
        if failures:
            raise failures.pop()
        return find(*given, **more)

    monkeypatch.setattr(scheduler, "find", fails_once)
    monkeypatch.setattr(receiver, "_SAME_HOST", 0.0)
    monkeypatch.setattr(receiver, "_BETWEEN", 0.0)
    with site() as place:
        scheduler.add(f"{place}/private")
        scheduler.add(f"{place}/feed")
        scheduler.add("no URL")
        with running(scheduler, SECRET, public=True) as client:
            assert Site.subscribed.wait(30)
            form = next(x for x in Site.asked if isinstance(x, dict))
            assert form["hub.topic"] == f"{place}/feed"
            assert Site.asked[:2] == ["/robots.txt", "/feed"]
            path = form["hub.callback"].removeprefix(f"http://127.0.0.1:{client.port}")
            query = urlencode({"hub.mode": "subscribe", "hub.topic": form["hub.topic"]})
            assert [client.ask(x, f"{path}?{query}").status for x in ("HEAD", "GET")] == [405, 200]
            right = hmac.new(form["hub.secret"].encode(), b"news", "sha256").hexdigest()
            for digest, count in (("0" * 64, 0), (right, 1)):
                signature = {"X_Hub_Signature": f"sha256={digest}"}
                assert client.ask("POST", path, b"news", **signature).status == 202
                assert pings(client) == count
            assert client.ask("POST", path, None, Content_Length=str(2**20 + 1)).status == 413


def test_a_server_that_is_not_public_receives_nothing():
    with running(Scheduler(":memory:", budget="60/h"), SECRET) as client:
        assert client.get("/indexnow?url=https://example.org/&key=" + KEY).status == 404
        assert client.ask("POST", "/websub/key", b"").status == 404
