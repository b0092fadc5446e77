"""`ephemeral-crawl store`: backups, restored ones, upgrades and new budgets."""

import pytest

from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.store.command import ManageStore
from tests.ephemeral_crawl.live.stores import Store
from tests.ephemeral_crawl.live.world import HOUR, Clock
from tests.refusals import refused


@pytest.fixture
def path(tmp_path):
    return tmp_path / "crawl.db"


def fetched(scheduler, clock, hours):
    """Return how many fetches a crawler makes that asks every half minute."""
    number = 0
    for _ in range(120 * hours):
        clock.now += 30.0
        leases = scheduler.lease(50)
        scheduler.record([{"lease": lease.id} for lease in leases])
        number += len(leases)
    return number


def test_a_new_budget_holds_at_once_for_all_who_use_the_store(path):
    clock = Clock()
    live = Scheduler(path, budget="60/h", clock=clock)
    live.add_many({"source": str(i), "max_interval": "1h"} for i in range(400))
    assert fetched(live, clock, 4) == pytest.approx(240, abs=62)  # the burst of an hour is full
    ManageStore(store=str(path), budget="240/h").run()
    assert fetched(live, clock, 4) == pytest.approx(960, rel=0.1)
    ManageStore(store=f"sqlite:///{path}", budget="30/h").run()
    saved = live.status().balance
    assert saved <= 30.0
    assert fetched(live, clock, 8) <= 240 + saved + 1
    assert Scheduler(path).status().budget == 30.0


def test_a_backup_is_restored_with_all_that_was_acknowledged(path, capsys):
    clock = Clock()
    live = Scheduler(path, budget="60/h", clock=clock)
    live.add_many({"source": str(i)} for i in range(20))
    fetched(live, clock, 2)
    backup, restored = path.with_name("backup.db"), path.with_name("restored.db")
    ManageStore(store=str(path), copy_to=str(backup)).run()
    told = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[2] for line in told] == 2 * [told[0].partition(": ")[2]]
    assert "20 sources (0 paused, 0 failing), budget 60/h" in told[0]
    before = live.explain("3"), live.status()
    fetched(live, clock, 1)  # lost with the file
    live.close()
    path.unlink()
    with refused(f"there is no store {path}; name one that exists"):
        ManageStore(store=str(path)).run()
    assert not path.exists()
    ManageStore(store=str(backup), copy_to=f"sqlite:///{restored}").run()
    clock.now -= HOUR
    with Scheduler(restored, clock=clock) as again:
        assert (again.explain("3"), again.status()) == before
    with refused("there is a scheduler in the store"):
        ManageStore(store=str(backup), copy_to=str(restored)).run()


def test_a_store_of_an_earlier_version_is_upgraded_and_a_damaged_one_is_refused(path):
    Scheduler(path, budget="60/h").close()
    store = Store(f"sqlite:///{path}", path)
    store.make_older()
    ManageStore(store=str(path)).run()
    ((version,),) = store.run("PRAGMA user_version")
    assert version > 2
    with Scheduler(path) as live:  # what was stored without checksums is stored with them
        live.add("a")
    store.run("UPDATE snapshot SET checksum = checksum + 1")
    with pytest.raises(ValueError, match="damaged"):
        ManageStore(store=str(path)).run()
