"""`python -m experiments live`: the live scheduler under load and in use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import tyro

from ephemeral_crawl.core.study import ParallelStudy
from experiments.core.study import Part, PartsStudy
from experiments.live import failing, feeds, http, large, process, shards, sitemaps


@dataclass(kw_only=True)
class Live(PartsStudy, ParallelStudy):
    """Measures the live scheduler: how many leases and reports it handles, in one process and
    over HTTP, how long they take, and what a crawl collects: of sixty feeds, of two hundred
    beside others that are dead, of sites with sitemaps, and by several schedulers; and how 64 of
    these would divide a budget. What is finished is kept if it is stopped."""

    title: ClassVar[str] = "The live scheduler"
    adds: ClassVar[str] = "sources"
    parts: ClassVar[Mapping[str, Part]] = {
        "process": process.PART,
        "http": http.PART,
        "feeds": feeds.PART,
        "failing": failing.PART,
        "sitemaps": sitemaps.PART,
        "shards": shards.PART,
        "balancer": large.PART,
    }

    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="PART")] = ()
    """Parts to measure: process, http, feeds, failing, sitemaps, shards, balancer; by default all.
    The record of the others, and of other numbers of sources, is kept."""
    sources: int = 10**6
    """Sources in the store."""
    seconds: float = 20.0
    """Time of each measurement under load."""
    http_seeds: int = 8
    """Seeds, of eight, of which the feeds are also crawled over HTTP, rather than only without
    sockets; each takes some minutes."""
