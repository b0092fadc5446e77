"""Which source is whose, and stores among which sources are divided anew."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.shards.owner import divide_anew, domain_of, owner_of, shard_of
from ephemeral_crawl.sources import ManageSources
from tests.refusals import refused

START = 1_700_000_000.0


def test_sources_of_a_registered_domain_are_on_one_shard():
    for names in (
        (
            "https://a.example.co.uk/feed",
            "http://example.co.uk/",
            "*.example.co.uk",
            "b.example.co.uk",
        ),
        ("http://127.0.0.1:8000/a", "http://127.0.0.1/b", "127.0.0.1"),
        ("http://[::1]/a", "::1"),
        ("http://localhost/a", "localhost"),
        ("front page",),
    ):
        assert len({domain_of(name) for name in names}) == 1
        assert len({owner_of(name, 64) for name in names}) == 1


def test_half_of_the_domains_move_if_there_are_twice_as_many_shards_and_only_to_new_ones():
    names = [f"site{i}.example" for i in range(4000)]
    for shards in (1, 4):
        before, after = ([shard_of(name, n) for name in names] for n in (shards, 2 * shards))
        moved = [new for old, new in zip(before, after, strict=True) if old != new]
        assert min(moved) >= shards
        assert len(moved) / len(names) == pytest.approx(0.5, abs=0.03)
        counts = Counter(after)
        assert min(counts.values()) > 0.8 * len(names) / (2 * shards)


def test_sources_are_imported_into_the_stores_of_their_shards(tmp_path):
    places = [str(tmp_path / f"{k}.db") for k in range(3)]
    for place in places:
        Scheduler(Path(place), budget="10/h").close()
    names = [f"https://feeds{i}.example{i}.org/rss" for i in range(12)]
    table, copy = tmp_path / "sources.csv", tmp_path / "copy.csv"
    rows = [f"{name},{1 + k % 2},{'yes' if k < 3 else ''}" for k, name in enumerate(names)]
    table.write_text("\n".join(["source,weight,paused", *rows]))
    ManageSources(store=tuple(places), add=(table,), tag="news", per_host="9s").run()
    for k, place in enumerate(places):
        with Scheduler(Path(place)) as shard:
            mine = [name for name in names if owner_of(name, 3) == k]
            assert sorted(shard.sources()) == sorted(mine)
            assert {shard.settings(name)["tag"] for name in mine} == {"news"}
            assert len(shard.lease(99)) == len([name for name in mine if name not in names[:3]])
    ManageSources(store=tuple(places), write=(copy,)).run()
    assert {line.split(",")[0] for line in copy.read_text().splitlines()[1:]} == {*names}
    with refused("--budget is of one store"):
        ManageSources(store=tuple(places), budget="20/h").run()
    with refused("are one store; give each shard a store of its own"):
        ManageSources(store=(places[0], places[0])).run()
    with refused("new.db is new: start the server of each shard first"):
        ManageSources(store=(places[0], str(tmp_path / "new.db"))).run()


def test_the_longer_limit_of_a_host_stays_with_the_shard_that_it_belongs_to():
    stores = [Scheduler(":memory:", budget="9/h") for _ in range(2)]
    hosts = [f"{'*.' * (i % 2)}site{i}.example" for i in range(9)]  # some of them domains
    home = [owner_of(host, 2) for host in hosts]
    stores[0].limit_hosts(dict.fromkeys(hosts, 5.0))
    stores[1].limit_hosts({hosts[home.index(1)]: 60.0})
    assert not list(divide_anew(stores))
    limits = [store.unused_limits() for store in stores]
    assert limits[0] == {host: 5.0 for host, k in zip(hosts, home, strict=True) if k == 0}
    assert limits[1] == {
        host: 60.0 if i == home.index(1) else 5.0 for i, host in enumerate(hosts) if home[i] == 1
    }


def test_the_limit_of_a_domain_is_unused_while_no_source_is_at_a_host_of_it():
    scheduler = Scheduler(":memory:", budget="9/h")
    limits = {"*.example.org": 5.0, "*.example": 1.0, "a.site.example": 2.0, "*.site.example": 3.0}
    scheduler.limit_hosts(limits)
    assert scheduler.unused_limits() == limits
    scheduler.add("https://b.site.example/", host="b.site.example")
    assert scheduler.unused_limits() == {"*.example.org": 5.0, "a.site.example": 2.0}
    scheduler.remove("https://b.site.example/")
    assert scheduler.unused_limits() == limits


def test_growing_loses_nothing_of_what_was_learnt(tmp_path, monkeypatch):
    """From four to eight, half of the sources move, and if it is stopped, it goes on."""
    clock, draw = [START], np.random.default_rng(1)
    stores = [
        Scheduler(tmp_path / f"{k}.db", budget=budget, clock=lambda: clock[0])
        for k, budget in enumerate(["15/h", "10/h", "5/h", "20/h"] + 4 * ["1/h"])
    ]
    names = [f"https://site{i}.example/" for i in range(300)]
    for name in names:
        stores[owner_of(name, 4)].add(name, host=domain_of(name))
    for _ in range(24):
        clock[0] += 3600.0
        for store in stores[:4]:
            store.record(
                {"lease": x.id, "items": [(None, 1.0)] * int(draw.poisson(2))}
                for x in store.lease(100)
            )
    learnt = {name: stores[owner_of(name, 4)].export([name])["learnt"] for name in names}
    with monkeypatch.context() as patch:  # it is killed between the two stores
        patch.setattr(Scheduler, "remove", lambda self, source: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            next(divide_anew(stores))
    together, configure = [], Scheduler.configure

    def noted(self, **given):
        configure(self, **given)
        together.append(sum(store.status().budget for store in stores))

    monkeypatch.setattr(Scheduler, "configure", noted)
    moving = divide_anew(stores)
    moved = next(moving)
    moving.close()
    moved += sum(divide_anew(stores))
    assert 0.4 < moved / len(names) < 0.6
    assert sorted(name for store in stores for name in store.sources()) == sorted(names)
    for name in names:
        assert stores[owner_of(name, 8)].export([name])["learnt"] == learnt[name]
    budgets = [store.status().budget for store in stores]
    assert max(together) <= 54.0 * (1 + 1e-9)  # also meanwhile
    assert sum(budgets) == pytest.approx(54.0)
    assert budgets == pytest.approx([54.0 * (len(store) + 1) / 308 for store in stores])
    assert not list(divide_anew(stores))


def test_the_budgets_are_divided_or_stay(tmp_path, monkeypatch):
    """Their sum would be another for the next time."""
    stores = [Scheduler(tmp_path / f"{k}.db", budget="10/h") for k in range(3)]
    stores[0].add_many({"source": f"https://site{i}.example/"} for i in range(30))

    def fails(**_):
        raise OSError("disk full")

    monkeypatch.setattr(stores[2], "configure", fails)
    with pytest.raises(OSError, match="disk full"):
        list(divide_anew(stores))
    assert [store.status().budget for store in stores] == [10.0] * 3
    monkeypatch.undo()
    list(divide_anew(stores))
    assert sum(store.status().budget for store in stores) == pytest.approx(30.0)


def test_pauses_of_hosts_go_where_the_hosts_belong(tmp_path):
    """Also of those without sources; none stays behind, to come back when it was ended."""
    stores = [Scheduler(tmp_path / f"{k}.db", budget="10/h") for k in range(2)]
    names = ["site0.example", "*.site1.example", "site2.example", "*.site3.example"]
    stores[0].add("https://site0.example/", host=names[0])
    stores[0].add("https://a.site3.example/", host="a.site3.example")
    for name in names:
        stores[0].pause(host=name)
    for _ in range(2):
        list(divide_anew(stores))
        for k, store in enumerate(stores):
            assert sorted(store.paused_hosts()) == sorted(x for x in names if owner_of(x, 2) == k)
    assert 0 < len(stores[0].paused_hosts()) < 4
    assert sum(store.status().paused for store in stores) == 2


def test_a_paused_host_stays_paused_where_its_sources_are():
    """Sources that are no URLs have shards of their own, whatever their host."""
    stores = [Scheduler(":memory:", budget="10/h") for _ in range(2)]
    home = owner_of("example.org", 2)
    name = next(name for name in map(str, range(99)) if owner_of(name, 2) != home)
    for store in stores:
        store.add(name, host="example.org")
        store.pause(host="example.org")
        store.add("https://example.com/" if store is stores[home] else "b")
    stores[home].remove(name)
    list(divide_anew(stores))
    assert stores[1 - home].paused_hosts() == ["example.org"]
    assert all(lease.source != name for store in stores for lease in store.lease(limit=9))
