"""Addresses of sources: which are accepted, what they are called, and to whom they belong."""

from __future__ import annotations

from functools import cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from crawl_env.errors import shown
from ephemeral_crawl.live.arguments import name_of

_PORTS = {"http": 80, "https": 443}
_NAT64 = IPv6Network("64:ff9b::/96")
_TRANSLATED = IPv6Network("::ffff:0:0:0/96")
# Not public either, although `is_global` of some versions of Python says so: protocol assignments
# and a cloud's metadata, another's, local NAT64, site-local, segment routing, documentation.
_OTHERS = tuple(
    map(
        ip_network,
        ("192.0.0.0/24", "168.63.129.16", "64:ff9b:1::/48", "fec0::/10", "5f00::/16", "3fff::/20"),
    )
)
_REFUSED = frozenset(' \\<>"^`{|}')
ENCODED = {ord(character): f"%{ord(character):02X}" for character in _REFUSED}


def check_url(url: object, kind: str = "URL") -> str:
    """Return an absolute http or https URL in one spelling, without its fragment.

    The schemes of some programs, "feed://…" and "feed:https://…", stand for http and for the URL
    that follows.

    Raises:
        ValueError: it is relative, of another scheme, too long, or has control characters, spaces
            or credentials. The message does not repeat credentials.

    >>> check_url("HTTPS://Example.ORG:443/feed?x=1#top")
    'https://example.org/feed?x=1'
    >>> check_url("feed://example.org/feed"), check_url("feed:https://example.org/feed")
    ('http://example.org/feed', 'https://example.org/feed')
    >>> check_url("https://me:secret@example.org/feed")
    Traceback (most recent call last):
    ...
    ValueError: URL of the host 'example.org' holds credentials; give it without them
    """
    text = name_of(kind, url)
    if text[:5].lower() == "feed:":
        text = "http:" + text[5:] if text[5:7] == "//" else text[5:]
    if set(text) & _REFUSED:
        raise ValueError(
            f"{kind} is {_safe(text)}; spaces and the characters {''.join(sorted(_REFUSED))[1:]} "
            "have to be percent-encoded"
        )
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
        if host and not host.isascii():
            host = _ascii(host)
    except ValueError as error:  # UnicodeError is one
        raise ValueError(f"{kind} is {_safe(text)}, which is not a URL: {error}") from None
    if parts.scheme not in _PORTS or not host:
        raise ValueError(
            f"{kind} is {_safe(text)}; give an absolute one that begins with http:// or https://"
        )
    if "@" in parts.netloc:
        raise ValueError(
            f"{kind} of the host {shown(host)} holds credentials; give it without them"
        )
    place = f"[{host}]" if ":" in host else host.rstrip(".")
    if not place.strip("."):
        raise ValueError(f"{kind} is {_safe(text)}, without a host")
    if port is not None and port != _PORTS[parts.scheme]:
        place = f"{place}:{port}"
    return urlunsplit(SplitResult(parts.scheme, place, parts.path or "/", parts.query, ""))


def _ascii(name: str) -> str:
    """Return the name of a host in ASCII, as browsers write it. The standard library follows IDNA
    2003, by which straße.de would be strasse.de, a name that may belong to others. Names that IDNA
    2008 forbids, such as those with emoji or underscores, are encoded all the same.

    >>> _ascii("straße.example"), _ascii("BÜCHER.example"), _ascii("☃.example")
    ('xn--strae-oqa.example', 'xn--bcher-kva.example', 'xn--n3h.example')
    """
    import idna  # which takes a while to import

    try:
        return idna.encode(name, uts46=True).decode("ascii")
    except idna.IDNAError:
        labels = [
            label if label.isascii() else "xn--" + label.encode("punycode").decode("ascii")
            for label in idna.uts46_remap(name, std3_rules=False).split(".")
        ]
        return ".".join(labels).encode("idna").decode("ascii")  # refuses labels that are too long


def host_of(url: str) -> str:
    """Return the host to whose limits a URL is subject: its registered domain, or its address.

    The registered domain is one label more than the public suffix, by the list of publicsuffix.org
    as it is in the package publicsuffixlist, without a network.

    >>> host_of("https://news.example.co.uk/feed"), host_of("http://127.0.0.1:8080/")
    ('example.co.uk', '127.0.0.1')
    """
    host = urlsplit(url).hostname or ""
    try:
        return str(ip_address(host))
    except ValueError:
        return _suffixes().privatesuffix(host) or host


def source_of(text: object) -> tuple[str, str | None]:
    """Return name and host of a source: of a URL as `check_url` and `host_of` say; any other name
    is allowed, and has no host.

    >>> source_of("http://example.org"), source_of("front page")
    (('http://example.org/', 'example.org'), ('front page', None))
    """
    name = name_of("source", text)
    if "://" not in name:
        return name, None
    url = check_url(name, "source")
    return url, host_of(url)


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the public internet.

    >>> [is_public(a) for a in ("8.8.8.8", "127.0.0.1", "::ffff:10.0.0.1", "169.254.169.254")]
    [True, False, False, False]
    """
    ip = ip_address(address.partition("%")[0])
    return all(
        a.is_global and not a.is_multicast and not any(a in network for network in _OTHERS)
        for a in (ip, *_embedded_addresses(ip))
    )


def _embedded_addresses(address: IPv4Address | IPv6Address) -> list[IPv4Address]:
    """Return the IPv4 addresses that an IPv6 address leads to."""
    if isinstance(address, IPv4Address):
        return []
    addresses = [address.ipv4_mapped, address.sixtofour]
    if address in _NAT64 or address in _TRANSLATED or int(address) >> 32 == 0:
        addresses.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return [a for a in addresses if a is not None]


def _safe(text: str) -> str:
    """Return what a message shows of a URL: nothing that may be a password.

    >>> _safe("feed.xml"), _safe("mailto:me@example.org")
    ("'feed.xml'", "'…@example.org' (credentials are not shown)")
    """
    if "@" not in text:
        return shown(text)
    return f"{shown('…@' + text.rpartition('@')[2])} (credentials are not shown)"


@cache
def _suffixes() -> Any:
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList()
