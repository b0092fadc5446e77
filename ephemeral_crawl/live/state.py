"""The state of a scheduler, a function of the events in its journal.

`State.apply` is the only way to change it: events are dictionaries of numbers and strings that have
been checked and decided before (which sources a lease gives, until when a failed one waits), so
that applying the same events again gives the same state, bit for bit. The heap of due times is
derived from the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from crawl_env.numerics import distinct
from ephemeral_crawl.live import agenda, learning, lessons, outcomes, price
from ephemeral_crawl.live import hosts as doors
from ephemeral_crawl.live.agenda import Agenda
from ephemeral_crawl.live.columns import (
    EXISTS,
    HOST_PAUSED,
    LOOKS,
    NEVER,
    NO_HOST,
    PAUSED,
    STOPPED,
    TAG_PAUSED,
    Copy,
    Sources,
    new_hosts,
    new_sources,
    record_view,
    with_rows,
)
from ephemeral_crawl.live.fitting import Totals, fitted, unfitted
from ephemeral_crawl.live.learning import Shared
from ephemeral_crawl.live.names import NameTable
from ephemeral_crawl.live.reasons import Reasons
from ephemeral_crawl.live.reporting import Counts, Tallies, Terms
from ephemeral_crawl.live.settings import SOURCE_ARGUMENTS, Settings, SourceSettings
from ephemeral_crawl.live.tags import ALWAYS, ANY, Tags

Event = dict[str, Any]

LATE_REPORTS = 30 * 86_400.0  # seconds after its end in which a lease can still be reported
_MOST_LATE = (
    100_000  # leases, beyond one of each source; of more the oldest can be reported no more
)
SLOPE = 1.0  # of the logarithm of the price by how full the budget's bucket is
_SMALL = 256  # number of sources up to which the price is right after each one that is added
_TAG = 1 + SOURCE_ARGUMENTS.index("tag")  # place among these
_LEAST_SAMPLE = 128  # sources of a tag to which its price is fitted, if there are so many
_SAMPLE = 4096  # largest number of sources to which the fleet's parameters and price are fitted
_LEAST_RETRYING = 1e-6
_GAIN = 0.2  # of the correction of the price, per round
_MOST_CORRECTION = 2.0
_MOST_KINDS = 255
_MOST_TAUGHT = 500.0  # items in a lesson about worth
_LISTS = ("row", "rows", "pings", "sources")  # of sources, in events


class Moment(NamedTuple):
    """The scheduler's time, which never falls, and what it adds to the clock's."""

    time: float
    offset: float


class FleetSample(NamedTuple):
    """A copy of sources of a fleet, evenly spaced, and of their hosts."""

    sources: Sources  # (S,)
    shared: Shared
    part: float  # of all sources that are not paused


class State:
    """What a scheduler knows. Rows of columns are described in `columns`."""

    def __init__(self) -> None:
        self.settings = Settings.of("1/h")
        self.set_sources(new_sources())
        self.names = NameTable()
        self.host_names = NameTable()
        self.kinds: list[str] = []
        self.kind_pings = np.zeros((0, learning.KIND_SUMS))
        # Row, end and beginning of those not yet reported.
        self.leases: dict[int, tuple[int, float, float]] = {}
        self.last_lease = 0
        self.least_lease = 0  # which the next lease exceeds; not stored
        self.cost = 0.0  # of fetching each source once
        self.totals = Totals()
        self.counts = np.zeros(len(fields(Counts)))  # in the order of `Counts`
        self.reasons = Reasons()
        self.tags = Tags()
        self.paused_hosts: list[int] = []
        self.shared = unfitted(math.log(2.0) / self.settings.half_life)
        self.time = -math.inf  # of the last event
        self.offset = 0.0  # what is added to the clock's time
        self.balance = math.inf  # budget units, at `time`
        self.correction = 0.0  # logarithm of the factor by which the price differs
        self.changes = 0  # since the last fit
        # Number of different sources in a row for which nobody answered, and since when.
        self.run = np.zeros(2)
        self.numbers_of = np.zeros(3, np.int64)  # new, failing and paused sources; derived
        self.agenda = Agenda()  # derived from the rest
        self._domains: dict[str, int] = {}  # rows of hosts that stand for a domain; derived
        self._copies: WeakSet[Copy] = WeakSet()  # which are being made

    def set_sources(self, sources: Sources) -> None:
        """Use other rows of sources."""
        self.table: Sources = sources
        self.sources: Sources = record_view(sources)

    # ------------------------------------------------------------------------------- reading

    @property
    def rows(self) -> int:
        """Number of rows in use or free."""
        return len(self.names)

    def row(self, name: str) -> int:
        """Return the row of a source.

        Raises:
            KeyError: there is none of this name.
        """
        row = self.names.row(name)
        if row < 0:
            raise KeyError(name)
        return row

    def __len__(self) -> int:
        return self.names.number

    def copy_rows(self) -> Copy:
        """Return the rows of sources as they are now, also while they change."""
        copy = Copy(self.table[: self.rows])
        self._copies.add(copy)
        return copy

    def sample(self) -> FleetSample:
        """Return a sample of the sources that are not paused."""
        return self._sample_of(self._evenly_spaced(), self.running)

    def _sample_of(self, places: NDArray[np.int64], number: int) -> FleetSample:
        """Return some sources that stand for a number of them."""
        sources = self.table[places]
        hosts, more = np.array([NO_HOST]), distinct(sources["host"])
        more = more[more != NO_HOST]
        while len(more):
            hosts = np.union1d(hosts, more)
            more = np.setdiff1d(self.shared.hosts["within"][more], hosts)
        table = self.shared.hosts[hosts[1:]]
        for rows, name in ((sources, "host"), (table, "within")):
            rows[name] = np.searchsorted(hosts, rows[name]) - 1
        shared = self.shared._replace(hosts=table)
        return FleetSample(sources, shared, len(places) / max(number, 1))

    def _evenly_spaced(self, marks: int = EXISTS | STOPPED) -> NDArray[np.int64]:
        """Return the rows of sources, at most some thousand.

        Arguments:
            marks: of which they have `EXISTS` alone; by default they are not paused.
        """

        def among(rows: NDArray[np.int64]) -> NDArray[np.int64]:
            return rows[(self.table["marks"][rows] & marks) == EXISTS]

        step = self.rows // _SAMPLE + 1
        sample = among(np.arange(0, self.rows, step))
        if step > 1 and len(sample) < min(_SAMPLE // 4, self.running):  # most rows are free
            sample = among(np.arange(self.rows))
            sample = sample[:: len(sample) // _SAMPLE + 1]
        return sample

    def count_of(self, host: str | None, tag: str | None) -> int:
        """Return the number of sources at a host or in a domain, and of a tag, as far as given."""
        table = self.table[: self.rows]
        is_counted = (table["marks"] & EXISTS) != 0
        if tag is not None:
            is_counted &= (table["tag"] == self.tags.names.row(tag)) & (tag in self.tags.names)
        if host is not None:
            inside = [
                doors.domain_of(name or "", {host: 0}) == 0
                if doors.is_domain(host)
                else name == host
                for name in self.host_names
            ]
            is_counted &= np.array([*inside, False])[table["host"]]  # the last: without a host
        return int(np.count_nonzero(is_counted))

    @property
    def running(self) -> int:
        """Number of sources that are not paused."""
        return len(self) - int(self.numbers_of[outcomes.PAUSED])

    def count(self) -> None:
        """Count the sources that are new, failing, and paused."""
        self.numbers_of[:] = _numbers(self.table[: self.rows])

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

    def room_at(self, now: float) -> NDArray[np.float64]:
        """Return the budget units of each tag that may be spent now, (T,)."""
        if not self.tagged:
            return ANY
        return self.tags.room_at(now - self.time, self.settings.budget)

    def tags_open(self) -> NDArray[np.float64]:
        """Return from when on sources of each tag may be leased, (T,)."""
        return self.tags.opens(self.time, self.settings.budget) if self.tagged else ALWAYS

    @property
    def tagged(self) -> bool:
        """Whether there are tags."""
        return len(self.tags.names) > 1

    def price_at(self, now: float) -> float:
        """Return the price of a budget unit, when the bucket is half full."""
        return self.shared.market * math.exp(self._correction_at(now))

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
        correction = self.correction - _GAIN * (area - 0.5 * elapsed) / self.round
        return min(max(correction, -_MOST_CORRECTION), _MOST_CORRECTION)

    def settings_of(self, i: int) -> SourceSettings:
        """Return the settings of a source."""
        source = self.table[i]
        host = int(source["host"])
        # The shortest decimals of single precision: 1e-6 is not 9.99999997e-07, which is refused.
        cost, shortest, longest, half_life, weight = (
            float(str(source[name]))
            for name in ("cost", "shortest", "longest", "half_life", "importance")
        )
        return SourceSettings(
            host=None if host == NO_HOST else self.host_names[host],
            cost=cost,
            shortest=shortest,
            longest=longest if longest < math.inf else None,
            half_life=half_life or None,
            tag=self.tags.names[source["tag"]] or None,
            weight=weight,
        )

    def leased_until(self, i: int) -> float:
        """Return the end of the lease of a source, −inf if it has none."""
        lease = int(self.sources.lease[i])
        return self.leases[lease][1] if lease in self.leases else -math.inf

    # ------------------------------------------------------------------------------- changing

    def check(self, event: Event) -> None:
        """Raise ValueError if an event cannot be applied, of which half would remain in memory."""
        if tags := _TAGS.get(event["kind"]):
            self.tags.check_room(tags(event), self._tags_used)

    def apply(self, event: Event) -> None:
        """Change the state by an event."""
        now = event["time"]
        self.correction = self._correction_at(now)
        if self.time > -math.inf:
            self.balance = self.balance_at(now)
            if self.tagged:
                self.tags.advance(now - self.time, self.settings.budget)
        self.time = now
        self.offset = event["offset"]
        _APPLY[event["kind"]](self, event)
        if self._is_fit_due(event["kind"]):
            self._fit()

    @staticmethod
    def size_of(event: Event) -> int:
        """Return about how many sources an event changes."""
        return max((len(event[name]) for name in _LISTS if name in event), default=1)

    def _is_fit_due(self, kind: str) -> bool:
        """Return whether enough has changed since the last fit, which takes some milliseconds: an
        eighth of the sources that have been tried have reported again, or in small fleets a
        thirty-second; of all sources, if some are removed or none has been tried."""
        if kind == "configure" or (kind == "add" and self.changes >= len(self) // 5):
            return True
        if kind == "add" and len(self) <= _SMALL:
            return True
        number_tried = len(self) - int(self.numbers_of[outcomes.NEW])
        number = len(self) if kind == "remove" or not number_tried else number_tried
        return self.changes >= max(1, number // (32 if number <= _SMALL else 8))

    def _keep(self, rows: NDArray[Any]) -> None:
        """Save rows that are about to change for the copies that are being written."""
        for copy in self._copies:
            copy.keep(rows)

    def _rekey(self, i: int) -> None:
        self.agenda.rekey(self, np.array([i], dtype=np.int32), self.time)

    def _fit(self) -> None:
        """Fit what the sources share, and the price."""
        self.changes, self.agenda.stale = 0, True
        s = self.settings
        declared = math.log(2.0) / s.half_life if s.half_life > 0.0 else 0.0
        rows = self._evenly_spaced(EXISTS)  # those that are paused tell as much
        self.shared = fitted(self.shared, self.table, rows, self.totals, self.kind_pings, declared)
        if self.tags and self.tags.bounded:
            self._set_prices_of_tags()
        sample = self.sample()
        if len(sample.sources):
            demand = price.demand(sample.sources, sample.shared, self.rotation, self.time)
            market = price.market_price(
                demand,
                s.budget * sample.part,
                self.rotation,
                sample.shared.hosts,
                self.shared.market,
            )
            surplus = [
                price.mean_surplus(demand, part * market) if s.explore > 0.0 else 0.0
                for part in (1.0, 0.5)
            ]
            # The time between retries goes with the root of the surplus.
            most = s.explore * s.budget * sample.part
            cost = price.retries(demand)
            factor = most / cost if cost > most * _LEAST_RETRYING else 1.0 / _LEAST_RETRYING
            retrying = min(self.shared.retrying * factor**2, 1.0)
            self.shared = self.shared._replace(
                market=market,
                surplus=surplus[0],
                surplus_at_half=surplus[1],
                retrying=max(retrying, _LEAST_RETRYING),
            )

    def _set_prices_of_tags(self) -> None:
        """Find by which factors the prices of tags differ from that of the budget."""
        table, tags, budget = self.table[: self.rows], self.tags.table, self.settings.budget
        running = np.flatnonzero((table["marks"] & (EXISTS | STOPPED)) == EXISTS)
        number = table["tag"][running]
        cost = np.bincount(number, table["cost"][running], minlength=len(tags))
        least, most = self.tags.bounds(budget)
        # A tag is looked after with a part of its maximum, if that makes its rotation longer.
        tags["stretch"] = np.maximum(cost / most / self.round, 1.0)
        parts, order = [], running[np.argsort(number, kind="stable")]
        ends = np.cumsum(np.bincount(number, minlength=len(tags)))
        for k, rows in enumerate(np.split(order, ends[:-1])):
            few = rows[:: len(rows) // max(_SAMPLE // len(tags), _LEAST_SAMPLE) + 1]
            sample = self._sample_of(few, len(rows))
            sample.sources["factor"], sample.sources["stretch"] = 1.0, tags["stretch"][k]
            demand = price.demand(sample.sources, sample.shared, self.rotation, self.time)
            size = sample.part or 1.0
            parts.append(price.Part(demand, sample.shared.hosts, size, least[k], most[k]))
        common, alone, tags["spends"] = price.tag_prices(
            parts, budget, self.rotation, self.shared.market
        )
        self.tags.set_prices(common, alone, budget)
        self.use_tags()

    def use_tags(self, rows: NDArray[Any] | None = None) -> None:
        """Let sources have the prices of their tags, and stop with those and with their hosts.

        The former follow from the tags, so that copies that are being made need not keep them.

        Arguments:
            rows: default: those of all sources.
        """
        if rows is None:
            rows = np.flatnonzero(self.table["marks"][: self.rows] & EXISTS)
        number, host = self.table["tag"][rows], self.table["host"][rows]
        for name in ("factor", "stretch"):
            self.table[name][rows] = self.tags.table[name][number]
        marks = self.table["marks"][rows] & (0xFF ^ HOST_PAUSED ^ TAG_PAUSED)
        marks |= np.where(self.tags.table["paused"][number], TAG_PAUSED, 0).astype(np.uint8)
        if self.paused_hosts:
            hosts, place = np.unique(host, return_inverse=True)
            is_paused = [
                any(above in self.paused_hosts for above in doors.chain(self.shared.hosts, int(k)))
                for k in hosts
            ]
            marks[np.array(is_paused, dtype=np.bool_)[place]] |= HOST_PAUSED
        self.table["marks"][rows] = marks

    def _limit_tag(self, event: Event) -> None:
        number = self._tag(event["tag"])
        bounds = event["least"], event["most"], event["parts"]
        self.tags.limit(number, *bounds, self.settings.budget)
        if not self.tags.bounded:
            self.tags.unbind()
            self.use_tags()
        self.changes = len(self)  # the price changes at once
        self.agenda.rekey(self, self._rows_of_tag(number), self.time)

    def _pause(self, event: Event) -> None:
        """Pause or resume what is on a host, or has a tag."""
        if "tag" in event:
            number = self._tag(event["tag"])
            self.tags.table["paused"][number] = event["paused"]
            rows = self._rows_of_tag(number)
        else:
            host = self._hosts([event["host"]])[event["host"]]
            self.paused_hosts = [k for k in self.paused_hosts if k != host]
            self.paused_hosts += [host] if event["paused"] else []
            if not event["paused"]:
                opened = doors.below(self.shared.hosts, host)
                self.shared.hosts["blocked"][opened] = 0.0
                self.agenda.limits_changed(self, opened.tolist())
            rows = np.flatnonzero(self.table["marks"][: self.rows] & EXISTS).astype(np.int32)
        self._keep(rows)
        self.use_tags(rows)
        self.count()
        self.changes = len(self)
        self.agenda.rekey(self, rows, self.time)

    def _rows_of_tag(self, number: int) -> NDArray[np.int32]:
        """Return the rows of the sources of a tag."""
        table = self.table[: self.rows]
        return np.flatnonzero((table["tag"] == number) & (table["marks"] & EXISTS)).astype(np.int32)

    def _tag(self, name: str | None) -> int:
        """Return the number of a tag, a new one if there is none."""
        return self.tags.numbers([name], self._tags_used)[name]

    def _tags_used(self) -> NDArray[np.int64]:
        """Return the numbers of the tags of all sources."""
        table = self.table[: self.rows]
        return distinct(table["tag"][(table["marks"] & EXISTS) != 0])

    def _configure(self, event: Event) -> None:
        self.settings = Settings.from_dict(event["settings"])
        self.balance = min(self.balance, self.settings.burst)  # it is full at first

    def _add(self, event: Event) -> None:
        rows = self._place([name for name, *_ in event["sources"]])
        self._set(rows, [settings for _, *settings in event["sources"]])
        self.table["fetched"][rows] = NEVER
        self.table["pinged"][rows] = self.time
        self.table["marks"][rows] = EXISTS
        self.use_tags(rows)
        self.numbers_of += _numbers(self.table[rows])
        self._count_in(rows, [cost for _, _, cost, *_ in event["sources"]])

    def _set(self, rows: NDArray[Any], settings: Sequence[list[Any]]) -> None:
        """Store settings of sources, as `SourceSettings.as_row` returns them."""
        of_rows = zip(*settings, strict=True)
        hosts, cost, shortest, longest, half_life, tags, weights = of_rows
        host, tag = self._hosts(hosts), self.tags.numbers(tags, self._tags_used)
        table = self.table
        table["host"][rows] = [host[name] for name in hosts]
        table["cost"][rows] = cost
        table["shortest"][rows] = shortest
        table["longest"][rows] = [math.inf if value is None else value for value in longest]
        table["half_life"][rows] = [value or 0.0 for value in half_life]
        table["tag"][rows] = [tag[name] for name in tags]
        table["importance"][rows] = weights

    def _place(self, names: Sequence[str]) -> NDArray[np.int32]:
        """Give rows to new sources."""
        rows = np.array(self.names.add(names), dtype=np.int32)
        self.set_sources(with_rows(self.table, self.rows))
        self._keep(rows)
        return rows

    def _count_in(self, rows: NDArray[np.int32], cost: Iterable[float]) -> None:
        """Update the cost of a round and the price for sources that were added."""
        before = self.cost
        self.cost += math.fsum(cost)
        self.correction *= before / self.cost  # others than those it was learnt from
        self.changes += len(rows)
        self.agenda.rekey(self, rows, self.time)

    def _adopt(self, event: Event) -> None:
        """Add sources of another scheduler, with what it learnt about them."""
        names, hosts, kinds, tags = zip(*event["sources"], strict=True)
        learnt = lessons.learnt(event, self.offset)
        limits = lessons.limits(event, self.offset)
        rows, number = self._place(names), self._hosts([*hosts, *event["hosts"]])
        learnt["host"] = [number[name] for name in hosts]
        learnt["kind"] = [0 if kind is None else self._kind(kind) for kind in kinds]
        tag = self.tags.numbers(tags, self._tags_used)
        learnt["tag"] = [tag[name] for name in tags]
        self.table[rows] = learnt
        self.use_tags(rows)
        self.numbers_of += _numbers(self.table[rows])
        if self.kinds:
            for column, pings in enumerate(("true_pings", "pings")):
                np.add.at(self.kind_pings[:, column], learnt["kind"], learnt[pings])
        self.totals.sums += event["sums"]
        host_rows = [number[name] for name in event["hosts"]]
        for name in ("interval", *lessons.HOST_TIMES):
            self.shared.hosts[name][host_rows] = np.maximum(
                self.shared.hosts[name][host_rows], limits[name]
            )
        self.agenda.limits_changed(self, host_rows)
        self._count_in(rows, learnt["cost"].tolist())
        for name in event["paused_hosts"]:
            if self._hosts([name])[name] not in self.paused_hosts:
                self._pause({"host": name, "paused": True})
        for name in event["paused_tags"]:
            k = self._tag(name)  # which may make another table
            if not self.tags.table["paused"][k]:
                self._pause({"tag": name, "paused": True})
        self.changes = len(self)  # what the sources share changes at once

    def _describe(self, rows: NDArray[Any], settings: Sequence[list[Any]]) -> None:
        """Change settings of sources."""
        before = self.table[["tag", "host", "lease"]][rows]
        cost = self.table["cost"][rows].tolist()
        self._set(rows, settings)
        hosts = dict[int, None]()  # to which sources move that are leased
        for (tag, host, lease), old, (_, new, *_), i in zip(
            before.tolist(), cost, settings, rows.tolist(), strict=True
        ):
            self.cost += new - old
            if lease not in self.leases:
                continue
            if self.leases[lease][1] > self.time and self.table["host"][i] != host:
                hosts |= dict.fromkeys(doors.chain(self.shared.hosts, int(self.table["host"][i])))
            self.balance -= new - old  # a release gives back what a fetch costs then
            if self.tagged:
                of_tags = np.array([tag, self.table["tag"][i]])
                self.tags.charge(of_tags, np.array([-old, new]), self.settings.budget)
        if hosts:
            self._hold(hosts)

    def find_domains(self) -> None:
        """Find the domains that hosts are in."""
        names = self.host_names
        self._domains = {name: k for k, name in enumerate(names) if name and doors.is_domain(name)}
        if self._domains:
            hosts = self.shared.hosts[: len(names)]
            hosts["within"] = [doors.domain_of(name or "", self._domains) for name in names]
            doors.tell_domains(hosts)

    def _hosts(self, names: Iterable[str | None]) -> dict[str | None, int]:
        """Return the row of each host, a new one, or one that is not used any more, if there is
        none."""
        unique = [name for name in dict.fromkeys(names) if name is not None]
        new_names = [name for name in unique if name not in self.host_names]
        if new_names:
            if self.host_names.is_full(len(new_names)):
                self._free_hosts([name for name in unique if name in self.host_names])
            rows = self.host_names.add(new_names)
            hosts = with_rows(self.shared.hosts, len(self.host_names))
            hosts[rows] = new_hosts(len(rows))
            self.shared = self.shared._replace(hosts=hosts)
            if any(map(doors.is_domain, new_names)):
                self.find_domains()
            elif self._domains:
                hosts["within"][rows] = [doors.domain_of(x, self._domains) for x in new_names]
        return {None: NO_HOST, **dict(zip(unique, self.host_names.rows(unique), strict=True))}

    def unused_limits(self) -> dict[str, float]:
        """Return the limits of hosts and domains without sources, seconds."""
        hosts = self.shared.hosts[: len(self.host_names)]
        numbers = np.zeros(len(hosts), np.int64)
        numbers[self._hosts_used()] = 1
        unused = (hosts["interval"] > 0.0) & (doors.with_domains(hosts, numbers) == 0)
        return {
            self.host_names[row] or "": float(hosts["interval"][row])
            for row in np.flatnonzero(unused).tolist()
        }

    def _hosts_used(self) -> NDArray[np.int64]:
        """Return the rows of the hosts of all sources."""
        table = self.table[: self.rows]
        rows = distinct(table["host"][(table["marks"] & EXISTS) != 0])
        return rows[rows != NO_HOST]

    def _free_hosts(self, names: Iterable[str]) -> None:
        """Free the rows of hosts and domains without sources that have no limit, are not paused,
        and did not ask to be left alone, but for those of some names."""
        hosts = self.shared.hosts[: len(self.host_names)]
        used = (hosts["interval"] > 0.0) | (hosts["blocked"] > self.time)
        used[[*self.paused_hosts, *self.host_names.rows(names), *self.host_names.free]] = True
        used[self._hosts_used()] = True
        for row in np.flatnonzero(used).tolist() if self._domains else ():
            used[list(doors.chain(hosts, row))] = True
        unused = np.flatnonzero(~used).tolist()
        self.agenda.limits_changed(self, unused)
        self._domains = {name: row for name, row in self._domains.items() if used[row]}
        self.host_names.free_unused(unused)
        hosts[unused] = new_hosts(len(unused))

    def _remove(self, event: Event) -> None:
        i = self.row(event["source"])
        self._keep(np.array([i]))
        self.names.take(i)
        for lease in [lease for lease, (row, *_) in self.leases.items() if row == i]:
            del self.leases[lease]
        self.cost -= float(self.table["cost"][i])
        self.numbers_of -= _numbers(self.table[i : i + 1])
        self.table[i] = np.zeros((), self.table.dtype)
        self.table["host"][i] = NO_HOST
        self.reasons.forget(i)
        self.names.free.append(i)
        self.changes += 1
        self._rekey(i)

    def _rename(self, event: Event) -> None:
        i = self.row(event["source"])
        self.names.take(i)
        self.names.give([i], [event["name"]])
        if event["name"] != event["source"]:
            self.reasons.rename(i, self.time, event["source"])

    def _update(self, event: Event) -> None:
        self._update_all([event])

    def _update_many(self, event: Event) -> None:
        self._update_all(event["sources"])
        self.changes = len(self)  # what the sources share changes at once

    def _update_all(self, sources: Sequence[Event]) -> None:
        rows = np.array([self.row(source["source"]) for source in sources], dtype=np.int32)
        self._keep(rows)
        self.numbers_of -= _numbers(self.table[rows])
        self._describe(rows, [source["settings"] for source in sources])
        paused = np.where([source["paused"] for source in sources], PAUSED, 0)
        marks = self.table["marks"][rows] & (0xFF ^ PAUSED)
        self.table["marks"][rows] = marks | paused.astype(np.uint8)
        self.use_tags(rows)
        self.numbers_of += _numbers(self.table[rows])
        self.changes += len(rows)
        self.agenda.rekey(self, rows, self.time)

    def _limit_hosts(self, event: Event) -> None:
        hosts = self._hosts(event["hosts"])
        for name, interval in event["hosts"].items():
            self.shared.hosts["interval"][hosts[name]] = interval
        rows = [hosts[name] for name in event["hosts"]]
        self._hold(rows)
        self.agenda.limits_changed(self, rows)
        self.changes = len(self)  # the price changes at once

    def _hold(self, hosts: Iterable[int]) -> None:
        """Store in hosts all open leases of their sources, rather than the last one alone."""
        out: dict[int, list[tuple[int, float]]] = {}  # leases of each host, and their ends
        for lease, (row, end, _) in self.leases.items():
            if end > self.time:
                for host in doors.chain(self.shared.hosts, int(self.table["host"][row])):
                    out.setdefault(host, []).append((lease, end))
        table = self.shared.hosts
        for host in hosts:
            if leases := out.get(host):
                table["held"][host] = max(end for _, end in leases) + table["interval"][host]
                table["lease"][host] = leases[0][0] if len(leases) == 1 else -len(leases)

    def _lease(self, event: Event) -> None:
        first, end = event["first"], event["end"]
        rows = self._rows(event["rows"])
        if first <= self.last_lease:
            raise ValueError(f"the first lease is {first}")
        self._keep(rows)
        self.balance -= agenda.give(self.table, self.shared.hosts, rows, first, end)
        if self.tagged:
            self.tags.charge(
                self.table["tag"][rows], self.table["cost"][rows], self.settings.budget
            )
        for lease, i in enumerate(event["rows"], first):
            self.leases[lease] = (i, end, self.time)
        self.last_lease = first + len(rows) - 1
        self.counts[outcomes.LEASES] += len(rows)
        self.agenda.rekey(self, rows, self.time)
        most = len(self) + _MOST_LATE
        while self.leases:
            lease = next(iter(self.leases))
            longest = LATE_REPORTS if len(self.leases) <= most else 0.0
            if self.leases[lease][1] > self.time - longest:
                break
            del self.leases[lease]

    def _rows(self, rows: list[int]) -> NDArray[np.int32]:
        """Return rows of sources, checked."""
        if rows and not (min(rows) >= 0 and max(rows) < self.rows):
            raise ValueError("it refers to a source that does not exist")
        return np.array(rows, dtype=np.int32)

    def _record(self, event: Event) -> None:
        batch = outcomes.outcomes_of(event)
        rows = np.ascontiguousarray(batch["row"])
        self._keep(rows)
        late = np.zeros(len(rows), np.bool_)
        for k, (lease, i) in enumerate(zip(event["lease"], event["row"], strict=True)):
            if lease:
                row, end, _ = self.leases.pop(lease)
                late[k] = end <= self.time
                if row != i:
                    raise ValueError(f"lease {lease} is not one of row {i}")
        tallies = Tallies(self.kind_pings, self.totals.sums, self.counts, self.numbers_of, self.run)
        age, worth = (np.array(event[name], dtype=np.float64) for name in ("age", "worth"))
        has_costs = "spent" in event
        before = self.table["cost"][rows].astype(np.float64)
        s = self.settings
        self.balance = outcomes.apply(
            self.table[: self.rows], self.shared, tallies, batch, late, age, worth, self.balance,
            s.burst, Terms(s.worth_at == "fetch", self.price_at(self.time), self.time),
        )  # fmt: skip
        if self.tagged:
            released = batch["outcome"] == outcomes.RELEASED
            charges = before * np.where(released, -1.0, batch["lease"] == 0)
            charges += np.where(batch["spent"] >= 0.0, batch["spent"] - before, 0.0)
            self.tags.charge(self.table["tag"][rows], charges, self.settings.budget)
        if has_costs:  # of sources that are reported twice, once
            unique_rows, first = np.unique(rows, return_index=True)
            after = self.table["cost"][unique_rows].astype(np.float64)
            self.cost += float((after - before[first]).sum())
        self._count_looks(event, rows, batch, before)
        if self.reasons.failures or "reasons" in event:
            self.reasons.apply(event)
        self.changes += len(rows) - event["outcome"].count(outcomes.RELEASED)
        if self.agenda.queues.of_host:
            for host in set(self.table["host"][rows].tolist()):
                self.agenda.queues.reopen(self.shared.hosts, host)
        self.agenda.rekey(self, rows, self.time)

    def _count_looks(
        self,
        event: Event,
        rows: NDArray[np.int32],
        batch: outcomes.Outcomes,
        charges: NDArray[np.float64],
    ) -> None:
        """Note which sources announce what others have, and what looks at these cost and brought:
        their pings are no items that were collected.

        Arguments:
            charges: what a fetch of each row cost before, budget units.
        """
        for k, number, worth in event.get("looks", ()):
            self.table["marks"][rows[k]] |= LOOKS
            self.counts[outcomes.ITEMS] = max(self.counts[outcomes.ITEMS] - number, 0.0)
            self.counts[outcomes.COLLECTED] = max(self.counts[outcomes.COLLECTED] - worth, 0.0)
            self.counts[outcomes.LOOKS_WORTH] += worth
        if "looks" not in event and not self.looks:
            return
        is_look = (batch["outcome"] == outcomes.FETCHED) & (self.table["marks"][rows] & LOOKS != 0)
        self.counts[outcomes.LOOKS] += np.count_nonzero(is_look)
        costs = np.where(batch["spent"] >= 0.0, batch["spent"], charges)
        self.counts[outcomes.LOOKS_COST] += float(costs[is_look].sum())

    @property
    def looks(self) -> bool:
        """Whether there is a source that announces what others have."""
        return bool(self.counts[outcomes.LOOKS] > 0.0)

    def _signal(self, event: Event) -> None:
        rows = self._rows([row for row, _, _ in event["pings"]])
        kinds = [self._kind(kind) for _, kind, _ in event["pings"]]
        self.counts[outcomes.PINGS] += len(rows)
        self._keep(rows)
        outcomes.ping(
            self.table,
            self.shared,
            rows,
            np.array(kinds, dtype=np.uint8),
            np.array([at for _, _, at in event["pings"]], dtype=np.float64),
        )
        self.agenda.rekey(self, rows, self.time)

    def _kind(self, name: str) -> int:
        """Return the number of a kind of signal."""
        if name not in self.kinds:
            if len(self.kinds) >= _MOST_KINDS:
                return len(self.kinds) - 1
            self.kinds.append(name)
            self.kind_pings = np.concatenate([self.kind_pings, np.zeros((1, learning.KIND_SUMS))])
            self.shared = self.shared_with_kinds(len(self.kinds))
        return self.kinds.index(name)

    def shared_with_kinds(self, number: int) -> Shared:
        """Return what the sources share, with a guess of so many kinds of signals at least."""
        shared, more = self.shared, np.ones(max(number - len(self.shared.precision), 0))
        return shared._replace(
            precision=np.concatenate([shared.precision, 0.5 * more]),
            fresh=np.concatenate([shared.fresh, more]),
        )

    def _teach(self, event: Event) -> None:
        """Learn from lessons about sources that were not fetched yet."""
        sources, memory = self.sources, np.array(learning.MEMORIES, dtype=np.float64)
        for name, counts, part, since, worth, squares in event["lessons"]:
            i, number = self.row(name), math.fsum(counts)
            self._keep(np.array([i]))
            learning.observe(self.table, self.shared, i, np.array(counts, dtype=np.float64), part)
            discount = np.exp(-since / memory)
            sources.items[i] *= discount
            sources.exposure[i] *= discount
            # Worths do not change as rates do: a few hundred items say what their mean is.
            weight = min(number, _MOST_TAUGHT)
            if number > 0.0:
                sources.worth[i] += worth / number * weight
                sources.worth_items[i] += weight
            if worth > 0.0 and squares > 0.0:
                self.totals.add_squares(squares * number / worth**2, number)
            self._rekey(i)
        self.changes = len(self)  # what the sources share changes at once


def _numbers(sources: Sources) -> NDArray[np.int64]:
    """Return how many of some sources are new, failing, and paused, (3,)."""
    exists, failing = (sources["marks"] & EXISTS) != 0, sources["failures"] > 0
    new, paused = (sources["fetched"] == NEVER) & ~failing, (sources["marks"] & STOPPED) != 0
    return np.array([np.count_nonzero(exists & which) for which in (new, failing, paused)])


# The tags that an event names.
_TAGS: dict[str, Callable[[Event], list[str | None]]] = {
    "add": lambda event: [row[_TAG] for row in event["sources"]],
    "update": lambda event: [event["settings"][_TAG - 1]],
    "update_many": lambda event: [source["settings"][_TAG - 1] for source in event["sources"]],
    "tag": lambda event: [event["tag"]],
    "pause": lambda event: [event.get("tag")],
    "adopt": lambda event: [*(tag for *_, tag in event["sources"]), *event["paused_tags"]],
}
_APPLY: dict[str, Callable[[State, Event], None]] = {
    "configure": State._configure,
    "add": State._add,
    "remove": State._remove,
    "rename": State._rename,
    "update": State._update,
    "update_many": State._update_many,
    "tag": State._limit_tag,
    "pause": State._pause,
    "hosts": State._limit_hosts,
    "lease": State._lease,
    "record": State._record,
    "signal": State._signal,
    "teach": State._teach,
    "adopt": State._adopt,
}
