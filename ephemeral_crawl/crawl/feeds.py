"""Feeds: items with an identity and a date, from documents that nobody vouches for.

A crawl parses them in another process, see `limited`.
"""

from __future__ import annotations

import calendar
import codecs
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from html.parser import HTMLParser
from typing import Any, NamedTuple, Protocol
from urllib.parse import urljoin, urlsplit
from xml.sax import SAXException, SAXParseException

from ephemeral_crawl.crawl.documents import CutOff, ends_early, unpacked
from ephemeral_crawl.crawl.sitemaps import MOST_BYTES, is_sitemap, parse_sitemap

MOST_ITEMS = 2000  # of a feed, the newest; further ones are not looked at
MOST_WORTH = 1e9
_LONGEST = 1000  # characters of a title or link
_NOT_A_FEED = "the document does not parse as a feed"
# Comments are not matched again where no element follows: that would take for ever.
_PAGE = re.compile(rb"(?:\xef\xbb\xbf)?\s*+(?><!--.*?-->\s*)*+<(?:!doctype\s+)?html\b", re.I | re.S)
_XML = re.compile(rb"(?:\xef\xbb\xbf)?\s*<\?xml\b")
_ITEM = re.compile(rb"<(/?)(?:[\w.-]+:)?(?:item|entry)\b", re.I)  # where one begins, or ends
_DECLARED = 200  # bytes in which a document declares its encoding
_ENCODING = re.compile(rb"""\A(\s*<\?xml[^>]{0,100}?encoding\s*=\s*["'])([\w.:-]+)""", re.I)
_CHARSET = re.compile(r"""(;\s*charset\s*=\s*["']?)([\w.:-]+)""", re.I)
# Encodings by Python's names, and names that it does not know, as browsers read them: with the
# characters that were added later (https://encoding.spec.whatwg.org).
_AS_BROWSERS = {
    **dict.fromkeys(("shift_jis", "x-sjis", "windows-31j"), "cp932"),
    **dict.fromkeys(("euc_kr", "windows-949"), "cp949"),
    **dict.fromkeys(("gb2312", "gbk", "x-gbk"), "gb18030"),
    "big5": "big5hkscs",
    "x-euc-jp": "euc-jp",
    "windows-874": "cp874",
    "iso-8859-8-i": "iso-8859-8",
}
_BY_NUMBER = re.compile(rb"&#(x[0-9a-f]{1,8}|[0-9]{1,10});", re.I)
_HEAD = 2**18  # bytes of a page in which it names its feeds
_FEED_TYPES = ("application/rss+xml", "application/atom+xml", "application/feed+json")
# How a date with a day begins; of others, feedparser takes what is missing from today.
_DAY = re.compile(r"\s*([^\W\d]|\d\d?[\s-]+[^\W\d]|\d{4}-\d\d?-\d|\d{8}(\d{6})?(?!\d))")
_PERIODS = {"hourly": 3600.0, "daily": 86_400.0, "weekly": 604_800.0, "monthly": 2_592_000.0}
_PERIODS["yearly"] = 31_536_000.0


class FeedItem(NamedTuple):
    """An item of a feed."""

    key: int  # identity within the feed, 64 bits
    alias: int  # the same by link, title and date, for feeds whose identifiers change; 0: none
    title: str
    link: str  # absolute http or https URL, or ""
    published: float | None  # seconds since 1970; None if unknown
    worth: float


class Feed(NamedTuple):
    """A feed."""

    title: str
    items: list[FeedItem]  # at most MOST_ITEMS
    pause: float  # seconds for which it asks not to be fetched again: ttl, or syn:updatePeriod
    elsewhere: str = ""  # of a page that names a feed, the address of that
    announces: bool = False  # whether it is a sitemap: its items may be other sources
    is_index: bool = False  # whether these are sitemaps, rather than pages
    hub: str = ""  # of WebSub, which it names
    topic: str = ""  # and the address by which the hub knows it


class Parser(Protocol):
    """A function that parses documents as feeds."""

    async def __call__(self, body: bytes, content_type: str, url: str) -> Feed:
        """Return the feed; raise ValueError if it is none, FetchError if it cannot be read, such as
        in the time that there is."""
        ...


def parse_feed(body: bytes, content_type: str = "", url: str = "", worth: str = "") -> Feed:
    """Return the feed that a document holds, RSS, Atom, RDF or JSON Feed, or the address of the
    feed that an HTML page names.

    A sitemap in XML, gzipped or not, is a feed, too: an address with another date is a new item.

    Arguments:
        content_type: header of that name, which may tell the encoding.
        url: to which links are relative.
        worth: field of an item, as feedparser calls it, that states its worth; default: 1 each.

    Raises:
        CutOff: it ends before its first item does, or within its JSON.
        ValueError: it is not a feed.

    >>> item = b"<item><guid>1</guid><pubDate>Thu, 01 Jan 1970 00:01:00 GMT</pubDate></item>"
    >>> feed = parse_feed(b"<rss version='2.0'><channel><ttl>60</ttl>%b</channel></rss>" % item)
    >>> feed.pause, feed.items[0].published
    (3600.0, 60.0)
    """
    body = unpacked(body, MOST_BYTES)
    if body.startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE)):  # whatever the header says
        body, content_type = body.decode("utf-16", "replace").encode(), ""
    if is_sitemap(body):
        return _sitemap(body)
    if _is_json(body):
        content = _json_feed(body)
    elif is_page(body) and (elsewhere := _feed_address(body, url)):
        return Feed("", [], 0.0, elsewhere)
    else:
        content = _xml_feed(body, content_type)
    items = [_item(entry, url, worth) for entry in content.entries]
    if len(items) > MOST_ITEMS:  # those without a date may be the newest
        items.sort(key=lambda item: -math.inf if item.published is None else -item.published)
    items = _told_apart(items[:MOST_ITEMS])
    unique = {item.key: item for item in reversed(items)}
    return Feed(
        _text(content.feed.get("title")),
        list(reversed(unique.values())),
        _pause(content.feed),
        hub=_link_target(content.feed, "hub"),
        topic=_link_target(content.feed, "self"),
    )


def _sitemap(body: bytes) -> Feed:
    """Return the entries of a sitemap as items, those with the latest dates first."""
    entries, is_index, _ = parse_sitemap(body)
    entries.sort(key=lambda entry: math.inf if entry.modified is None else -entry.modified)
    items = []
    for url, modified, title in entries:
        items.append(FeedItem(_key(f"{url}\n{modified}"), 0, _text(title), url, modified, 1.0))
    unique = {item.key: item for item in items}
    return Feed("", list(unique.values())[:MOST_ITEMS], 0.0, announces=True, is_index=is_index)


def is_page(body: bytes) -> bool:
    """Return whether a document is an HTML page.

    >>> is_page(b"<!doctype html><html>"), is_page(b"<rss>")
    (True, False)
    """
    return _PAGE.match(body) is not None


class _Content(NamedTuple):
    """What a document says, in feedparser's words."""

    feed: Mapping[str, Any]
    entries: Sequence[Mapping[str, Any]]


def _is_json(body: bytes) -> bool:
    start = body[:100].replace(b"\0", b"")  # in UTF-16
    return start.lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n").startswith(b"{")


def _json_feed(body: bytes) -> _Content:
    """Read a feed of https://jsonfeed.org, version 1 or 1.1."""
    try:
        feed = json.loads(body)
    except (ValueError, UnicodeDecodeError) as error:
        if ends_early(error):
            raise CutOff from None
        raise ValueError(f"{_NOT_A_FEED}: its JSON is broken, {error}") from error
    if "jsonfeed.org/version/" not in str(feed.get("version")):
        raise ValueError(f"{_NOT_A_FEED}: it is JSON, but its version is not one of jsonfeed.org")
    items = feed.get("items")
    if not isinstance(items, list):
        raise ValueError(f"{_NOT_A_FEED}: it is a JSON Feed without a list of items")
    hubs, feed["links"] = feed.get("hubs"), [{"rel": "self", "href": feed.get("feed_url")}]
    for hub in hubs if isinstance(hubs, list) else []:
        if isinstance(hub, dict) and str(hub.get("type")).lower() == "websub":
            feed["links"].append({"rel": "hub", "href": hub.get("url")})
    return _Content(feed, [_json_entry(item) for item in items if isinstance(item, dict)])


def _json_entry(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item of a JSON Feed in feedparser's words."""
    identity, entry = item.get("id"), dict(item)
    entry["id"] = str(identity) if isinstance(identity, (str, int, float)) else ""
    entry["link"] = item.get("url") or item.get("external_url")
    entry["summary"] = item.get("content_text") or item.get("content_html") or item.get("summary")
    for name in ("published", "modified"):
        with suppress(TypeError, ValueError, OverflowError):
            moment = datetime.fromisoformat(str(item.get(f"date_{name}")))
            entry.setdefault("published_parsed", moment.utctimetuple())
    return entry


def _xml_feed(body: bytes, content_type: str) -> Any:
    is_wide = b"\0" in body[:_DECLARED]
    body = _ENCODING.sub(lambda m: m[1] + _codec(m[2].decode(), is_wide).encode(), body, count=1)
    content_type = _CHARSET.sub(lambda m: m[1] + _codec(m[2], is_wide), content_type.lower())
    try:
        try:
            content = _read_xml(body, content_type)
        except ValueError:  # characters by number that do not exist
            content = _read_xml(_BY_NUMBER.sub(_existing, body), content_type)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # documents are found that no parser is ready for
        raise ValueError(f"{_NOT_A_FEED}: the parser fails on it") from error
    # Flaws that leave items, or that concern the encoding alone, are no reason to refuse a feed.
    flaw = content.get("bozo_exception")
    is_broken = isinstance(flaw, SAXException)
    if ends_early(flaw) and (content.get("version") or _XML.match(body)):
        if content.entries and _ITEM.findall(body)[-1:] != [b"/"]:
            del content.entries[-1]  # of which a part is missing
        if not content.entries and not is_page(body):
            raise CutOff
    if not content.entries and (is_broken or not content.get("version")):
        raise ValueError(_why_not(content, body))
    return content


def _codec(name: str, is_wide: bool) -> str:
    """Return the encoding that is meant by a name: without zeros, it is not UTF-16 or UTF-32."""
    try:
        known = codecs.lookup(name).name
    except LookupError:
        known = name.lower()
    if known.startswith(("utf-16", "utf-32")) and not is_wide:
        return "utf-8"
    return _AS_BROWSERS.get(known, name)


def _read_xml(body: bytes, content_type: str) -> Any:
    import feedparser

    # A stream, since of bytes feedparser would ask whether they are the name of a file.
    return feedparser.parse(
        io.BytesIO(body),
        response_headers={"content-type": content_type or "application/xml"},
        sanitize_html=False,
        resolve_relative_uris=False,
    )


def _existing(number: re.Match[bytes]) -> bytes:
    """Return a character by number, a space if there is none of this number."""
    digits = number[1].decode().lower()
    value = int(digits[1:], 16) if digits.startswith("x") else int(digits)
    exists = 0 < value < 0xD800 or 0xE000 <= value < 0x110000
    return number[0] if exists else b" "


def _why_not(content: Any, body: bytes) -> str:
    """Return why a document is not a feed."""
    if not body.strip():
        return f"{_NOT_A_FEED}: it is empty"
    if is_page(body):
        return f"{_NOT_A_FEED}: it is an HTML page that names no feed"
    error = content.get("bozo_exception")
    if content.get("version") and isinstance(error, SAXParseException):
        return f"{_NOT_A_FEED}: its XML is broken, {error.getMessage()}"
    return _NOT_A_FEED


class _Links(HTMLParser):
    """Collects the addresses of the feeds that a page names."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.addresses = "", list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "base":
            self.base = self.base or attributes.get("href", "")
        kind = attributes.get("type", "").partition(";")[0].strip().lower()
        alternate = "alternate" in attributes.get("rel", "").lower().split()
        if tag == "link" and alternate and kind in _FEED_TYPES and attributes.get("href"):
            self.addresses.append(attributes["href"])


def _feed_address(body: bytes, url: str) -> str:
    """Return the absolute address of the first feed that a page names; "" if it names none."""
    links = _Links()
    with suppress(AssertionError, ValueError):  # pages for which the parser is not ready
        links.feed(body[:_HEAD].decode("utf-8", "replace"))
    for address in links.addresses:
        with suppress(ValueError):
            whole = urljoin(urljoin(url, links.base), address.strip())
            _ = urlsplit(whole).port
            if whole.startswith(("http://", "https://")):
                return whole
    return ""


def _item(entry: Any, url: str, worth: str) -> FeedItem:
    link, title, published = _text(entry.get("link")), _text(entry.get("title")), _date(entry)
    try:
        address = urljoin(url, link) if link else ""
        _ = urlsplit(address).port  # refused if it is not a URL
    except ValueError:
        address = ""
    identity = (
        _text(entry.get("id"), 10_000)
        or address
        or f"{entry.get('title', '')}\n{entry.get('summary', '')}"
    )
    return FeedItem(
        _key(identity),
        _key(f"{address}\n{title}\n{published}") if address and title else 0,
        title,
        address if address.startswith(("http://", "https://")) else "",
        published,
        _worth(entry.get(worth)) if worth else 1.0,
    )


def _told_apart(items: list[FeedItem]) -> list[FeedItem]:
    """Return items, of which those that share an identifier and have different links are known by
    their links: versions of one item share these, too."""
    links: dict[int, set[str]] = {item.key: set() for item in items}
    for item in items:
        links[item.key].add(item.link)
    return [
        item._replace(key=_key(item.link)) if item.link and len(links[item.key]) > 1 else item
        for item in items
    ]


def _key(identity: str) -> int:
    digest = blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _date(entry: Any) -> float | None:
    for name in ("published", "updated"):
        with suppress(TypeError, ValueError, OverflowError):
            # Asked for one date, the entry itself may return the other, with a warning.
            moment, text = (dict.get(entry, key) for key in (f"{name}_parsed", name))
            if moment and (text is None or _DAY.match(text)):
                return float(calendar.timegm(moment))
    return None


def _worth(text: object) -> float:
    try:
        value = float(str(text)[:50])
    except ValueError:
        return 1.0
    return min(value, MOST_WORTH) if value >= 0.0 else 1.0


def _pause(feed: Any) -> float:
    """Return the seconds for which the feed may be kept: minutes in ttl, or a period ÷ frequency,
    the longer of the two."""
    pauses = [0.0]
    with suppress(ValueError):
        pauses.append(60.0 * float(str(feed.get("ttl", "")).strip()[:12]))
    period = str(feed.get("sy_updateperiod", "")).strip().lower()
    if period in _PERIODS:
        often = 1.0
        with suppress(ValueError):
            often = max(float(str(feed.get("sy_updatefrequency", "1")).strip()[:12]), 1e-3)
        pauses.append(_PERIODS[period] / often)
    return max((x for x in pauses if 0.0 <= x < 1e9), default=0.0)


def _link_target(feed: Any, relation: str) -> str:
    """Return the first address to which a feed has a relation."""
    for link in feed.get("links") or []:
        if str(link.get("rel", "")).lower() == relation and _text(link.get("href")):
            return _text(link["href"])
    return ""


def _text(value: object, longest: int = _LONGEST) -> str:
    """Return text on one line without control characters and surrogates."""
    if not isinstance(value, str):
        return ""
    printable = (c if c.isprintable() else " " for c in value[:longest])
    return " ".join("".join(printable).split())
