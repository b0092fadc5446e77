"""Leases and outcomes over loopback HTTP, many at once, while metrics and the page are read."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.live import Scheduler
from experiments.core.data import Data, Listing
from experiments.core.study import Part
from experiments.live.process import TIMES

BATCHES = (1, 10, 50, 200)  # leases in a request
_CLIENTS = 8
_FULL = 1  # leases in a request, also measured with commits that survive a power failure
_BUDGET = "10000/s"
_CHUNK = 10_000
_AGE = 3600.0  # seconds since the last fetches: all sources are due
_METRICS, _PAGE = 5.0, 10.0  # seconds between two requests of each
_JSON = {"Content-Type": "application/json"}


def jobs(study: Any) -> list[Job]:
    """Return a job for each size of batch."""
    common = {
        "sources": study.sources,
        "seconds": study.seconds,
        "folder": str(study.runner.folder),
    }
    cases = [(batch, "no") for batch in BATCHES] + [(_FULL, "yes")]
    return [{**common, "batch": batch, "full": full} for batch, full in cases]


def work(job: Job) -> Result:
    """Return a row; the store is made by the first job, and used by the others, too."""
    place, sources = Path(job["folder"]) / f"http-{job['sources']}", job["sources"]
    record = place / "built.json"
    if not record.exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        times = build_store(place / "crawl.db", sources)
        record.write_text(json.dumps(times), encoding="utf-8")
    common = {"sources": sources, **json.loads(record.read_text(encoding="utf-8"))}
    words = ["ephemeral_crawl", "serve", "--store", f"sqlite:///{place / 'crawl.db'}"]
    words += ["--burst", "20000", "--port", "0", *(["--full"] if job["full"] == "yes" else [])]
    row = _load(words, job["batch"], job["seconds"], with_page=True)
    floor = _load(["experiments.live.echo", str(job["batch"])], job["batch"], job["seconds"] / 4)
    cost = {"cpu_us": row["cpu_us"], "floor_us": floor["cpu_us"]}
    return {**common, "batch": job["batch"], "full": job["full"], **row, **cost}


def build_store(store: Path, sources: int) -> dict[str, Any]:
    """Make a store whose sources were all fetched once, and say how long that took."""
    start, draw = time.perf_counter(), random.Random(0)
    with Scheduler(store, budget=_BUDGET, burst=1e9) as scheduler:
        for first in tqdm(range(0, sources, _CHUNK), "adding sources", leave=False):
            last = min(first + _CHUNK, sources)
            scheduler.add_many(
                {
                    "source": _name(i),
                    "host": f"e{i // 4}.example",
                    "min_interval": 0,
                }
                for i in range(first, last)
            )
        added_at = time.perf_counter()
        for first in tqdm(range(0, sources, _CHUNK), "fetching each once", leave=False):
            now = time.time()
            scheduler.record(
                {"source": _name(i), "items": _items(draw, now - _AGE, 8), "at": now - _AGE}
                for i in range(first, min(first + _CHUNK, sources))
            )
        fetched_at = time.perf_counter()
    return {"adding_s": f"{added_at - start:.1f}", "fetching_s": f"{fetched_at - added_at:.1f}"}


def _name(i: int) -> str:
    return f"https://e{i}.example/feed"


def _items(draw: random.Random, now: float, most: int) -> list[tuple[float, float]]:
    """Return the items of a fetch: some, of the last day, worth 1 on average."""
    return [
        (now - draw.expovariate(1 / 40_000), draw.expovariate(1.0))
        for _ in range(draw.randrange(most))
    ]


class Process(NamedTuple):
    """A server that listens on loopback."""

    number: int
    port: int


@contextmanager
def started(*words: str) -> Iterator[Process]:
    """Run a server, given its module and arguments; it prints its address."""
    server = subprocess.Popen(
        [sys.executable, "-m", *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        match = re.search(r":(\d+)/", server.stdout.readline())
        if match is None:
            raise ValueError("the server did not start; its message is above")
        yield Process(server.pid, int(match[1]))
    finally:
        server.terminate()
        server.communicate(timeout=120)


def _load(words: list[str], batch: int, seconds: float, with_page: bool = False) -> dict[str, Any]:
    """Run a server, and let clients lease and report as fast as they can.

    Arguments:
        words: its module and arguments.
        with_page: whether the metrics and the page are read, too.
    """
    start = time.perf_counter()
    with started(*words) as server:
        ask(HTTPConnection("127.0.0.1", server.port), "GET", "/healthz")
        until_answer = time.perf_counter() - start
        clients = [LeasingClient(server.port, batch, seed) for seed in range(_CLIENTS)]
        readers = [_Reader(server.port)] if with_page else []
        run_all(clients, readers, 0.2 * seconds)  # until machine code is loaded
        for client in clients:
            client.leases, client.outcomes, client.pairs = [], [], 0
        busy, own = processor_time(server.number), time.process_time()
        took = run_all(clients, readers, seconds)
        busy, own = processor_time(server.number) - busy, time.process_time() - own
        memory = _memory(server.number)
    leases = np.concatenate([client.leases for client in clients]) * 1e3
    outcomes = np.concatenate([client.outcomes for client in clients]) * 1e3
    pairs = sum(client.pairs for client in clients)
    row: dict[str, Any] = {"clients": _CLIENTS, "start_s": f"{until_answer:.1f}"}
    row["pairs_per_s"] = f"{pairs / took:.0f}"
    for name, times in (("lease", leases), ("record", outcomes)):
        for part in (50, 99):
            row[f"{name}_p{part}_ms"] = f"{np.percentile(times, part):.2f}"
        row[f"{name}_max_ms"] = f"{times.max():.1f}"
    row |= {
        "pairs_per_core_s": f"{pairs / busy:.0f}",
        "cpu_us": f"{1e6 * busy / pairs:.0f}",
        "requests": len(leases) + len(outcomes),
        "server_cpu": f"{busy / took:.2f}",
        "client_cpu": f"{own / took:.2f}",
        "memory_mb": f"{memory / 1e6:.0f}",
    }
    return row


class LeasingClient:
    """Leases sources and reports them at once, as fast as it is answered."""

    def __init__(self, port: int, batch: int, seed: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=120)
        self._batch, self._draw = batch, random.Random(seed)
        self.leases: list[float] = []  # seconds of each request
        self.outcomes: list[float] = []
        self.pairs = 0

    def once(self) -> None:
        start = time.perf_counter()
        lease = {"limit": self._batch, "timeout": "2min", "wait": "5s"}
        leases = ask(self._connection, "POST", "/v1/lease", lease)["leases"]
        self.leases.append(time.perf_counter() - start)
        if not leases:
            return
        now = time.time()
        outcomes = [
            {"lease": x["id"], "outcome": "fetched", "items": _items(self._draw, now, 3)}
            for x in leases
        ]
        start = time.perf_counter()
        answer = ask(self._connection, "POST", "/v1/record", {"outcomes": outcomes})
        self.outcomes.append(time.perf_counter() - start)
        self.pairs += sum(answer["results"])


class _Reader:
    """Reads the metrics and the page now and then."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=120)
        self._next = {"/metrics": 0.0, "/": 0.0}

    def once(self) -> None:
        for path, every in (("/metrics", _METRICS), ("/", _PAGE)):
            if time.monotonic() >= self._next[path]:
                ask(self._connection, "GET", path)
                self._next[path] = time.monotonic() + every
        time.sleep(0.1)


def run_all(clients: list[LeasingClient], readers: list[_Reader], seconds: float) -> float:
    """Let all work for a time; return how long it was, in seconds."""
    start = time.perf_counter()

    def work(once: Callable[[], None]) -> None:
        while time.perf_counter() - start < seconds:
            once()

    all_of_them = [client.once for client in clients] + [reader.once for reader in readers]
    threads = [threading.Thread(target=work, args=(once,)) for once in all_of_them]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def ask(connection: HTTPConnection, method: str, path: str, body: Any = None) -> Any:
    text = None if body is None else json.dumps(body)
    connection.request(method, path, text, _JSON if text else {})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise ValueError(f"{path}: {answer.status}: {content[:300]!r}")
    return json.loads(content) if answer.headers["Content-Type"] == "application/json" else None


def processor_time(process: int) -> float:
    """Return the processor time of a process, seconds."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def _memory(process: int) -> float:
    """Return the resident memory of a process, bytes."""
    fields = Path(f"/proc/{process}/statm").read_text(encoding="utf-8").split()
    return int(fields[1]) * float(os.sysconf("SC_PAGE_SIZE"))


def claim(data: Data) -> str:
    """Return what one server handles."""
    best = max(data.rows, key=lambda row: float(row["pairs_per_s"]))
    return (
        f"Over loopback HTTP, with {int(best['sources']):,} sources and {best['batch']} leases a "
        f"request, one server handles {int(best['pairs_per_s']):,} leases and reports a second, "
        f"with a lease answered within {best['lease_p99_ms']} ms in 99 % of cases."
    )


PART = Part(
    jobs=jobs,
    work=work,
    file="http.csv",
    heading="Over HTTP",
    content=(
        Listing(
            "Load over loopback HTTP, by the number of leases and outcomes in a request",
            {
                "sources": "sources",
                "batch": "leases a request",
                "full": "power-safe",
                "pairs_per_s": "leases and reports / s",
                "pairs_per_core_s": "per core and s",
                "cpu_us": "server, µs each",
                "floor_us": "of them Starlette, µs",
                **TIMES,
                "server_cpu": "server, cores",
                "client_cpu": "clients, cores",
                "memory_mb": "server, MB",
                "start_s": "start, s",
                "adding_s": "adding all, s",
                "fetching_s": "fetching all once, s",
            },
        ),
        "`ephemeral-crawl serve` on a SQLite file with so many sources on a quarter as many hosts, "
        "all fetched once; several clients, each on a connection of its own, lease and record at "
        "once, as fast as they are answered, with up to two items in a report, and with the "
        "default limits. Power-safe: `--full`. Times are those of the clients, which run in one "
        f"process beside the server. The metrics are read every {_METRICS:g} s and the page every "
        f"{_PAGE:g} s. Per core: divided by the processor time of the server, which depends less "
        "on what else the machine does; of it, what a server needs that answers requests of the "
        "same size with a constant, by Starlette and uvicorn alone. Sources are added and fetched "
        "once in process. Start: from the command to the first answer.",
    ),
    claim=claim,
    alone=True,
)
