"""Servers of shards, their budgets, and one address for all of them: over HTTP on loopback."""

import asyncio
import hmac
import json
import signal
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from urllib.parse import urlencode

import pytest

from ephemeral_crawl.balance import Balance
from ephemeral_crawl.crawl import websub
from ephemeral_crawl.live import Scheduler, TagStatus
from ephemeral_crawl.live.settings import hours_of
from ephemeral_crawl.reshard import Reshard
from ephemeral_crawl.serve import receiver, router
from ephemeral_crawl.serve.admission import VARIABLE, Limits, Token
from ephemeral_crawl.serve.errors import Refusal
from ephemeral_crawl.serve.router import Router, make_router
from ephemeral_crawl.serve.server import listen, make_server
from ephemeral_crawl.serve.servers import Servers, Shards, _quote_of_tag
from ephemeral_crawl.shards.balancer import Balancer
from ephemeral_crawl.shards.owner import domain_of, owner_of
from tests.ephemeral_crawl.serve.running import BEARER, SECRET, Client, running
from tests.ephemeral_crawl.serve.test_receiver import KEY, Site, site

NAMES = [f"https://site{i}.example/feed" for i in range(40)]
NOBODY = "http://127.0.0.1:1"


@contextmanager
def shards(number, token=None):
    """Servers of empty shards, on threads of this process."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(running(Scheduler(":memory:", budget="100/h"), token))
            for _ in range(number)
        ]


def address(server):
    return f"http://127.0.0.1:{server.port}"


@contextmanager
def routed(to, token=None, balancer=None, port=0):
    """A client of a router, on a thread of its own, to shards or to the addresses of servers."""
    listener, limits, ready = listen("127.0.0.1", port), Limits(), threading.Event()
    made = []

    servers = to if isinstance(to, Shards) else Servers(to, token)

    async def budget(rate, zone, burst):
        if balancer:
            balancer.set_budget(rate, zone, time.time(), burst)
            await servers.balance(balancer)

    async def main():
        async with servers:
            forwards = Router(servers, balances=balancer is not None)
            app = make_router(forwards, Token(token) if token else None, limits, budget)
            made.append(make_server(app, forwards, limits))
            ready.set()
            await made[0].serve([listener])

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    ready.wait()
    try:
        yield Client(listener.getsockname()[1], None, made[0])
    finally:
        made[0].handle_exit(signal.SIGTERM, None)
        thread.join(60)
        assert not thread.is_alive()


def test_a_crawl_through_the_router_reaches_each_source_at_its_shard():
    with shards(3) as servers, routed(list(map(address, servers))) as client:
        sources = [{"source": name, "host": domain_of(name)} for name in NAMES]
        assert client.post("add_many", {"sources": sources}).json == {"added": 40}
        for k, server in enumerate(servers):
            assert set(server.scheduler.sources()) == {n for n in NAMES if owner_of(n, 3) == k}
        assert client.post("add_many", {"sources": sources}).status == 409
        leases = client.post("lease", {"limit": 40, "timeout": "5min"}).json["leases"]
        assert sorted(lease["source"] for lease in leases) == sorted(NAMES)
        assert len({lease["id"] for lease in leases}) == 40
        reported, released, *others = leases
        assert client.post("report", {"lease": reported["id"], "items": [[None, 1]]}).status == 200
        again = client.post("report", {"lease": reported["id"]})
        assert again.status == 410
        assert client.post("release", {"lease": released["id"]}).json == {"recorded": True}
        outcomes = [{"lease": lease["id"], "outcome": "fetched", "items": []} for lease in others]
        told = client.post("record", {"outcomes": [*outcomes, outcomes[0]]}).json["results"]
        assert told == [True] * 38 + [False]
        name = reported["source"]
        assert client.get(f"/v1/explain?source={name}").json["rate"] > 0
        assert client.post("signal", {"source": name}).status == 200
        pings = [{"source": name} for name in NAMES]
        told = client.post("signal_many", {"pings": pings}).json
        assert (told["done"], len(told["worths"])) == (True, len(NAMES))
        status = client.get("/v1/status").json
        assert status["sources"] == 40
        assert status["counts"]["fetched"] == 39
        assert status["counts"]["pings"] == 40  # the first one said the same as another
        assert status["budget"] == pytest.approx(300.0)
        assert len(status["shards"]) == 3
        assert client.post("pause", {"source": name}).status == 200
        assert client.get("/v1/status").json["paused"] == 1
        assert client.post("remove", {"source": name}).status == 200
        assert client.get(f"/v1/explain?source={name}").status == 404
        found, start = [], 0
        while True:
            page = client.get(f"/v1/sources?start={start}&limit=7").json
            found, start = found + page["sources"], page["next"]
            if not start:
                break
        assert sorted(found) == sorted({*NAMES} - {name})
        assert client.get("/v1/next_due").json["due_at"] <= time.time() + 3600
        assert "ephemeral_crawl_sources 39.0" in client.get("/metrics").text
        assert client.post("configure", {"budget": "30/h", "explore": 0.1}).json == {"done": True}
        assert all(server.scheduler.settings()["explore"] == 0.1 for server in servers)
        assert all(server.scheduler.status().budget == 100.0 for server in servers)


def test_tags_are_told_to_all_shards():
    with shards(3) as servers, routed(list(map(address, servers))) as client:
        sources = [{"source": name, "tag": "news"} for name in NAMES]
        client.post("add_many", {"sources": sources})
        assert client.post("limit_tag", {"tag": "news", "most": "20%"}).json == {"done": True}
        told = client.post("limit_tag", {"tag": "news", "most": "9/h"})
        assert "by the server that balances" in told.json["message"]
        told = client.post("limit_tag", {"tag": "news", "least": "9/h", "most": "8/h"})
        assert "least is '9/h', which is above most" in told.json["message"]
        assert [server.scheduler.tags()[1].most for server in servers] == [20.0] * 3
        _, tag = client.get("/v1/tags").json
        assert (tag["most"], tag["most_set"], tag["sources"]) == (60.0, "20%", 40)
        assert client.post("pause", {"tag": "news"}).json == {"done": True}
        assert client.get("/v1/status").json["paused"] == 40
        changes = [{"source": name, "weight": 2.0} for name in NAMES]
        assert client.post("update_many", {"sources": changes}).json == {"done": True}
        assert client.get(f"/v1/explain?source={NAMES[3]}").json["weight"] == 2.0
        client.post("resume", {"tag": "news", "source": None})
        host = client.post("pause", {"host": domain_of(NAMES[0])})
        assert host.json == {"done": True}
        assert client.get("/v1/status").json["paused"] == 0  # the sources have no hosts


def test_rates_of_tags_and_hours_hold_for_all_shards_together():
    balancer = Balancer(300.0, 3)
    with shards(3) as servers, routed(list(map(address, servers)), None, balancer) as client:
        sources = [{"source": name, "tag": "news"} for name in NAMES]
        client.post("add_many", {"sources": sources})
        asyncio.run(_balanced(servers, balancer))
        bounds = {"tag": "news", "least": "6/h", "most": "9/h"}
        assert client.post("limit_tag", bounds).json == {"done": True}

        def each():
            return [server.scheduler.tags()[1] for server in servers]

        assert sum(tag.most for tag in each()) == pytest.approx(9.0)
        assert sum(tag.least for tag in each()) == pytest.approx(6.0)
        assert "/h of 9/h of all shards" in str(each()[0])
        _, tag = client.get("/v1/tags").json
        assert (tag["least"], tag["most"]) == (pytest.approx(6.0), pytest.approx(9.0))
        assert len(client.post("lease", {"limit": 40}).json["leases"]) <= 4.5 + 3 * 0.5
        # Another balancer goes on with what the shards were told, and moves parts with prices.
        parts = [tag.most_part for tag in each()]
        servers[0].scheduler.limit_tag(
            "news", least="6/h", most="9/h", least_part=parts[0] / 9, most_part=parts[0] / 9
        )
        asyncio.run(_balanced(servers, Balancer(300.0, 3)))
        assert sum(tag.most for tag in each()) == pytest.approx(9.0)
        assert client.post("limit_tag", {"tag": "news", "most": "30%"}).json == {"done": True}
        assert {tag.most_set for tag in each()} == {"30%"}
        for change in ({"burst": 12.0}, {"budget": "90/h", "burst": 9.0}, {"budget": "90/h"}):
            assert client.post("configure", change).json == {"done": True}
            asyncio.run(_balanced(servers, balancer))  # in which budgets move
            bursts = [server.scheduler.settings()["burst"] for server in servers]
            assert sum(bursts) == pytest.approx(change.get("burst", 90.0))
        assert "burst is 0" in client.post("configure", {"burst": 0}).json["message"]
        table = {"budget": "00:00 60/h, 12:00 30/h", "zone": "Asia/Tokyo"}
        assert client.post("configure", table).json == {"done": True}
        settings = [server.scheduler.settings() for server in servers]
        assert {given["zone"] for given in settings} == {"Asia/Tokyo"}
        tables = [dict(hours_of(given["budget"])) for given in settings]
        assert 3600 * sum(table[0.0] for table in tables) == pytest.approx(60.0)
        assert 3600 * sum(table[43_200.0] for table in tables) == pytest.approx(30.0)
        status = client.get("/v1/status").json
        assert min(abs(status["budget"] - total) for total in (30.0, 60.0)) < 1e-9
        assert "with its zone" in client.post("configure", {"zone": "UTC"}).json["message"]


async def _balanced(servers, balancer):
    async with Servers(list(map(address, servers))) as found:
        await found.balance(balancer)


def test_a_rate_of_a_tag_needs_all_shards():
    with (
        shards(1) as (server,),
        routed([address(server), NOBODY], None, Balancer(10.0, 2)) as client,
    ):
        told = client.post("limit_tag", {"tag": "news", "most": "9/h"})
        assert (told.status, "nothing was changed" in told.json["message"]) == (503, True)
        assert server.scheduler.tags() == []


def test_the_page_and_hooks_are_those_of_the_shards():
    with shards(2, SECRET) as servers, routed(list(map(address, servers)), SECRET) as client:
        for name in NAMES:
            assert client.post("add", {"source": name}, **BEARER).status == 200
        assert client.get("/").status == 401
        pages = [client.get(f"/?shard={k}", **BEARER).text for k in (0, 1)]
        for k, (page, server) in enumerate(zip(pages, servers, strict=True)):
            assert f"Shard {k} of" in page
            assert all(name in page for name in list(server.scheduler.sources())[:3])
        mine = next(name for name in NAMES if owner_of(name, 2) == 1)
        assert "Shard 1 of" in client.get(f"/?source={mine}", **BEARER).text
        assert client.get("/?shard=2", **BEARER).status == 404
        assert client.get("/v1/hook?source=unknown", **BEARER).status == 404
        hook = client.get(f"/v1/hook?source={mine}", **BEARER).json["path"]
        assert client.ask("POST", hook).status == 204
        assert client.ask("POST", hook.replace("/hooks/", "/hooks/0")).status == 404
        assert [server.scheduler.status().counts.pings for server in servers] == [0, 1]


def test_hubs_and_sites_reach_the_shard_that_owns_the_source(monkeypatch):
    monkeypatch.setattr(websub, "_EVERY", 0.02)
    monkeypatch.setattr(receiver, "_PAUSE", 0.02)
    with listen("127.0.0.1", 0) as found:
        port = found.getsockname()[1]
    public = f"http://127.0.0.1:{port}"
    with ExitStack() as stack:
        place = stack.enter_context(site())
        servers = [
            stack.enter_context(
                running(Scheduler(":memory:", budget="60/h"), SECRET, public=f"{public}/shards/{k}")
            )
            for k in range(3)
        ]
        addresses = list(map(address, servers))
        client = stack.enter_context(routed(addresses, SECRET, port=port))
        feed, mine = f"{place}/feed", owner_of(place, 3)
        assert client.post("add", {"source": feed}, **BEARER).status == 200
        assert Site.subscribed.wait(30)
        form = next(x for x in Site.asked if isinstance(x, dict))
        path = form["hub.callback"].removeprefix(public)
        assert path.startswith(f"/shards/{mine}/websub/")
        right = hmac.new(form["hub.secret"].encode(), b"news", "sha256").hexdigest()
        for digest, count in (("0" * 64, 0), (right, 1)):
            signature = {"X_Hub_Signature": f"sha256={digest}"}
            assert client.ask("POST", path, b"news", **signature).status == 202
            assert [x.scheduler.status().counts.pings for x in servers][mine] == count
        assert client.ask("POST", path[:-1], b"news").status == 410
        assert client.ask("POST", f"/shards/{mine}/v1/status", b"").status == 404
        assert client.ask("POST", path.replace(f"/{mine}/", "/7/"), b"").status == 404
        # What would be a header of the request to the shard.
        answer = client.ask("POST", f"/shards/{mine}/websub/k%0D%0AX:%20y", b"")
        assert (answer.status, answer.json["error"]) == (404, "no_route")
        words = urlencode({"url": feed, "key": KEY})
        assert client.get(f"/indexnow?{words}").status == 200
        body = json.dumps({"host": place[7:], "key": KEY, "urlList": [feed]}).encode()
        answer = client.ask("POST", "/indexnow", body, Content_Type="application/json")
        assert answer.status == 200
        counts = [x.scheduler.status().counts.pings for x in servers]
        assert counts == [3 if k == mine else 0 for k in range(3)]
        answer = client.get("/indexnow?url=nothing&key=short")
        assert (answer.status, answer.json["error"]) == (422, "indexnow")


def test_what_is_refused_names_what_the_client_sent():
    with shards(2) as servers, routed(list(map(address, servers))) as client:
        client.post("add_many", {"sources": [{"source": name} for name in NAMES[:20]]})
        for method, body, status, message in (
            ("report", {"lease": 17001}, 404, "17001"),
            ("report", {"lease": 17999}, 404, "17999"),
            ("report", {"lease": True}, 422, "lease is true"),
            ("report", {}, 422, "give either the `lease` or the `source`"),
            ("add", {"source": NAMES[30], "host": "other.org"}, 422, "registered domain"),
            (
                "add",
                {"source": NAMES[30], "host": host_beside(NAMES[30])},
                422,
                "registered domain",
            ),
            ("limit_host", {"host": "*.co.uk", "interval": "1s"}, 422, "registered domain"),
            ("rename", {"source": NAMES[0], "name": elsewhere(NAMES[0])}, 409, "in both"),
            ("rename", {"source": NAMES[30], "name": elsewhere(NAMES[30])}, 404, NAMES[30]),
            ("lease", {"limit": 0}, 422, "limit is 0"),
            ("lease", {"limit": 1, "timeout": "soon"}, 422, "timeout is 'soon'"),
            ("lease", {"limit": 1, "what": 1}, 422, "no argument what"),
            ("record", {"outcomes": 3}, 422, "outcomes"),
            (
                "record",
                {
                    "outcomes": [
                        {"source": NAMES[k], "status": 9 if k == 7 else 200} for k in range(9)
                    ]
                },
                422,
                "outcome 7: status is 9",
            ),
        ):
            answer = client.post(method, body)
            assert (answer.status, message in answer.json["message"]) == (status, True), answer
        assert client.post("rename", {"source": NAMES[0], "name": NAMES[0] + "2"}).status == 200


def test_a_source_that_is_renamed_takes_what_was_learnt_to_its_new_shard():
    with shards(2) as servers, routed(list(map(address, servers))) as client:
        old, new = NAMES[0], elsewhere(NAMES[0])
        add = {"source": old, "host": domain_of(old), "max_interval": "5h"}
        assert client.post("add", add).status == 200
        assert client.post("limit_host", {"host": domain_of(old), "interval": "1h"}).status == 200
        assert client.post("report", {"source": old, "items": [[None, 1.0]] * 5}).status == 200
        before = client.get(f"/v1/explain?source={old}").json
        assert client.post("rename", {"source": old, "name": new}).json == {"done": True}
        after = client.get(f"/v1/explain?source={new}").json
        for name in ("rate", "worth", "max_interval"):
            assert after[name] == pytest.approx(before[name]), name
        assert after["fetched_at"] == pytest.approx(before["fetched_at"], abs=1.0)
        (found,) = servers[owner_of(new, 2)].scheduler.export([new])["sources"]
        assert found[:2] == [new, domain_of(new)]
        assert servers[owner_of(new, 2)].scheduler.unused_limits() == {}
        assert client.get(f"/v1/explain?source={old}").status == 404
        assert client.get("/v1/status").json["sources"] == 1


def host_beside(name):
    """Another domain's host, which is by chance on the same shard."""
    found = (domain_of(other) for other in NAMES if owner_of(other, 2) == owner_of(name, 2))
    return next(host for host in found if host != domain_of(name))


def elsewhere(name):
    return next(other for other in NAMES if owner_of(other, 2) != owner_of(name, 2))


def test_a_shard_that_is_down_takes_nothing_from_the_others():
    with shards(1, SECRET) as (server,), routed([address(server), NOBODY], SECRET) as client:
        mine, other = ([n for n in NAMES if owner_of(n, 2) == k] for k in (0, 1))
        assert client.get("/v1/status").status == 401
        for name in mine:
            assert client.post("add", {"source": name}, **BEARER).status == 200
        answer = client.post("add", {"source": other[0]}, **BEARER)
        assert answer.status == 503
        assert "shard 1" in answer.json["message"]
        leases = client.post("lease", {"limit": 100}, **BEARER).json["leases"]
        assert {lease["source"] for lease in leases} == {*mine}
        assert client.get("/v1/status", **BEARER).json["shards"][1] is None
        assert {client.ask(how, "/healthz").status for how in ("GET", "HEAD")} == {503}


def test_a_lease_waits_until_something_is_due(monkeypatch):
    with shards(2) as servers, routed(list(map(address, servers))) as client:
        found = []
        waiting = threading.Thread(
            target=lambda: found.append(client.post("lease", {"limit": 1, "wait": "30s"}))
        )
        waiting.start()
        time.sleep(0.2)
        assert not found
        client.post("add", {"source": NAMES[0]})
        waiting.join(20)
        assert [lease["source"] for lease in found[0].json["leases"]] == [NAMES[0]]
        assert client.post("lease", {"limit": 1, "wait": 0.1}).json["leases"] == []
        monkeypatch.setattr(router, "_MOST_WAIT", 0.1)
        assert client.post("lease", {"limit": 1, "wait": "1h"}).json["leases"] == []


class Answers(Shards):
    """Shards that answer at once, by number and path."""

    def __init__(self, *answers):
        super().__init__([f"shard {k}" for k in range(len(answers))])
        self.answers = answers

    async def exchange(self, shard, method, path, body=b"", headers=None):
        return 200, json.dumps(self.answers[shard][path]).encode()


def test_answers_of_shards_together():
    status = Scheduler(":memory:", budget="30/h").status()
    statuses = [{"/v1/status": asdict(replace(status, price=1.0))}]
    statuses.append({"/v1/status": asdict(replace(status, price=5.0, budget=10.0))})
    together, _ = asyncio.run(Router(Answers(*statuses)).status())
    assert (together.price, together.budget) == (2.0, 40.0)  # as the budget is spent
    due = [{"/v1/next_due": {"due_at": at}} for at in (7.0, None, 5.0)]
    assert asyncio.run(Router(Answers(*due)).next_due()) == 5.0
    leases = [[{"id": 1, "index": index} for index in (5.0, 3.0)[k:]] for k in (0, 1)]
    leases = [{"/v1/status": {}, "/v1/lease": {"leases": found}} for found in leases]
    found = asyncio.run(Router(Answers(*leases[::-1]))._lease(4, {}))
    indices = [lease["index"] for lease in found]
    assert indices == sorted(indices, reverse=True)
    assert indices[0] == 5.0


def test_the_new_sources_of_a_tag_are_in_proportion():
    status = replace(Scheduler(":memory:", budget="30/h").status(), sources=40, new=10)
    tag = TagStatus("x", 8, False, None, None, 0.0, 0.0, 1.0, 0.0, "")
    assert _quote_of_tag("x", status, [tag]).new == 2.0


def test_connections_that_a_server_may_have_closed_are_not_used_again(monkeypatch):
    opened, connect = [], asyncio.open_connection

    async def noted(*place, **options):
        opened.append(place)
        return await connect(*place, **options)

    monkeypatch.setattr(asyncio, "open_connection", noted)

    async def ask(to):
        async with Servers([to]) as servers:
            for idle in (60.0, 60.0, -1.0):
                monkeypatch.setattr("ephemeral_crawl.serve.servers._IDLE", idle)
                await servers.ask(0, "GET", "/v1/status")
                yield len(opened)

    async def main():
        return [number async for number in ask(address(server))]

    with shards(1) as (server,):
        assert asyncio.run(main()) == [1, 1, 2]


def test_rounds_over_http_divide_the_budget():
    with shards(2, SECRET) as servers:
        for server, number in zip(servers, (30, 10), strict=True):
            server.scheduler.add_many({"source": f"{number} {i}"} for i in range(number))

        async def rounds(addresses, token=SECRET):
            balancer = Balancer(40.0, 2)
            async with Servers(addresses, token) as found:
                for _ in range(2):
                    await found.balance(balancer)
            return balancer.budgets.tolist()

        given = asyncio.run(rounds(list(map(address, servers))))
        budgets = [server.scheduler.status().budget for server in servers]
        assert budgets == pytest.approx(given)
        assert sum(budgets) == pytest.approx(40.0)
        assert budgets[0] > 15.0  # half of what is proportional to its sources, which are new
        one, _ = map(address, servers)
        assert asyncio.run(rounds([one, NOBODY]))[1] == float("inf")
        assert [server.scheduler.status().budget for server in servers] == budgets

        async def refused():
            async with Servers([one], "wrong-token-of-some-length") as found:
                await found.post(0, "configure", {"budget": "1/h"})

        with pytest.raises(Refusal, match="token is missing or wrong"):
            asyncio.run(refused())


def test_no_password_of_an_address_is_repeated():
    with pytest.raises(ValueError, match=r"server is 'http://\*\*\*@h:1'; give an address"):
        Servers(["http://me:geheim@h:1"])


def test_the_commands_divide_budgets_and_stores(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv(VARIABLE, SECRET)
    with shards(2, SECRET) as servers:
        addresses = tuple(map(address, servers))
        Balance(servers=addresses, budget="50/h", once=True).run()
        assert sum(server.scheduler.status().budget for server in servers) == pytest.approx(50.0)
    assert "100 -> 25/h" in capsys.readouterr().out
    with pytest.raises(ValueError, match="does not answer"):
        Balance(servers=(NOBODY,), budget="1/h", once=True).run()
    with pytest.raises(ValueError, match="give --budget"):
        Balance(servers=(NOBODY,)).run()
    with pytest.raises(ValueError, match="there is no token"):
        Balance(servers=(NOBODY,), budget="1/h", port=0, host="0.0.0.0").run()
    with pytest.raises(ValueError, match="--port is 99999; it must be between"):
        Balance(servers=(NOBODY,), port=99999).run()
    with pytest.raises(ValueError, match="give an address"):
        Balance(servers=("localhost",), budget="1/h").run()
    with Scheduler(tmp_path / "a.db", budget="60/h", half_life="1h") as scheduler:
        scheduler.add_many(
            {"source": name, "host": domain_of(name), "tag": f"{i % 2}"}
            for i, name in enumerate(NAMES)
        )
        scheduler.limit_tag("0", least="20%", most="15/h")
        scheduler.pause(tag="1")
        scheduler.pause(host="*.site0.example")
        scheduler.pause(tag="of nobody")
        scheduler.limit_host("nobody0.example", "9s")  # of the second shard
        paused = scheduler.status().paused
        scheduler.configure(budget="08:00 60/h")
        stores = tuple(str(tmp_path / f"{name}.db") for name in "ab")
        with pytest.raises(ValueError, match="08:00 60/h, which follows the clock"):
            Reshard(stores=stores).run()
        scheduler.configure(budget="60/h")
    Scheduler(tmp_path / "b.db", budget="09:00 .001/h").close()
    with pytest.raises(ValueError, match=r"b\.db is 09:00 0.001/h, which follows the clock"):
        Reshard(stores=stores).run()
    Scheduler(tmp_path / "b.db", budget="0.001/h", half_life="1h").close()
    Reshard(stores=stores).run()
    new = str(tmp_path / "new.db")
    with pytest.raises(ValueError, match="are one store"):
        Reshard(stores=(*stores, new, f"sqlite:///{new}")).run()
    assert not Path(new).exists()
    for wrong in ((stores[0], f"sqlite:///{stores[0]}"), (stores[0], ":memory:"), ()):
        with pytest.raises(ValueError, match=r"are one store|in memory|no store was given"):
            Reshard(stores=wrong).run()  # which lost all sources
    found = [Scheduler(tmp_path / f"{name}.db") for name in "ab"]
    assert sum(store.status().paused for store in found) == paused == 21
    tags = [tag for store in found for tag in store.tags() if tag.tag == "0"]
    assert {(tag.least_set, tag.most_set) for tag in tags} == {("20%", "15/h")}
    assert sum(tag.most for tag in tags) == pytest.approx(15.0)
    assert [tag.most_part for tag in tags] == pytest.approx(
        [x.sources / 20 for x in tags], abs=1e-3
    )
    assert sum(map(len, found)) == 40
    assert sum(store.status().budget for store in found) == pytest.approx(60.0)
    assert {store.settings()["half_life"] for store in found} == {3600.0}
    assert [store.host_limit("nobody0.example") for store in found] == [0.0, 9.0]
    assert [tag.paused for store in found for tag in store.tags() if tag.tag == "of nobody"] == [
        True,
        True,
    ]
    assert "a budget of 60/h is divided" in capsys.readouterr().out
