"""Leases and outcomes in one process, and what a store takes to open."""

from __future__ import annotations

import gc
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from resource import getpagesize
from typing import Any

import numpy as np
from tqdm import tqdm

from crawl_env.processes import end_with_parent
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.live import Scheduler
from experiments.core.data import Data, Listing
from experiments.core.study import Part

SMALL = 10_000  # sources of the other fleet
BATCHES = (1, 8, 100, 1000)  # leases and outcomes in a call
_ROUND = 3600.0  # seconds of the simulated clock in which each source is fetched once
_PRESSURE = 1.1  # budget units for each lease that is asked for
_CHUNK = 10_000  # sources that are added at a time
_WARM, _PART = 1000, 2  # leases in a call, and the part of the sources, before it is measured
_ITEMS = 0.5  # of a report, on average
# Of lease and record: columns of both parts under load.
TIMES = {
    f"{name}_{part}_ms": f"{name}, median, ms" if part == "p50" else words
    for name in ("lease", "record")
    for part, words in (("p50", ""), ("p99", "p99, ms"), ("max", "largest, ms"))
}
_STORED = (  # what is measured of files
    *("snapshot_waits_ms", "snapshot_s", "file_mb"),
    *("start_s", "columns_bytes", "memory_bytes"),
)


def jobs(study: Any) -> list[Job]:
    """Return a job for each fleet and store."""
    return [
        {
            "sources": number,
            "store": store,
            "seconds": study.seconds,
            "folder": str(study.runner.folder),
        }
        for number in sorted({SMALL, study.sources})
        for store in ("memory", "file")
    ]


def work(job: Job) -> Result:
    """Return a row for each size of batch."""
    sources, store, seconds = job["sources"], job["store"], job["seconds"]
    gc.collect()
    gc.freeze()  # as the server does: what is loaded stays
    try:
        with tempfile.TemporaryDirectory(prefix="live-", dir=job["folder"]) as place:
            path = Path(place) / "crawl.db"
            with _Crawl(path if store == "file" else ":memory:", sources) as crawl:
                rows = [crawl.row(store, batch, seconds) for batch in BATCHES]
                storage = crawl.stored() if store == "file" else dict.fromkeys(_STORED, "")
            if store == "file":
                with ProcessPoolExecutor(1, get_context("spawn"), end_with_parent) as pool:
                    storage |= {
                        "file_mb": f"{path.stat().st_size / 1e6:.1f}",
                        **pool.submit(_opened, path).result(),
                    }
    finally:
        gc.unfreeze()
    return {"rows": [{**row, **storage} for row in rows]}


def _opened(path: Path) -> dict[str, Any]:
    """Return the time and memory that it takes to open a store and to give the first lease."""
    with Scheduler(":memory:", budget="1/s") as other:  # loads machine code
        other.add("a")
        other.record([{"lease": lease.id, "items": [(None, 1.0)]} for lease in other.lease()])
    before, start = _memory(), time.perf_counter()
    scheduler = Scheduler(path)
    scheduler.lease()
    took = time.perf_counter() - start
    memory = _memory() - before
    state = scheduler._ledger.state
    assert state is not None
    agenda, rows = state.agenda, max(state.rows, 1)
    columns = [state.table, agenda.queues.waits, *agenda.times[:3], *agenda.due[:3]]
    return {
        "start_s": f"{took:.2f}",
        "columns_bytes": f"{sum(x.nbytes / max(len(x), 1) for x in columns):.0f}",
        "memory_bytes": f"{memory / rows:.0f}",
    }


def _memory() -> int:
    """Return the bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()


class _Crawl:
    """A scheduler whose sources are fetched as fast as it can give them, in simulated time."""

    def __init__(self, store: object, sources: int) -> None:
        self._now, self._sources = 1.7e9, sources
        self._draw = np.random.default_rng(0)
        self._rate = sources / _ROUND
        self.scheduler = Scheduler(
            store, budget=f"{self._rate:f}/s", burst=sources, clock=lambda: self._now
        )
        start = time.process_time()
        chunks = tqdm(range(0, sources, _CHUNK), "filling the store", leave=False)
        for first in chunks:
            rows = range(first, min(first + _CHUNK, sources))
            self.scheduler.add_many(
                {"source": f"https://e{i}.example/feed", "host": f"e{i // 4}", "min_interval": 0}
                for i in rows
            )
            self.scheduler.record(
                {
                    "source": f"https://e{i}.example/feed",
                    "items": [(self._now - 3600.0 * (1 + i % 97) * k, 1.0) for k in range(4)],
                }
                for i in rows
            )
            self._now += len(rows) / self._rate
        self._filling = time.process_time() - start
        self._now += 3600.0
        for _ in tqdm(range(sources // (_WARM * _PART)), "warming up", leave=False):
            self._pair(_WARM)

    def __enter__(self) -> _Crawl:
        return self

    def __exit__(self, *_: object) -> None:
        self.scheduler.close()

    def row(self, store: str, batch: int, seconds: float) -> dict[str, Any]:
        """Return what leases and outcomes in batches take."""
        cpu, start = time.process_time(), time.perf_counter()
        pairs, leases, outcomes = self._run(batch, seconds)
        took, cpu = time.perf_counter() - start, time.process_time() - cpu
        row: dict[str, Any] = {"sources": self._sources, "store": store, "batch": batch}
        row |= {"pairs_per_s": f"{pairs / took:.0f}", "pairs_per_cpu_s": f"{pairs / cpu:.0f}"}
        for name, times in (("lease", leases), ("record", outcomes)):
            for part in (50, 99):
                row[f"{name}_p{part}_ms"] = f"{1e3 * np.percentile(times, part):.3f}"
            row[f"{name}_max_ms"] = f"{1e3 * max(times):.1f}"
        return row | {"filling_cpu_s": f"{self._filling:.1f}"}

    def stored(self) -> dict[str, str]:
        """Return how long a snapshot keeps others waiting, and how long it takes."""
        ledger = self.scheduler._ledger
        ledger._await_snapshot()  # that of before
        start = time.perf_counter()
        ledger.write_snapshot()
        waits = time.perf_counter() - start
        ledger._await_snapshot()
        took = time.perf_counter() - start
        return {"snapshot_waits_ms": f"{1e3 * waits:.0f}", "snapshot_s": f"{took:.2f}"}

    def _run(self, batch: int, seconds: float) -> tuple[int, list[float], list[float]]:
        pairs, times = 0, ([0.0], [0.0])
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            number, lease, outcome = self._pair(batch)
            pairs += number
            times[0].append(lease)
            times[1].append(outcome)
        return pairs, *times

    def _pair(self, batch: int) -> tuple[int, float, float]:
        """Lease and report; return how many, and what both took."""
        start = time.perf_counter()
        leases = self.scheduler.lease(batch, "2min")
        lease = time.perf_counter() - start
        self._now += _PRESSURE * batch / self._rate
        number = self._draw.poisson(_ITEMS, len(leases)).tolist()
        outcomes = [
            {"lease": lease.id, "items": [(self._now - 60.0 * k, 1.0) for k in range(n)]}
            for lease, n in zip(leases, number, strict=True)
        ]
        start = time.perf_counter()
        self.scheduler.record(outcomes)
        return len(leases), lease, time.perf_counter() - start


def claim(data: Data) -> str:
    """Return what one process handles."""
    best = max(
        data.where(store="file"),
        key=lambda row: (int(row["sources"]), float(row["pairs_per_cpu_s"])),
    )
    return (
        f"In one process, with {int(best['sources']):,} sources in a file and {best['batch']} "
        f"leases a call, it handles {int(best['pairs_per_cpu_s']):,} leases and outcomes per "
        f"second of one core; a lease takes at most {best['lease_p99_ms']} ms in 99 % of cases."
    )


_STORE = {"sources": "sources", "store": "store"}

PART = Part(
    jobs=jobs,
    work=work,
    file="process.csv",
    heading="In one process",
    content=(
        Listing(
            "Leases and outcomes by the size of the fleet and of a call",
            {
                **_STORE,
                "batch": "leases a call",
                "pairs_per_s": "leases and outcomes / s",
                "pairs_per_cpu_s": "per s of one core",
                **TIMES,
            },
        ),
        Listing(
            "What a fleet takes",
            {
                **_STORE,
                "filling_cpu_s": "filling, processor time, s",
                "start_s": "start, s",
                "columns_bytes": "columns, bytes a source",
                "memory_bytes": "with names, bytes a source",
                "file_mb": "file, MB",
                "snapshot_s": "snapshot, s",
                "snapshot_waits_ms": "others wait for it, ms",
            },
        ),
        "Sources are leased and reported at once, as fast as possible, in simulated time: "
        f"each once in {_ROUND / 3600:g} h, with {_ITEMS:g} items in a report on average. All were "
        f"fetched once before: filling is to add {_CHUNK:,} and report their first fetches, with "
        "four items each, and so on. The start is that of a new process, until its first lease; "
        "columns are the arrays of the working set, and the rest are names and their index, hosts, "
        "and what the allocator keeps. A snapshot is written by a thread; others wait until it has "
        "begun, and then as the processor and the disk let them.",
    ),
    claim=claim,
    alone=True,
)
