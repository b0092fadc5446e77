"""The side-car against a server that follows Miniflux's documented routes; Miniflux itself is not
run here."""

import json
import re
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from ephemeral_crawl.integrations.miniflux import MinifluxSidecar
from ephemeral_crawl.live import Scheduler

NOW = 1_700_000_000.0


class FakeMiniflux(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.feeds = {
            k: {"id": k, "feed_url": f"https://feed{k}.example/rss", "disabled": k == 3}
            for k in (1, 2, 3)
        }
        self.entries = {k: [] for k in self.feeds}
        self.waiting = {k: list(range(10)) for k in self.feeds}  # hours since their publication
        self.broken, self.refreshed, self.number = set(), [], 0
        self.page = b""  # which a proxy shows instead of the list of feeds

    def refresh(self, feed):
        self.refreshed.append(feed)
        for hours in sorted(self.waiting[feed], reverse=True):
            self.number += 1
            published = datetime.fromtimestamp(NOW - 3600 * hours, UTC).isoformat()
            self.entries[feed].append({"id": self.number, "published_at": published})
        self.waiting[feed] = []


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, status, body=None, page=b""):
        data = page if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        parts = urlsplit(self.path)
        if self.headers["X-Auth-Token"] != "token":
            return self.answer(401, {"error_message": "Access Unauthorized"})
        if parts.path == "/v1/feeds":
            if self.server.page:
                return self.answer(200, page=self.server.page)
            return self.answer(200, list(self.server.feeds.values()))
        feed = int(re.fullmatch(r"/v1/feeds/(\d+)/entries", parts.path)[1])
        asked = {k: v[0] for k, v in parse_qs(parts.query).items()}
        assert (asked["order"], asked["direction"]) == ("id", "desc")
        found = [
            e for e in self.server.entries[feed] if e["id"] > int(asked.get("after_entry_id", 0))
        ]
        newest = found[::-1][: int(asked["limit"])]
        return self.answer(200, {"total": len(found), "entries": newest})

    def do_PUT(self):
        feed = int(re.fullmatch(r"/v1/feeds/(\d+)/refresh", self.path)[1])
        if feed in self.server.broken:
            return self.answer(500, {"error_message": "unable to fetch feed"})
        self.server.refresh(feed)
        return self.answer(204)


@pytest.fixture
def miniflux():
    server = FakeMiniflux()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def sidecar(server, scheduler, token="token"):
    return MinifluxSidecar(scheduler, f"http://127.0.0.1:{server.server_port}", token)


def test_feeds_are_refreshed_when_due_and_their_entries_reported(miniflux):
    now = [NOW]
    scheduler = Scheduler(":memory:", budget="4/h", clock=lambda: now[0])
    car = sidecar(miniflux, scheduler)
    car.follow()
    miniflux.broken = {2}
    assert car.refresh() == 2
    assert miniflux.refreshed == [1]
    status = scheduler.status()
    assert (status.sources, status.paused, status.failing) == (3, 1, 1)
    assert status.counts.items == 10
    told = scheduler.explain("https://feed1.example/rss")
    assert told.rate == pytest.approx(1.0, rel=0.5)  # one an hour

    # After a restart, only what is new counts.
    miniflux.broken, miniflux.waiting[1] = set(), [0.0]
    now[0] = scheduler.next_due("https://feed1.example/rss") + 1.0
    again = sidecar(miniflux, scheduler)
    again.refresh()
    assert 1 in miniflux.refreshed[1:]
    assert scheduler.status().counts.items == 11 + 10 * (2 in miniflux.refreshed)


def test_feeds_come_and_go(miniflux):
    scheduler = Scheduler(":memory:", budget="4/h")
    car = sidecar(miniflux, scheduler)
    car.follow()
    del miniflux.feeds[1]
    miniflux.feeds[3]["disabled"] = False
    miniflux.feeds[4] = {"id": 4, "feed_url": "https://feed4.example/rss"}
    car.follow()
    assert sorted(scheduler.sources()) == [f"https://feed{k}.example/rss" for k in (2, 3, 4)]
    assert scheduler.status().paused == 0


@pytest.mark.parametrize("first", [0, 3])  # turn from which on there are any feeds
def test_the_side_car_goes_on_when_miniflux_does_not_answer(miniflux, monkeypatch, first):
    waits = []
    monkeypatch.setattr("ephemeral_crawl.integrations.miniflux._FOLLOW", 0.0)
    monkeypatch.setattr("ephemeral_crawl.integrations.miniflux.time.sleep", waits.append)
    feeds, turns = miniflux.feeds, iter(range(9))
    miniflux.feeds = {} if first else feeds

    def stop():
        turn = next(turns)
        there = feeds if turn >= first else {}
        miniflux.feeds = None if turn == 1 else there  # of which its answer breaks off
        miniflux.page = b"<html>back soon" * (turn == 2)
        return turn == 4

    sidecar(miniflux, Scheduler(":memory:", budget="9/h")).run(stop)
    assert sorted(miniflux.refreshed) == [1, 2]
    assert waits == [60.0, 60.0, 60.0]  # in all turns but the one that refreshes both feeds


def test_feeds_that_cannot_be_named_are_left_out(miniflux, caplog):
    scheduler = Scheduler(":memory:", budget="4/h")
    miniflux.feeds[1]["feed_url"] = f"https://feed1.example/?{'x' * 3000}"
    sidecar(miniflux, scheduler).follow()
    assert sorted(scheduler.sources()) == [f"https://feed{k}.example/rss" for k in (2, 3)]
    assert "of 3023 characters; a name has 1 to 2048" in caplog.text


def test_a_wrong_token_is_an_error(miniflux):
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        sidecar(miniflux, Scheduler(":memory:", budget="4/h"), "wrong").follow()
