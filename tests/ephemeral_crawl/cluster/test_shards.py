"""Shards on a cluster of two nodes: one is killed in the middle of a crawl, and they go on."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from ephemeral_crawl.shards.balancer import Balancer
from ephemeral_crawl.shards.owner import domain_of, owner_of
from tests.conftest import remove, wait_until
from tests.ephemeral_crawl.shards.test_router import NAMES, routed

BUDGET = 36000.0  # units per hour: ten a second
NUMBER = 4


def node_of(ray, actor):
    return ray.get(
        actor.__ray_call__.remote(lambda _: __import__("ray").get_runtime_context().get_node_id())
    )


def test_a_node_is_killed_and_nothing_that_was_acknowledged_is_lost(tmp_path, cluster, local_ray):
    """The budgets never add up to more than the whole, hosts keep their intervals, and what ran on
    the node is back within a minute."""
    from ephemeral_crawl.shards.actors import Actors

    (victim,) = cluster.worker_nodes
    shards = Actors(str(tmp_path / "{shard}.db"), NUMBER)
    balancer, most = Balancer(BUDGET, NUMBER), []
    with routed(shards, balancer=balancer) as client:
        sources = [{"source": name, "host": domain_of(name)} for name in NAMES]
        assert client.post("add_many", {"sources": sources}).json == {"added": 40}
        for name in NAMES:
            limit = {"host": domain_of(name), "interval": "1h"}
            assert client.post("limit_host", limit).status == 200
        client.post("configure", {"budget": f"{BUDGET}/h"})  # a round of the balancer
        assert sum(budgets(client)) == pytest.approx(BUDGET)
        nodes = [node_of(local_ray, actor) for actor in shards._actors]
        there = [k for k in range(NUMBER) if nodes[k] == victim.node_id]
        assert 0 < len(there) < NUMBER
        recorded, fetched = [0] * NUMBER, []

        def crawl():
            for lease in client.post("lease", {"limit": 4}).json["leases"]:
                fetched.append(lease["source"])
                answer = client.post("report", {"lease": lease["id"], "items": [[None, 1.0]]})
                recorded[owner_of(lease["source"], NUMBER)] += answer.status == 200

        def balance():
            assert client.post("configure", {"budget": f"{BUDGET}/h"}).status == 200
            most.append(float(balancer.given.sum()))

        wait_until(lambda: crawl() or balance() or len(fetched) >= 10)
        remove(cluster, victim, local_ray)
        killed = time.monotonic()
        given = balancer.given.tolist()
        crawl()
        wait_until(lambda: client.get("/healthz").status == 200)
        assert time.monotonic() - killed < 60
        told = client.get("/v1/status").json["shards"]
        assert [shard["counts"]["fetched"] for shard in told] == recorded
        assert [told[k]["budget"] for k in there] == pytest.approx([given[k] for k in there])
        wait_until(lambda: crawl() or balance() or len(fetched) >= 25)
        assert len({*fetched}) == len(fetched)  # no host twice within its interval
        assert victim.node_id not in [node_of(local_ray, actor) for actor in shards._actors]
        assert max(most) <= BUDGET * (1 + 1e-9)
        assert sum(budgets(client)) <= BUDGET * (1 + 1e-9)


def budgets(client):
    return [shard["budget"] for shard in client.get("/v1/status").json["shards"] if shard]
