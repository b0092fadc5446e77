"""OPML, the format in which feed readers exchange subscriptions.

Files are read as a stream, in memory that does not grow with them. Entities are refused, and so are
declarations that refer to other files.
"""

from __future__ import annotations

import xml.sax
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import NamedTuple
from xml.sax.handler import ContentHandler
from xml.sax.saxutils import escape, quoteattr
from xml.sax.xmlreader import AttributesImpl

from crawl_env.errors import brief, shown
from crawl_env.files.atomic import write_text
from crawl_env.files.regular import regular

MOST_BYTES = 256 << 20
MOST_DEPTH = 100  # outlines within outlines
_LONGEST_TITLE = 500


class Subscription(NamedTuple):
    """A feed in an OPML file."""

    url: str  # as it is written there, unchecked
    title: str
    line: int


def read_opml(path: str | PathLike[str]) -> list[Subscription]:
    """Return the feeds of an OPML file in their order, those in nested outlines as well.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not OPML, is damaged or too large, is nested too deeply, or declares
            entities.
    """
    import defusedxml.sax
    from defusedxml import DefusedXmlException

    path = Path(regular(path))
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ValueError(f"{path} has {size:,} bytes; an OPML file has at most {MOST_BYTES:,}")
    handler = _Outlines()
    try:
        with path.open("rb") as file:
            defusedxml.sax.parse(file, handler)
    except xml.sax.SAXParseException as error:
        message = brief(error.getMessage())
        if "invalid token" in message:
            message += (
                "; often, an & is not written &amp;, or the file is in another encoding than UTF-8 "
                "and does not declare it"
            )
        raise ValueError(
            f"{path}, line {error.getLineNumber()}, column {(error.getColumnNumber() or 0) + 1}: "
            f"this is not well-formed XML: {message}"
        ) from None
    except DefusedXmlException:
        raise ValueError(
            f"{path} declares entities, which could read other files or fill the memory; remove "
            "the declarations"
        ) from None
    except (ValueError, LookupError, UnicodeError, xml.sax.SAXException) as error:
        raise ValueError(f"{path} is not an OPML file: {brief(error)}") from None
    return handler.feeds


class _Outlines(ContentHandler):
    """Collects the outlines that have the attribute xmlUrl."""

    def __init__(self) -> None:
        super().__init__()
        self.feeds: list[Subscription] = []
        self._depth = 0

    def startElement(self, name: str, attrs: AttributesImpl) -> None:
        if self._depth == 0 and name.lower() != "opml":
            raise ValueError(f"its root is <{shown(name)[1:-1]}>, not <opml>")
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise ValueError(f"outlines are nested more than {MOST_DEPTH} deep")
        if name.lower() != "outline":
            return
        attributes = {key.lower(): value for key, value in attrs.items()}
        if url := attributes.get("xmlurl", "").strip():
            title = attributes.get("title") or attributes.get("text") or ""
            line = self._locator.getLineNumber() if self._locator else 0  # type: ignore[attr-defined]
            self.feeds.append(Subscription(url, title.strip()[:_LONGEST_TITLE], line))

    def endElement(self, name: str) -> None:
        self._depth -= 1


def write_opml(path: str | PathLike[str], feeds: Iterable[tuple[str, str]], title: str) -> int:
    """Write URLs and titles as OPML 2.0; return how many.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "feeds.opml"
    >>> write_opml(path, [("https://example.org/feed?a&b", "<Example>")], "Feeds")
    1
    >>> [(feed.url, feed.title) for feed in read_opml(path)]
    [('https://example.org/feed?a&b', '<Example>')]
    """
    outlines = []
    for url, feed_title in feeds:
        name = quoteattr(feed_title or url)
        outlines.append(
            f'\n<outline type="rss" text={name} title={name} xmlUrl={quoteattr(url)}></outline>'
        )
    text = (
        '<?xml version="1.0" encoding="utf-8"?>\n<opml version="2.0">'
        f"<head><title>{escape(title)}</title></head><body>{''.join(outlines)}\n</body></opml>"
    )
    write_text(Path(path), text)
    return len(outlines)
