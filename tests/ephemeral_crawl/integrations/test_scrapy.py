"""The mix-in in Scrapy itself, which runs in a process of its own, against a server on loopback."""

import asyncio
import json
import subprocess
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import scrapy
from scrapy.crawler import CrawlerProcess

from ephemeral_crawl.integrations import scrapy as mixin
from ephemeral_crawl.integrations.scrapy import ScheduledSpider
from ephemeral_crawl.live import Scheduler
from tests.processes import forked


def spider_crawls(store, out):
    """Let a spider crawl until it has seen eight pages; write what it finds to a file."""

    class News(ScheduledSpider, scrapy.Spider):
        name = "news"
        scheduler = Scheduler(store, budget="36000/h", burst=50)
        custom_settings = {  # noqa: RUF012
            "CLOSESPIDER_PAGECOUNT": 8,
            "CLOSESPIDER_TIMEOUT": 100,
            # While robots.txt is being fetched, Scrapy 2.19 lets others that wait for it pass.
            "CONCURRENT_REQUESTS": 1,
            "FEEDS": {out.as_uri(): {"format": "jsonlines"}},
            "LOG_LEVEL": "ERROR",
            "ROBOTSTXT_OBEY": True,
            "TELNETCONSOLE_ENABLED": False,
        }

        def find(self, response):
            if b"trap" in response.body:
                raise ValueError("the page is not as expected")
            for name in response.text.split():
                yield time.time() - 60.0, 2.0, {"name": name}

    mixin._LONGEST_SLEEP = 1e6  # while all sources are being fetched: a report ends it
    process = CrawlerProcess()
    process.crawl(News)
    process.start()


def test_items_are_not_lost_where_a_date_is_unreadable_or_the_page_ends_in_an_error():
    live = Scheduler(":memory:", budget="60/h")
    live.add_many({"source": name} for name in ("https://a.example", "https://b.example"))
    spider = ScheduledSpider()
    spider.scheduler, spider._report = live, asyncio.Event()

    def crawled(find):
        (lease,) = live.lease()
        spider.find, items = find, []
        with pytest.raises(ValueError, match=r"published is|not as expected"):
            items.extend(spider._fetched(SimpleNamespace(status=200), lease.id))
        return items

    def broken(response):
        yield None, 1.0, "first"
        raise ValueError("the page is not as expected")

    assert crawled(lambda response: [(None, 1.0, "one"), ("today", 1.0, "two")]) == ["one", "two"]
    assert crawled(broken) == ["first"]
    assert live.status().failing == 2


class _Site(BaseHTTPRequestHandler):
    asked: list[str]

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.asked.append(self.path)
        status, body, headers = {
            "/robots.txt": (200, "User-agent: *\nDisallow: /private", {}),
            "/a": (200, "one two", {}),
            "/same": (304, "", {}),
            "/busy": (429, "", {"Retry-After": "7200"}),
            "/broken": (500, "", {}),
            "/trap": (200, "trap", {}),
        }.get(self.path, (404, "", {}))
        self.send_response(status)
        for name, value in {**headers, "Content-Length": len(body)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body.encode())


def test_a_spider_fetches_what_is_due_and_reports(tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Site)
    server.asked, server.daemon_threads = [], True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    site = f"http://127.0.0.1:{server.server_port}"
    store, out = tmp_path / "crawl.db", tmp_path / "items.jsonl"
    try:
        with Scheduler(store, budget="36000/h", burst=50) as scheduler:
            for path in ("a", "same", "busy", "broken", "trap", "private"):
                scheduler.add(f"{site}/{path}", host=path, min_interval=".1s")
        done = forked(partial(spider_crawls, store, out), stderr=subprocess.PIPE)
        _, said = done.communicate(timeout=120)
        assert done.returncode == 0, said
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert {item["name"] for item in found} == {"one", "two"}
    assert "/private" not in server.asked
    for path in ("busy", "broken", "trap"):  # neither Scrapy nor the scheduler asks at once again
        assert server.asked.count(f"/{path}") == 1
    again = server.asked.count("/a") + server.asked.count("/same") - 2
    assert again > 0, "requests are yielded for ever"
    with Scheduler(store) as scheduler:
        counts = scheduler.status().counts
        failing = {p for p in scheduler.sources() if scheduler.explain(p).failures}
        assert failing == {f"{site}/{path}" for path in ("busy", "broken", "trap")}
        assert counts.items == len(found)
        wait = scheduler.next_due(f"{site}/busy") - scheduler.explain(f"{site}/a").fetched_at
        assert wait > 7000.0
