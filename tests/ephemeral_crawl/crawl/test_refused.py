"""What the crawler refuses: URLs, OPML, CSV, logs and feeds."""

import gzip
import sqlite3
from contextlib import closing, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ephemeral_crawl.crawl import exchange, feeds
from ephemeral_crawl.crawl.command import CrawlFeeds
from ephemeral_crawl.crawl.memory import FeedState, Memory
from ephemeral_crawl.crawl.opml import read_opml
from ephemeral_crawl.crawl.urls import check_url, host_of, is_public
from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.sources import ManageSources
from tests.ephemeral_crawl.crawl.site import feed
from tests.refusals import refused

CONTROL = [chr(code) for code in (0, 9, 10, 13, 27, 127, 0x85, 0x2028, 0x202E, 0x2066, 0xFEFF)]
BAD_URLS = [
    "",
    "/feed",
    "feed.xml",
    "//example.org/feed",
    "example.org/feed",
    "ftp://example.org/feed",
    "file:///etc/passwd",
    "gopher://example.org/",
    "javascript:alert(1)",
    "data:text/xml,<rss/>",
    "http://",
    "http:///path",
    "http://.",
    "http://[::1",
    "http://[not-an-address]/",
    "http://example.org:99999/",
    "http://example.org:port/",
    "http://example.org/a b",
    "http://example.org\\@evil.example/",
    "http://exa<mple.org/",
    " http://example.org/",
    "http://example.org/" + "a" * 2048,
    "http://" + "a" * 70 + "é.example/",
    "http://ex\ud800.example/",
    *(f"http://example.org/{character}feed" for character in CONTROL),
    *(f"http://exam{character}ple.org/feed" for character in CONTROL),
]


@pytest.mark.parametrize("url", BAD_URLS, ids=[ascii(url)[:40] for url in BAD_URLS])
def test_urls_that_are_refused(url):
    with refused("URL is "):
        check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://me:geheim@example.org/",
        "http://geheim@example.org/",
        "ftp://me:geheim@example.org/",
        "http://me:geheim@[::1/",
        "http://me:geheim@example.org/ x",
        "https://@example.org/geheim",
    ],
)
def test_credentials_are_refused_and_not_repeated(url):
    with pytest.raises(ValueError, match="credentials") as error:
        check_url(url)
    assert "geheim" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("HTTP://EXAMPLE.org", "http://example.org/"),
        ("https://example.org:443/a?b=c#d", "https://example.org/a?b=c"),
        ("http://example.org:8080/%20", "http://example.org:8080/%20"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://straße.example/", "http://xn--strae-oqa.example/"),
        ("http://☃.example/", "http://xn--n3h.example/"),
        ("http://foo_straße.example/", "http://xn--foo_strae-n1a.example/"),
        ("http://[2001:DB8::1]:80/", "http://[2001:db8::1]/"),
        ("http://example.org./", "http://example.org/"),
    ],
)
def test_urls_have_one_spelling(url, same):
    assert check_url(url) == same
    assert check_url(same) == same


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://a.b.example.co.uk/", "example.co.uk"),
        ("https://me.github.io/feed", "me.github.io"),
        ("http://192.0.2.1:80/", "192.0.2.1"),
        ("http://localhost/", "localhost"),
        ("http://[2001:db8::1]/", "2001:db8::1"),
    ],
)
def test_the_host_is_the_registered_domain(url, host):
    assert host_of(url) == host


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "192.168.1.1", "0.0.0.0"),
        *("169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255", "::1", "::"),
        *("fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::127.0.0.1"),
        *("64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::", "2001:db8::1", "192.0.2.1"),
        *("64:ff9b:1::7f00:1", "::ffff:0:127.0.0.1", "fec0::1", "5f00::1", "3fff::1"),
        *("192.0.0.192", "168.63.129.16", "::ffff:192.0.0.192"),  # metadata of clouds
    ],
)
def test_addresses_that_are_not_public(address):
    assert not is_public(address)


def test_public_addresses():
    assert is_public("93.184.215.14")
    assert is_public("2606:2800:21f:cb07:6820:80da:af6b:8b2c")


# ------------------------------------------------------------------------------- OPML and CSV

ENTITIES = "".join(
    f"<!ENTITY {b} '&{a};&{a};&{a};'>" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
BOMB = f"<!DOCTYPE o [<!ENTITY a 'ha'>{ENTITIES}]>"
BAD_OPML = {
    "nothing": "",
    "text": "hello",
    "html": "<html><body>feeds</body></html>",
    "rss": "<rss version='2.0'><channel/></rss>",
    "cut off": "<opml><body><outline xmlUrl='http://example.org/'/>",
    "two roots": "<opml/><opml/>",
    "laughs": f"{BOMB}<opml><body><outline text='&i;'/></body></opml>",
    "a file": "<!DOCTYPE o [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><opml>&x;</opml>",
    "parameters": "<!DOCTYPE o [<!ENTITY % x SYSTEM 'http://127.0.0.1/'>%x;]><opml/>",
    "undefined": "<opml><body><outline text='&nbsp;'/></body></opml>",
    "deep": "<opml>" + "<outline>" * 5000,
    "attributes": "<opml><outline xmlUrl='a' xmlUrl='b'/></opml>",
    "control": "<opml><outline xmlUrl='http://example.org/\x01'/></opml>",
    "NUL": "<opml>\0</opml>",
    "encoding": "<?xml version='1.0' encoding='no-such'?><opml/>",
    "UTF-16 as UTF-8": "<?xml version='1.0' encoding='utf-16'?><opml/>",
}


@pytest.mark.parametrize("text", BAD_OPML.values(), ids=list(BAD_OPML))
def test_opml_that_is_refused(text, tmp_path):
    path = tmp_path / "feeds.opml"
    path.write_text(text)
    with refused("feeds.opml"):
        read_opml(path)


def test_it_is_said_where_an_ampersand_is_wrong_in_opml(tmp_path):
    path = tmp_path / "feeds.opml"
    path.write_text("<opml>\n<outline xmlUrl='http://example.org/?a=1&b=2'/></opml>")
    with refused("feeds.opml, line 2, column ", "an & is not written &amp;"):
        read_opml(path)


def test_opml_with_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "feeds.opml"
    path.write_bytes(b"<opml><outline text='\xff\xfe'/></opml>")
    with refused("feeds.opml, line 1"):
        read_opml(path)


def test_good_feeds_of_an_opml_are_added_and_the_others_named(tmp_path):
    path = tmp_path / "feeds.opml"
    lines = [
        "<outline text='News'><outline text='a' xmlUrl='https://a.example/feed'/></outline>",
        "<outline xmlUrl='HTTPS://A.example/feed#x'/>",
        "<outline xmlUrl='/relative'/>",
        "<outline xmlUrl='http://me:geheim@b.example/'/>",
        "<outline xmlUrl='javascript:alert(1)'/>",
        "<outline xmlUrl='http://b.example/&#10;Host: evil'/>",
        "<outline htmlUrl='http://c.example/'/>",
    ]
    path.write_text("<opml>\n" + "\n".join(lines) + "\n</opml>")
    scheduler = Scheduler(":memory:", budget="20/h")
    done = exchange.import_opml(scheduler, path, per_host="10s", max_interval="24h")
    assert (done.added, done.known, len(done.refused)) == (1, 1, 4)
    assert [text.partition(":")[0] for text in done.refused] == [f"line {k}" for k in (4, 5, 6, 7)]
    assert "geheim" not in str(done)
    assert scheduler.settings("https://a.example/feed")["max_interval"] == 86_400.0
    assert scheduler.settings("https://a.example/feed")["host"] == "a.example"


def test_large_opml_are_read_as_a_stream(tmp_path):
    path = tmp_path / "feeds.opml"
    with path.open("w") as file:
        file.write("<opml>")
        file.writelines(f"<outline xmlUrl='http://h{i}.example/'/>" for i in range(20_000))
        file.write("</opml>")
    assert len(read_opml(path)) == 20_000


def test_what_is_exported_is_imported_again(tmp_path, monkeypatch):
    first, second = (Scheduler(":memory:", budget="20/h") for _ in range(2))
    first.add("https://a.example/?x&y", host="a.example", max_interval="24h", cost=1.2345678)
    first.add('=cmd|" /c"!A1, "quoted"', half_life="90min")
    first.pause("https://a.example/?x&y")
    assert exchange.export_csv(first, tmp_path / "sources.csv") == 2
    assert exchange.import_csv(second, tmp_path / "sources.csv").added == 2
    for name in first.sources():
        assert second.settings(name) == first.settings(name)
    second.resume("https://a.example/?x&y")
    exchange.import_csv(second, tmp_path / "sources.csv")
    assert second.status().paused == 0  # what is known stays as it is
    third = Scheduler(tmp_path / "crawl.db", budget="20/h")
    with monkeypatch.context() as patch:  # all of it is stored at once, or nothing
        patch.setattr(third, "pause", lambda source: third.remove("no source"))
        with suppress(ValueError):
            exchange.import_csv(third, tmp_path / "sources.csv", max_interval="2h")
        assert len(third) == 0
    exchange.import_csv(third, tmp_path / "sources.csv", max_interval="2h")
    longest = [third.settings(name)["max_interval"] for name in first.sources()]
    assert longest == [86_400.0, 7200.0]  # where the table does not say otherwise
    assert exchange.export_opml(first, tmp_path / "feeds.opml") == 1
    assert [feed.url for feed in read_opml(tmp_path / "feeds.opml")] == ["https://a.example/?x&y"]


def test_titles_that_the_crawl_has_stored_are_exported(tmp_path):
    store, written = tmp_path / "crawl.db", tmp_path / "feeds.opml"
    urls = ["https://a.example/feed", "https://b.example/feed"]
    with Scheduler(store, budget="20/h") as scheduler:
        scheduler.add_many({"source": url} for url in urls)
    files = sorted(tmp_path.iterdir())
    ManageSources(store=(str(store),), write=(written,)).run()
    assert [feed.title for feed in read_opml(written)] == urls
    assert sorted(tmp_path.iterdir()) == sorted([*files, written])
    with closing(Memory.beside(store)) as memory:
        memory.remember(urls[0], FeedState(title="Zwei <&> drei"), None)
    ManageSources(store=(str(store),), write=(written,)).run()
    assert [feed.title for feed in read_opml(written)] == ["Zwei <&> drei", urls[1]]
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "link.db"
    link.symlink_to(store)
    ManageSources(store=(str(link),), write=(written,)).run()
    assert [feed.title for feed in read_opml(written)] == ["Zwei <&> drei", urls[1]]


def test_no_store_is_made_for_a_file_that_is_refused(tmp_path, monkeypatch):
    """Nor is one removed, which another process may make meanwhile."""
    store, wrong, right = (tmp_path / name for name in ("crawl.db", "feeds.csv", "more.csv"))
    wrong.write_text("source,cost\nhttps://a.example/feed,-1\n")
    right.write_text("source\nhttps://b.example/feed\n")
    read = exchange.import_csv

    def beside_another(scheduler, path, **settings):
        Scheduler(store, budget="20/h").close()
        return read(scheduler, path, **settings)

    for files in ((wrong,), (right, wrong)):
        with refused("cost"):
            ManageSources(store=(str(store),), budget="20/h", add=files).run()
        assert sorted(tmp_path.iterdir()) == [wrong, right]
    with refused("no source"):
        ManageSources(store=(str(store),), budget="20/h", remove=("a",)).run()
    asked = {"sitemap": ("http://127.0.0.1:1/map",), "allow_private": True}
    with refused("no sitemap can be read"):
        ManageSources(store=(str(store),), budget="20/h", add=(right,), **asked).run()
    assert sorted(tmp_path.iterdir()) == [wrong, right]
    monkeypatch.setitem(exchange.IMPORTS, "csv", beside_another)
    with refused("cost"):
        ManageSources(store=(str(store),), budget="20/h", add=(wrong,)).run()
    assert store.exists()
    with refused("cost"):
        ManageSources(store=(str(store),), add=(right, wrong)).run()
    assert len(Scheduler(store)) == 1


def test_no_store_is_made_for_a_crawl_that_is_refused(tmp_path):
    store, right, wrong, none = (
        tmp_path / name for name in ("crawl.db", "a.csv", "b.xml", "c.xml")
    )
    right.write_text("source\nhttps://a.example/feed\n")
    wrong.write_text("<opml><body><outline")
    none.write_text("<opml></opml>")
    for files, words in ((right, wrong), "not well-formed XML"), ((none,), "has no sources"):
        with refused(words):
            CrawlFeeds(feeds=files, store=store, budget="20/h").run()
        with refused(words):
            CrawlFeeds(feeds=files, store=store, budget="20/h", dry_run=True).run()
        assert not store.exists()
    given = {"feeds": (right,), "store": store, "budget": "20/h"}
    (tmp_path / "link").symlink_to("missing/items.jsonl")
    for out in (tmp_path, tmp_path / "missing" / "items.jsonl", tmp_path / "link"):
        with refused("which cannot be written"):
            CrawlFeeds(**given, out=str(out)).run()
    with refused("user agent"):
        CrawlFeeds(**given, user_agent="é").run()
    assert not store.exists()


@pytest.mark.parametrize(
    "command",
    [
        lambda store, table: CrawlFeeds(feeds=(table,), store=store, budget="20/h", resume="a.ex"),
        lambda store, table: ManageSources(store=(str(store),), budget="20/h", add=(table,)),
    ],
)
def test_two_processes_may_make_a_store_at_the_same_time(tmp_path, monkeypatch, command):
    """All but the first ended in an error, that there is a scheduler in the store."""
    table, store, read = tmp_path / "a.csv", tmp_path / "crawl.db", exchange.import_csv
    table.write_text("source\nhttps://a.example/feed\n")

    def beside_another(scheduler, path, **settings):
        with Scheduler(store, budget="20/h") as other:
            other.add_many([{"source": "https://b.example/feed"}], exist_ok=True)
        return read(scheduler, path, **settings)

    monkeypatch.setitem(exchange.IMPORTS, "csv", beside_another)
    command(store, table).run()
    assert {*Scheduler(store).sources()} == {"https://a.example/feed", "https://b.example/feed"}


def test_a_new_store_has_what_files_and_sitemaps_list_each_read_once(tmp_path, monkeypatch):
    store, table, read = tmp_path / "crawl.db", tmp_path / "feeds.csv", []
    table.write_text("source,tag\nhttps://a.example/feed,news\n")
    page, open_table = "https://b.example/page", exchange.table.read

    async def import_sitemap(scheduler, address, client, **settings):
        read.append(address)
        scheduler.add(page)
        return exchange.ImportReport(1, 0, pages=(page,))

    monkeypatch.setattr(exchange, "import_sitemap", import_sitemap)
    monkeypatch.setattr(
        exchange.table, "read", lambda path, *more: read.append(path) or open_table(path, *more)
    )
    places = {"add": (table,), "sitemap": ("https://b.example/map",)}
    for _ in range(2):  # a new store, and one that exists
        ManageSources(store=(str(store),), budget="20/h", half_life="1h", **places).run()
        with Scheduler(store) as scheduler, closing(Memory.beside(store)) as memory:
            assert scheduler.sources() == ["https://a.example/feed", page]
            assert scheduler.settings("https://a.example/feed")["tag"] == "news"
            assert scheduler.settings()["half_life"] == 3600.0
            assert memory.is_page(page)
            scheduler.remove(page)
    assert read == 2 * [table, "https://b.example/map"]


def test_limits_of_hosts_stay_when_sources_are_added(tmp_path):
    path, table = tmp_path / "crawl.db", tmp_path / "feeds.csv"
    table.write_text("source\nhttps://a.example/feed\nhttps://b.example/feed\n")
    with Scheduler(path, budget="20/h") as scheduler:
        scheduler.limit_host("a.example", "10s")
        with refused("per_host is 'soon'"):
            ManageSources(store=(str(path),), add=(table,), per_host="soon").run()
        assert len(scheduler) == 0
        for limit, expected in (("0s", (10.0, 0.0)), ("2s", (2.0, 2.0))):
            ManageSources(store=(str(path),), add=(table,), per_host=limit).run()
            assert tuple(map(scheduler.host_limit, ("a.example", "b.example"))) == expected


@pytest.mark.parametrize("kind", ["feeds", "items"])
def test_a_crawl_keeps_longer_limits_of_hosts(tmp_path, kind):
    path, table = tmp_path / "crawl.db", tmp_path / "feeds.csv"
    text = "source\nhttps://a.example/feed\nhttps://b.example/feed\nhttps://c.example/feed\n"
    if kind == "items":
        hours = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z")
        rows = text.splitlines()
        text = (
            "\n".join([f"{rows[0]},published", *map(",".join, zip(rows[1:], hours, strict=True))])
            + "\n"
        )
    table.write_text(text)
    with Scheduler(path, budget="20/h") as scheduler:
        scheduler.limit_hosts({"a.example": "1min", "b.example": "1s"})
        files = {"items": table} if kind == "items" else {"feeds": (table,)}
        for _ in range(2):
            CrawlFeeds(store=path, resume="a.example", **files).run()
            limits = [scheduler.host_limit(f"{name}.example") for name in "abc"]
            assert limits == [60.0, 10.0, 10.0]


def test_sources_are_removed_all_or_none(tmp_path):
    """By the names that they have, or that a file of sources gave them."""
    path, url = tmp_path / "crawl.db", "http://example.org/feed"
    names = ["a", "b", url, "http://example.net"]
    with Scheduler(path, budget="20/h") as scheduler:
        scheduler.add_many({"source": name} for name in names)
    with refused("no source 'd' to remove"):
        ManageSources(store=(str(path),), remove=("a", "d")).run()
    for removed, left in (((), names), (("a", "HTTP://Example.org:80/feed", "a", names[3]), ["b"])):
        ManageSources(store=(str(path),), remove=removed).run()
        with Scheduler(path) as scheduler:
            assert list(scheduler.sources()) == left


BAD_CSV = {
    "no rows": "source\n",
    "no column": "url\nhttp://a.example/\n",
    "unknown column": "source,password\nhttp://a.example/,x\n",
    "credentials": "source\nhttp://a:geheim@b.example/\n",
    "scheme": "source\nftp://a.example/\n",
    "control": "source\nhttp://a.example/\x1b[2J\n",
    "cost": "source,cost\na,-1\n",
    "infinite": "source,cost\na,inf\n",
    "words": "source,cost\na,much\n",
    "interval": "source,max_interval\na,soon\n",
    "order": "source,min_interval,max_interval\na,2h,1h\n",
    "paused": "source,paused\na,maybe\n",
    "name": "source\n" + "a" * 3000 + "\n",
    "empty": "source,cost\n,1\n",
    "NUL": "source\na\0b\n",
}


@pytest.mark.parametrize("text", BAD_CSV.values(), ids=list(BAD_CSV))
def test_tables_of_sources_that_are_refused(text, tmp_path):
    path = tmp_path / "sources.csv"
    path.write_text(text)
    scheduler = Scheduler(":memory:", budget="20/h")
    with pytest.raises(ValueError, match=r".") as error:
        exchange.import_csv(scheduler, path)
    assert "geheim" not in str(error.value)
    assert len(scheduler) == 0


# ------------------------------------------------------------------------------- feeds

HEAD = "<rss version='2.0'><channel><title>T</title>"
NOT_FEEDS = [b"", b"\0" * 100, b"hello", b"<html><body>404</body></html>", b"\xff\xfe<", b"{}"]


@pytest.mark.parametrize(
    "body", [*NOT_FEEDS, gzip.compress(b"no feed", mtime=0), b"<a>" * 2000, b"<!---->" * 99]
)
def test_documents_that_are_no_feeds(body):
    with refused("does not parse as a feed"):
        feeds.parse_feed(body)


PAGES = {
    b"<!DOCTYPE html>\n<html><body>Not found</body></html>": "it is an HTML page",
    b" <!-- a --><HTML lang='en'>": "it is an HTML page",
    b"\n": "it is empty",
    HEAD.encode() + b"\n</titl>": "its XML is broken, mismatched tag",
}


@pytest.mark.parametrize("body", PAGES)
def test_pages_and_broken_feeds_say_what_they_are(body):
    with refused("does not parse as a feed", PAGES[body]):
        feeds.parse_feed(body)


@given(st.integers(0, 3), st.integers(0))
@settings(deadline=None)
def test_of_a_feed_that_is_cut_off_there_are_items_or_a_failure(number, size):
    whole = feed(*range(number))
    if size >= len(whole):
        assert len(feeds.parse_feed(whole).items) == number
        return
    with suppress(ValueError):
        assert feeds.parse_feed(whole[:size]).items


@pytest.mark.parametrize("flaw", ["&nbsp;", "<br>", "a & b", "\x01"])
def test_feeds_whose_flaws_leave_items_are_read(flaw):
    body = feed(1, 2, head=f"<description>{flaw}</description>")
    assert len(feeds.parse_feed(body).items) == 2


def entry(text):
    return feeds.parse_feed(f"{HEAD}<item>{text}</item></channel></rss>".encode()).items[0]


@pytest.mark.parametrize(
    ("date", "published"),
    [
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Thu, 31 Dec 2099 00:00:00 GMT", 4_102_358_400.0),
        ("2026-11-23T10:00:00+02:00", 1_795_420_800.0),
        ("Mon, 99 Foo 2026 99:99:99 GMT", None),
        ("yesterday", None),
        ("", None),
        ("9" * 5000, None),
    ],
)
def test_dates(date, published):
    assert entry(f"<guid>1</guid><pubDate>{date}</pubDate>").published == published


def test_an_item_that_was_changed_is_of_when_it_was_published():
    dates = "<updated>1970-01-03T00:00:00Z</updated><published>1970-01-02T00:00:00Z</published>"
    body = f"<feed xmlns='http://www.w3.org/2005/Atom'><entry><id>1</id>{dates}</entry></feed>"
    assert feeds.parse_feed(body.encode()).items[0].published == 86_400.0


@pytest.mark.parametrize("link", ["javascript:alert(1)", "file:///etc/passwd", "http://[::1", ""])
def test_links_that_are_left_out(link):
    assert entry(f"<guid>1</guid><link>{link}</link>").link == ""


def test_text_has_no_control_characters():
    assert entry("<guid>1</guid><title>a&#27;[2J\n‮b</title>").title == "a [2J b"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("<ttl>30</ttl>", 1800.0),
        ("<ttl>-5</ttl>", 0.0),
        ("<ttl>nan</ttl>", 0.0),
        ("<ttl>1e400</ttl>", 0.0),
        ("<ttl>much</ttl>", 0.0),
        (
            "<sy:updatePeriod>hourly</sy:updatePeriod><sy:updateFrequency>2</sy:updateFrequency>",
            1800,
        ),
        (
            "<sy:updatePeriod>daily</sy:updatePeriod><sy:updateFrequency>0</sy:updateFrequency>",
            864e5,
        ),
        ("<sy:updatePeriod>yearly</sy:updatePeriod>", 365 * 864e2),
        ("<sy:updatePeriod>never</sy:updatePeriod>", 0.0),
    ],
)
def test_how_long_a_feed_asks_to_be_kept(text, seconds):
    head = HEAD.replace("'2.0'", "'2.0' xmlns:sy='http://purl.org/rss/1.0/modules/syndication/'")
    assert feeds.parse_feed(f"{head}{text}</channel></rss>".encode()).pause == seconds


@pytest.mark.parametrize("value", ["-1", "nan", "much", "", "1e999"])
def test_worths_that_are_not_believed(value):
    body = (
        f"<rss xmlns:w='w'><channel><item><guid>1</guid><w:w>{value}</w:w></item></channel></rss>"
    )
    worth = feeds.parse_feed(body.encode(), worth="w_w").items[0].worth
    assert worth == (feeds.MOST_WORTH if value == "1e999" else 1.0)


def test_of_many_items_the_newest_are_read(monkeypatch):
    monkeypatch.setattr(feeds, "MOST_ITEMS", 5)
    items = "".join(
        f"<item><guid>{k}</guid><pubDate>{k} Nov 2026 00:00:00 GMT</pubDate></item>"
        for k in range(1, 29)
    )
    found = feeds.parse_feed(f"{HEAD}{items}</channel></rss>".encode()).items
    days = sorted((item.published - 1_793_491_200) / 86_400 for item in found)
    assert days == [23, 24, 25, 26, 27]


def test_items_without_identity_are_told_apart_by_their_text():
    items = (
        "<item><title>a</title></item><item><title>b</title></item><item><title>a</title></item>"
    )
    assert len(feeds.parse_feed(f"{HEAD}{items}</channel></rss>".encode()).items) == 2


@pytest.mark.parametrize("name", ["billion laughs", "a file"])
def test_entities_of_a_feed_are_not_expanded(name):
    head = {
        "billion laughs": BOMB,
        "a file": "<!DOCTYPE r [<!ENTITY i SYSTEM 'file:///etc/passwd'>]>",
    }[name]
    body = f"{head}{HEAD}<item><guid>1</guid><title>&i;</title></item></channel></rss>"
    title = feeds.parse_feed(body.encode()).items[0].title
    assert "root:" not in title
    assert len(title) < 20


def test_what_is_refused_is_named_as_it_was_given(tmp_path):
    other, feeds = tmp_path / "other.db", tmp_path / "feeds.csv"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE t (a)")
    with refused(f"{other} is a SQLite file, but not"):
        CrawlFeeds(store=other, dry_run=True).run()
    feeds.write_text("source,cost\nhttp://a.example/,1\nhttp://b.example/,-1\n")
    with refused("feeds.csv, row 3: cost is -1"):
        exchange.import_csv(Scheduler(":memory:", budget="2/h"), feeds)
