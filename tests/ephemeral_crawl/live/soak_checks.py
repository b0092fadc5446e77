"""The notes of a soak, and what they must not show.

Times are seconds since its beginning, whatever the clocks said.
"""

from __future__ import annotations

import json
import math
import os
import resource
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ephemeral_crawl.live import Scheduler

ROUNDING = 1e-3  # seconds, and budget units
_LOST = 3600.0  # seconds after which a release whose answer was lost was recorded, if ever


class Lease(NamedTuple):
    """A lease, which costs something until it is released."""

    begun: float  # when it was asked for
    given: float  # and answered
    cost: float
    released: float = math.inf  # when its release was asked for
    confirmed: float = math.inf  # and answered


class Fetch(NamedTuple):
    """A fetch, as its host saw it."""

    time: float
    source: int
    host: int
    begun: float  # when its lease was asked for


class Closing(NamedTuple):
    """A time in which something must not be leased."""

    begin: float  # when the scheduler had been told
    end: float


@dataclass
class Notes:
    """What hosts and workers noted."""

    leases: dict[int, Lease] = field(default_factory=dict)
    fetches: list[Fetch] = field(default_factory=list)
    # Times of sources at which waiting for a fetch begins or ends: whether it was fetched, or added
    # or resumed, or paused or removed.
    waits: list[tuple[float, int, str]] = field(default_factory=list)
    refused: int = 0  # answers 429
    hosts: dict[int, list[Closing]] = field(default_factory=lambda: defaultdict(list))
    sources: dict[int, list[Closing]] = field(default_factory=lambda: defaultdict(list))
    acknowledged: list[int] = field(default_factory=list)  # leases

    @staticmethod
    def of(lines: Iterable[str]) -> Notes:
        """Read notes: lines of a kind and numbers."""
        notes, pauses = Notes(), dict[int, float]()
        for line in lines:
            kind, *words = line.split()
            numbers = [float(word) for word in words]
            match kind, numbers:
                case "lease", [lease, begun, given, cost]:
                    notes.leases[int(lease)] = Lease(begun, given, cost)
                case "releasing", [lease, begun]:
                    notes._release(int(lease), begun, begun + _LOST)
                case "released", [lease, begun, confirmed]:
                    notes._release(int(lease), begun, confirmed)
                case "fetch", [now, source, host, begun]:
                    notes.fetches.append(Fetch(now, int(source), int(host), begun))
                    notes.waits.append((now, int(source), "fetched"))
                case "unasked", [now, source]:
                    notes.waits.append((now, int(source), "fetched"))
                case "429", [known_at, host, until]:
                    notes.refused += 1
                    notes.hosts[int(host)].append(Closing(known_at, until))
                case "again", [known_at, source, until]:
                    notes.sources[int(source)].append(Closing(known_at, until))
                case "stopped", [known_at, source]:  # paused, or removed
                    pauses[int(source)] = known_at
                    notes.waits.append((known_at, int(source), kind))
                case "running", [since, source]:  # added, or resumed
                    known_at = pauses.pop(int(source), since)
                    notes.sources[int(source)].append(Closing(known_at, since))
                    notes.waits.append((since, int(source), kind))
                case "acknowledged", [lease]:
                    notes.acknowledged.append(int(lease))
                case _:
                    raise ValueError(f"the note {line!r} cannot be read")
        for source, known_at in pauses.items():
            notes.sources[source].append(Closing(known_at, math.inf))
        notes.fetches.sort()
        notes.waits.sort()
        return notes

    def _release(self, lease: int, begun: float, confirmed: float) -> None:
        self.leases[lease] = self.leases[lease]._replace(released=begun, confirmed=confirmed)


class Notebook:
    """A file of notes, which all processes write to and which can be read meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._reading = path.open(encoding="utf-8")

    def __call__(self, kind: str, *numbers: float) -> None:
        os.write(self._file, (" ".join([kind, *map(str, numbers)]) + "\n").encode())

    def acknowledged(self) -> Iterator[int]:
        """Return the leases whose outcomes were acknowledged since this was last asked."""
        for line in self._reading.read().splitlines():  # each is written at once
            kind, *words = line.split()
            if kind == "acknowledged":
                yield int(words[0])

    def notes(self) -> Notes:
        """Return all that was noted."""
        with self._path.open(encoding="utf-8") as lines:
            return Notes.of(lines)


def memory(process: int) -> float:
    """Return the memory of a process, MiB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def results_of(checks: Mapping[str, Callable[[], object]]) -> tuple[dict[str, object], list[str]]:
    """Return what checks found, and what those that failed said."""
    results, violations = dict[str, object](), list[str]()
    for name, check in checks.items():
        try:
            results[name] = check()
        except AssertionError as error:
            violations.append(f"{name}: {error}")
    return results, violations


def check_explained(live: Scheduler, names: Sequence[str]) -> int:
    """Refuse numbers of sources that are not finite; return how many sources there are."""
    for name in names:
        numbers = [x for x in vars(live.explain(name)).values() if isinstance(x, float)]
        assert all(map(math.isfinite, numbers)), f"a number of {name} is not finite"
    return len(names)


def check_budget(
    leases: Iterable[Lease], rate: float, burst: float, level: float | None = None
) -> float:
    """Refuse leases that no bucket of this rate and size pays for; return its least level.

    Each is paid at a moment between the question and the answer, and a release is paid back in the
    same way. The bucket is charged with the answer, and until then it may hold so much more. It is
    paid back with the question, and may hold so much more until the answer.

    Arguments:
        level: of the bucket at the beginning; by default it is full.
    """
    changes = list[tuple[float, float, float]]()  # time, of the level, and of what it may hold
    for lease in leases:
        changes.append((lease.begun, 0.0, lease.cost))
        changes.append((lease.given, -lease.cost, -lease.cost))
        if lease.released < math.inf:
            changes.append((lease.released, lease.cost, lease.cost))
            changes.append((lease.confirmed, 0.0, -lease.cost))
    level = burst if level is None else level
    now, size, least = 0.0, burst, level
    # What makes room comes first.
    for time, payment, room in sorted(changes, key=lambda change: (change[0], -change[2])):
        level = min(level + rate * (time - now), size)
        now, size = time, size + room
        level += payment
        least = min(least, level)
    assert least >= -ROUNDING, f"the budget was exceeded by {-least:.4g} units"
    return least


def check_intervals(
    what: str, fetches: Iterable[tuple[float, int]], intervals: Mapping[int, float]
) -> float:
    """Refuse fetches that come too early after another; return the shortest time between two.

    Arguments:
        what: what is fetched.
        fetches: time and number of each, in order of time.
        intervals: seconds between two fetches, of those that have a limit.
    """
    last, shortest = dict[int, float](), math.inf
    for time, number in fetches:
        if number in intervals:
            gap = time - last.get(number, -math.inf)
            early = gap < intervals[number] - ROUNDING
            assert not early, f"{what} {number} was fetched after {gap} s"
            last[number], shortest = time, min(shortest, gap)
    return shortest


def check_politeness(notes: Notes, least: float, hosts: Mapping[int, float]) -> tuple[float, float]:
    """Refuse fetches that come too early; return the shortest time between two of a source, and of
    a limited host.

    Arguments:
        least: seconds between two fetches of a source.
        hosts: and of each host that has a limit.
    """
    sources = dict.fromkeys((fetch.source for fetch in notes.fetches), least)
    by_source = ((fetch.time, fetch.source) for fetch in notes.fetches)
    by_host = ((fetch.time, fetch.host) for fetch in notes.fetches)
    shortest = (
        check_intervals("source", by_source, sources),
        check_intervals("host", by_host, hosts),
    )
    for fetch in notes.fetches:
        limits = ("host", fetch.host, notes.hosts), ("source", fetch.source, notes.sources)
        for what, number, closings in limits:
            for begin, end in closings.get(number, ()):
                early = begin <= fetch.begun and fetch.time < end - ROUNDING
                assert not early, f"{what} {number} was fetched {end - fetch.time} s too early"
    return shortest


def check_flat(name: str, samples: Sequence[float], part: float, least: float) -> list[float]:
    """Refuse that something grows; return its medians in the second and the last quarter.

    Arguments:
        part: by which it may be larger in the last quarter,
        least: and by how much in any case.
    """
    assert samples, f"the soak is too short for this check: {name} was not measured"
    quarter = len(samples) // 4
    first = statistics.median(samples[quarter : 2 * quarter + 1])
    last = statistics.median(samples[3 * quarter :])
    assert last <= first + max(part * first, least), f"{name} grew from {first:.1f} to {last:.1f}"
    return [round(first, 1), round(last, 1)]


def check_recorded(events: Iterable[str], acknowledged: Iterable[int]) -> None:
    """Refuse outcomes that are missing in the journal, or that are there twice."""
    leases = set[int]()
    for text in events:
        event: dict[str, Any] = json.loads(text)
        for lease in event["lease"] if event["kind"] == "record" else ():
            assert not lease or lease not in leases, f"lease {lease} was recorded twice"
            leases.add(lease)
    missing = set(acknowledged) - leases
    assert not missing, f"leases {sorted(missing)[:5]} were acknowledged and are not recorded"


def longest_wait(notes: Notes, end: float) -> float:
    """Return the longest time for which a source was waiting for a fetch, up to the end."""
    since, longest = dict[int, float](), 0.0
    for time, source, kind in notes.waits:
        if kind == "fetched" and source in since:
            longest = max(longest, time - since[source])
        if kind == "stopped":
            since.pop(source, None)
        elif kind == "running" or source in since:
            since[source] = time
    return max([longest, *(end - begun for begun in since.values())])
