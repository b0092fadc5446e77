"""The estimates of sources before their first fetch here: from a log of their items, from a fit, or
from another scheduler from which they move."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crawl_env.errors import check_within, shown
from ephemeral_crawl.live import hosts as doors
from ephemeral_crawl.live.arguments import LEAST_COST, MOST_COST, Time, name_of, time_of
from ephemeral_crawl.live.columns import HOST, NEVER, NO_HOST, SOURCE
from ephemeral_crawl.live.outcomes import items_of
from ephemeral_crawl.live.reasons import LEARNT

if TYPE_CHECKING:
    from ephemeral_crawl.live.state import State

_PARTS = 64  # of a log, whose items are counted in each
_LONGEST = 10 * 365 * 86_400.0  # seconds for which a rate is believed to have been observed
_MOST_ITEMS = 1e12


@dataclass(frozen=True)
class Lesson:
    """Numbers of items that a source published in parts of a time, and what they are worth.

    Arguments:
        source: its name.
        counts: number of items in each of P parts of equal length, the oldest first.
        seconds: length of a part.
        end: end of the last part; None: now.
        worth, squares: sum of the items' worths at publication, and of their squares; 0 if the
            latter is not known.
    """

    source: str
    counts: tuple[float, ...]  # (P,)
    seconds: float
    end: Time | None
    worth: float
    squares: float

    @staticmethod
    def of_items(
        source: str, items: Sequence[tuple[Time, float]], start: Time, end: Time
    ) -> Lesson:
        """Return the lesson of all items that a source published from `start` to `end`.

        Arguments:
            items: time of publication and worth of each; others than in this time are left out.

        Raises:
            ValueError: a time or worth is out of range, or the end is not after the start.
        """
        first, last = time_of("start", start), time_of("end", end)
        if not last > first:
            raise ValueError(f"source {source!r}: the log's end must be after its start")
        times, worths = map(np.array, items_of(items))
        inside = (times >= first) & (times <= last)
        times, worths = times[inside], worths[inside]
        counts, _ = np.histogram(times, _PARTS, (first, last))
        return Lesson(
            source,
            tuple(counts.astype(float).tolist()),
            (last - first) / _PARTS,
            last,
            float(worths.sum()),
            float((worths**2).sum()),
        )

    @staticmethod
    def of_rate(source: str, rate: float, worth: float, items: float = 20.0) -> Lesson:
        """Return a lesson that says what an estimate from so many items would say.

        Arguments:
            rate: items per hour.
            worth: mean worth of an item at publication.
            items: how much the rate is to be believed, in items.
        """
        per_second = check_within("rate", rate, 0.0, 1e9, unit="items per hour") / 3600.0
        check_within("worth", worth, 0.0, 1e12)
        check_within("items", items, 0.0, 1e6, open_low=True)
        seconds = min(items / per_second, _LONGEST) if per_second > 0.0 else _LONGEST
        number = per_second * seconds
        return Lesson(source, (number,), seconds, None, number * worth, 0.0)

    def as_row(self, clock: float) -> list[Any]:
        """Return the lesson as the journal holds it: its end is a time before now, in seconds."""
        end = clock if self.end is None else min(time_of("end", self.end), clock)
        for name, value in (("worth", self.worth), ("squares", self.squares)):
            check_within(name, value, 0.0, math.inf, open_high=True)
        check_within("seconds", self.seconds, 0.0, 3.2e9, open_low=True)
        counts = [check_within("a count", n, 0.0, _MOST_ITEMS) for n in self.counts]
        return [self.source, counts, self.seconds, clock - end, self.worth, self.squares]


# Numbers that mean something to one scheduler alone.
_OWN = ("lease", "host", "kind", "tag", "factor", "stretch")
SOURCE_TIMES, HOST_TIMES = ("fetched", "blocked", "pinged", "tried"), ("fetched", "held", "blocked")
_OF_SOURCES = tuple(name for name in SOURCE.names or () if name not in _OWN)
_OF_HOSTS = ("interval", *HOST_TIMES)
_FEW = 4  # sums over the fleet
_LARGEST, _LATEST = 1e30, 1e12  # numbers and times in columns
_RANGES = {  # of columns; others are from 0 to the largest
    "fetched": (NEVER, _LATEST),
    **dict.fromkeys(("blocked", "pinged", "tried", "held"), (-_LATEST, _LATEST)),
    "cost": (0.5 * LEAST_COST, 2.0 * MOST_COST),  # in single precision
    "longest": (0.0, np.inf),
    "weight": (-np.inf, 0.0),
}


def exported(state: State, rows: NDArray[np.int64]) -> dict[str, Any]:
    """Return what a scheduler knows of some sources, (K,), and of their hosts, as JSON holds it.

    What the fleet shares goes along in proportion to their number. Leases stay behind: until they
    end, their sources are not leased elsewhere.
    """
    table = state.table[rows]
    hosts = dict.fromkeys(
        k for i in table["host"].tolist() for k in doors.chain(state.shared.hosts, int(i))
    )
    kinds = [state.kinds[k] if state.kinds else None for k in table["kind"].tolist()]
    of_host = [None if k == NO_HOST else state.host_names[k] for k in table["host"].tolist()]
    tags = [state.tags.names[k] or None for k in table["tag"].tolist()]
    names = [state.names[i] for i in rows.tolist()]
    paused_tags = np.unique(table["tag"])[state.tags.table["paused"][np.unique(table["tag"])]]
    part = len(rows) / max(len(state), 1)
    return {
        "sources": [list(entry) for entry in zip(names, of_host, kinds, tags, strict=True)],
        "learnt": _encode(table, _OF_SOURCES, SOURCE_TIMES, state.offset),
        "hosts": [state.host_names[k] for k in hosts],
        "limits": _encode(state.shared.hosts[list(hosts)], _OF_HOSTS, HOST_TIMES, state.offset),
        "sums": (part * state.totals.sums).tolist(),
        "paused_hosts": [state.host_names[k] for k in hosts if k in state.paused_hosts],
        "paused_tags": [state.tags.names[k] for k in paused_tags.tolist()],
    }


def checked(export: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `exported` has returned, checked.

    Raises:
        ValueError: it is something else, or damaged.
    """
    try:
        sources = [(name_of("source", name), *of) for name, *of in export["sources"]]
        for _, host, kind, tag in sources:
            for name in (host, kind, tag):
                if name is not None:
                    name_of("host", name)
        hosts = [name_of("host", name) for name in export["hosts"]]
        paused = {
            f"paused_{kind}s": [name_of(kind, name) for name in export[f"paused_{kind}s"]]
            for kind in ("host", "tag")
        }
        if len({name for name, *_ in sources}) < len(sources) or not sources:
            raise ValueError("a source appears twice, or there is none")
        learnt(export)
        limits(export)
        sums = [float(x) for x in export["sums"]]
        if len(sums) != _FEW or not all(0.0 <= abs(x) < np.inf for x in sums):
            raise ValueError("the sums over the fleet are damaged")
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(
            f"these are not sources that a scheduler has exported: {error or shown(export)}"
        ) from None
    rows = [list(source) for source in sources]
    parts = {name: dict(export[name]) for name in ("learnt", "limits")}
    return {"sources": rows, "hosts": hosts, "sums": sums, **parts, **paused}


def learnt(export: Mapping[str, Any], offset: float = 0.0) -> NDArray[Any]:
    """Return the learnt columns of sources, (K,).

    Arguments:
        offset: what is added to the clock's times.
    """
    rows = _decode(
        export["learnt"], SOURCE, _OF_SOURCES, SOURCE_TIMES, len(export["sources"]), offset
    )
    if not ((rows["cost"] > 0.0) & (rows["importance"] > 0.0)).all():
        raise ValueError("a source has no cost, or no weight")
    if len(rows) and not rows["cause"].max() < len(LEARNT):
        raise ValueError("a source failed of something that is not known")
    return rows


def limits(export: Mapping[str, Any], offset: float = 0.0) -> NDArray[Any]:
    """Return rows of hosts, (H,), likewise."""
    return _decode(export["limits"], HOST, _OF_HOSTS, HOST_TIMES, len(export["hosts"]), offset)


def _encode(
    rows: NDArray[Any], names: Sequence[str], times: Sequence[str], offset: float
) -> dict[str, str]:
    """Return columns as text."""
    return {
        name: base64.b64encode(
            np.ascontiguousarray(rows[name] - (offset if name in times else 0))
            .astype(rows.dtype[name].base)
            .tobytes()
        ).decode()
        for name in names
    }


def _decode(
    columns: Mapping[str, str],
    kind: np.dtype[Any],
    names: Sequence[str],
    times: Sequence[str],
    number: int,
    offset: float,
) -> NDArray[Any]:
    """Return rows, checked, from columns."""
    rows = np.zeros(number, kind)
    if number and columns.keys() != {*names}:
        raise ValueError("the columns are not those that this program knows")
    for name, text in columns.items():
        try:
            values = np.frombuffer(base64.b64decode(text, validate=True), kind[name].base)
        except binascii.Error as error:
            raise ValueError(f"the column {name}: {error}") from None
        values = values.reshape(rows[name].shape)
        low, high = _RANGES.get(name, (0.0, _LARGEST))
        if not ((values >= low) & (values <= high)).all():
            raise ValueError(f"a number of the column {name} is out of range")
        rows[name] = values + offset if name in times else values
    return rows
