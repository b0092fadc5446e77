"""A server of a shard is killed in the middle of a crawl, and started again from its store."""

import asyncio
import os
import re
import signal
import subprocess
from contextlib import ExitStack, contextmanager

import pytest

from ephemeral_crawl.serve.servers import Servers
from ephemeral_crawl.shards.balancer import Balancer
from ephemeral_crawl.shards.owner import domain_of, owner_of
from tests.ephemeral_crawl.shards.test_router import NAMES, routed
from tests.processes import command


@contextmanager
def server(store, port=0, *more):
    """Run a server in a process of its own; yield its process and port."""
    words = ["serve", "--store", store, "--port", port, *more]
    process = command(*words, stdout=subprocess.PIPE)
    try:
        yield process, int(re.search(r":(\d+)/", process.stdout.readline())[1])
    finally:
        process.kill()
        process.communicate()


def test_nothing_that_was_acknowledged_is_lost_and_the_budget_is_kept(tmp_path):
    stores = [tmp_path / f"{k}.db" for k in range(2)]
    with ExitStack() as stack:
        started = [stack.enter_context(server(store, 0, "--budget", "100/h")) for store in stores]
        addresses = [f"http://127.0.0.1:{port}" for _, port in started]
        client = stack.enter_context(routed(addresses))
        sources = [{"source": name, "host": domain_of(name)} for name in NAMES]
        assert client.post("add_many", {"sources": sources}).json == {"added": 40}
        balancer, given = Balancer(90.0, 2), []

        async def balance():
            async with Servers(addresses) as servers:
                await servers.balance(balancer)
            given.append(balancer.budgets.tolist())

        asyncio.run(balance())
        recorded = {0: 0, 1: 0}
        for round_ in range(10):
            if round_ == 5:
                os.kill(started[1][0].pid, signal.SIGKILL)
                started[1][0].wait()
            for lease in client.post("lease", {"limit": 4}).json["leases"]:
                answer = client.post("report", {"lease": lease["id"], "items": [[None, 1.0]]})
                recorded[owner_of(lease["source"], 2)] += answer.status == 200
        assert min(recorded.values()) > 0
        asyncio.run(balance())
        assert given[1][1] == given[0][1]
        assert sum(given[1]) <= 90.0 * (1 + 1e-9)
        stack.enter_context(server(stores[1], started[1][1]))
        assert client.get("/healthz").status == 200
        told = client.get("/v1/status").json["shards"]
        assert [found["counts"]["fetched"] for found in told] == list(recorded.values())
        assert told[1]["budget"] == pytest.approx(given[0][1])
        assert sum(found["budget"] for found in told) == pytest.approx(90.0)
