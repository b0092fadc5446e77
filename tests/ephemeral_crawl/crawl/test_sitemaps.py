"""Sitemaps: what is read of them, which sources they add, and which they ping."""

import gzip
import time
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemeral_crawl.crawl import sitemaps
from ephemeral_crawl.crawl.exchange import import_sitemap
from ephemeral_crawl.crawl.feeds import MOST_ITEMS, parse_feed
from ephemeral_crawl.crawl.sitemaps import parse_sitemap
from ephemeral_crawl.live import Scheduler
from experiments.live.over_http import WarpedClient, WarpedLoop
from tests.ephemeral_crawl.crawl.site import Site, message
from tests.ephemeral_crawl.crawl.test_crawler import Bench
from tests.refusals import refused

_SPACES = (
    'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" '
    'xmlns:news="http://www.google.com/schemas/sitemap-news/0.9"'
)


def sitemap(pages, kind="url", root="urlset"):
    """Return a sitemap of addresses and their dates."""
    entries = "".join(
        f"<{kind}><loc> {url} </loc>{f'<lastmod>{date}</lastmod>' if date else ''}</{kind}>"
        for url, date in pages.items()
    )
    return f'<?xml version="1.0"?><!-- a --><{root} {_SPACES}>{entries}</{root}>'.encode()


def index(*urls):
    return sitemap(dict.fromkeys(urls, ""), "sitemap", "sitemapindex")


PAGE = sitemap({"https://a.example/x": "2023-11-14T23:13:20+01:00"})
ENTRY = ("https://a.example/x", 1_700_000_000.0)


def test_xml_news_text_and_gzip_say_the_same():
    news = (
        f"<urlset {_SPACES}><url><loc>https://a.example/x</loc><news:news>"
        "<news:publication><news:name>no</news:name></news:publication><news:title>T</news:title>"
        "<news:publication_date>2023-11-14T22:13:20Z</news:publication_date>"
        "</news:news></url></urlset>"
    ).encode()
    assert parse_sitemap(news.replace(b"news:", b"n:").replace(b":news=", b":n=")).entries == [
        (*ENTRY, "T")
    ]
    parts = gzip.compress(PAGE[:100]) + gzip.compress(b"") + gzip.compress(PAGE[100:])
    for body in (PAGE, gzip.compress(PAGE), parts, parts + b"x"):
        assert parse_sitemap(body).entries == [(*ENTRY, "")]
    assert parse_sitemap(news).entries == [(*ENTRY, "T")]
    text = parse_sitemap(b"\xef\xbb\xbfhttps://a.example/x\r\n\r\nnot a URL\n")
    assert text == ([("https://a.example/x", None, "")], False, 1)
    assert parse_sitemap(index("https://a.example/x")).is_index


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1970", 0.0), ("1970-02", 31 * 86400.0), ("1970-01-01T01:00Z", 3600.0)]
    + [("1970-01-01T01:00", 3600.0)]
    + [(text, None) for text in ("yesterday", "1970-13", "1970-1-1", "9" * 99, "0000")],
)
def test_dates(text, seconds, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        ((_, modified, _),) = parse_sitemap(sitemap({"https://a.example/": text})).entries
    finally:
        monkeypatch.undo()
        time.tzset()
    assert modified == seconds


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        (b"", ["not a sitemap"]),
        (b"<rss></rss>", ["not a sitemap"]),
        (PAGE[:-20], ["the document is cut off"]),
        *((b"<urlset>" + end, ["is cut off"]) for end in (b"", b"<url", b"<![CDATA[x", b"\xc3")),
        (gzip.compress(PAGE, mtime=0)[:-9], ["cut off"]),
        (gzip.compress(PAGE, mtime=0)[:12] + b"\xff" * 30, ["damaged"]),
        (gzip.compress(bytes(sitemaps.MOST_BYTES + 1), 1, mtime=0), ["more than 52,428,800 bytes"]),
        (b"<urlset>" + b"<a>" * 50, ["more than 20 deep"]),
        (b'<!DOCTYPE urlset [<!ENTITY a "b">]>' + PAGE[PAGE.index(b"<urls") :], ["not a sitemap"]),
        (b"<urlset>&a;</urlset>", ["broken"]),
    ],
)
def test_damaged_sitemaps_are_refused(body, parts):
    with refused(*parts):
        parse_sitemap(body)


def test_a_bomb_is_not_unpacked_to_its_end(monkeypatch):
    monkeypatch.setattr(sitemaps, "MOST_BYTES", 1000)
    bomb = gzip.compress(bytes(5_000_000))
    tracemalloc.start()
    try:
        with refused("more than 1,000 bytes"):
            parse_sitemap(bomb)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=60), st.integers(0, len(PAGE)))
def test_no_bytes_give_another_error_than_a_refusal(noise, at):
    for body in (PAGE[:at] + noise + PAGE[at:], gzip.compress(PAGE)[:at] + noise):
        with suppress(ValueError):
            found = parse_sitemap(body)
            assert len(found.entries) + found.refused <= 62


def test_of_a_large_sitemap_the_latest_entries_are_items():
    pages = {f"https://a.example/{n}": f"{1900 + n // 12}-{n % 12 + 1:02}" for n in range(1, 2100)}
    pages |= {"https://a.example/undated": "", "ftp://a.example/": ""}
    feed = parse_feed(sitemap({k: v if len(v) == 7 else "" for k, v in pages.items()}))
    assert feed.announces
    assert len(feed.items) == MOST_ITEMS
    assert feed.items[0].link == "https://a.example/2099"


def imported(answers, address="/index", **options):
    """Return what an import from a site came to, the scheduler, and the paths that were fetched."""
    loop, scheduler = WarpedLoop(), Scheduler(":memory:", budget="1/h")
    site = Site(loop)

    async def main():
        async with site.open(), WarpedClient(loop) as client:
            for path, answer in answers.items():
                body = answer.replace(b"SITE", site.url("").encode())
                site.answers[path] = message(200, gzip.compress(body) if "gz" in path else body)
            return await import_sitemap(
                scheduler, site.url(address), client, max_interval="1d", **options
            )

    return loop.run(main()), scheduler, [path for path, _ in site.asked], site


def test_an_index_is_followed_once_and_within_its_host():
    pages = {"/a": sitemap({"SITE/1": "", "SITE/2": "", "https://b.example/": ""})}
    nested = index("SITE/index", "SITE/a", "SITE/b.gz", "SITE/bad", "http://b.example/map")
    pages |= {"/b.gz": sitemap({"SITE/2": "", "SITE/3": ""}), "/bad": b"<urlset>"}
    done, scheduler, asked, site = imported({"/index": nested, **pages})
    assert asked == ["/index", "/a", "/b.gz", "/bad"]
    assert scheduler.sources() == [site.url(f"/{n}") for n in (1, 2, 3)]
    assert done.pages == tuple(scheduler.sources())
    assert done.added == 3
    assert [line.split("/")[-1].split(":")[0] for line in done.refused] == ["index", "a", "bad"]
    endless = {f"/{n}": index(f"SITE/{n + 1}") for n in range(200)}
    done, _, asked, _ = imported(endless, "/0")
    assert len(asked) == 100
    assert done.refused == ("1 sitemaps after the first 100",)
    with refused("no sitemap can be read", "HTTP 404"):
        imported({})
    _, scheduler, _, site = imported({"/index": nested, **pages}, per_host="10s")
    assert site.loop.time() == pytest.approx(30.0, abs=1.0)  # of accelerated time, for four
    assert scheduler.host_limit("127.0.0.1") == 10.0


def test_a_sitemap_pings_what_it_lists_with_another_date_and_nothing_else(monkeypatch):
    bench, pings, days = Bench(), [], []
    signal = bench.scheduler.signal

    def note(source, kind, at):
        pings.append((source, kind, at))
        return signal(source, kind, at=at)

    monkeypatch.setattr(bench.scheduler, "signal", note)

    def answer(headers):
        days.append(f"{2000 + len(days)}-11-23")
        listed = {"/changes": days[-1], "/stays": "2023-01-01", "/unknown": days[-1], "/map": ""}
        pages = {bench.site.url(path): date for path, date in listed.items()}
        return message(200, sitemap({**pages, "https://b.example/feed": days[-1]}))

    bench.scheduler.add("https://b.example/feed", host="b.example")
    bench.scheduler.pause("https://b.example/feed")
    bench.site.answers["/map"] = answer
    bench.run(24.0, "/map", "/changes", "/stays")
    assert len(days) > 2
    # A day does not say when in it the page was changed.
    assert pings == [(bench.site.url("/changes"), "sitemap", None)] * (len(days) - 1)
    assert bench.scheduler.explain(bench.site.url("/map")).announces
    # What is a source itself is no item of the sitemap as well.
    assert [item["link"] for item in bench.items] == [bench.site.url("/unknown")] * len(days)
    assert bench.scheduler.status().counts.items == len(days)
    pages = [path for path in ("/map", "/changes") if bench.memory.is_page(bench.site.url(path))]
    assert pages == ["/changes"]  # which heeds robots.txt
