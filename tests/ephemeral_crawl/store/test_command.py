"""`ephemeral-crawl store`: backups, restored ones, upgrades and new budgets."""

from functools import partial
from pathlib import Path

import pytest

from ephemeral_crawl.crawl import exchange
from ephemeral_crawl.crawl.command import CrawlFeeds
from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.sources import ManageSources
from ephemeral_crawl.store import ManageStore
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
    live = Scheduler(path, budget="20/h", clock=clock)
    live.add_many({"source": str(i), "max_interval": "1h"} for i in range(100))
    assert fetched(live, clock, 2) == pytest.approx(40, abs=21)  # the burst of an hour is full
    ManageStore(store=str(path), budget="80/h").run()
    assert fetched(live, clock, 2) == pytest.approx(160, abs=21)  # and what was saved
    ManageStore(store=f"sqlite:///{path}", budget="10/h").run()
    saved = live.status().balance
    assert saved <= 10.0
    assert fetched(live, clock, 4) <= 40 + saved + 1
    assert Scheduler(path).status().budget == 10.0


def test_it_is_said_what_was_fetched_failed_and_spent(path, capsys):
    with Scheduler(path, budget="60/h") as live:
        live.add_many({"source": name, "tag": "news"} for name in ("a", "b"))
    for report, words in (
        (None, ("budget 60/h, no fetch reported yet", ", nothing spent yet")),
        (Scheduler.failed, ("1 fetch reported, of which 1 failed", ", 1 unit spent")),
        (Scheduler.report, ("2 fetches reported, of which 1 failed", ", 2 units spent")),
    ):
        if report is not None:
            with Scheduler(path) as live:
                report(live, live.lease()[0].id)
        ManageStore(store=str(path)).run()
        told = capsys.readouterr().out
        assert all(part in told for part in words), told


def test_budgets_of_tags_and_pauses_are_set(path, capsys):
    live = Scheduler(path, budget="60/h", clock=Clock())
    live.add_many({"source": name, "tag": "news", "host": "h"} for name in ("a", "b"))
    ManageStore(store=str(path), tag="news", least="10%", most="9/h", pause=("host:h",)).run()
    assert "news: 2 sources, at least 6/h, at most 9/h" in capsys.readouterr().out
    assert (live.lease(9), live.explain("a").reason) == ([], "since its host is paused")
    ManageStore(store=str(path), resume=("host:h",), budget="08:00 40/h", zone="Asia/Tokyo").run()
    assert len(live.lease(9)) == 2
    assert live.settings()["zone"] == "Asia/Tokyo"
    capsys.readouterr()
    ManageStore(store=str(path), tag="nwes", most="9/h", pause=("host:*.h.example",)).run()
    told = capsys.readouterr().out
    assert "no source of the tag 'nwes'" in told
    assert "Tags with sources: news" in told
    assert "no source at the host '*.h.example'" in told
    with refused("'news' is no KIND:NAME; write tag:news"):
        ManageStore(store=str(path), pause=("news",)).run()


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.csv", "source,weight\na,2\nb,heavy\n", "line 3, column weight: weight is 'heavy'"),
        ("a.csv", "source,cost\na,2\nc,1\n", "line 3, column source: there is no source 'c'"),
        ("a.csv", "source,size\na,2\n", "line 2, column size: unknown argument 'size'"),
        ("a.csv", "name,cost\na,2\n", "line 1: there is no column source"),
        ("a.csv", "source,paused\na,perhaps\n", "line 2, column paused: paused is 'perhaps'"),
        ("a.csv", "source,cost\na,1,2\n", "line 2: there are more cells than columns"),
        ("a.csv", "source,cost\na,1\n\na,2\n", "line 4: 'a' appears twice"),
        ("a.csv", "source,cost,cost\na,1,2\n", "line 1: a column appears twice"),
        ("a.csv", "source,tag\na,café\n", "is not UTF-8 text"),
        ("a.csv", "source,max_interval\na,1s\n", "line 2: max_interval is 1 s and min_interval"),
        ("a.jsonl", '{"source": "a"}\n{"source": ', "line 2: it is not JSON"),
        ("a.jsonl", '{"source": "a"}\n[1]', "line 2: it is [1]; give an object"),
        ("a.jsonl", '{"source": "a", "tag": 3}', "line 1, column tag: tag is 3"),
        ("a.jsonl", '{"source": "a", "cost": 1, "cost": 2}', "two values of the same name"),
        ("a.jsonl", '{"source": "a", "tag": "café"}', "is not UTF-8 text"),
        ("a.jsonl", '{"weight": 3}', "line 1, column source: it is missing"),
    ],
)
def test_a_file_of_changes_is_refused_as_a_whole(path, name, text, error):
    live = Scheduler(path, budget="60/h", clock=Clock())
    live.add_many({"source": name} for name in ("a", "b"))
    changes = path.with_name(name)
    changes.write_text(text, encoding="latin-1")
    before = live.settings("a")
    with refused(error, str(changes)):
        ManageStore(store=str(path), changes=changes, budget="9/h").run()
    assert (live.settings("a"), live.status().budget) == (before, 60.0)


def test_a_file_changes_sources(path, capsys):
    live = Scheduler(path, budget="60/h", clock=Clock())
    live.add_many({"source": name, "cost": 2.0} for name in ("a", "b"))
    table, lines = path.with_name("a.csv"), path.with_name("a.jsonl")
    table.write_text("source,weight,tag,paused,cost,max_interval\na,2,news,yes,,24h\nb,,,no,1,\n")
    ManageStore(store=str(path), changes=table).run()
    assert "2 sources changed" in capsys.readouterr().out
    a, b = live.settings("a"), live.settings("b")
    assert (a["weight"], a["tag"], a["paused"], a["cost"]) == (2.0, "news", True, 2.0)
    assert (a["max_interval"], b["weight"], b["tag"], b["cost"]) == (86_400.0, 1.0, None, 1.0)
    table.write_text("source;weight;tag\na;2;news, sports\n")  # as spreadsheets write it
    ManageStore(store=str(path), changes=table).run()
    assert live.settings("a")["tag"] == "news, sports"
    lines.write_text('{"source": "a", "tag": null, "paused": false, "weight": 0.5}\n\n')
    ManageStore(store=str(path), changes=lines).run()
    a = live.settings("a")
    assert (a["weight"], a["tag"], a["paused"], a["cost"]) == (0.5, None, False, 2.0)


def test_others_use_a_store_while_a_file_of_changes_is_read(path, monkeypatch):
    live = Scheduler(path, budget="60/h", clock=Clock())
    live.add("a")
    changes, read = path.with_name("a.csv"), exchange._lines
    changes.write_text("source,weight\na,2\n")

    def meanwhile(name):
        Scheduler(path, patience="0.1s").add("b")
        return read(name)

    monkeypatch.setattr(exchange, "_lines", meanwhile)
    ManageStore(store=str(path), changes=changes).run()
    assert live.sources() == ["a", "b"]
    assert live.settings("a")["weight"] == 2.0


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
    with refused("store is 'postgre://***@host/db'; give"):  # not the password
        ManageStore(store="postgre://me:geheim@host/db").run()
    assert not path.exists()
    path.touch()  # as a start on a full disk leaves it
    with refused(f"there is no store {path}; name one that exists"):
        ManageStore(store=str(path), budget="9/h").run()
    path.unlink()
    ManageStore(store=str(backup), copy_to=f"sqlite:///{restored}").run()
    clock.now -= HOUR
    with Scheduler(restored, clock=clock) as again:
        assert (again.explain("3"), again.status()) == before
    with refused("there is a scheduler in the store"):
        ManageStore(store=str(backup), copy_to=str(restored)).run()


def test_a_connection_string_of_libpq_is_no_file():
    given = "host=db.example dbname=crawl password=geheim"
    for wrong in (
        ManageStore(store=given).run,
        ManageStore(store=f"port=1 {given}").run,
        ManageSources(store=(given,), budget="1/h").run,
        partial(Scheduler, given, budget="1/h"),
    ):
        with pytest.raises(ValueError, match="write postgresql://user@host/database") as error:
            wrong()
        assert "geheim" not in str(error.value)
    with refused("--store is not the path of a file"):
        CrawlFeeds(feeds=[], budget="1/h", store=Path(given)).run()


def test_a_damaged_store_is_refused(path):
    Scheduler(path, budget="60/h").close()
    store = Store(f"sqlite:///{path}", path)
    store.run("UPDATE snapshot SET checksum = checksum + 1")
    with pytest.raises(ValueError, match="damaged"):
        ManageStore(store=str(path)).run()
