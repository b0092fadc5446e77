"""Two hundred odd feeds: four kinds of documents, and what is found of them in the wild.

Each is the same feed of two items, but for one oddity. What is expected of an oddity is what is
read of the first item in place of `USUAL`, or why the document is refused.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

DATE = 1_700_000_000.0  # 2023-11-14T22:13:20Z
USUAL = {"title": "Größe – 1", "link": "https://example.org/1", "published": DATE, "items": 2}
URL = "https://example.org/feeds/main.xml"

RFC, ISO = "Tue, 14 Nov 2023 22:13:20 GMT", "2023-11-14T22:13:20Z"
_RSS_ITEM = "<item>{id}<title>{title}</title><link>{link}</link><pubDate>{date}</pubDate></item>"
_RDF_ITEM = (
    "<item rdf:about='{id}'><title>{title}</title><link>{link}</link>"
    "<dc:date>{date}</dc:date></item>"
)
_ATOM_ITEM = (
    "<entry>{id}<title>{title}</title><link href='{link}'/><updated>{date}</updated></entry>"
)
_HEADS = {
    "rss": ("<rss version='2.0'><channel><title>Feed</title>{head}", "</channel></rss>"),
    "atom": ("<feed xmlns='http://www.w3.org/2005/Atom'><title>Feed</title>{head}", "</feed>"),
    "rdf": (
        "<rdf:RDF xmlns='http://purl.org/rss/1.0/' "
        "xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#' "
        "xmlns:dc='http://purl.org/dc/elements/1.1/'><channel><title>Feed</title>{head}</channel>",
        "</rdf:RDF>",
    ),
}
_ITEMS = {"rss": _RSS_ITEM, "atom": _ATOM_ITEM, "rdf": _RDF_ITEM}
_IDS = {"rss": "<guid>{}</guid>", "atom": "<id>{}</id>", "rdf": "{}"}
XML = tuple(_HEADS)
_DECLARATION = "<?xml version='1.0' encoding='utf-8'?>"


class Odd(NamedTuple):
    """A document, and what is read of it."""

    name: str
    body: bytes
    expected: dict[str, Any] | str  # of the first item; or words of the refusal


def xml(
    kind: str,
    *,
    declaration: str = _DECLARATION,
    head: str = "",
    title: str = "Größe – 1",
    link: str = "https://example.org/1",
    id: str | None = "urn:1",
    date: str | None = None,
    more: str = "",
) -> str:
    """Return a feed of two items as XML."""
    begin, end = _HEADS[kind]
    date = date if date is not None else (RFC if kind == "rss" else ISO)
    own = "" if id is None else _IDS[kind].format(id)
    first = _ITEMS[kind].format(id=own, title=title, link=link, date=date)
    second = _ITEMS[kind].format(
        id=_IDS[kind].format("urn:2"), title="Zwei", link="https://example.org/2", date=ISO
    )
    return declaration + begin.format(head=head) + first + more + second + end


def json_feed(**changes: Any) -> str:
    """Return a feed of two items as JSON."""
    first = {"id": "1", "title": USUAL["title"], "url": USUAL["link"], "date_published": ISO}
    second = {"id": "2", "title": "Zwei", "url": "https://example.org/2", "date_published": ISO}
    feed: dict[str, Any] = {"version": "https://jsonfeed.org/version/1.1", "title": "Feed"}
    top = {name: value for name, value in changes.items() if name in ("version", "items", "hubs")}
    item = {name: value for name, value in changes.items() if name not in top}
    return json.dumps({**feed, "items": [{**first, **item}, second], **top}, ensure_ascii=False)


Change = Callable[[str], str | bytes]

# Name, what becomes of the text of a feed in XML, and what is expected.
TEXTS: list[tuple[str, Change, dict[str, Any] | str]] = [
    ("as it should be", str, {}),
    ("no declaration", lambda t: t.removeprefix(_DECLARATION), {}),
    ("space before the declaration", lambda t: "\n\n  " + t, {}),
    ("byte order mark", lambda t: t.encode("utf-8-sig"), {}),
    ("UTF-16", lambda t: t.replace("utf-8", "utf-16").encode("utf-16"), {}),
    ("UTF-16 that is declared as UTF-8", lambda t: t.encode("utf-16"), {}),
    ("UTF-8 that is declared as UTF-16", lambda t: t.replace("utf-8", "utf-16"), {}),
    (
        "Windows-1252",
        lambda t: t.replace("utf-8", "windows-1252").encode("windows-1252"),
        {},
    ),
    ("Windows-1252 that is declared as UTF-8", lambda t: t.encode("windows-1252"), {}),
    (
        "Windows-1252 that is declared as Latin-1",
        lambda t: t.replace("utf-8", "iso-8859-1").encode("windows-1252"),
        {},
    ),
    ("an encoding that does not exist", lambda t: t.replace("utf-8", "utf-99"), {}),
    ("gzip", lambda t: gzip.compress(t.encode()), {}),
    ("lines of Windows", lambda t: t.replace("><", ">\r\n<"), {}),
    ("comment before the root", lambda t: t.replace("?>", "?><!-- <html> -->", 1), {}),
    ("style sheet", lambda t: t.replace("?>", "?><?xml-stylesheet href='a.xsl'?>", 1), {}),
    (
        "document type",
        lambda t: t.replace(
            "?>", "?><!DOCTYPE rss PUBLIC '-//N//DTD' 'http://a.example/r.dtd'>", 1
        ),
        {},
    ),
    ("script behind the root", lambda t: t + "<script>track()</script>", {}),
    ("text behind the root", lambda t: t + "\n<!-- 0.1 s -->\n\0\0", {}),
    ("warning of PHP before it", lambda t: "<br />\n<b>Warning</b>: x on line 3<br />\n" + t, {}),
    ("without its last line", lambda t: t[: t.rindex("</")], {}),
    ("cut off in the second item", lambda t: t[: t.index("Zwei") + 2], {"items": 1}),
    ("cut off before any item", lambda t: t[: t.index("Feed")], "is cut off"),
    ("control characters", lambda t: t.replace("Zwei", "Z\x0b\x1fwei"), {}),
    ("bytes that are zero", lambda t: t.replace("Zwei", "Z\0wei"), {}),
    ("a lone ampersand", lambda t: t.replace("Zwei", "AT&T & Co"), {}),
    ("a name of HTML", lambda t: t.replace("Zwei", "Z&nbsp;w&eacute;i"), {}),
    ("a prefix that is not declared", lambda t: t.replace("Zwei", "Zwei<x:y z='1'/>"), {}),
    ("a surrogate by number", lambda t: t.replace("Zwei", "&#xD800;&#0;&#x110000;"), {}),
    ("elements that overlap", lambda t: t.replace("Zwei", "<b><i>Zwei</b></i>"), {}),
    ("an attribute without quotes", lambda t: t.replace("Zwei", "<b class=x>Zwei</b>"), {}),
    ("nested two thousand deep", lambda t: t.replace("Zwei", "<b>" * 2000 + "</b>" * 2000), {}),
    (
        "entities that multiply",
        lambda t: t.replace(
            "?>",
            "?><!DOCTYPE x [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;'>]>",
            1,
        ).replace("Zwei", "&b;"),
        {},
    ),
    (
        "a file as an entity",
        lambda t: t.replace(
            "?>", "?><!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/hostname'>]>", 1
        ).replace("Zwei", "&a;"),
        {},
    ),
    ("cheerful characters", lambda t: t.replace("Zwei", "\N{BUG}\u202e\u2028"), {}),
]

# Name, arguments of `xml`, and what is expected.
PARTS: list[tuple[str, dict[str, Any], dict[str, Any] | str]] = [
    ("a title in CDATA", {"title": "<![CDATA[Größe – 1]]>"}, {}),
    ("a title with lines", {"title": "\n  Größe\n–\t1 "}, {}),
    ("a title by numbers", {"title": "Gr&#246;&#xDF;e &#8211; 1"}, {}),
    ("no title", {"title": ""}, {"title": ""}),
    ("a long title", {"title": "x" * 100_000}, {"title": "x" * 1000}),
    ("no identifier", {"id": None}, {}),
    ("an empty identifier", {"id": " "}, {}),
    ("an identifier of both", {"id": "urn:2"}, {}),
    ("a relative link", {"link": "/1"}, {}),
    ("a relative link of the folder", {"link": "../1"}, {}),
    ("a link without a scheme", {"link": "//example.org/1"}, {}),
    ("a link with space around", {"link": " https://example.org/1\n"}, {}),
    ("a link that runs", {"link": "javascript:alert(1)"}, {"link": ""}),
    ("a link that is no URL", {"link": "http://[::1"}, {"link": ""}),
    ("no link", {"link": ""}, {"link": ""}),
    ("no date", {"date": ""}, {"published": None}),
    ("a date of words", {"date": "yesterday"}, {"published": None}),
    ("a date that is none", {"date": "n/a"}, {"published": None}),
    # The parser took the month and the day from today.
    ("a date of only a year", {"date": "2023."}, {"published": None}),
    ("a date of only a month", {"date": "2023-11"}, {"published": None}),
    ("a date with strokes", {"date": "2023/11/14 22:13:20"}, {"published": None}),
    ("a date in Japanese", {"date": "2023年11月14日"}, {"published": None}),
    ("a date of seconds", {"date": "1700000000"}, {"published": None}),
    ("a date of only a time", {"date": "22:13"}, {"published": None}),
    ("a date without separators", {"date": "20231114"}, {"published": DATE - 80_000.0}),
    ("a date of the other format", {"date": ISO}, {}),
    ("a date without a zone", {"date": "2023-11-14T22:13:20"}, {}),
    ("a date with a zone", {"date": "2023-11-15T00:13:20+02:00"}, {}),
    ("a date of two digits", {"date": "Tue, 14 Nov 23 22:13:20 GMT"}, {}),
    ("a date without the day", {"date": "14 Nov 2023 22:13:20 +0000"}, {}),
    ("a date with parts of seconds", {"date": "2023-11-14T22:13:20.987Z"}, {}),
    ("another item that is empty", {"more": "<item/>"}, {"items": 3}),
    ("words of its own", {"head": "<x:y xmlns:x='urn:x'><x:z/></x:y>"}, {}),
    ("a time to live of words", {"head": "<ttl>soon</ttl>"}, {}),
]

# Name, arguments of `json_feed`, and what is expected.
JSONS: list[tuple[str, dict[str, Any], dict[str, Any] | str]] = [
    ("as it should be", {}, {}),
    ("version 1", {"version": "https://jsonfeed.org/version/1"}, {}),
    ("no version", {"version": None}, "version"),
    ("no items", {"items": None}, "without a list"),
    ("items that are none", {"items": [1, None, "x", []]}, {"items": 0}),
    ("a number as the identifier", {"id": 1}, {}),
    ("no identifier", {"id": None}, {}),
    ("an object as the identifier", {"id": {}}, {}),
    ("no title", {"title": None}, {"title": ""}),
    ("a list as the title", {"title": ["x"]}, {"title": ""}),
    ("a link elsewhere", {"url": None, "external_url": "https://example.org/1"}, {}),
    ("a relative link", {"url": "/1"}, {}),
    ("a link that runs", {"url": "javascript:alert(1)"}, {"link": ""}),
    ("a number as the date", {"date_published": 1_700_000_000}, {"published": None}),
    ("only a date of change", {"date_published": None, "date_modified": ISO}, {}),
    ("a date with a zone", {"date_published": "2023-11-15T00:13:20+02:00"}, {}),
    ("a lone surrogate", {"title": b"\\ud800".decode("unicode_escape")}, {"title": ""}),
    ("hubs that are none", {"hubs": {"type": "WebSub"}}, {}),
]


def corpus() -> Iterator[Odd]:
    """Return the documents."""
    for kind in XML:
        for name, change, expected in TEXTS:
            text = change(xml(kind))
            body = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
            yield Odd(f"{kind}: {name}", body, expected)
        for name, parts, expected in PARTS:
            yield Odd(f"{kind}: {name}", xml(kind, **parts).encode(), expected)
    for name, changes, expected in JSONS:
        body = json_feed(**changes).encode("utf-8", "surrogatepass")
        yield Odd(f"json: {name}", body, expected)
    for codec in ("utf-8-sig", "utf-16"):
        yield Odd(f"json: {codec}", json_feed().encode(codec), {})
    yield Odd("json: cut off", json_feed().encode()[:-9], "is cut off")
    yield Odd("json: space before it", b"\n\n " + json_feed().encode(), {})
