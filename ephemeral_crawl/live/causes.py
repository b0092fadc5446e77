"""Why a fetch fails: what a crawler tells of it, the causes that are told apart, and what can be
done about each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

# What is told of a failure; "http": the status tells; "refused": by rules of one's own.
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
            "ask its operator to renew the certificate, or look for an address of the feed whose "
            "certificate is valid",
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
    """
    if kind is not None and kind != "http":
        return kind
    if status is None or status < 400:
        return "unknown"
    return _STATUSES.get(status, "refused" if status < 500 else "server")


def number_of(cause: str) -> int:
    """Return the position in `LEARNT` of a cause, or of the cause as which it counts."""
    return LEARNT.index(_LIKE.get(cause, cause))
