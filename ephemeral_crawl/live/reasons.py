"""Why fetches fail: the causes that are told apart, with what can be done about each, and the texts
that crawlers give."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from crawl_env.errors import shown
from ephemeral_crawl.live.arguments import name_of

# The kinds of failure in reports; "http": see the status; "refused": by rules of one's own.
Kind = Literal[
    "dns", "connection", "timeout", "tls", "incomplete", "content", "format", "refused", "http"
]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Cause(NamedTuple):
    """Why a fetch fails, for people."""

    meaning: str  # what happened, if nothing more exact is known
    advice: str  # what to do if the source will hardly answer again


CAUSES: Mapping[str, Cause] = MappingProxyType(
    {
        "unknown": Cause(
            "the fetch failed", "open its address to see what is wrong; correct it, or remove it"
        ),
        "dns": Cause(
            "the name of its host does not resolve",
            "check the spelling of its address; if the domain is gone, look for the feed's new "
            "address, or remove it",
        ),
        "connection": Cause(
            "there is no connection to its server, or it breaks off",
            "check host and port of its address; if the server is gone, look for the feed's new "
            "address, or remove it",
        ),
        "timeout": Cause(
            "its server did not answer in time",
            "open its address: if it answers slowly, allow more time; if not at all, remove it",
        ),
        "tls": Cause(
            "there is no secure connection to its server",
            "if the certificate has expired, belongs to another host or is sent without those in "
            "between, tell its operator; if an authority of your own has signed it, let the "
            "crawler trust that authority, as by SSL_CERT_FILE",
        ),
        "incomplete": Cause(
            "its server breaks off the answer",
            "open its address: if it is always cut off, tell its operator, or remove it",
        ),
        "content": Cause(
            "the answer cannot be used",
            "look at what its address returns: it may be larger than is allowed, or redirected in "
            "a circle; correct the address, or remove it",
        ),
        "format": Cause(
            "the answer does not parse as a feed",
            "open its address: where there is a page instead, look on it for the feed's new "
            "address; where the feed is broken, tell its operator",
        ),
        "missing": Cause(  # 404
            "its server has nothing at this address",
            "look for the feed's new address on its site, or remove it",
        ),
        "gone": Cause(  # 410
            "its server says that it was removed for good",
            "look for the feed's new address on its site, or remove it",
        ),
        "forbidden": Cause(  # 401, 403, 407
            "its server refuses access",
            "ask its operator for access; it may suffice to say in the user agent who you are",
        ),
        "refused": Cause(  # other 4xx, or by rules of one's own
            "the request was refused",
            "check its address, and the rules by which it was refused",
        ),
        "busy": Cause(  # 429
            "its server has had too many requests", "fetch its host more rarely"
        ),
        "server": Cause(  # 5xx
            "its server failed", "tell its operator, look for another address, or remove it"
        ),
        # Many different sources in a row have failed.
        "network": Cause(
            "one's own network seems to have failed", "check the network of this machine"
        ),
    }
)
# The causes of which `life` knows how long they last, by the numbers that are stored, and others
# that are like one of them.
UNREACHED = ("unknown", "dns", "connection", "timeout")  # which may be due to one's own network
LEARNT = (*UNREACHED, "content", "missing", "gone", "refused", "busy", "server", "network")
_LIKE = {"tls": "refused", "incomplete": "busy", "format": "content", "forbidden": "refused"}
_STATUSES = {
    **dict.fromkeys((401, 403, 407), "forbidden"),
    404: "missing",
    408: "timeout",
    410: "gone",
    429: "busy",
}


def cause_of(kind: str | None, status: int | None) -> str:
    """Return the name of the cause of a failure, one of `CAUSES`.

    Arguments:
        kind: one of `KINDS`; "http" or None: the status tells.
        status: that of HTTP, if there was an answer.

    >>> cause_of("dns", None), cause_of("http", 404), cause_of(None, 503), cause_of(None, None)
    ('dns', 'missing', 'server', 'unknown')
    >>> cause_of("http", 206)  # there was an answer, so that one's own network has not failed
    'content'
    """
    if kind is not None and kind != "http":
        return kind
    if status is None:
        return "unknown"
    if status < 400:
        return "content"
    return _STATUSES.get(status, "refused" if status < 500 else "server")


def number_of(cause: str) -> int:
    """Return the position in `LEARNT` of a cause, or of the cause as which it counts."""
    return LEARNT.index(_LIKE.get(cause, cause))


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


def reason_of(value: object, longest: int = LONGEST) -> str:
    """Return a reason on one line, of at most `longest` characters, without control characters, the
    credentials of URLs, and a full stop at its end.

    >>> reason_of("cannot connect to\\n  https://me:pw@a.example/.")
    'cannot connect to https://***@a.example/'
    """
    if not isinstance(value, str):
        raise ValueError(f"reason is {shown(value)}; give a text such as 'HTTP 500'")
    line = " ".join("".join(c if c.isprintable() else " " for c in redacted(value)).split())
    line = line.rstrip(" .")
    return line if len(line) <= longest else line[: longest - 1] + "…"


class Reason(NamedTuple):
    """Why a lease or a fetch had no result."""

    at: float
    text: str
    cause: str  # one of `reasons.CAUSES`; "" if it was released


class Reasons:
    """When and why the last lease of a source had no result, until it is fetched again; and when a
    source was renamed, with its former name."""

    def __init__(self) -> None:
        self.failures: dict[int, Reason] = {}  # of rows
        self._renamed: dict[int, tuple[float, str]] = {}  # time and name before, of rows

    def of(self, row: int) -> Reason | None:
        """Return the reason, None if there is none."""
        return self.failures.get(row)

    def renamed(self, row: int) -> tuple[float, str] | None:
        """Return when a source was last renamed, and its name before; None if it never was."""
        return self._renamed.get(row)

    def apply(self, event: dict[str, Any]) -> None:
        """Learn from an event of outcomes: its reasons are number of the outcome, text and, of a
        failure, its cause."""
        reasons = {k: _reason(event["at"][k], *rest) for k, *rest in event.get("reasons", ())}
        for k, row in enumerate(event["row"]):
            if event["outcome"][k] != _RELEASED or k in reasons:  # fetched, or failed later
                self.failures.pop(row, None)
            if k in reasons:
                self.failures[row] = reasons[k]
        _forget_first(self.failures)

    def rename(self, row: int, at: float, name: str) -> None:
        """Note that a source was renamed."""
        self._renamed.pop(row, None)
        self._renamed[row] = at, name
        _forget_first(self._renamed)

    def forget(self, row: int) -> None:
        """Forget a source."""
        self.failures.pop(row, None)
        self._renamed.pop(row, None)

    def rows(self) -> list[tuple[int, float, str, str]]:
        """Return the reasons, as JSON can hold them."""
        return [(row, *reason) for row, reason in self.failures.items()]

    def renamed_rows(self) -> list[tuple[int, float, str]]:
        """Return the sources that were renamed, as JSON can hold them."""
        return [(row, *entry) for row, entry in self._renamed.items()]

    @staticmethod
    def of_rows(rows: list[Any], renamed: list[Any], number: int) -> Reasons:
        """Return what `rows` and `renamed_rows` have returned, checked: rows are below a number."""
        reasons = Reasons()
        for row, *rest in rows:
            reasons.failures[_below(number, row)] = _reason(*rest)
        for row, at, before in renamed:
            reasons._renamed[_below(number, row)] = float(at), name_of("name", before)
        return reasons


def _forget_first(entries: dict[int, Any]) -> None:
    while len(entries) > _MOST:
        del entries[next(iter(entries))]


def _reason(at: Any, text: object, cause: str) -> Reason:
    if cause and cause not in CAUSES:
        raise ValueError(f"a source failed because of {cause!r}, which is not known")
    return Reason(float(at), reason_of(text), cause)


def _below(number: int, row: object) -> int:
    if not (isinstance(row, int) and 0 <= row < number):
        raise ValueError("a reason refers to a source that does not exist")
    return row
