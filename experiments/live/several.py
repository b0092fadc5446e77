"""Several servers: on one store, as shards, as shards behind the router, and as shards on Ray.

    python -m experiments.live.several --batches 1 10
    python -m experiments.live.several --postgres postgresql:///test?host=/run/postgresql

prints leases and reports per second, and the processor time that each takes, which depends less on
what else the machine does. Clients run in one process beside the servers: with two cores or fewer,
servers that run at once take the time of each other and of the clients, so that each shard is also
measured alone.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack
from http.client import HTTPConnection
from pathlib import Path

from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.live.journal import store_named
from ephemeral_crawl.reshard import Reshard
from experiments.live.http import (
    LeasingClient,
    Process,
    ask,
    build_store,
    processor_time,
    run_all,
    started,
)

_CLIENTS = 8  # of each server
_BURST = 1e6
_BUDGET = ("--budget", "20000/s")


def _serving(*words: str) -> AbstractContextManager[Process]:
    return started("ephemeral_crawl", "serve", *words, "--port", "0")


def _copied(store: str) -> str:
    """Return the address of a copy of a store."""
    copy = f"{store}{time.time_ns()}"
    with Scheduler(store_named(store)) as scheduler:
        scheduler.copy(store_named(copy))
    return copy


def load_on_ray(stores: list[str], batch: int, seconds: float) -> None:
    """Do the same with shards on Ray, whose stores are files."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for k, store in enumerate(stores):
            Path(_copied(store)).rename(Path(folder) / f"{k}.db")
        words = ["--store", f"{folder}/{{shard}}.db", "--shards", str(len(stores)), *_BUDGET]
        router = stack.enter_context(_serving(*words))
        ask(HTTPConnection("127.0.0.1", router.port), "GET", "/healthz")
        actors = [
            Process(int(path.parent.name), 0)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if path.read_bytes().startswith(b"ray::Shard")
        ]
        clients = [LeasingClient(router.port, batch, k) for k in range(_CLIENTS * len(stores))]
        _measure("both shards on Ray", clients, [*actors, router], batch, seconds)


def load(name: str, stores: list[str], batch: int, seconds: float, routed: bool = False) -> None:
    """Let clients lease and report as fast as they can; print what was done.

    Arguments:
        stores: of the servers, one each.
        routed: whether clients know the router alone.
    """
    copies = {store: _copied(store) for store in stores}  # so that all begin with the same state
    with ExitStack() as stack:
        servers = [
            stack.enter_context(_serving("--store", copies[store], "--burst", f"{_BURST:g}"))
            for store in stores
        ]
        for server in servers:
            ask(HTTPConnection("127.0.0.1", server.port), "GET", "/healthz")
        ports, all_of_them = [server.port for server in servers], servers
        if routed:
            addresses = [f"http://127.0.0.1:{port}" for port in ports]
            # Its rounds are not those of this test: budgets stay as they are.
            words = [*_BUDGET, "--every", "24h", "--servers", *addresses]
            router = stack.enter_context(
                started("ephemeral_crawl", "balance", *words, "--port", "0")
            )
            ports, all_of_them = [router.port], [*servers, router]
        clients = [
            LeasingClient(ports[k % len(ports)], batch, k) for k in range(_CLIENTS * len(stores))
        ]
        _measure(name, clients, all_of_them, batch, seconds)


def _measure(
    name: str, clients: list[LeasingClient], processes: list[Process], batch: int, seconds: float
) -> None:
    """Let clients work, first for a while that does not count."""
    run_all(clients, [], 0.3 * seconds)
    for client in clients:
        client.pairs = 0
    before = [processor_time(process.number) for process in processes]
    took = run_all(clients, [], seconds)
    times = [
        processor_time(process.number) - start
        for process, start in zip(processes, before, strict=True)
    ]
    pairs = max(sum(client.pairs for client in clients), 1)
    costs = ", ".join(f"{1e6 * x / pairs:.0f}" for x in times)
    print(
        f"{name:34} {batch:4} a request: {pairs / took:6.0f} /s; processor time of each "
        f"process, µs a pair: {costs}; most of one process {max(times) / took:.2f} cores",
        flush=True,
    )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sources", type=int, default=400_000)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--postgres", help="a database in which schemas are made")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        first = str(Path(folder) / "one.db")
        build_store(Path(first), arguments.sources)
        shards = [str(Path(folder) / f"shard{k}.db") for k in range(2)]
        if arguments.postgres:
            mark = "&" if "?" in arguments.postgres else "?"
            schemas = [f"{arguments.postgres}{mark}schema=s{time.time_ns()}{k}" for k in range(3)]
            with Scheduler(Path(first)) as scheduler:
                scheduler.copy(schemas[0])
            first, shards = schemas[0], schemas[1:]
        with Scheduler(store_named(first)) as scheduler:
            scheduler.copy(store_named(shards[0]))
        start = time.process_time()
        Reshard(stores=tuple(shards)).run()
        print(f"divided in {time.process_time() - start:.1f} s of processor time")
        for batch in arguments.batches:
            load("one server", [first], batch, arguments.seconds)
            load("two servers on one store", [first, first], batch, arguments.seconds)
            load("a shard of two, alone", shards[:1], batch, arguments.seconds)
            load("the other, alone", shards[1:], batch, arguments.seconds)
            load("both shards", shards, batch, arguments.seconds)
            load("both shards behind the router", shards, batch, arguments.seconds, routed=True)
            if not arguments.postgres:
                load_on_ray(shards, batch, arguments.seconds)


if __name__ == "__main__":
    main()
