"""The state of a scheduler, a function of the events in its journal.

`State.apply` is the only way to change it: events are dictionaries of numbers and strings that have
been checked and decided before (which sources a lease gives, until when a failed one waits), so
that applying the same events again gives the same state, bit for bit. The heap of due times is
derived from the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ephemeral_crawl.live import heap as heaps
from ephemeral_crawl.live import learning, price
from ephemeral_crawl.live.columns import (
    EXISTS,
    NEVER,
    NO_HOST,
    PAUSED,
    Hosts,
    Sources,
)
from ephemeral_crawl.live.counts import Counts, left
from ephemeral_crawl.live.fitting import Totals, fitted, precisions, unfitted
from ephemeral_crawl.live.settings import Settings

Event = dict[str, Any]

LATE_REPORTS = 30 * 86_400.0  # seconds after its end in which a lease can still be reported
LOW = 0.55  # ÷ price: the price at which sources become candidates
SLOPE = 1.0  # of the logarithm of the price by how full the budget's bucket is
_SAMPLE = 4096  # largest number of sources to which the fleet's parameters and price are fitted
_GAIN = 0.2  # of the correction of the price, per round
_MOST_CORRECTION = 2.0
_REKEY = 0.05  # change of the logarithm of the price that moves all due times
_PARTS = 16  # of a gap, for the estimate of the rate
_BACKLOG = 20.0  # weight of a first fetch, in items
_LEAST_SPAN = 60.0  # seconds between items of a first fetch that tell a rate
_LARGEST_SHOT = 1e6
_UNUSUAL = 8.0  # expected items in the time without any that says that items are missing
_MOST_KINDS = 255
_MOST_TAUGHT = 500.0  # items in a lesson about worth


class State:
    """What a scheduler knows. Rows of columns are described in `columns`."""

    def __init__(self) -> None:
        self.settings = Settings.of("1/h")
        self.sources = Sources.empty()
        self.hosts = Hosts.empty()
        self.heap = heaps.Heap.empty(0)
        self.names: list[str | None] = []  # of each row
        self.numbers: dict[str, int] = {}
        self.free: list[int] = []
        self.host_names: list[str] = []
        self.host_numbers: dict[str, int] = {}
        self.kinds: list[str] = []
        self.kind_pings: list[list[float]] = []  # true pings and all pings of each kind
        self.leases: dict[int, tuple[int, float]] = {}  # row, and end, of those not yet reported
        self.last_lease = 0
        self.cost = 0.0  # of fetching each source once
        self.totals = Totals()
        self.counts = Counts()
        self.shared = unfitted(math.log(2.0) / self.settings.half_life)
        self.time = -math.inf  # of the last event
        self.offset = 0.0  # what is added to the clock's time
        self.balance = math.inf  # budget units, at `time`
        self.market = 1.0  # price at which the estimates say that the budget is spent
        self.correction = 0.0  # logarithm of the factor by which the price differs
        self.changes = 0  # since the last fit
        self.keyed = math.nan  # price for which the heap was made
        # Candidates that have left the heap, in order of their index when they were ranked; a row
        # is valid as long as it is marked.
        self.ranking = np.empty(0, np.int32)
        self.ranked = np.zeros(0, np.bool_)  # (R,)
        self.ranked_at = -math.inf
        self.waiting: dict[int, set[int]] = {}  # rows that the heap has when their host opens

    # ------------------------------------------------------------------------------- reading

    @property
    def rows(self) -> int:
        """Number of rows in use or free."""
        return len(self.names)

    def __len__(self) -> int:
        return len(self.numbers)

    def existing(self) -> NDArray[np.int64]:
        """Return the rows of the sources, at most some thousand, evenly spaced."""
        found = np.flatnonzero((self.sources.flags[: self.rows] & (EXISTS | PAUSED)) == EXISTS)
        return found[:: len(found) // _SAMPLE + 1]

    @property
    def round(self) -> float:
        """Seconds in which the budget pays for fetching each source once."""
        return max(self.cost, 1e-9) / self.settings.budget

    @property
    def rotation(self) -> float:
        """Largest time between two fetches of a source that has no maximum of its own, seconds."""
        return self.round / self.settings.explore if self.settings.explore > 0.0 else math.inf

    def balance_at(self, now: float) -> float:
        """Return the budget units that can be spent now."""
        s = self.settings
        elapsed = now - self.time if self.time > -math.inf else 0.0
        return min(self.balance + s.budget * max(elapsed, 0.0), s.burst)

    def price_at(self, now: float) -> float:
        """Return the price of a budget unit, when the bucket is half full."""
        return self.market * math.exp(self._correction_at(now))

    def accepted_at(self, now: float) -> float:
        """Return the index that a source needs to be leased: more when the bucket is emptier."""
        full = self.balance_at(now) / self.settings.burst
        return self.price_at(now) * math.exp(SLOPE * (0.5 - min(max(full, 0.0), 1.0)))

    def _correction_at(self, now: float) -> float:
        """Return the correction, which falls while the bucket is more than half full."""
        s, elapsed = self.settings, now - self.time
        if not 0.0 < elapsed < math.inf:
            return self.correction
        level = max(self.balance, 0.0) / s.burst
        filling = min((1.0 - level) * s.burst / s.budget, elapsed)
        area = filling * (level + 0.5 * filling * s.budget / s.burst) + (elapsed - filling)
        moved = self.correction - _GAIN * (area - 0.5 * elapsed) / self.round
        return min(max(moved, -_MOST_CORRECTION), _MOST_CORRECTION)

    def leased_until(self, i: int) -> float:
        """Return the end of the lease of a source, −inf if it has none."""
        lease = int(self.sources.lease[i])
        return self.leases[lease][1] if lease in self.leases else -math.inf

    def host_open_at(self, host: int) -> float:
        """Return from when on a host accepts a fetch."""
        hosts = self.hosts
        if not hosts.interval[host] > 0.0:
            return float(hosts.blocked[host])
        last = hosts.fetched[host] + hosts.interval[host]
        return float(max(last, hosts.held[host], hosts.blocked[host]))

    # ------------------------------------------------------------------------------- due times

    def update_keys(self, now: float) -> None:
        """Move all due times, if the price differs from that for which they were made."""
        value = self.price_at(now)
        if abs(math.log(value / self.keyed)) <= _REKEY if self.keyed > 0.0 else False:
            return
        self.keyed, self.waiting = value, {}
        self.ranking, self.ranked = self.ranking[:0], np.zeros(len(self.sources.fetched), np.bool_)
        keys = price.all_keys(self.sources, self.shared, self.rows, LOW * value, self.rotation, now)
        self.heap = heaps.Heap.empty(len(self.sources.fetched))
        order = np.argsort(keys, kind="stable")
        order = order[: int(np.isfinite(keys).sum())]
        self.heap.key[: self.rows] = keys
        self.heap.order[: len(order)] = order  # sorted, therefore a heap
        self.heap.place[order] = np.arange(len(order))
        self.heap.size[0] = len(order)

    def rank(self, rows: NDArray[np.int32], now: float) -> None:
        """Move candidates, in this order, from the heap to the ranking."""
        heaps.remove(self.heap, rows)
        self.ranking, self.ranked_at = rows, now
        self.ranked[rows] = True

    def _rekey(self, i: int) -> None:
        if not self.keyed > 0.0:
            return
        self.ranked[i] = False
        key = price.key_of(self.sources, self.shared, i, LOW * self.keyed, self.rotation, self.time)
        heaps.move(self.heap, i, key)

    # ------------------------------------------------------------------------------- changing

    def apply(self, event: Event) -> None:
        """Change the state by an event."""
        now = event["time"]
        self.correction = self._correction_at(now)
        if self.time > -math.inf:
            self.balance = self.balance_at(now)
        self.time = now
        self.offset = event["offset"]
        _APPLY[event["kind"]](self, event)
        if self.changes >= max(1, len(self) // 8) or event["kind"] == "configure":
            self._fit()

    def _fit(self) -> None:
        """Fit what the sources share, and the price."""
        self.changes = 0
        which, s = self.existing(), self.settings
        declared = math.log(2.0) / s.half_life if s.half_life > 0.0 else 0.0
        self.shared = fitted(
            self.shared, self.sources, self.hosts, which, self.totals, self.kind_pings, declared
        )
        if len(which):
            paused = (self.sources.flags[: self.rows] & PAUSED) != 0
            part = len(which) / max(len(self) - int(paused.sum()), 1)
            self.market = price.market_price(
                self.sources,
                self.shared,
                which,
                s.budget * part,
                self.rotation,
                self.hosts.interval,
                self.market,
            )

    def _configure(self, event: Event) -> None:
        self.settings = Settings.from_dict(event["settings"])
        self.balance = min(self.balance, self.settings.burst)  # it is full at first

    def _add(self, event: Event) -> None:
        for name, host, cost, shortest, longest, half_life in event["sources"]:
            if self.free:
                i = self.free.pop()
                self.names[i] = name
            else:
                i = len(self.names)
                self.names.append(name)
                if i >= len(self.sources.fetched):
                    rows = max(64, i + 1 + i // 2)
                    self.sources = self.sources.with_rows(rows)
                    self.heap = self.heap.with_rows(rows)
                    self.ranked = np.concatenate(
                        [self.ranked, np.zeros(rows - len(self.ranked), np.bool_)]
                    )
            self.numbers[name] = i
            self.sources.fetched[i] = NEVER
            self.sources.flags[i] = EXISTS
            self._describe(i, host, cost, shortest, longest, half_life)
            self.changes += 1
            self._rekey(i)

    def _describe(
        self,
        i: int,
        host: str | None,
        cost: float,
        shortest: float,
        longest: float | None,
        half_life: float | None,
    ) -> None:
        sources = self.sources
        sources.host[i] = NO_HOST if host is None else self._host(host)
        self.cost += cost - float(sources.cost[i])
        sources.cost[i] = cost
        sources.shortest[i] = shortest
        sources.longest[i] = math.inf if longest is None else longest
        sources.half_life[i] = half_life or 0.0

    def _host(self, name: str) -> int:
        if name not in self.host_numbers:
            self.host_numbers[name] = len(self.host_names)
            self.host_names.append(name)
            if len(self.host_names) > len(self.hosts.interval):
                self.hosts = self.hosts.with_rows(max(16, 2 * len(self.host_names)))
                self.shared = self.shared._replace(factor=self.hosts.factor)
        return self.host_numbers[name]

    def _remove(self, event: Event) -> None:
        i = self.numbers.pop(event["source"])
        for lease in [lease for lease, (row, _) in self.leases.items() if row == i]:
            del self.leases[lease]
        self.cost -= float(self.sources.cost[i])
        for column in self.sources:
            column[i] = 0
        self.sources.host[i] = NO_HOST
        self.names[i] = None
        self.free.append(i)
        self.changes += 1
        self.ranked[i] = False
        heaps.move(self.heap, i, math.inf)

    def _rename(self, event: Event) -> None:
        i = self.numbers.pop(event["source"])
        self.numbers[event["name"]] = i
        self.names[i] = event["name"]

    def _update(self, event: Event) -> None:
        i = self.numbers[event["source"]]
        self._describe(i, *event["settings"])
        paused = PAUSED if event["paused"] else 0
        self.sources.flags[i] = EXISTS | paused
        self.changes += 1
        self._rekey(i)

    def _limit_host(self, event: Event) -> None:
        host = self._host(event["host"])
        self.hosts.interval[host] = event["interval"]
        for other in sorted(self.waiting.pop(host, ())):
            self._rekey(other)
        self.changes = len(self)  # the price changes at once

    def _lease(self, event: Event) -> None:
        for lease, i, end in event["leases"]:
            self.leases[lease] = (i, end)
            self.last_lease = lease
            self.counts.leases += 1
            self.sources.lease[i] = lease
            # If it is never reported, it may have been fetched at the end.
            until = end + float(self.sources.shortest[i])
            self.sources.blocked[i] = max(self.sources.blocked[i], until)
            self.balance -= float(self.sources.cost[i])
            host = int(self.sources.host[i])
            if host != NO_HOST:
                self.hosts.lease[host] = lease
                self.hosts.held[host] = end + self.hosts.interval[host]
            self._rekey(i)
        oldest = self.time - LATE_REPORTS
        while self.leases:
            lease = next(iter(self.leases))
            if self.leases[lease][1] > oldest:
                break
            del self.leases[lease]

    def _end_lease(self, event: Event) -> tuple[int, bool]:
        """Return the source of a report, and whether it ends the source's current lease."""
        i, lease = event["row"], event["lease"]
        if lease is None:
            return i, False
        del self.leases[lease]
        host = int(self.sources.host[i])
        if host != NO_HOST and self.hosts.lease[host] == lease:
            self.hosts.held[host] = 0.0
            for other in sorted(self.waiting.pop(host, ())):
                self._rekey(other)
        current = bool(self.sources.lease[i] == lease)
        if current:
            self.sources.lease[i] = 0
            self.sources.blocked[i] = 0.0
        return i, current

    def _fetched(self, event: Event, i: int) -> None:
        """Note that the host was asked, and who pays."""
        if event["lease"] is None:
            cost = float(self.sources.cost[i])
            self.balance = max(self.balance - cost, -self.settings.burst)
        host = int(self.sources.host[i])
        if host != NO_HOST:
            self.hosts.fetched[host] = max(self.hosts.fetched[host], event["at"])

    def _report(self, event: Event) -> None:
        i, _ = self._end_lease(event)
        self._fetched(event, i)
        self.counts.fetched += 1
        self.sources.failures[i] = 0
        self._learn(i, event)
        self.sources.fetched[i] = max(self.sources.fetched[i], event["at"])
        self.sources.blocked[i] = max(self.sources.blocked[i], event["until"])
        self.changes += 1
        self._rekey(i)

    def _fail(self, event: Event) -> None:
        i, _ = self._end_lease(event)
        self._fetched(event, i)
        self.counts.failed += 1
        self.sources.failures[i] = min(int(self.sources.failures[i]) + 1, 250)
        self.sources.blocked[i] = max(self.sources.blocked[i], event["until"])
        host = int(self.sources.host[i])
        if host != NO_HOST:
            self.hosts.blocked[host] = max(self.hosts.blocked[host], event["host_until"])
        self._rekey(i)

    def _release(self, event: Event) -> None:
        i, current = self._end_lease(event)
        self.counts.released += 1
        self.balance = min(self.balance + float(self.sources.cost[i]), self.settings.burst)
        if current:
            self.sources.blocked[i] = max(self.sources.blocked[i], event["until"])
        self._rekey(i)

    def _record(self, event: Event) -> None:
        for outcome in event["outcomes"]:
            _OUTCOMES[outcome["kind"]](self, outcome)

    def _signal(self, event: Event) -> None:
        for row, kind, at in event["pings"]:
            self._ping(row, kind, at)

    def _ping(self, i: int, kind: str, at: float) -> None:
        sources = self.sources
        if kind not in self.kinds:
            if len(self.kinds) >= _MOST_KINDS:
                kind = self.kinds[-1]
            else:
                self.kinds.append(kind)
                self.kind_pings.append([0.0, 0.0])
                self.shared = self.shared._replace(precision=precisions(self.kind_pings))
        sources.kind[i] = self.kinds.index(kind)
        self.counts.pings += 1
        if sources.fetched[i] == NEVER or at < sources.fetched[i]:
            return  # it announces nothing that is not known
        decay = learning.decay_of(sources, self.shared, i)
        last = max(float(sources.pinged[i]), at)
        left = float(sources.shot[i]) * math.exp(-decay * (last - float(sources.pinged[i])))
        left += math.exp(-decay * (last - at))
        sources.shot[i] = min(left, _LARGEST_SHOT)
        sources.pinged[i] = last
        sources.pending[i] += 1.0
        self._rekey(i)

    # ------------------------------------------------------------------------------- learning

    def _teach(self, event: Event) -> None:
        """Learn from what is known of sources that were not fetched yet."""
        sources, memory = self.sources, np.array(learning.MEMORIES, dtype=np.float64)
        for name, counts, part, since, worth, squares in event["lessons"]:
            i, number = self.numbers[name], math.fsum(counts)
            learning.observe(sources, self.shared, i, np.array(counts, dtype=np.float64), part)
            kept = np.exp(-since / memory)
            sources.items[i] *= kept
            sources.exposure[i] *= kept
            # Worths do not change as rates do: a few hundred items say what their mean is.
            used = min(number, _MOST_TAUGHT)
            if number > 0.0:
                sources.worth[i] += worth / number * used
                sources.worth_items[i] += used
            if worth > 0.0 and squares > 0.0:
                self.totals.add_squares(squares * number / worth**2, number)
            self._rekey(i)
        self.changes = len(self)  # what the sources share changes at once

    def _learn(self, i: int, event: Event) -> None:
        """Learn from the items of a fetch."""
        sources, at = self.sources, event["at"]
        age = np.array([math.nan if s is None else s for s in event["ages"]], dtype=np.float64)
        worth = np.array(event["worths"], dtype=np.float64)
        number = len(age) + event["more"]
        first = sources.fetched[i] == NEVER
        gap = math.inf if first else max(at - float(sources.fetched[i]), 0.0)
        age = np.minimum(age, gap)
        later = bool(sources.pending[i] > 0.0 and sources.pinged[i] > at)  # than the fetch
        self.counts.items += number
        if self.settings.worth_at == "fetch":
            self.counts.collected += float(worth.sum()) + event["more_worth"]
        else:
            decay = learning.decay_of(sources, self.shared, i)
            self.counts.collected += left(age, worth, decay, gap)
        self._learn_worth(i, age, worth, event["more"], event["more_worth"], gap)
        if first:
            self._learn_backlog(i, np.sort(age[~np.isnan(age)]))
        else:
            self._learn_rate(i, age, number, gap, float(sources.pending[i]) - later)
        sources.pending[i] = sources.shot[i] = float(later)

    def _learn_worth(
        self,
        i: int,
        age: NDArray[np.float64],
        worth: NDArray[np.float64],
        more: int,
        more_worth: float,
        gap: float,
    ) -> None:
        sources = self.sources
        if gap < math.inf:
            kept = math.exp(-gap / learning.MEMORIES[-1])
            sources.worth[i] *= kept
            sources.worth_items[i] *= kept
        if not len(age):
            return
        share = np.ones(len(age))  # of an item's worth at publication that the report states
        if self.settings.worth_at == "fetch":
            dated = ~np.isnan(age)
            age, worth = age[dated], worth[dated]
            self.totals.add_ages(age, worth)
            share = np.exp(-learning.decay_of(sources, self.shared, i) * age)
            more, more_worth = 0, 0.0
        sources.worth[i] += float(worth.sum()) + more_worth
        sources.worth_items[i] += float(share.sum()) + more
        mean = learning.worth_of(sources, self.shared, i)
        if mean > 0.0:
            fresh = share > 0.3
            self.totals.add_worths(worth[fresh] / share[fresh] / mean)

    def _learn_backlog(self, i: int, age: NDArray[np.float64]) -> None:
        """Learn the rate from the ages, in ascending order, of all items of a first fetch.

        Of k items, the newest of which were published within a time T, k − 1 are counted in T. If
        the older half spreads over far more time than the newer half, as pinned entries and
        archives do, only the newer half is used.
        """
        if self.sources.exposure[i, -1] > 0.0:  # it was taught, and these items were counted
            return
        number = len(age)
        half = (number + 1) // 2
        used = number if number and age[-1] <= 4.0 * max(age[half - 1], _LEAST_SPAN) else half
        if not used or not age[used - 1] >= _LEAST_SPAN:
            return
        span = float(age[used - 1])
        parts = min(_PARTS, 2 * used)
        self._observe(i, age[: used - 1], parts, span)
        learning.limit(self.sources, i, _BACKLOG)

    def _learn_rate(
        self, i: int, age: NDArray[np.float64], number: int, gap: float, pings: float
    ) -> None:
        """Learn the rate, and the precision of pings, from the number of items of a gap."""
        sources = self.sources
        if gap <= 0.0:  # reported after a later fetch: items that were missed before
            sources.items[i] += np.float32(number)
            return
        dated = np.sort(age[~np.isnan(age)])
        if len(dated) == number and self._is_cut_off(i, dated, gap):
            gap, number, dated = float(dated[-1]), number - 1, dated[:-1]
        announced = 0.0
        if pings > 0.0 or sources.pinged_for[i] > 0.0:
            if not sources.pinged_for[i] > 0.0:
                learning.limit(sources, i, learning.UNSIGNALLED)
            kept = math.exp(-gap / learning.MEMORIES[1])
            known = learning.silent_rate(sources, self.shared, i)
            precision = learning.precision(sources, self.shared, i)
            announced = learning.true_pings(float(number), pings, known * gap, precision)
            sources.pings[i] = kept * sources.pings[i] + pings
            sources.true_pings[i] = kept * sources.true_pings[i] + announced
            sources.pinged_for[i] = kept * sources.pinged_for[i] + gap
            totals = self.kind_pings[int(sources.kind[i])]
            totals[0] += announced
            totals[1] += pings
        silent = 1.0 - announced / number if number else 1.0
        parts = min(_PARTS, 2 * number) if len(dated) == number and number else 1
        if parts == 1:
            learning.observe(sources, self.shared, i, np.array([silent * number]), gap)
        else:
            self._observe(i, dated, parts, gap, silent)

    def _observe(
        self, i: int, age: NDArray[np.float64], parts: int, span: float, weight: float = 1.0
    ) -> None:
        """Learn from dated items, by the part of a time in which each was published."""
        part = np.minimum(((span - age) * (parts / span)).astype(np.int64), parts - 1)
        counts = np.bincount(np.maximum(part, 0), minlength=parts)
        learning.observe(
            self.sources, self.shared, i, weight * counts.astype(np.float64), span / parts
        )

    def _is_cut_off(self, i: int, age: NDArray[np.float64], gap: float) -> bool:
        """Return whether items of the beginning of a gap seem to be missing.

        After an outage, or a jump of the clock, a source no longer shows all that it published
        since the last fetch. Otherwise the time from the fetch to the first item is exponential.
        """
        if len(age) < _UNUSUAL or not age[-1] > 0.0:
            return False
        usual = price.due_at(self.sources, self.shared, i, self.price_at(self.time), self.time)
        if not gap > 4.0 * max(usual - float(self.sources.fetched[i]), _LEAST_SPAN):
            return False
        return bool((gap - age[-1]) * len(age) / age[-1] > _UNUSUAL)


_APPLY: dict[str, Callable[[State, Event], None]] = {
    "configure": State._configure,
    "add": State._add,
    "remove": State._remove,
    "rename": State._rename,
    "update": State._update,
    "host": State._limit_host,
    "lease": State._lease,
    "record": State._record,
    "signal": State._signal,
    "teach": State._teach,
}
_OUTCOMES: dict[str, Callable[[State, Event], None]] = {
    "report": State._report,
    "fail": State._fail,
    "release": State._release,
}
