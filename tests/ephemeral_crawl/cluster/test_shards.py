"""Shards on Ray: a node of a cluster is killed in the middle of a crawl, and they go on."""

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest

from ephemeral_crawl.__main__ import PROGRAM
from ephemeral_crawl.serve import server
from ephemeral_crawl.serve.admission import VARIABLE
from ephemeral_crawl.serve.command import Serve
from ephemeral_crawl.serve.server import listen
from ephemeral_crawl.shards.balancer import Balancer
from ephemeral_crawl.shards.owner import domain_of, owner_of
from tests.conftest import wait_until
from tests.ephemeral_crawl.cluster.test_sharded import node_of
from tests.ephemeral_crawl.serve.running import BEARER, SECRET, Client
from tests.ephemeral_crawl.shards.test_router import NAMES, routed
from tests.refusals import refused

BUDGET = 36_000.0  # units per hour: ten a second
NUMBER = 2


def process_of(ray, actor):
    return ray.get(actor.__ray_call__.remote(lambda _: __import__("os").getpid()))


class Crawl:
    """A crawler on a thread of its own, and what it was told."""

    def __init__(self, client):
        self.client, self.leased, self.going = client, [], True
        self.recorded, self.unsure = [0] * NUMBER, [0] * NUMBER
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while self.going:
            for lease in self.client.post("lease", {"limit": 2, "wait": "1s"}).json["leases"]:
                self.leased.append(lease["source"])
                report = {"lease": lease["id"], "items": [[None, 1.0]]}
                counts = self.client.post("report", report).status == 200
                of = self.recorded if counts else self.unsure
                of[owner_of(lease["source"], NUMBER)] += 1

    def reach(self, leases):
        """Wait until there were so many leases."""
        wait_until(lambda: len(self.leased) >= leases or not self.thread.is_alive())
        assert len(self.leased) >= leases

    def end(self):
        self.going = False
        self.thread.join(60)


def test_a_node_is_killed_and_nothing_that_was_acknowledged_is_lost(tmp_path, cluster, local_ray):
    """The budgets never add up to more than the whole, hosts keep their intervals, and what ran on
    the node is back within a minute."""
    from ephemeral_crawl.serve.actors import Actors

    (victim,) = cluster.worker_nodes
    shards = Actors(str(tmp_path / "{shard}.db"), NUMBER)
    balancer, most = Balancer(BUDGET, NUMBER), []
    with routed(shards, balancer=balancer) as client:

        def balance():
            assert client.post("configure", {"budget": f"{BUDGET}/h"}).status == 200
            most.append(sum(shard["budget"] for shard in told() if shard))
            most.append(float(balancer.budgets.sum()))

        def told():
            return client.get("/v1/status").json["shards"]

        sources = [{"source": name, "host": domain_of(name)} for name in NAMES]
        assert client.post("add_many", {"sources": sources}).json == {"added": 40}
        for name in NAMES:
            limit = {"host": domain_of(name), "interval": "1h"}
            assert client.post("limit_host", limit).status == 200
        assert sum(shard["budget"] for shard in told()) < 1.0  # until they are balanced
        balance()
        assert most == pytest.approx([BUDGET, BUDGET])
        nodes = [node_of(local_ray, actor) for actor in shards._actors]
        there = [k for k in range(NUMBER) if nodes[k] == victim.node_id]
        assert 0 < len(there) < NUMBER
        crawl = Crawl(client)
        try:
            crawl.reach(8)
            balance()
            given = balancer.budgets.tolist()
            processes = [process_of(local_ray, shards._actors[k]) for k in there]
            cluster.remove_node(victim, allow_graceful=False)
            for process in processes:
                os.kill(process, signal.SIGKILL)  # or they would go on for a moment
            wait_until(lambda: client.get("/healthz").status == 200)
            budgets = [shard["budget"] for shard in told()]
            assert budgets == pytest.approx(given)
            crawl.reach(30)
            balance()
        finally:
            crawl.end()
        for shard, least, unsure in zip(told(), crawl.recorded, crawl.unsure, strict=True):
            assert least <= shard["counts"]["fetched"] <= least + unsure
        assert len({*crawl.leased}) == len(crawl.leased)  # no host twice within its interval
        assert victim.node_id not in [node_of(local_ray, actor) for actor in shards._actors]
        assert max(most) <= BUDGET * (1 + 1e-9)


@contextmanager
def served(folder, *more):
    """Run the command in a process of its own, on the Ray of the tests."""
    words = ["serve", "--store", str(folder / "{shard}.db"), "--shards", "2", "--port", "0", *more]
    process = subprocess.Popen(
        [sys.executable, "-m", "ephemeral_crawl", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        found = re.search(r":(\d+)/ \(2 shards\)", process.stdout.readline())
        yield Client(int(found[1]), None, None)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@contextmanager
def served_here(monkeypatch, serve):
    """Run the command on a thread of this process, which has imported what it needs."""
    made, make = [], server.make_server
    with monkeypatch.context() as patch:
        patch.setattr(server, "make_server", lambda *given: made.append(make(*given)) or made[0])
        thread = threading.Thread(target=serve.run)
        thread.start()
        wait_until(lambda: (made and made[0].started) or not thread.is_alive())
    try:
        (listener,) = made[0].servers[0].sockets
        yield Client(listener.getsockname()[1], None, made[0])
    finally:
        made[0].handle_exit(signal.SIGTERM, None)
        thread.join(60)
        assert not thread.is_alive()


def test_the_command_starts_shards_and_a_second_one_forwards_to_them(
    tmp_path, local_ray, monkeypatch
):
    on_ray = ["--ray", local_ray.get_runtime_context().gcs_address]
    here = Serve(store=str(tmp_path / "{shard}.db"), shards=2, port=0)
    with refused("does not run on this cluster; give --budget"):
        here.run()
    token = tmp_path / "token"
    token.write_text(SECRET)
    public = ["--public-url", "https://crawl.example.org", "--token-file", str(token)]
    with served(tmp_path, *on_ray, *public, "--budget", "60/h", "--half-life", "5h") as client:
        with served_here(monkeypatch, here) as other:
            assert other.post("add", {"source": NAMES[0]}).status == 200
            assert client.post("remove", {"source": NAMES[0]}, **BEARER).status == 200
            answer = other.post("configure", {"budget": "1/h"})
            assert "ask the one that was given --budget" in answer.json["message"]
        with refused("another process has started these shards"):
            replace(here, budget="60/h").run()
        assert client.post("configure", {"budget": "80/h"}, **BEARER).status == 200
        shards = client.get("/v1/status", **BEARER).json["shards"]
        assert sum(shard["budget"] for shard in shards) == pytest.approx(80.0)
        assert client.post("add", {"source": NAMES[1]}, **BEARER).status == 200
        answer = client.get("/indexnow?url=https://example.org/&key=short")
        assert (answer.status, answer.json["error"]) == (422, "indexnow")
    with served_here(monkeypatch, replace(here, budget="60/h")) as client:
        assert client.get(f"/v1/explain?source={NAMES[1]}").status == 200

        def budget():  # which is below that of the command until the first round has ended
            return sum(shard["budget"] for shard in client.get("/v1/status").json["shards"])

        wait_until(lambda: budget() == pytest.approx(60.0))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--store", "crawl.db", "--budget", "1/h"], "shards have a store each"),
        (["--shards", "0", "--budget", "1/h"], "--shards is 0"),
        (["--burst", "3"], "--burst is divided among shards with --budget"),
        (["--public-url", "https://a.example"], "--public-url is for the server that starts the"),
    ],
)
def test_what_shards_cannot_be(tmp_path, more, message, monkeypatch):
    monkeypatch.setenv(VARIABLE, SECRET)
    words = ["serve", "--store", str(tmp_path / "{shard}.db"), "--shards", "2", "--port", "0"]
    with pytest.raises(SystemExit, match=message):
        PROGRAM.run([*words, *more])


def test_a_refused_command_does_not_listen_any_more(tmp_path):
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    command = Serve(store=str(tmp_path / "{shard}.db"), shards=2, burst=3, port=port)
    with pytest.raises(
        ValueError, match="--burst is divided among shards with --budget"
    ) as refused:  # keeps what the command has left open
        command.run()
    listen("127.0.0.1", port).close()
    assert refused
