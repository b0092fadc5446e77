"""When hosts accept a fetch, and the domains that they are in.

A host whose name begins with `*.` is a domain: its limit holds for the host of that name without
`*.` and for all hosts below it, together. A host is within the smallest domain that has been named,
and that within the next larger one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from crawl_env.compiled import compiled
from ephemeral_crawl.live.columns import NO_HOST, Hosts

_DOMAIN = "*."


def is_domain(name: str) -> bool:
    """Return whether a name of a host stands for a domain."""
    return name.startswith(_DOMAIN)


def domain_of(name: str, domains: Mapping[str, int]) -> int:
    """Return the row of the smallest domain that a host, or a domain, is in, or NO_HOST.

    Arguments:
        domains: row of each.
    """
    rest = name.removeprefix(_DOMAIN)
    if is_domain(name):
        _, _, rest = rest.partition(".")
    while rest:
        if (row := domains.get(_DOMAIN + rest)) is not None:
            return row
        _, _, rest = rest.partition(".")
    return NO_HOST


def chain(hosts: Hosts, host: int) -> Iterator[int]:
    """Return the rows of a host and its domains, from the smallest on."""
    while host != NO_HOST:
        yield host
        host = int(hosts["within"][host])


@compiled
def opening(hosts: Hosts, host: int) -> float:
    """Return when a host accepts the next fetch, regardless of its domains."""
    opens = hosts.blocked[host]
    if hosts.interval[host] > 0.0:
        opens = max(opens, max(hosts.fetched[host] + hosts.interval[host], hosts.held[host]))
    return opens


@compiled
def accepts_at(hosts: Hosts, host: int) -> float:
    """Return when a host and all its domains accept the next fetch."""
    opens = -np.inf
    while host != NO_HOST:
        opens = max(opens, opening(hosts, host))
        host = hosts.within[host]
    return opens


@compiled
def closed(hosts: Hosts, host: int, now: float) -> int:
    """Return the first of a host and its domains that does not accept a fetch, or NO_HOST."""
    while host != NO_HOST and opening(hosts, host) <= now:
        host = hosts.within[host]
    return host


@compiled
def limited(hosts: Hosts, host: int) -> int:
    """Return the first of a host and its domains that accepts one fetch at a time, or NO_HOST."""
    while host != NO_HOST and not hosts.interval[host] > 0.0:
        host = hosts.within[host]
    return host


@compiled
def limit_of(hosts: Hosts, host: int) -> tuple[int, float]:
    """Return `limited`, and until when those before it asked to be left alone."""
    limit, until = limited(hosts, host), -np.inf
    while host != limit:
        until = max(until, hosts.blocked[host])
        host = hosts.within[host]
    return limit, until


@compiled
def openings(hosts: Hosts, with_domains: bool) -> NDArray[np.float64]:
    """Return when each host accepts the next fetch, (H,), with all its domains or regardless of
    these."""
    times = np.empty(len(hosts))
    for host in range(len(hosts)):
        times[host] = accepts_at(hosts, host) if with_domains else opening(hosts, host)
    return times


def _domains(hosts: Hosts) -> Iterator[tuple[NDArray[np.intp], NDArray[np.int64]]]:
    """Return the hosts that are in a domain, and this domain of each; then those whose domain is in
    another, and that one; and so on."""
    domain = hosts["within"]
    while len(inside := np.flatnonzero(domain != NO_HOST)):
        yield inside, domain[inside]
        domain = np.where(domain != NO_HOST, hosts["within"][domain], NO_HOST)


def below(hosts: Hosts, host: int) -> NDArray[np.intp]:
    """Return the rows of a host or a domain, and of all hosts and domains in it."""
    is_below = np.arange(len(hosts)) == host
    for inside, domain in _domains(hosts):
        is_below[inside] |= domain == host
    return np.flatnonzero(is_below)


def tell_domains(hosts: Hosts) -> None:
    """Set the last fetch of each domain to the last one of its hosts."""
    fetched = hosts["fetched"].copy()
    for inside, domain in _domains(hosts):
        np.maximum.at(hosts["fetched"], domain, fetched[inside])


def with_domains(hosts: Hosts, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return numbers of hosts, (H,), those of a domain with all that is in it."""
    totals = numbers.copy()
    for inside, domain in _domains(hosts):
        np.add.at(totals, domain, numbers[inside])
    return totals


@compiled
def stretch(hosts: Hosts, fetches: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by which factor the times between fetches of each host's sources have to grow, so that
    the host and its domains accept them, (H,).

    Arguments:
        fetches: of each host, per second; those of its hosts are added to a domain's.
    """
    factor, fetches = np.ones(len(hosts)), fetches.copy()
    inside = np.zeros(len(hosts), np.int64)  # hosts and domains that are to come before this one
    for host in range(len(hosts)):
        if hosts.within[host] != NO_HOST:
            inside[hosts.within[host]] += 1
    for first in range(len(hosts)):
        host = first
        while host != NO_HOST and inside[host] == 0:
            inside[host] = -1
            factor[host] = max(hosts.interval[host] * fetches[host], 1.0)
            domain = hosts.within[host]
            if domain != NO_HOST:
                fetches[domain] += fetches[host] / factor[host]
                inside[domain] -= 1
            host = domain
    product = factor.copy()
    for host in range(len(hosts)):
        domain = hosts.within[host]
        while domain != NO_HOST:
            product[host] *= factor[domain]
            domain = hosts.within[domain]
    return product
