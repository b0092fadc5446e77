"""The settings of a scheduler, which are stored with it; a budget may be a table of hours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from crawl_env.errors import check_choice, check_whole, check_within, shown, unknown
from ephemeral_crawl.live.arguments import (
    LATEST,
    LEAST_COST,
    MOST_COST,
    name_of,
    per_second,
    rate_text,
    seconds,
)

_HOUR = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\s+(\S.*)", re.ASCII)
_MOST = 96  # hours in a table

Hours = tuple[tuple[float, float], ...]


def hours_of(budget: object) -> Hours:
    """Return the times of a day, seconds from midnight on, from which on there is each budget, per
    second; none of a budget that is no table of hours.

    >>> hours_of("08:00 36/h, 22:00 18/h"), hours_of("36/h")
    (((28800.0, 0.01), (79200.0, 0.005)), ())
    >>> hours_of("8 40/h, 22:00 10/h")
    Traceback (most recent call last):
    ...
    ValueError: budget is '8 40/h, 22:00 10/h': '8 40/h' is not a time of day and a rate, such as \
'08:00 40/h'
    """
    if not (isinstance(budget, str) and ":" in budget):
        return ()
    rates: dict[float, float] = {}
    for part in budget.split(","):
        match = _HOUR.fullmatch(part.strip())
        if not match:
            raise ValueError(
                f"budget is {shown(budget)}: {shown(part.strip())} is not a time of day and a "
                "rate, such as '08:00 40/h'"
            )
        start = 3600.0 * int(match[1]) + 60.0 * int(match[2])
        if start in rates:
            raise ValueError(f"budget is {shown(budget)}: {match[1]}:{match[2]} appears twice")
        rates[start] = per_second("budget", match[3])
    if len(rates) > _MOST:
        raise ValueError(f"budget has {len(rates)} times of day; give at most {_MOST}")
    return tuple(sorted(rates.items()))


def hours_text(hours: Hours) -> str:
    """Return a table as it is given.

    >>> hours_text(hours_of("22:00 10/h, 08:00 40/h"))
    '08:00 40/h, 22:00 10/h'
    >>> hours_text(((0.0, 2e-9),))
    '00:00 0.0000072/h'
    """
    return ", ".join(
        f"{start // 3600:02.0f}:{start % 3600 // 60:02.0f} {rate_text(rate)}"
        for start, rate in hours
    )


def zone_of(name: object) -> tzinfo:
    """Return a time zone.

    >>> zone_of("Middle/Earth")
    Traceback (most recent call last):
    ...
    ValueError: zone is 'Middle/Earth'; give a time zone such as 'UTC' or 'Europe/Paris' (on \
machines without a list of them, install tzdata)
    """
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(str(name))
    except (ValueError, OSError, LookupError):
        raise ValueError(
            f"zone is {shown(name)}; give a time zone such as 'UTC' or 'Europe/Paris' (on machines "
            "without a list of them, install tzdata)"
        ) from None


def budget_at(hours: Hours, zone: str, clock: float) -> tuple[float, float]:
    """Return the budget per second at a time, and when the next one begins, seconds since 1970.

    >>> budget_at(hours_of("08:00 36/h, 22:00 18/h"), "UTC", 0.0)
    (0.005, 28800.0)
    >>> budget_at(hours_of("08:00 36/h, 22:00 18/h"), "Europe/Paris", 82_800.0)  # midnight there
    (0.005, 111600.0)
    >>> skipped = 1_774_782_000.0  # when clocks are set forward: there is no 2:00
    >>> budget_at(hours_of("02:00 36/h, 03:00 18/h"), "Europe/Paris", skipped)[0]
    0.005
    """
    here = zone_of(zone)
    now = datetime.fromtimestamp(clock, here)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    # The same moments of three days, as clocks in that zone show them. They are not sorted: in an
    # hour that is left out when clocks are set forward, an earlier one can come at the same time.
    changes = [
        ((midnight + timedelta(days=day, seconds=start)).replace(tzinfo=here).timestamp(), rate)
        for day in (-1, 0, 1)
        for start, rate in hours
    ]
    rate = next(rate for start, rate in reversed(changes) if start <= clock)
    return rate, min(start for start, _ in changes if start > clock)


LEARNT = "learn"
_MOST_BURST = 1e9
_LONGEST_DAY = 25 * 3600.0  # seconds, when clocks are put back
WORTH_AT = ("publication", "fetch")
SOURCE_ARGUMENTS = (
    *("host", "cost", "min_interval", "max_interval", "half_life"),
    *("tag", "weight"),
)
_LEAST_WEIGHT, _MOST_WEIGHT = 1e-6, 1e6


@dataclass(frozen=True)
class Settings:
    """The settings of a scheduler; times in seconds, rates per second."""

    budget: float  # budget units / second, at present
    burst: float  # budget units that can be spent at once
    half_life: float  # of the worth of items, seconds; 0: learnt
    worth_at: str  # the moment to which reported worths refer, one of `WORTH_AT`
    explore: float  # fraction of the budget that looks after sources that are never due
    seed: int  # of the jitter
    # Times of day, seconds, and the budgets from then on; none: it does not follow the clock.
    hours: Hours = ()
    zone: str = "UTC"  # of these times
    own_burst: bool = False  # whether the burst is not that of an hour
    until: float = 0.0  # time of the clock at which the next of `hours` begins

    @staticmethod
    def of(budget: object, **others: Any) -> Settings:
        """Return the settings of a new scheduler, from the arguments of `Scheduler`."""
        new = Settings(1.0, 1.0, 10_800.0, "publication", 0.05, 0)
        return new.changed(budget=budget, **others)

    def changed(
        self,
        *,
        budget: object = None,
        burst: object = None,
        half_life: object = None,
        worth_at: object = None,
        explore: object = None,
        seed: object = None,
        zone: object = None,
    ) -> Settings:
        """Return the settings with those given, as arguments of `Scheduler`, in their place."""
        values = self.as_dict()
        if budget is not None:
            table = hours_of(budget)
            values["budget"] = table[0][1] if table else per_second("budget", budget)
            values["burst"] = float(burst_of(values["budget"]))
            values |= {"hours": table, "own_burst": False}
        if zone is not None:
            values["zone"] = zone
        if budget is not None or zone is not None:
            values["until"] = 0.0
        if burst is not None:
            values |= {"burst": burst, "own_burst": True}
        if half_life is not None:
            values["half_life"] = (
                0.0 if half_life == LEARNT else seconds("half_life", half_life, 1.0)
            )
        others = {"worth_at": worth_at, "explore": explore, "seed": seed}
        values |= {name: value for name, value in others.items() if value is not None}
        return Settings.from_dict(values)

    def is_late(self, clock: float) -> bool:
        """Return whether another budget has begun by a time of the clock, or the clock was set back
        by more than a day."""
        return bool(self.hours) and not self.until - _LONGEST_DAY <= clock < self.until

    def at(self, clock: float) -> Settings:
        """Return the settings with the budget that they say for a time of the clock."""
        if not self.is_late(clock):
            return self
        budget, until = budget_at(self.hours, self.zone, clock)
        burst = self.burst if self.own_burst else float(burst_of(budget))
        return replace(self, budget=budget, burst=burst, until=until)

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as JSON can hold them."""
        return asdict(self)

    def as_arguments(self) -> dict[str, Any]:
        """Return those that can be changed as arguments of `Scheduler.configure`."""
        return {
            "budget": hours_text(self.hours) or rate_text(self.budget),
            "zone": self.zone,
            "burst": self.burst,
            "half_life": self.half_life or LEARNT,
            "worth_at": self.worth_at,
            "explore": self.explore,
        }

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Settings:
        """Return settings that are stored, or are to be, checked."""
        names = {field.name for field in fields(Settings)}
        for name in values:
            if name not in names:
                raise unknown("setting", name, names)
        unchecked = Settings(**values)
        hours = tuple(
            (check_within("hours", start, 0.0, 86_400.0), check_within("budget", rate, 1e-9, 1e9))
            for start, rate in unchecked.hours
        )
        zone_of(unchecked.zone)
        settings = replace(
            unchecked,
            budget=check_within("budget", unchecked.budget, 1e-9, 1e9),
            burst=check_burst(unchecked.burst),
            half_life=check_within("half_life", unchecked.half_life, 0.0, 3.2e9),
            worth_at=check_choice("worth_at", unchecked.worth_at, WORTH_AT),
            explore=check_within("explore", unchecked.explore, 0.0, 0.5),
            seed=check_whole("seed", unchecked.seed, 0),
            hours=hours,
            until=check_within("until", unchecked.until, 0.0, LATEST),
        )
        if settings.half_life == 0.0 and settings.worth_at == "publication":
            raise ValueError(
                "half_life is 'learn' and worth_at is 'publication'; what an item was worth when "
                "it was published does not tell how its worth decays. Give the half-life, or "
                "report what items are worth when they are fetched, with worth_at='fetch'"
            )
        return settings


def check_burst(burst: object) -> float:
    """Return a burst, budget units, checked."""
    return check_within("burst", burst, 0.0, _MOST_BURST, open_low=True)


def burst_of(budget: Any) -> Any:
    """Return the default burst, the budget of an hour, of rates per second, any shape."""
    return np.minimum(np.maximum(3600.0 * budget, 1.0), _MOST_BURST)


@dataclass(frozen=True)
class SourceSettings:
    """The settings of a source; times in seconds."""

    host: str | None = None
    cost: float = 1.0
    shortest: float = 60.0
    longest: float | None = None
    half_life: float | None = None  # None: that of the fleet
    tag: str | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.longest is not None and self.longest < self.shortest:
            raise ValueError(
                f"max_interval is {self.longest:g} s and min_interval {self.shortest:g} s; the "
                "largest interval must not be below the least"
            )
        check_within("cost", self.cost, 0.0, MOST_COST, open_low=True, unit="budget units")

    def changed(self, arguments: Mapping[str, Any]) -> SourceSettings:
        """Return the settings with arguments of `Scheduler.add` in their place, checked."""
        for name in arguments:
            if name not in SOURCE_ARGUMENTS:
                raise unknown("argument", name, SOURCE_ARGUMENTS)
        values = {**vars(self)}
        if "host" in arguments:
            host = arguments["host"]
            values["host"] = None if host is None else name_of("host", host)
        if "tag" in arguments:
            values["tag"] = None if arguments["tag"] is None else name_of("tag", arguments["tag"])
        if "weight" in arguments:
            values["weight"] = check_within(
                "weight", arguments["weight"], _LEAST_WEIGHT, _MOST_WEIGHT
            )
        if "cost" in arguments:
            values["cost"] = check_within(
                "cost", arguments["cost"], LEAST_COST, MOST_COST, unit="budget units"
            )
        if "min_interval" in arguments:
            values["shortest"] = seconds("min_interval", arguments["min_interval"])
        for name, to in (("max_interval", "longest"), ("half_life", "half_life")):
            if name in arguments:
                value = arguments[name]
                values[to] = None if value is None else seconds(name, value, 1.0)
        return SourceSettings(**values)

    def as_arguments(self) -> dict[str, Any]:
        """Return the settings as arguments of `Scheduler.add`, in seconds."""
        return dict(zip(SOURCE_ARGUMENTS, self.as_row(), strict=True))

    def as_row(self) -> list[Any]:
        """Return the settings as the journal holds them."""
        return list(vars(self).values())


_NEW = SourceSettings()


def rows_of(sources: Iterable[Mapping[str, Any]], exist_ok: bool) -> dict[str, list[Any]]:
    """Return what the journal holds of each source that is added, by name.

    Arguments:
        sources: dictionaries of arguments of `Scheduler.add`.
        exist_ok: whether a name may appear twice; then the first one counts.
    """
    rows: dict[str, list[Any]] = {}
    cache: dict[Any, list[Any]] = {}  # many have the same settings
    for number, entry in enumerate(sources):
        try:
            if not isinstance(entry, Mapping):
                raise ValueError(f"it is {shown(entry)}; give its arguments by name")
            arguments = dict(entry)
            name = name_of("source", arguments.pop("source", None))
            if name in rows and not exist_ok:
                raise ValueError(f"the source {shown(name)} appears twice")
            host = arguments.pop("host", None)
            key: Any = tuple([(key, type(value), value) for key, value in arguments.items()])
            try:
                settings = cache.get(key)
            except TypeError:  # a value such as a list, which is refused below
                settings, key = None, None
            if settings is None:
                settings = cache[key] = _NEW.changed(arguments).as_row()[1:]
            host = None if host is None else name_of("host", host)
            rows.setdefault(name, [name, host, *settings])
        except (TypeError, ValueError) as error:
            raise ValueError(f"source {number}: {error}") from None
    return rows
