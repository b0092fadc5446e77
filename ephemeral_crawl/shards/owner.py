"""Which shard a source belongs to: that of its registered domain, so a host is on one shard."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from ephemeral_crawl.crawl.urls import host_of


def domain_of(name: str) -> str:
    """Return the registered domain of a URL, or of the name of a host; of any other name itself.

    >>> [domain_of(name) for name in ("https://a.example.org/feed", "*.example.org", "front page")]
    ['example.org', 'example.org', 'front page']
    """
    if "://" in name:
        return host_of(name)
    try:
        found = host_of(f"//{name}")
    except ValueError:
        return name
    return found if "." in found else name


@lru_cache(1 << 16)
def shard_of(domain: str, shards: int) -> int:
    """Return the number of the shard that a domain belongs to, from 0.

    Each shard has a score for each domain, a hash of both, and the highest score counts (rendezvous
    hashing, Thaler & Ravishankar 1998). So with more shards those domains alone move that belong to
    a new one: of n to 2n shards half of them.

    Arguments:
        shards: their number, from 1.

    >>> [shard_of(domain, 4) for domain in ("example.org", "example.com", "example.net")]
    [2, 1, 1]
    """
    text = domain.encode("utf-8", "surrogatepass")

    def score(k: int) -> bytes:
        return hashlib.blake2b(text, digest_size=8, salt=k.to_bytes(16, "little")).digest()

    return max(range(shards), key=score)


def owner_of(source: str, shards: int) -> int:
    """Return the number of the shard that a source, or a host, belongs to."""
    return shard_of(domain_of(source), shards)
