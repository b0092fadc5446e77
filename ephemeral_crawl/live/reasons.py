"""Why the last fetch of a source came to nothing, in a few words for people."""

from __future__ import annotations

import re
from typing import Any

from crawl_env.errors import shown

LONGEST = 200  # characters of a reason
_RELEASED = 2  # outcome
_MOST = 10_000  # sources whose reasons are kept, the latest

# Credentials in URLs: user:password@ before a host, also if the text was cut within the password,
# and the values of parameters with such names. Each is found in a time that grows no faster than
# the text.
_USER = re.compile(r"(?<=://)(?:[^/\s?#<>]*@|[^/\s?#<>:]*:[^/\s?#<>]*(?=\.\.\.))")
_PARAMETER = re.compile(r"([?&;#][\w.%-]*=)([^&;#\s'\"<>]*)")
_SECRET = re.compile(r"token|secret|key|pass|pwd|auth|sig|session", re.IGNORECASE)


def redacted(text: str) -> str:
    """Return a text without the credentials of URLs in it.

    >>> redacted("no source 'https://me:pw@a.example/feed?x=1&api_key=abc'")
    "no source 'https://***@a.example/feed?x=1&api_key=***'"
    """
    return _PARAMETER.sub(_without_secret, _USER.sub("***@", text))


def _without_secret(parameter: re.Match[str]) -> str:
    return parameter[1] + "***" if _SECRET.search(parameter[1]) else parameter[0]


def reason_of(value: object) -> str:
    """Return a reason on one line, of at most 200 characters, without control characters and the
    credentials of URLs.

    >>> reason_of("cannot connect to\\n  https://me:pw@a.example/")
    'cannot connect to https://***@a.example/'
    """
    if not isinstance(value, str):
        raise ValueError(f"reason is {shown(value)}; give a text such as 'HTTP 500'")
    line = " ".join("".join(c if c.isprintable() else " " for c in redacted(value)).split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


class Reasons:
    """When and why leases of sources came to nothing, until they are fetched again."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[float, str]] = {}  # of rows

    def of(self, row: int) -> tuple[float, str] | None:
        """Return time and reason, None if there is none."""
        return self._found.get(row)

    def apply(self, event: dict[str, Any]) -> None:
        """Learn from an event of outcomes: its reasons are pairs (number of the outcome, text)."""
        given = dict(event.get("reasons", ()))
        if not given and not self._found:
            return
        for k, row in enumerate(event["row"]):
            if event["outcome"][k] != _RELEASED or k in given:  # fetched, or failed later
                self._found.pop(row, None)
            if k in given:
                self._found[row] = float(event["at"][k]), reason_of(given[k])
        while len(self._found) > _MOST:
            del self._found[next(iter(self._found))]

    def forget(self, row: int) -> None:
        """Forget a source."""
        self._found.pop(row, None)

    def rows(self) -> list[tuple[int, float, str]]:
        """Return what is known, as JSON can hold it."""
        return [(row, *found) for row, found in self._found.items()]

    @staticmethod
    def of_rows(rows: list[Any], number: int) -> Reasons:
        """Return what `rows` has returned, checked: rows are below a number."""
        reasons = Reasons()
        for row, at, text in rows:
            if not (isinstance(row, int) and 0 <= row < number):
                raise ValueError("a reason refers to a source that does not exist")
            reasons._found[row] = float(at), reason_of(text)
        return reasons
