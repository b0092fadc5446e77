"""Sitemaps as https://www.sitemaps.org describes them: XML, news, index files, plain text, gzip."""

from __future__ import annotations

import io
import re
import xml.sax
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple
from xml.sax.handler import ContentHandler, feature_namespaces
from xml.sax.xmlreader import AttributesNSImpl

from crawl_env.errors import brief
from ephemeral_crawl.crawl.documents import CutOff, ends_early, unpacked
from ephemeral_crawl.crawl.urls import check_url

MOST_BYTES = 50 << 20  # of a sitemap, unpacked, by the protocol
MOST_ENTRIES = 50_000
_MOST_DEPTH = 20
_ROOT = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*+(?><\?.*?\?>\s*|<!--.*?-->\s*)*+<(?:[\w.-]+:)?(?:urlset|sitemapindex)\b",
    re.S,
)
_HEAD = 1 << 16  # bytes in which the root begins
_NOT_SPLIT = re.compile(r"^(\d{4})(?:-(\d\d))?$", re.ASCII)


class Entry(NamedTuple):
    """What a sitemap says of a page, or an index of a sitemap."""

    url: str  # as `check_url` returns it
    modified: float | None  # seconds since 1970; None if unknown
    title: str  # of news; ""


class Sitemap(NamedTuple):
    """A sitemap, or an index of sitemaps."""

    entries: list[Entry]  # at most MOST_ENTRIES
    is_index: bool
    refused: int  # number of entries that are left out, since they have no URL that is accepted


def is_sitemap(body: bytes) -> bool:
    """Return whether a document, as it is after `unpacked`, is a sitemap in XML.

    >>> is_sitemap(b"<?xml version='1.0'?><urlset>"), is_sitemap(b"<rss>")
    (True, False)
    """
    return _ROOT.match(body[:_HEAD]) is not None


def parse_sitemap(body: bytes) -> Sitemap:
    """Return what a sitemap lists: XML, or text with one URL a line; gzipped or not.

    Entries without a URL that `check_url` accepts are left out, and counted.

    Raises:
        CutOff: it ends too early.
        ValueError: it is not a sitemap, is damaged or too large, or declares entities.

    >>> page = b"<url><loc>https://example.org/a</loc><lastmod>1970-01-02</lastmod></url>"
    >>> parse_sitemap(b"<urlset>%b</urlset>" % page).entries
    [Entry(url='https://example.org/a', modified=86400.0, title='')]
    """
    body = unpacked(body, MOST_BYTES)
    if len(body) > MOST_BYTES:
        raise ValueError(f"a sitemap has at most {MOST_BYTES:,} bytes; this has {len(body):,}")
    handler = _Entries()
    if is_sitemap(body):
        _parse_xml(body, handler)
    else:
        for url in _lines(body):
            handler.add(url, "", "")
    return Sitemap(handler.entries, handler.is_index, handler.refused)


def _lines(body: bytes) -> Iterator[str]:
    """Return the lines of a sitemap in plain text."""
    try:
        lines = body.decode("utf-8-sig").split("\n", MOST_ENTRIES)
    except UnicodeDecodeError:
        lines = []
    urls = [line.strip() for line in lines[:MOST_ENTRIES] if line.strip()]
    if not urls or not urls[0].lower().startswith(("http://", "https://")):
        raise ValueError("the document is not a sitemap: neither XML nor one URL a line")
    yield from urls


def _parse_xml(body: bytes, handler: _Entries) -> None:
    import defusedxml.sax
    from defusedxml import DefusedXmlException

    parser = defusedxml.sax.make_parser()
    parser.setFeature(feature_namespaces, True)
    parser.setContentHandler(handler)
    try:
        parser.parse(io.BytesIO(body))
    except xml.sax.SAXParseException as error:
        if ends_early(error):
            raise CutOff from None
        raise ValueError(
            f"the XML of the sitemap is broken in line {error.getLineNumber()}: "
            f"{brief(error.getMessage())}"
        ) from None
    except DefusedXmlException:
        raise ValueError("the sitemap declares entities, which are refused") from None
    except (LookupError, UnicodeError, xml.sax.SAXException) as error:
        raise ValueError(f"the XML of the sitemap cannot be read: {brief(error)}") from None


class _Entries(ContentHandler):
    """Collects the elements <url> and <sitemap>."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        self.refused, self.is_index = 0, False
        self._path: list[str] = []
        self._fields: dict[str, str] = {}
        self._text: list[str] = []

    def add(self, url: str, modified: str, title: str) -> None:
        """Add an entry, of which only the first MOST_ENTRIES are kept."""
        if len(self.entries) >= MOST_ENTRIES:
            return
        try:
            self.entries.append(Entry(check_url(url), _time(modified), title))
        except ValueError:
            self.refused += 1

    def startElementNS(
        self, name: tuple[str | None, str], qname: str | None, attrs: AttributesNSImpl
    ) -> None:
        if not self._path:
            self.is_index = name[1] == "sitemapindex"
        self._path.append(name[1])
        if len(self._path) > _MOST_DEPTH:
            raise ValueError(f"the sitemap is nested more than {_MOST_DEPTH} deep")
        if len(self._path) == 2:
            self._fields = {}
        self._text = []

    def characters(self, content: str) -> None:
        self._text.append(content)

    def endElementNS(self, name: tuple[str | None, str], qname: str | None) -> None:
        path = "/".join(self._path[2:])
        if path in ("loc", "lastmod", "news/title", "news/publication_date"):
            self._fields.setdefault(path, "".join(self._text).strip())
        elif not path and name[1] == ("sitemap" if self.is_index else "url"):
            get = self._fields.get
            modified = get("lastmod") or get("news/publication_date", "")
            self.add(get("loc", ""), modified, get("news/title", ""))
        self._path.pop()
        self._text = []


def _time(text: str) -> float | None:
    """Return a date of the W3C's format, such as 2026-11, 2026-11-23 or with a time, UTC unless it
    says otherwise, in seconds since 1970; None if it is unreadable."""
    if year := _NOT_SPLIT.match(text):
        text = f"{year[1]}-{year[2] or '01'}-01"
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None
