"""Signals: what is expected at a source beyond what its age tells, until it is crawled.

The belief of a source is x = u*(1 − α^k) + e α^s: k steps after its crawl, with an expected utility
of e from its signals, s steps after the last. A sparse table has e for the sources with signals
only. Their index is that of x, which the calendar of ages does not know, so that they are in a
calendar of their own: a wheel of lists linked both ways, from which a source can be taken when its
next signal arrives. Sources that are due later than the wheel reaches are looked at again at its
end.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.scheduling.age_index import (
    AGE,
    MYOPIC,
    NEVER,
    STATIC,
    Parameters,
    age_reaching,
    failures_of,
    index_at,
    whole,
)
from agents.scheduling.calendar import LATEST
from agents.theory.closed_form import content_index, decayed, retries, time_constants
from crawl_env.compiled import compiled, inlined

# Columns of `Signals.slots`.
SOURCE, AT, NEXT, PREVIOUS, LIST, FILED, CHAIN = range(7)
WHEEL = 2048  # lists, one per step
TOUCHED = WHEEL  # the list of sources that the next step looks at
NO_LIST = WHEEL + 1  # the source is a candidate, or was crawled in the last step
# Positions in `Signals.counters`.
FREE, USED, NUMBER = range(3)
_GONE = 100.0  # time constants after which nothing of a signal is left, e^−100 = 4e-44
_GOLDEN = 0x9E3779B1
_LEAST_ROOM = 64


class Signals(NamedTuple):
    """The sources with signals, each in a slot; slots are numbered from 1.

    The columns of `slots` are the source, the step of its last signal, the next and previous slot
    of its list (or the next free slot), the number of its list, whether the calendar of ages has
    the source, too, and the next slot with the same hash.
    """

    slots: NDArray[np.uint32]  # (S + 1, 7)
    utility: NDArray[np.float64]  # (S + 1,) e, at the step of the last signal
    first: NDArray[np.uint32]  # (H,) first slot by hash of the source
    head: NDArray[np.uint32]  # (WHEEL + 1,) first slot of each list; (0,) before the first signal
    counters: NDArray[np.int64]  # (3,) first free slot, slots ever used, number of sources

    @staticmethod
    def empty() -> Signals:
        """Return no signals."""
        return Signals(
            np.zeros((1, 7), np.uint32),
            np.zeros(1),
            np.zeros(1, np.uint32),
            np.zeros(0, np.uint32),
            np.zeros(3, np.int64),
        )

    def with_room(self, more: int) -> Signals:
        """Return the table with room for so many more sources."""
        used = int(self.counters[USED])
        needed = max(int(self.counters[NUMBER]) + more, used, _LEAST_ROOM) + 1
        if needed <= len(self.slots):
            return self
        size = needed + needed // 2
        slots, utility = np.zeros((size, 7), np.uint32), np.zeros(size)
        slots[: used + 1], utility[: used + 1] = self.slots[: used + 1], self.utility[: used + 1]
        first = np.zeros(size, np.uint32)
        head = self.head if self.head.size else np.zeros(WHEEL + 1, np.uint32)
        larger = Signals(slots, utility, first, head, self.counters)
        _chain_all(larger)
        return larger

    def of_sources(self) -> NDArray[np.intp]:
        """Return the slots that are used."""
        used = np.ones(int(self.counters[USED]) + 1, dtype=bool)
        used[0] = False
        slot = int(self.counters[FREE])
        while slot:
            used[slot] = False
            slot = int(self.slots[slot, NEXT])
        return np.flatnonzero(used)


@inlined
def _place(signals: Signals, i: int) -> int:
    return (((i * _GOLDEN) & (2**32 - 1)) * len(signals.first)) >> 32


@compiled
def _chain_all(signals: Signals) -> None:
    """Enter all slots into the lists by hash; those that are free have an unknown source, 2³² − 1,
    and are not entered."""
    for slot in range(1, signals.counters[USED] + 1):
        i = whole(signals.slots[slot, SOURCE])
        if i < LATEST:
            place = _place(signals, i)
            signals.slots[slot, CHAIN] = signals.first[place]
            signals.first[place] = slot


@inlined
def find(signals: Signals, i: int) -> int:
    """Return the slot of source i, or 0."""
    if signals.counters[NUMBER] == 0:
        return 0
    slot = whole(signals.first[_place(signals, i)])
    while slot and signals.slots[slot, SOURCE] != i:
        slot = whole(signals.slots[slot, CHAIN])
    return slot


@inlined
def add(signals: Signals, i: int) -> int:
    """Return a new slot of source i, in no list, for which there must be room."""
    slot = whole(signals.counters[FREE])
    if slot:
        signals.counters[FREE] = signals.slots[slot, NEXT]
    else:
        signals.counters[USED] += 1
        slot = whole(signals.counters[USED])
    place = _place(signals, i)
    signals.slots[slot, SOURCE] = i
    signals.slots[slot, AT] = 0
    signals.slots[slot, LIST] = NO_LIST
    signals.slots[slot, FILED] = 1
    signals.slots[slot, CHAIN] = signals.first[place]
    signals.utility[slot] = 0.0
    signals.first[place] = slot
    signals.counters[NUMBER] += 1
    return slot


@compiled
def drop(signals: Signals, slot: int) -> None:
    """Remove a slot that is in no list."""
    slots = signals.slots
    place = _place(signals, whole(slots[slot, SOURCE]))
    before = whole(signals.first[place])
    if before == slot:
        signals.first[place] = slots[slot, CHAIN]
    else:
        while slots[before, CHAIN] != slot:
            before = whole(slots[before, CHAIN])
        slots[before, CHAIN] = slots[slot, CHAIN]
    slots[slot, SOURCE] = LATEST
    slots[slot, NEXT] = signals.counters[FREE]
    signals.counters[FREE] = slot
    signals.counters[NUMBER] -= 1


@inlined
def link(signals: Signals, slot: int, number: int) -> None:
    """Move a slot to the list of this number, or to none."""
    slots = signals.slots
    old = whole(slots[slot, LIST])
    if old != NO_LIST:
        before, after = whole(slots[slot, PREVIOUS]), whole(slots[slot, NEXT])
        if before:
            slots[before, NEXT] = after
        else:
            signals.head[old] = after
        if after:
            slots[after, PREVIOUS] = before
    slots[slot, LIST] = number
    if number != NO_LIST:
        after = whole(signals.head[number])
        slots[slot, NEXT] = after
        slots[slot, PREVIOUS] = 0
        if after:
            slots[after, PREVIOUS] = slot
        signals.head[number] = slot


@compiled
def leave_calendar(signals: Signals, sources: NDArray[np.uint32]) -> None:
    """Note that the calendar of ages does not have these sources."""
    for j in range(len(sources)):
        slot = find(signals, whole(sources[j]))
        if slot:
            signals.slots[slot, FILED] = 0


@compiled
def touch(signals: Signals, number: int) -> None:
    """Move the slots of a list to those that the step looks at."""
    if signals.head.size:
        while signals.head[number]:
            link(signals, whole(signals.head[number]), TOUCHED)


@compiled
def touch_all(signals: Signals) -> None:
    """Move the slots of all lists to those that the step looks at."""
    for number in range(WHEEL):
        touch(signals, number)


@compiled
def expected(utility: float, since: int, decay: float) -> float:
    """Return what is left of e after some steps; 0 after 100 time constants."""
    aged = float(since) * decay
    return utility * decayed(aged)[0] if 0.0 < aged <= _GONE else (0.0 if aged > 0.0 else utility)


@compiled
def index_with(
    parameters: Parameters, i: int, scale: float, decay: float, age: float, extra: float
) -> float:
    """Return the index of source i at a whole age with an expected utility of extra·C more.

    It is that of Theorem 1 at the belief x, or q x/C for `MYOPIC`; the other kinds depend on the
    age alone.
    """
    if not extra > 0.0 or parameters.kind in (STATIC, AGE):
        return index_at(parameters, i, scale, decay, age)
    fail, delay = failures_of(parameters, i)
    level = 1.0 if age >= NEVER else -math.expm1(-age * decay)
    x = scale * level + extra
    if parameters.kind == MYOPIC:
        return x * (1.0 - fail)
    return content_index(x, scale, 1.0, decay, decayed(decay)[1], retries(fail, delay, decay))


@compiled
def due_with(
    parameters: Parameters,
    i: int,
    scale: float,
    decay: float,
    crawled_at: int,
    extra: float,
    level: float,
    now: int,
) -> int:
    """Return a step after `now` before which the index, now below `level`, does not reach it.

    With x < u*, the source is as if crawled k' steps ago, x = u*(1 − α^k'), and its index is below
    the level as long as k' has not passed the last age at which it is. With x ≥ u*, the index falls
    to that of u*, and is never due.
    """
    age = age_reaching(parameters, i, scale, decay, level)
    if age > NEVER:
        return LATEST + 1
    if not extra > 0.0 or crawled_at == 0:
        return max(crawled_at + whole(age), now + 1)
    share = extra / scale - math.expm1(-float(now - crawled_at) * decay)
    if not share < 1.0:
        return LATEST + 1
    return now + max(whole(np.ceil(age - 1.0 - time_constants(share) / decay)), 1)
