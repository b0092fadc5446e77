"""Which ping announced which item: the exact likelihood of pings given items, and draws of it.

Every item pings at most once: with probability r, after a delay that is exponential with mean d.
False pings are Poisson with rate ν. As exponential delays have no memory, the pings that are still
to come are exchangeable: their number is a Markov chain, which an item raises by one with
probability r and a ping lowers by one unless it is false. The likelihood follows by filtering
forward over this number, and an assignment by sampling backward. Both take time in proportion to
the events times the pings that may be on their way at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crawl_env.compiled import compiled, inlined
from crawl_env.numerics import BoolArray, FloatArray, IntArray

_NEGLIGIBLE = 1e-10  # probability of a number of pings on their way that is left out
_MOST = 512  # pings on their way at once


class Events(NamedTuple):
    """Items and pings of N sources in the order of their times, source by source."""

    first: IntArray  # (N+1,) the events of source i are first[i] … first[i+1] − 1
    gap: FloatArray  # (events,) time since the event before, or since the start of the source
    is_item: BoolArray  # (events,) an item, not a ping
    rest: FloatArray  # (N,) time from the last event to the end of the source
    items: IntArray  # (N,)
    pings: IntArray  # (N,)

    @staticmethod
    def of(
        start: FloatArray,
        end: FloatArray,
        item_source: IntArray,
        published: FloatArray,
        ping_source: IntArray,
        received: FloatArray,
    ) -> Events:
        """Return the events of N sources within their spans [start, end), (N,); others are left
        out. A ping at the time of an item comes after it."""
        n = start.size
        source = np.concatenate((item_source, ping_source))
        time = np.concatenate((published, received))
        is_item = np.arange(source.size) < item_source.size
        inside = (time >= start[source]) & (time < end[source])
        source, time, is_item = source[inside], time[inside], is_item[inside]
        order = np.lexsort((~is_item, time, source))
        source, time, is_item = source[order], time[order], is_item[order]
        items = np.bincount(source[is_item], minlength=n)
        pings = np.bincount(source[~is_item], minlength=n)
        first = np.concatenate(([0], np.cumsum(items + pings)))
        some = first[1:] > first[:-1]
        gap = np.diff(time, prepend=0.0)
        gap[first[:-1][some]] = time[first[:-1][some]] - start[some]
        rest = end - start
        rest[some] = end[some] - time[first[1:][some] - 1]
        return Events(first, gap, is_item, rest, items, pings)

    def of_sources(self, which: IntArray) -> Events:
        """Return the events of some sources, in this order."""
        size = np.diff(self.first)[which]
        first = np.concatenate(([0], np.cumsum(size)))
        where = np.arange(first[-1]) + np.repeat(self.first[which] - first[:-1], size)
        of = self.rest[which], self.items[which], self.pings[which]
        return Events(first, self.gap[where], self.is_item[where], *of)

    @property
    def span(self) -> FloatArray:
        """The time that each source covers, (N,)."""
        total = np.concatenate(([0.0], np.cumsum(self.gap)))
        return total[self.first[1:]] - total[self.first[:-1]] + self.rest


def log_likelihood(
    events: Events, recall: FloatArray, false_rate: FloatArray, delay: FloatArray
) -> FloatArray:
    """Return the log of the probability density of each source's pings given its items, (N,).

    Arguments:
        recall, false_rate, delay: r, ν (1/time) and d (time) of each source, (N,).

    One item at 4 and a ping at 5, of which it is not known that it announces the item:

    >>> arrays = ([0.0], [10.0], [0], [4.0], [0], [5.0])  # start, end, item, time, ping, time
    >>> one = Events.of(*map(np.array, arrays))
    >>> found = log_likelihood(one, np.array([0.8]), np.array([0.2]), np.array([2.0]))
    >>> on_its_way = 0.2 * np.exp(-(10 - 4) / 2)
    >>> exact = 0.2 * 0.2 + 0.8 * (0.5 * np.exp(-(5 - 4) / 2) + on_its_way)
    >>> bool(np.isclose(found[0], np.log(exact) - 0.2 * 10))
    True
    """
    out = np.empty(len(events.items))
    _filter(events, recall, false_rate, 1 / delay, out)
    return out


class Assignment(NamedTuple):
    """Numbers of an assignment of pings to items, drawn given the pings."""

    announced: FloatArray  # (N,) items that ping, also those whose ping is still on its way
    true: FloatArray  # (N,) pings that announce an item
    waiting: FloatArray  # (N,) sum over the announced items of the time that their ping took


def draw(
    events: Events,
    recall: FloatArray,
    false_rate: FloatArray,
    delay: FloatArray,
    rng: np.random.Generator,
) -> Assignment:
    """Draw an assignment of pings to items given the pings; the arguments are those of
    `log_likelihood`."""
    n = len(events.items)
    out = np.empty((3, n))
    uniform = rng.random(events.gap.size + n)
    _draw(events, recall, false_rate, 1 / delay, uniform, out)
    return Assignment(*out)


@inlined
def _advance(a: FloatArray, top: int, gap: float, item: bool, r: float, nu: float, rate: float):  # type: ignore[no-untyped-def]
    """Advance the distribution a[0 … top] of the pings on their way over a gap and an event; return
    the new top, and the logarithm of the factor by which it was normalised."""
    q, power = np.exp(-rate * gap), 1.0
    for j in range(1, top + 1):
        power *= q
        a[j] *= power
    if item:
        if top < _MOST - 1:
            top += 1
            a[top] = 0.0
        for j in range(top, 0, -1):
            a[j] = (1.0 - r) * a[j] + r * a[j - 1]
        a[0] *= 1.0 - r
    else:
        for j in range(top):
            a[j] = nu * a[j] + rate * (j + 1) * a[j + 1]
        a[top] *= nu
    total = 0.0
    for j in range(top + 1):
        total += a[j]
    while top > 0 and a[top] < _NEGLIGIBLE * total:
        top -= 1
    for j in range(top + 1):
        a[j] /= total
    return top, np.log(total) - nu * gap


@compiled
def _filter(
    events: Events, recall: FloatArray, false_rate: FloatArray, rate: FloatArray, out: FloatArray
) -> None:
    """Write the log likelihood of every source to `out`, (N,)."""
    first, gap, is_item, rest = events.first, events.gap, events.is_item, events.rest
    a = np.zeros(_MOST)
    for i in range(rest.size):
        top, log = 0, 0.0
        a[0] = 1.0
        for e in range(first[i], first[i + 1]):
            top, more = _advance(a, top, gap[e], is_item[e], recall[i], false_rate[i], rate[i])
            log += more
        q, power, total = np.exp(-rate[i] * rest[i]), 1.0, 0.0
        for j in range(top + 1):
            total += a[j] * power
            power *= q
        out[i] = log + np.log(total) - false_rate[i] * rest[i]


@compiled
def _draw(
    events: Events,
    recall: FloatArray,
    false_rate: FloatArray,
    rate: FloatArray,
    uniform: FloatArray,
    out: FloatArray,
) -> None:
    """Write announced items, true pings and waiting times of an assignment of every source to
    `out`, (3, N), with a uniform number for each event and each source."""
    first, gap, is_item, rest = events.first, events.gap, events.is_item, events.rest
    a = np.zeros(_MOST)
    laws = np.empty(4096)  # the distribution after each event of a source, one after the other
    for i in range(rest.size):
        begin, size = first[i], first[i + 1] - first[i]
        at = np.empty(size + 2, dtype=np.int64)  # where each of them starts
        at[0], at[1] = 0, 1
        a[0] = laws[0] = 1.0
        top = 0
        for e in range(size):
            k = begin + e
            top, _ = _advance(a, top, gap[k], is_item[k], recall[i], false_rate[i], rate[i])
            while at[e + 1] + top + 1 > laws.size:
                larger = np.empty(2 * laws.size)
                for j in range(laws.size):
                    larger[j] = laws[j]
                laws = larger
            for j in range(top + 1):
                laws[at[e + 1] + j] = a[j]
            at[e + 2] = at[e + 1] + top + 1
        q, power, total = np.exp(-rate[i] * rest[i]), 1.0, 0.0
        for j in range(top + 1):
            a[j] *= power
            power *= q
            total += a[j]
        u, now = uniform[first[i + 1] + i] * total, 0
        while now < top and u >= a[now]:
            u -= a[now]
            now += 1
        announced, true, waiting = 0.0, 0.0, now * rest[i]
        for e in range(size - 1, -1, -1):
            k, low, high = begin + e, at[e], at[e + 1]
            q = np.exp(-rate[i] * gap[k])
            here = laws[low + now] if now < high - low else 0.0
            if is_item[k]:
                other = laws[low + now - 1] if now > 0 and now - 1 < high - low else 0.0
                stay, move = (1.0 - recall[i]) * here * q, recall[i] * other
                if uniform[k + i] * (stay + move) > stay:
                    now -= 1
                    announced += 1.0
            else:
                other = laws[low + now + 1] if now + 1 < high - low else 0.0
                stay, move = false_rate[i] * here, rate[i] * (now + 1) * other * q
                if uniform[k + i] * (stay + move) > stay:
                    now += 1
                    true += 1.0
            waiting += now * gap[k]
        out[0, i], out[1, i], out[2, i] = announced, true, waiting
