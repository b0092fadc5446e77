"""A recorded log as a test: policies are fitted to its first part and replay the second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from numpy.typing import ArrayLike

from agents.inference import shrinkage
from crawl_env import ItemLog, PingLog, Sources, Trace
from crawl_env.errors import counted
from crawl_env.log.clock import HOURS
from crawl_env.log.event_log import time_of
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core.log_options import SignalOptions, digest, given_time
from ephemeral_crawl.fit import decay, signals
from ephemeral_crawl.fit.lives import Lives, lives

WEEK = 168.0  # hours


@dataclass(frozen=True)
class Split:
    """A log in two parts, and the fleet that is known at the split."""

    past: ItemLog  # of all sources
    rest: ItemLog  # of all sources
    fleet: Sources  # fitted to the past, unless it was given; sources that fell silent: rate 0
    refitted: Sources | None  # fitted to the rest itself; None if the fleet was given
    latest: Sources  # fitted to the whole log, for a schedule from its end on; dead sources: rate 0
    end: float  # of the whole log; the rest may be shorter
    dead: Mapping[
        str, float
    ]  # sources that fell silent in the whole log: the time of the last item
    pings: PingLog | None = None  # during the rest, of all sources

    @cached_property
    def steps(self) -> int:
        """Return H, the number of steps of the rest; the last one may be incomplete."""
        return self.trace.steps(self.fleet.period)

    @cached_property
    def published(self) -> FloatArray:
        """Return the utility that all sources publish in each step of the rest, (H,)."""
        when = (self.rest.published - self.rest.start) / self.fleet.period
        step = np.minimum(when.astype(np.intp), self.steps - 1)
        return np.bincount(step, self.rest.utility, self.steps).astype(np.float64)

    @cached_property
    def trace(self) -> Trace:
        """Return the items of the rest that were published by sources of the fleet."""
        names = set(self.fleet.names)
        log = self.rest.select([name for name in self.rest.names if name in names])
        return Trace(log, random_start=False)

    @cached_property
    def announced(self) -> PingLog | None:
        """Return the pings of the sources of `trace`; None if they are not recorded."""
        return None if self.pings is None else self.pings.select(self.trace.log.names)

    @cached_property
    def digest(self) -> str:
        """Return a hash of the rest, so that stored results of another log are not used."""
        return digest(self.rest, self.pings)

    def sampled(self, fleet: Sources) -> Split:
        """Return the parts of the log that some of the sources published, and these sources."""
        refitted = self.refitted
        if refitted is not None:
            places = [refitted.names.index(name) for name in fleet.names]
            refitted = refitted.select(places).replaced(period=fleet.period)
        past, rest = (log.select(list(fleet.names)) for log in (self.past, self.rest))
        unchanged = self.latest, self.end, self.dead, self.pings
        return Split(past, rest, fleet, refitted, *unchanged)

    @cached_property
    def silent(self) -> frozenset[str]:
        """Return the sources of a fitted fleet that had fallen silent at the split."""
        if self.refitted is None:
            return frozenset()
        quiet = self.fleet.arrival_rate == 0.0
        return frozenset(self.fleet.names[i] for i in np.flatnonzero(quiet))

    @cached_property
    def unknown(self) -> dict[str, float]:
        """Return the sources of the rest that are not in the fleet, with their total utilities, in
        decreasing order."""
        in_fleet, names = set(self.fleet.names), self.rest.names
        utility = np.bincount(self.rest.source, self.rest.utility, len(names))
        items = self.rest.counts
        order = np.argsort(-utility, kind="stable")
        return {names[i]: float(utility[i]) for i in order if items[i] and names[i] not in in_fleet}


@dataclass(kw_only=True)
class Log(SignalOptions):
    """The log: the fleet is fitted to its first part, and the rest is replayed once, from empty
    sources."""

    items: Path | None = None
    """The log, a table as for `fit` with the columns source, published, utility, item; .csv,
    .csv.gz or .parquet."""
    curves: Path | None = None
    """Table item, age, remaining: the recorded decay of single items. The curves are replayed, and
    decay rates are fitted to them."""
    half_life: str = ""
    """Time in which the utility of an item halves, such as 3h, if neither --curves nor --sources is
    given."""
    train_until: Annotated[str, tyro.conf.arg(metavar="TIME")] = ""
    """End of the first part, a number or a time stamp; by default the middle of the log."""
    block: float = 0.0
    """Length of the blocks of time over which confidence intervals are computed; by default a
    week."""

    def split(self, fleet: Sources | None, period: float, steps: int | None = None) -> Split:
        """Read the log and split it.

        Arguments:
            fleet: given by the user, or None to fit one to the first part.
            period: T, in the unit of the log.
            steps: the maximum number of steps of the rest; None for all.

        Raises:
            ValueError: invalid options or an invalid log.
        """
        if self.items is None:
            raise ValueError("no log was given; give --items log.csv")
        self._check(fleet)
        log = self.read(self.items, self.curves)
        pings = self.pings(log)
        at = self._moment(log)
        end = log.end if steps is None else min(log.end, at + steps * period)
        past, rest = log.between(log.start, at), log.between(at, end)
        if not len(rest):
            raise ValueError(f"the log has no items from {at:g} on; give an earlier --train-until")
        before = None if pings is None else pings.between(log.start, at)
        later_pings = None if pings is None else pings.between(at, end)
        if fleet is not None:
            _check_fleet(fleet, log)
            fleet = fleet.replaced(period=period)
            if before is not None and later_pings is not None and not fleet.is_signalled:
                fleet, note = _with_signals(fleet, past, before)
                later_pings = later_pings.with_notes(*note)
            return Split(
                past, rest, fleet, None, fleet, log.end, _dead(log, lives(log)), later_pings
            )
        alive = lives(log)
        active = [name for name, n in zip(past.names, past.counts, strict=True) if n]
        past, later = past.select(active), rest.select(active)
        declared = decay.declared(self.curves, self.half_life, self.unit)
        fading = declared or decay.measure(past).rate.value
        refitted = fitted_to(later, fading, period) if later.utility.any() else None
        in_the_end = declared or decay.measure(log).rate.value
        latest = fitted_to(log, in_the_end, period, closed=True)
        fleet = fitted_to(past, fading, period, closed=True)
        if before is not None and later_pings is not None:
            fleet, note = _with_signals(fleet, past, before)
            refitted = refitted and _with_signals(refitted, later, later_pings)[0]
            later_pings = later_pings.with_notes(*note)
        dead = _dead(log, alive)
        return Split(past, rest, fleet, refitted, latest, log.end, dead, later_pings)

    def _moment(self, log: ItemLog) -> float:
        """Return where the first part ends."""
        at = given_time("--train-until", self.train_until, log)
        moment = time_of("--train-until", at, log.origin, HOURS[log.unit])
        if moment is None:
            return log.start + log.span / 2
        if not log.start < moment < log.end:
            raise ValueError(
                f"--train-until is {self.train_until}, {moment:g} {log.unit}s, but the log covers "
                f"{log.start:g} to {log.end:g}; give a time within it"
            )
        return moment

    def _check(self, fleet: Sources | None) -> None:
        if fleet is None:
            _ = decay.declared(self.curves, self.half_life, self.unit)
        elif self.half_life:
            raise ValueError(
                "--half-life was given with --sources, which has decay rates; leave it out"
            )
        if not 0 <= self.block < np.inf:
            raise ValueError(f"--block is {self.block:g}; it must be a positive time")


def _dead(log: ItemLog, alive: Lives) -> dict[str, float]:
    return {log.names[i]: float(alive.last[i]) for i in np.flatnonzero(alive.dead)}


def fitted_to(log: ItemLog, decay_rate: ArrayLike, period: float, closed: bool = False) -> Sources:
    """Return the fleet that is fitted to a log.

    Arguments:
        closed: whether sources that fell silent publish nothing any more.
    """
    alive = lives(log)
    rate = shrinkage.rates(alive.counts(log), alive.span).value
    utility = shrinkage.utilities(log.source, log.utility, len(log.names)).value
    rate = np.where(alive.dead, 0.0, rate) if closed else rate
    return Sources(rate, utility, decay_rate, period=period, names=log.names)


def _with_signals(fleet: Sources, log: ItemLog, pings: PingLog) -> tuple[Sources, tuple[str, ...]]:
    """Return the fleet with the signals that are fitted to a log and its pings, and a note if
    pings come before their items; sources without items in the log send none that are known of."""
    active = [name for name in fleet.names if name in set(log.names)]
    part = log.select(active)
    fit = signals.measure(part, pings.select(active), lives(part))
    place = {name: i for i, name in enumerate(active)}
    places = np.array([place.get(name, -1) for name in fleet.names], dtype=np.intp)
    note = (
        f"Pings precede the recorded publication of what they announce by up to {fit.skew:.3g} "
        f"{log.unit}s: clocks differ, or items are dated late. They are replayed as recorded, so "
        "that a fetch may come before the item, and their worth is understated; check the time "
        "zones, or add this time to those of the pings."
    )
    return fit.of(fleet, places), (note,) * (fit.skew > 0)


def _check_fleet(fleet: Sources, log: ItemLog) -> None:
    in_fleet = set(fleet.names)
    lacking = [i for i, name in enumerate(log.names) if name not in in_fleet]
    if lacking:
        names = ", ".join(log.names[i] for i in lacking[:5]) + ", …" * (len(lacking) > 5)
        raise ValueError(
            f"--sources lacks {counted(len(lacking), 'source')} of the log, with "
            f"{counted(log.counts[lacking].sum(), 'item')} ({names}); add what is missing, or "
            "leave those items out of the log"
        )
