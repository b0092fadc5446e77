"""The candidates of a step: the sources whose index has reached the level, and some more.

The level is such that every source that is no candidate has a smaller index, or may not be crawled
yet. As long as the last crawled candidate reaches the level, the best candidates are the best of
all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.scheduling.age_index import (
    NEVER,
    Parameters,
    age_reaching,
    cost_of,
    decay_of,
    draw_rate,
    failures_of,
    gather,
    index_at,
    is_plain,
    plain_ages_reaching,
    plain_indices,
    read_scales,
    scale_of,
    signed,
)
from agents.scheduling.calendar import (
    BATCH,
    BUCKETS,
    DETACHED,
    FULL,
    Calendar,
    bucket_in_order,
    bucket_of_step,
    coarse_bucket,
    detach,
    is_detached,
    next_chunk,
    put,
    release,
)
from agents.scheduling.signals import (
    Signals,
    dues_with,
    index_with,
    plain_indices_with,
    read_extra,
)
from crawl_env.compiled import compiled, inlined

# The fraction by which the index of a source is known to be below the level while it is no
# candidate: more than the errors by which the computed index may fail to rise with the age.
GUARD = 1e-9
CANDIDATE, UNFILED = range(2)  # instead of a step in `Crawls.due`


class Crawls(NamedTuple):
    """When the sources were crawled, on the scheduler's clock; 0: never."""

    crawled_at: NDArray[np.uint32]  # (N,)
    tried_at: NDArray[np.uint32]  # (N,) last attempt; (0,) if it is always the last crawl
    # (N,) step of its entry in the calendar that counts, `CANDIDATE` or `UNFILED`; (0,) as long as
    # no source can have several entries.
    due: NDArray[np.uint32]
    turns: int  # Thompson draws are made anew once in so many steps; 0 if nothing is drawn
    seed: int  # of these draws
    signals: Signals


class Candidates(NamedTuple):
    """Arrays of the candidates, of which the first `counters[0]` entries are used."""

    source: NDArray[np.uint32]
    crawled_at: NDArray[np.uint32]
    scale: NDArray[np.float64]
    decay: NDArray[np.float64]
    gamma: NDArray[np.float64]  # the index
    extra: NDArray[np.float64]  # expected from signals, set with the index if there are any
    counters: NDArray[np.int64]  # (2,) number of candidates, place of a sweep

    @staticmethod
    def empty(size: int) -> Candidates:
        """Return no candidates, with room for `size`."""
        return Candidates(
            np.empty(size, np.uint32),
            np.empty(size, np.uint32),
            np.empty(size),
            np.empty(size),
            np.empty(size),
            np.zeros(size),
            np.zeros(2, np.int64),
        )

    def with_room(self, size: int) -> Candidates:
        """Return the candidates with room for `size`."""
        larger = Candidates.empty(size)
        count = len(self)
        for old, new in zip(self.columns, larger.columns, strict=True):
            new[:count] = old[:count]
        larger.counters[:] = self.counters
        return larger

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """The arrays with one element per candidate."""
        return self.source, self.crawled_at, self.scale, self.decay, self.gamma, self.extra

    def __len__(self) -> int:
        return int(self.counters[0])


@compiled
def file_or_join(
    parameters: Parameters,
    crawls: Crawls,
    calendar: Calendar,
    candidates: Candidates,
    first: int,
    now: int,
    level: float,
    work: NDArray[np.float64],
) -> None:
    """Enter the candidates from number `first` on that are not due into the calendar.

    work: (4, W), temporary, for up to W sources.
    """
    last = candidates.counters[0]
    set_index(parameters, crawls, candidates, first, now)
    threshold = level * (1.0 - GUARD)
    ready = True
    for j in range(first, last):
        ready &= candidates.gamma[j] >= threshold
    if ready and parameters.delay.size == 0 and crawls.due.size == 0:
        return
    dues = work[0, : last - first]
    if not ready:
        scales, decays = candidates.scale[first:last], candidates.decay[first:last]
        plain = is_plain(parameters) and threshold > 0.0
        if plain:
            plain_ages_reaching(scales, decays, threshold, work)
        else:
            for j in range(len(dues)):
                if candidates.gamma[first + j] < threshold:
                    i = signed(candidates.source[first + j])
                    dues[j] = age_reaching(parameters, i, scales[j], decays[j], threshold)
        extra = candidates.extra[first:last]
        crawled_at = candidates.crawled_at[first:last]
        dues_with(dues, crawled_at, scales, decays, extra, now, threshold, plain)
    if crawls.due.size:  # read in the loop below from the cache, since reads overlap here alone
        gather(crawls.due, candidates.source[first:last], work[1])
    count, delayed = first, parameters.delay.size > 0
    for j in range(first, last):
        i, at = signed(candidates.source[j]), signed(candidates.crawled_at[j])
        filed = signed(crawls.due[i]) if crawls.due.size else UNFILED
        if filed == CANDIDATE:
            continue
        # Without delays no call, in which references to arrays would be counted.
        due = signed(_allowed_from(parameters, crawls, i, at)) if delayed else 0
        if candidates.gamma[j] < threshold:
            due = max(due, signed(dues[j - first]))
        if crawls.turns:
            due = min(due, now + crawls.turns - (now - i) % crawls.turns)
        if due > now:
            if filed == UNFILED or due < filed:
                put(calendar, i, due, now)
                if crawls.due.size:
                    crawls.due[i] = due
            continue
        if crawls.due.size:
            crawls.due[i] = CANDIDATE
        _move(candidates, j, candidates, count)
        candidates.gamma[count] = candidates.gamma[j]
        count += 1
    candidates.counters[0] = count


@inlined
def _move(origin: Candidates, j: int, to: Candidates, k: int) -> None:
    """Copy a candidate, without what is set with the index, which every step sets anew."""
    to.source[k] = origin.source[j]
    to.crawled_at[k] = origin.crawled_at[j]
    to.scale[k] = origin.scale[j]
    to.decay[k] = origin.decay[j]


@compiled
def leave(crawls: Crawls, i: int) -> None:
    """Note that source i is no candidate."""
    if crawls.due.size:
        crawls.due[i] = UNFILED


@compiled
def _allowed_from(parameters: Parameters, crawls: Crawls, i: int, crawled_at: int) -> int:
    """Return the first step in which source i may be crawled."""
    if parameters.delay.size == 0:
        return 0
    tried_at = signed(crawls.tried_at[i]) if crawls.tried_at.size else crawled_at
    delay = signed(parameters.delay[i])
    return tried_at + delay if delay > 1 and tried_at > 0 else 0


@compiled
def age_of(crawled_at: int, now: int) -> float:
    """Return the age in steps; `NEVER` for a source never crawled."""
    return float(now - crawled_at if crawled_at else NEVER)


@compiled
def set_index(
    parameters: Parameters, crawls: Crawls, candidates: Candidates, first: int, now: int
) -> None:
    """Compute the index of the candidates from number `first` on at their present ages."""
    for start in range(first, candidates.counters[0], BATCH):
        last = min(start + BATCH, candidates.counters[0])
        source, crawled_at = candidates.source[start:last], candidates.crawled_at[start:last]
        scale, decay = candidates.scale[start:last], candidates.decay[start:last]
        index, extra = candidates.gamma[start:last], candidates.extra[start:last]
        signalled = crawls.signals.utility.size > 0
        if signalled:
            read_extra(parameters, crawls.signals, source, decay, now, index, extra)
        if is_plain(parameters):
            plain_indices(crawled_at, scale, decay, now, index)
            if signalled:
                plain_indices_with(crawled_at, scale, decay, extra, now, index)
            continue
        for j in range(len(source)):
            i, age = signed(source[j]), age_of(signed(crawled_at[j]), now)
            index[j] = index_with(parameters, i, scale[j], decay[j], age, extra[j])


@compiled
def _read(
    parameters: Parameters, crawls: Crawls, candidates: Candidates, first: int, now: int
) -> None:
    """Read the columns of the candidates from number `first` on; draw rates whose turn it is."""
    last = candidates.counters[0]
    if crawls.turns:
        for j in range(first, last):
            i = signed(candidates.source[j])
            if (now - i) % crawls.turns == 0:
                draw_rate(parameters, i, crawls.seed, now)
    source = candidates.source[first:last]
    gather(crawls.crawled_at, source, candidates.crawled_at[first:last])
    read_scales(parameters, source, candidates.scale[first:last], candidates.decay[first:last])


@compiled
def file_sources(
    parameters: Parameters,
    crawls: Crawls,
    calendar: Calendar,
    candidates: Candidates,
    sources: NDArray[np.uint32],
    first: int,
    now: int,
    level: float,
) -> int:
    """File the sources (K,) from position `first` on; return the first one for which there was no
    room among the candidates, or K."""
    work = np.empty((4, BATCH))
    for start in range(first, len(sources), BATCH):
        end = min(start + BATCH, len(sources))
        count = signed(candidates.counters[0])
        if len(candidates.source) - count < end - start:
            return start
        candidates.source[count : count + end - start] = sources[start:end]
        candidates.counters[0] = count + end - start
        _read(parameters, crawls, candidates, count, now)
        file_or_join(parameters, crawls, calendar, candidates, count, now, level, work)
    return len(sources)


@compiled
def file_detached(
    parameters: Parameters,
    crawls: Crawls,
    calendar: Calendar,
    candidates: Candidates,
    now: int,
    level: float,
) -> bool:
    """File the sources of the detached list; return False if there is no room for candidates."""
    work = np.empty((4, BATCH))
    while calendar.counters[DETACHED]:
        count = number = signed(candidates.counters[0])
        if len(candidates.source) - count < BATCH:
            return False
        while calendar.counters[DETACHED] and number - count <= BATCH - FULL:
            chunk, fill = next_chunk(calendar)
            if crawls.due.size:  # as in `file_or_join`
                gather(crawls.due, calendar.chunks[chunk - 1, 1 : 1 + fill], work[0])
            for place in range(fill):
                i = calendar.chunks[chunk - 1, place + 1]
                if crawls.due.size:
                    if not is_detached(calendar, signed(crawls.due[i])):
                        continue  # another entry counts
                    leave(crawls, i)
                candidates.source[number] = i
                number += 1
            release(calendar, chunk)
        candidates.counters[0] = number
        _read(parameters, crawls, candidates, count, now)
        file_or_join(parameters, crawls, calendar, candidates, count, now, level, work)
    return True


@compiled
def detach_of_step(calendar: Calendar, now: int, turn: int) -> None:
    """Detach the lists that a step must file, in turn: two of coarse buckets and that now due."""
    bucket = bucket_of_step(now) if turn == 2 else coarse_bucket(now, turn)
    if bucket >= 0:
        detach(calendar, bucket)


@compiled
def sweep(
    parameters: Parameters,
    crawls: Crawls,
    calendar: Calendar,
    candidates: Candidates,
    now: int,
    level: float,
) -> bool:
    """File all sources of the calendar anew; return False if there is no room for candidates.

    It is called again until it returns True. The place is kept in the counters.
    """
    while True:
        if not file_detached(parameters, crawls, calendar, candidates, now, level):
            return False
        if candidates.counters[1] == BUCKETS:
            candidates.counters[1] = 0
            return True
        detach(calendar, bucket_in_order(now, candidates.counters[1]))
        candidates.counters[1] += 1


@compiled
def file_again(
    parameters: Parameters,
    crawls: Crawls,
    calendar: Calendar,
    candidates: Candidates,
    now: int,
    level: float,
) -> None:
    """Return the candidates below the level to the calendar."""
    last = candidates.counters[0]
    candidates.counters[0] = 0
    work = np.empty((4, BATCH))
    for start in range(0, last, BATCH):
        first, number = candidates.counters[0], min(BATCH, last - start)
        for j in range(number):
            leave(crawls, signed(candidates.source[start + j]))
            _move(candidates, start + j, candidates, first + j)
        candidates.counters[0] = first + number
        file_or_join(parameters, crawls, calendar, candidates, first, now, level, work)


@compiled
def join(
    parameters: Parameters,
    crawls: Crawls,
    candidates: Candidates,
    sources: NDArray[np.uint32],
    now: int,
) -> None:
    """Make candidates of sources that may be crawled now, for which there must be room.

    Their entries remain in the calendar, and count no more.
    """
    first = count = signed(candidates.counters[0])
    for source in sources:
        i = signed(source)
        at = signed(crawls.crawled_at[i])
        if crawls.due[i] == CANDIDATE or _allowed_from(parameters, crawls, i, at) > now:
            continue
        crawls.due[i] = CANDIDATE
        candidates.source[count] = i
        count += 1
    candidates.counters[0] = count
    _read(parameters, crawls, candidates, first, now)
    set_index(parameters, crawls, candidates, first, now)


@compiled
def draw_candidates(
    parameters: Parameters, crawls: Crawls, candidates: Candidates, now: int
) -> None:
    """Draw anew the rates of the candidates whose turn it is."""
    for j in range(candidates.counters[0]):
        i = signed(candidates.source[j])
        if (now - i) % crawls.turns == 0:
            draw_rate(parameters, i, crawls.seed, now)
            candidates.scale[j] = scale_of(parameters, i)


@compiled
def remove(candidates: Candidates, is_chosen: NDArray[np.bool_], picks: Candidates) -> None:
    """Move the chosen candidates to `picks`."""
    count, number = 0, 0
    for j in range(candidates.counters[0]):
        if is_chosen[j]:
            _move(candidates, j, picks, number)
            number += 1
        else:
            _move(candidates, j, candidates, count)
            count += 1
    candidates.counters[0] = count
    picks.counters[0] = number


@compiled
def mark_tried(crawls: Crawls, picks: Candidates, now: int) -> None:
    """Set the step of the last crawl and attempt of the picked sources to `now`."""
    for j in range(picks.counters[0]):
        crawls.crawled_at[picks.source[j]] = now
        leave(crawls, signed(picks.source[j]))
    if crawls.tried_at.size:
        for j in range(picks.counters[0]):
            crawls.tried_at[picks.source[j]] = now


@compiled
def file_picks(
    parameters: Parameters,
    crawls: Crawls,
    calendar: Calendar,
    candidates: Candidates,
    picks: Candidates,
    failed: NDArray[np.bool_],
    changed: bool,
    now: int,
    level: float,
) -> None:
    """File the sources crawled in the last step, for which the candidates must have room.

    failed: (K,) or (0,); the age of sources whose crawl failed goes on. changed: whether the
    parameters of the picked sources have changed.
    """
    work, utility = np.empty((4, BATCH)), crawls.signals.utility
    for start in range(0, picks.counters[0], BATCH):
        first, number = candidates.counters[0], min(BATCH, picks.counters[0] - start)
        for j in range(number):
            k = start + j
            i = signed(picks.source[k])
            if failed.size > 0 and failed[k]:
                crawls.crawled_at[i] = picks.crawled_at[k]
            elif utility.size > 0:
                utility[i] = 0.0
            if crawls.turns:
                draw_rate(parameters, i, crawls.seed, now)
            candidates.source[first + j] = i
            candidates.crawled_at[first + j] = crawls.crawled_at[i]
            candidates.scale[first + j] = scale_of(parameters, i) if changed else picks.scale[k]
            candidates.decay[first + j] = picks.decay[k]
        candidates.counters[0] = first + number
        file_or_join(parameters, crawls, calendar, candidates, first, now, level, work)
    picks.counters[0] = 0


@compiled
def indices_of(
    parameters: Parameters, crawls: Crawls, sources: NDArray[np.int64], now: int
) -> NDArray[np.float64]:
    """Return the present index of some sources, (K,)."""
    index = np.empty(len(sources))
    for j in range(len(sources)):
        i = sources[j]
        scale, decay = scale_of(parameters, i), decay_of(parameters, i)
        index[j] = index_at(parameters, i, scale, decay, age_of(signed(crawls.crawled_at[i]), now))
    return index


@compiled
def spent_by_frequencies(parameters: Parameters, sources: NDArray[np.int64]) -> float:
    """Return Σ C f over some sources, budget units / step, at the frequencies of `STATIC`."""
    total = 0.0
    for i in sources:
        total += cost_of(parameters, i) * scale_of(parameters, i)
    return total


@compiled
def crawls_at_multiplier(
    parameters: Parameters, sources: NDArray[np.int64], multiplier: float
) -> float:
    """Return Σ C/κ over some sources, budget units / step, where source i is crawled κ steps after
    its last crawl: when its index reaches the multiplier."""
    total = 0.0
    for i in sources:
        fail, delay = failures_of(parameters, i)
        age = age_reaching(
            parameters, i, scale_of(parameters, i), decay_of(parameters, i), multiplier
        )
        age = max(age, delay) + delay * fail / (1.0 - fail)
        total += cost_of(parameters, i) / ((1.0 - fail) * age)
    return total


@compiled
def choose_in_order(
    parameters: Parameters,
    sources: NDArray[np.uint32],
    order: NDArray[np.intp],
    budget: float,
    slack: float,
    on_balance: bool,
    host: NDArray[np.int32],
    per_host: int,
    on_host: NDArray[np.uint32],
    is_chosen: NDArray[np.bool_],
) -> float:
    """Choose the sources in an order as far as the budget and the hosts allow; return the rest.

    Arguments:
        sources: (K,); those that do not fit the rest of the budget are skipped, or, `on_balance`,
            sources are chosen while more than `slack` is left.
        order: positions in `sources`.
        host: (N,) host of each source, −1 for its own; or (0,).
        on_host: crawls per host so far.
        is_chosen: (K,), set to True at the chosen positions.
    """
    rest = budget
    for j in order:
        i = sources[j]
        cost = cost_of(parameters, i)
        if on_balance:
            if rest <= slack:
                break
        elif cost > rest + slack:
            continue
        if host.size and host[i] >= 0:
            if on_host[host[i]] >= per_host:
                continue
            on_host[host[i]] += 1
        is_chosen[j] = True
        rest -= cost
    return rest
