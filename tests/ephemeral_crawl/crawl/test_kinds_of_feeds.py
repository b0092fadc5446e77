"""Documents as sites have them: kinds of feeds, encodings, and pages that name a feed."""

import json

import pytest

from ephemeral_crawl.crawl.feeds import parse_feed
from tests.ephemeral_crawl.crawl.test_crawler import Bench, message
from tests.refusals import refused

DATE = 1_700_000_000.0
RSS = (
    '<?xml version="1.0"{encoding}?><rss version="2.0"><channel><title>Grüße</title>'
    "<item><guid>1</guid><title>Ä – 日本</title><link>/a</link>"
    "<pubDate>Tue, 14 Nov 2023 22:13:20 GMT</pubDate></item></channel></rss>"
)
ATOM = (
    '<?xml version="1.0"{encoding}?><feed xmlns="http://www.w3.org/2005/Atom">'
    "<title>Grüße</title><entry><id>1</id><title>Ä – 日本</title><link href='/a'/>"
    "<published>2023-11-14T23:13:20+01:00</published></entry></feed>"
)
RDF = (
    '<?xml version="1.0"{encoding}?><rdf:RDF xmlns="http://purl.org/rss/1.0/" '
    'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
    'xmlns:dc="http://purl.org/dc/elements/1.1/"><channel><title>Grüße</title></channel>'
    "<item rdf:about='1'><title>Ä – 日本</title><link>/a</link>"
    "<dc:date>2023-11-14T22:13:20Z</dc:date></item></rdf:RDF>"
)


def json_feed(**item):
    shown = {
        "id": 1,
        "title": "Ä – 日本",
        "url": "/a",
        "date_published": "2023-11-14T23:13:20+01:00",
    }
    items = [{**shown, **item}, "not an item", None]
    feed = {"version": "https://jsonfeed.org/version/1.1", "title": "Grüße", "items": items}
    return json.dumps(feed, ensure_ascii=False)


@pytest.mark.parametrize("text", [RSS, ATOM, RDF, json_feed()], ids=["rss", "atom", "rdf", "json"])
@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("named", [True, False])
def test_feeds_of_all_kinds_and_encodings_say_the_same(text, codec, named):
    if text.startswith("{"):
        bare = text
    else:
        name = "utf-8" if codec.startswith("utf-8") else "utf-16"
        bare = text.replace("{encoding}", f' encoding="{name}"' if named else "")
    marks = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}
    body = marks.get(codec, b"") + bare.encode(codec)
    found = parse_feed(body, url="https://example.org/feed")
    assert found.title == "Grüße"
    assert [(item.title, item.link, item.published) for item in found.items] == [
        ("Ä – 日本", "https://example.org/a", DATE)
    ]


@pytest.mark.parametrize(
    ("name", "title", "codec"),
    [
        ("UTF-16", "ä", "utf-8"),
        ("utf16", "ab ä", "utf-8"),
        ("utf16", "abc ä", "utf-8"),
        ("u16", "abc ä", "utf-8"),
        ("utf_32", "ä", "utf-8"),
        ("iso-8859-1", "“ä”", "windows-1252"),
        ("Shift_JIS", "①髙", "cp932"),
        ("x-sjis", "①髙", "cp932"),
        ("euc-kr", "똠방각하", "cp949"),
        ("gb2312", "镕€", "gb18030"),
        ("GBK", "镕€㐂", "gb18030"),
        ("big5", "㗎嘅", "big5hkscs"),
        ("windows-874", "ไทย…", "cp874"),
        ("iso-8859-8-i", "שלום", "iso-8859-8"),
    ],
)
def test_encodings_are_read_as_by_browsers(name, title, codec):
    """One character that a standard had not yet spoilt all others."""
    text = f"<rss version='2.0'><channel><item><title>{title}</title></item></channel></rss>"
    for declaration, header in (
        ("", f"text/xml; charset={name}"),
        (f"<?xml version='1.0' encoding='{name}'?>", "application/xml"),
    ):
        found = parse_feed((declaration + text).encode(codec), header)
        assert [item.title for item in found.items] == [title]


@pytest.mark.parametrize("header", ["", "text/xml", "text/xml; charset=utf-8"])
@pytest.mark.parametrize("encoding", ["", " encoding='utf-16'"])
def test_a_feed_in_utf_16_may_have_letters_of_ascii_alone(header, encoding):
    """Its bytes are UTF-8, too, and not XML as such."""
    item = "<item><title>a</title></item>"
    text = f"<?xml version='1.0'{encoding}?><rss><channel>{item}</channel></rss>"
    for body in (text.encode("utf-16"), b"\xfe\xff" + text.encode("utf-16-be")):
        assert [item.title for item in parse_feed(body, header).items] == ["a"]


@pytest.mark.parametrize(
    ("item", "title", "published"),
    [
        ({"title": 5, "date_published": None}, "", None),
        (
            {"date_published": "yesterday", "date_modified": "2023-11-14T22:13:20Z"},
            "Ä – 日本",
            DATE,
        ),
        ({"date_published": "0001-01-01T00:00:00+23:59"}, "Ä – 日本", None),
        ({"id": {"a": 1}, "url": ["x"], "external_url": 3}, "Ä – 日本", DATE),
        ({"id": None, "url": "http://[", "content_text": None}, "Ä – 日本", DATE),
    ],
)
def test_items_of_json_feeds_may_be_odd(item, title, published):
    (found,) = parse_feed(json_feed(**item).encode()).items
    assert (found.title, found.published) == (title, published)


def test_worths_are_read_from_json_feeds():
    (found,) = parse_feed(json_feed(votes="17").encode(), worth="votes").items
    assert found.worth == 17.0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "is cut off"),
        (b"{]", "its JSON is broken"),
        (b'{"version": "\xff"}', "its JSON is broken"),
        (b'{"items": []}', "not one of jsonfeed.org"),
        (b'{"version": "https://jsonfeed.org/version/1", "items": {}}', "without a list of items"),
        (b"<html><p>Hello", "an HTML page that names no feed"),
        (b"<html><link rel=alternate type=application/rss+xml href='http://['>", "names no feed"),
        (b"<html><link rel=alternate type=text/html href=/other>", "names no feed"),
        (b"<html><link rel=alternate type=application/rss+xml href='file:///x'>", "names no feed"),
    ],
)
def test_what_is_no_feed_is_refused(body, words):
    with refused(words):
        parse_feed(body, "text/html", "https://example.org/")


def test_a_json_feed_is_cut_off_wherever_it_ends():
    odd = [True, False, None, -1.5e-7, "\\n\U0001f600", {"a": {}}]
    for whole in (
        json_feed(odd=odd),
        json.dumps(json.loads(json_feed(odd=odd)), ensure_ascii=False),
    ):
        body = whole.encode()
        for size in range(1, len(body)):
            with refused("is cut off"):
                parse_feed(body[:size])


def page(link):
    return message(200, f"<!DOCTYPE html><html><head>{link}</head></html>".encode())


def test_the_feed_that_a_page_names_is_crawled_instead():
    bench = Bench()
    bench.site.answers["/home"] = page(
        '<base href="/deep/"><link rel="icon" href="x.png"><LINK REL="Alternate" '
        'TYPE="application/feed+json; charset=utf-8" HREF="news#top">'
    )
    bench.site.answers["/deep/news"] = message(200, json_feed().encode())
    bench.run(24.0, "/home")
    assert bench.visits[0].moved == bench.site.url("/deep/news")
    assert bench.visits[0].new == 1
    assert {visit.source for visit in bench.visits[1:]} == {bench.site.url("/deep/news")}
    assert bench.scheduler.sources() == [bench.site.url("/deep/news")]
    assert bench.scheduler.status().counts.failed == 0


@pytest.mark.parametrize(
    ("named", "words"), [(message(404), "which answers HTTP 404"), ("page", "is a page, too")]
)
def test_a_page_whose_feed_is_none_is_a_failure_that_says_so(named, words):
    bench = Bench()
    home = page('<link rel="alternate" type="application/atom+xml" href="/news">')
    bench.site.answers["/home"] = home
    bench.site.answers["/news"] = home if named == "page" else named
    bench.run(1.0, "/home")
    assert words in bench.visits[0].error
    assert bench.visits[0].kind == "format"
    assert bench.scheduler.sources() == [bench.site.url("/home")]


def changing(titles):
    """A feed of those titles, each of which has another identifier at every fetch."""
    fetches = []

    def answer(headers):
        fetches.append(None)
        items = [
            {"id": f"{len(fetches)}/{k}", "title": title, "url": f"/{title}"}
            for k, title in enumerate(titles(len(fetches)))
        ]
        feed = {"version": "https://jsonfeed.org/version/1.1", "items": items}
        return message(200, json.dumps(feed).encode())

    return answer


def test_items_whose_identifiers_change_are_known_by_link_title_and_date():
    bench = Bench()
    bench.site.answers["/a"] = changing(lambda n: [f"item {k}" for k in range(n, n + 4)])
    bench.run(24.0, "/a")
    number = len(bench.visits)
    assert number > 2
    assert [item["title"] for item in bench.items] == [f"item {k}" for k in range(1, number + 4)]
    assert [visit.unstable for visit in bench.visits] == [False, *(number - 1) * [True]]


def test_items_of_the_same_link_and_title_are_told_apart_by_their_identifiers():
    bench = Bench()
    bench.site.answers["/a"] = changing(lambda n: ["same", "same"])
    bench.run(24.0, "/a")
    assert len(bench.items) == 2 * len(bench.visits) > 4
    assert not any(visit.unstable for visit in bench.visits)


def test_items_that_share_an_identifier_are_told_apart_by_link():
    items = "".join(
        f"<item><guid>x</guid><title>{title}</title><link>https://a.org/{link}</link></item>"
        for title, link in (("old", 1), ("other", 2), ("new", 1))
    )
    found = parse_feed(f"<rss version='2.0'><channel>{items}</channel></rss>".encode()).items
    assert {item.title for item in found} == {"old", "other"}
