"""Documents as they are received: gzipped, or cut off."""

from __future__ import annotations

import json
import re
import xml.sax
import zlib

GZIP = b"\x1f\x8b"
_PIECE = 1 << 14  # bytes that are unpacked at a time
_MOST_PARTS = 20_000  # of a gzipped document: empty ones, of 20 bytes each, would hold up a crawl
# What expat says of a document that ends too early.
_TOO_EARLY = "no element found", "unclosed token", "unclosed CDATA section", "partial character"
# What is left of a document of JSON where it is not as it should be, if it ends too early: nothing,
# or a part of a word, of a number or of the number of a character.
_PART = re.compile(r"(tr?u?|fa?l?s?|nu?l?|-|\.|[eE][+-]?|u[0-9a-fA-F]{0,4})?\s*", re.ASCII)


class CutOff(ValueError):
    """A document ends too early: another answer may be whole."""

    def __init__(self, kind: str = "document") -> None:
        super().__init__(f"the {kind} is cut off")


def unpacked(body: bytes, most_bytes: int) -> bytes:
    """Return a document without the gzip around it, if there is one. It may consist of several
    parts, each gzipped, as for gunzip.

    Raises:
        CutOff: the gzip ends too early.
        ValueError: it is damaged, or has more than `most_bytes` in it, or too many parts.
    """
    if not body.startswith(GZIP):
        return body
    parts, size, position, number = [], 0, 0, 0
    while body.startswith(GZIP, position):
        number += 1
        if number > _MOST_PARTS:
            raise ValueError(f"the gzipped document has more than {_MOST_PARTS:,} parts")
        decoder = zlib.decompressobj(31)
        while not decoder.eof:
            piece = body[position : position + _PIECE]
            if not piece:
                raise CutOff("gzipped document")
            try:
                parts.append(decoder.decompress(piece, most_bytes + 1 - size))
            except zlib.error:
                raise ValueError("the gzipped document is damaged") from None
            position += len(piece) - len(decoder.unused_data)
            size += len(parts[-1])
            if size > most_bytes:
                raise ValueError(f"unpacked, the document has more than {most_bytes:,} bytes")
    return b"".join(parts)


def ends_early(error: BaseException | None) -> bool:
    """Return whether a parser of XML or JSON fails since the document ends too early."""
    match error:
        case xml.sax.SAXParseException():
            return error.getMessage() in _TOO_EARLY
        case json.JSONDecodeError():
            is_unterminated = error.msg.startswith("Unterminated")
            return is_unterminated or _PART.fullmatch(error.doc, error.pos) is not None
        case UnicodeDecodeError():
            return error.reason == "unexpected end of data"
    return False
