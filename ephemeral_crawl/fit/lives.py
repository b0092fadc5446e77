"""The time over which each source of a log was alive: some appear late, and some fall silent.

Under a constant rate, the items of a source fall independently and uniformly on the log. So the
n − 1 items after the first one all come before a silence of length g at the end of the remaining
time S with probability (1 − g/S)^(n−1), whatever the rate: this is the p-value of a silent end, and
that of a late start is the same backwards in time. As items in bursts, by day or on weekdays are
not uniform, the silence must also be longer than twice any gap between the source's own items: of
m + 1 exchangeable gaps, a given one is so with a probability of about 2 / (m + 1)(m + 2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crawl_env import ItemLog
from crawl_env.numerics import BoolArray, FloatArray

LEVEL = 1e-3  # share of sources of constant rate that are called new, and that are called dead
NEEDED = 5  # items below which a source counts as alive all the time
LONGER = 2.0  # times its longest gap that a source must be silent
SHORTEST = 0.01  # of the log: shorter lives are taken as so long, as a burst is not a rate


class Lives(NamedTuple):
    """The lives of N sources: the part of the log over which each is fitted."""

    first: FloatArray  # (N,) time of the first item; NaN without items
    last: FloatArray  # (N,) time of the last item; NaN without items
    start: FloatArray  # (N,) of a new source about its first item; else the start of the log
    end: FloatArray  # (N,) of a dead source about its last item; else the end of the log
    new: BoolArray  # (N,) silent before its first item
    dead: BoolArray  # (N,) silent after its last item
    inner: BoolArray  # (n,) items that count towards rates: not those that delimit a life, given
    # which the others are uniform on it

    @property
    def span(self) -> FloatArray:
        """The lengths of the lives, (N,), time."""
        return self.end - self.start

    @property
    def status(self) -> list[str]:
        """Each source's status: "dead" if it fell silent, else "new" if it appeared in the middle
        of the log, else "steady"."""
        return np.where(self.dead, "dead", np.where(self.new, "new", "steady")).tolist()

    def counts(self, log: ItemLog) -> NDArray[np.intp]:
        """Return the number of items of each source that count towards its rate, (N,)."""
        return np.bincount(log.source[self.inner], minlength=len(log.names))


def lives(log: ItemLog) -> Lives:
    """Find the sources of a log that appeared in the middle of it, and those that fell silent.

    Of the sources with a constant rate, at most `LEVEL` are called new, and as many dead. A source
    that was alive for the time of 30 items, and then silent for the time of 20, is called dead in
    99 of 100 cases; after the time of 10 items, in 9 of 10.
    """
    n, counts = len(log.names), log.counts
    has_items, ends = counts > 0, np.cumsum(counts)
    order = np.argsort(log.source, kind="stable")  # by source, then by time
    firsts, lasts = order[(ends - counts)[has_items]], order[ends[has_items] - 1]
    first, last = np.full(n, np.nan), np.full(n, np.nan)
    first[has_items], last[has_items] = log.published[firsts], log.published[lasts]
    longest, source = np.zeros(n), log.source[order]
    same_source = np.diff(source) == 0
    np.maximum.at(longest, source[1:][same_source], np.diff(log.published[order])[same_source])
    new = _silent(first - log.start, last - log.start, counts, longest)
    dead = _silent(log.end - last, log.end - first, counts, longest)
    shortest = SHORTEST * log.span
    end = np.where(dead, np.maximum(last, log.start + shortest), log.end)
    start = np.where(new, np.minimum(first, end - shortest), log.start)
    inner = np.ones(len(log), dtype=bool)
    inner[firsts[new[has_items]]] = inner[lasts[dead[has_items]]] = False
    return Lives(first, last, start, end, new, dead, inner)


def throughout(log: ItemLog) -> Lives:
    """Return lives of sources that are alive all the time."""
    n, no = len(log.names), np.zeros(len(log.names), dtype=bool)
    unknown, start, end = np.full(n, np.nan), np.full(n, log.start), np.full(n, log.end)
    return Lives(unknown, unknown, start, end, no, no, np.ones(len(log), dtype=bool))


def _silent(
    silence: FloatArray, time: FloatArray, counts: NDArray[np.intp], longest: FloatArray
) -> BoolArray:
    """Return which sources were silent for too long at one end of their `time`."""
    share = np.divide(silence, time, out=np.zeros(len(counts)), where=time > 0)
    p = (1 - share) ** np.maximum(counts - 1, 0)
    return (counts >= NEEDED) & (p <= LEVEL) & (silence > LONGER * longest)
