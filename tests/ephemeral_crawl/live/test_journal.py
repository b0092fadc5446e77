"""What is acknowledged survives: kill −9, several processes, snapshots, foreign files."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from ephemeral_crawl.live import Scheduler, scheduler, snapshot
from ephemeral_crawl.live.state import State
from tests.ephemeral_crawl.live.world import Clock
from tests.refusals import refused

ROOT = Path(__file__).parents[3]


def dump(live):
    return snapshot.to_bytes(live._state)


def replayed(path):
    """Return the state as all events of the journal, from the first, give it."""
    with sqlite3.connect(path) as connection:
        events = connection.execute("SELECT event FROM journal ORDER BY number").fetchall()
    state = State()
    for (event,) in events:
        state.apply(json.loads(event))
    return snapshot.to_bytes(state)


def busy(live, clock, steps=60):
    """Let some time pass in which everything happens."""
    live.limit_host("slow", "10min")
    live.add_many({"source": str(i), "host": "slow" if i % 3 == 0 else None} for i in range(12))
    open_leases = []
    for k in range(steps):
        clock.now += 137.0
        open_leases += live.lease(2, timeout="4min")
        live.signal(str(k % 12), "websub" if k % 2 else "sitemap")
        if k % 7 == 0:
            live.report(str(k % 12), [(None, 1.0)])
        for lease in open_leases[: k % 3]:
            open_leases.remove(lease)
            if k % 5 == 0:
                live.failed(lease.id, retry_after="20min" if k % 10 == 0 else None)
            else:
                live.report(lease.id, [(clock() - 50.0 * j, 0.5 * j) for j in range(k % 4)])
    live.rename("11", "eleven")
    live.remove("5")
    live.add("5b", half_life="1h", max_interval="1d")
    live.pause("4")


def test_the_state_is_a_replay_of_the_journal(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "_EVERY", 50)  # snapshots
    path, clock = tmp_path / "crawl.db", Clock()
    with Scheduler(path, budget="40/h", clock=clock) as live:
        busy(live, clock)
        expected = dump(live)
        assert replayed(path) == expected
        assert live._snapshot > 100
        told = live.explain("eleven")
    with Scheduler(path, clock=clock) as again:
        assert dump(again) == expected
        assert again.explain("eleven") == told
    # In memory the same happens.
    memory_clock = Clock()
    memory = Scheduler(":memory:", budget="40/h", clock=memory_clock)
    busy(memory, memory_clock)
    assert dump(memory) == expected


def test_settings_are_stored_and_can_be_changed(tmp_path):
    path = tmp_path / "crawl.db"
    Scheduler(path, budget="20/h", half_life="6h", burst=3).close()
    with Scheduler(f"sqlite:///{path}") as live:
        live.add("a")
        assert live.status().budget == pytest.approx(20)
        assert live.explain("a").half_life == pytest.approx(6 * 3600)
    with Scheduler(path, budget="50/h", half_life="1h") as live:
        assert live.status().budget == pytest.approx(50)
        assert live.explain("a").half_life == pytest.approx(3600)


def test_a_closed_scheduler_says_so(tmp_path):
    live = Scheduler(tmp_path / "crawl.db", budget="20/h")
    live.close()
    with refused("is closed"):
        live.lease()


def test_two_schedulers_on_a_file_are_one(tmp_path):
    path, clock = tmp_path / "crawl.db", Clock()
    one, two = (Scheduler(path, budget="600/h", clock=clock) for _ in range(2))
    one.add_many({"source": str(i)} for i in range(10))
    first, second = one.lease(5), two.lease(10)
    assert len({lease.source for lease in first + second}) == 10
    for lease in first:
        assert two.report(lease.id, [(clock() - 60.0, 1.0)])
        assert not one.report(lease.id, [(clock() - 60.0, 1.0)])
    assert one.explain(first[0].source) == two.explain(first[0].source)
    assert dump(one) == dump(two)


WORKERS = """
import os, sys, time
from ephemeral_crawl.live import Scheduler

path, out = sys.argv[1:]

def work(ready):
    live = Scheduler("sqlite:///" + path, budget="100000/h", burst=1e6)
    live.add_many(({"source": str(i), "max_interval": "1s", "min_interval": 0} for i in range(400)),
                  exist_ok=True)
    file = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        for lease in live.lease(3, timeout="1h"):
            live.report(lease.id, [(None, 1.0)] * (lease.id % 4))
            os.write(file, f"{lease.id}\\n".encode())
            os.write(ready, b"x")

warm = Scheduler(":memory:", budget="1/h")  # compiles
warm.add("a")
warm.report(warm.lease()[0].id, [(None, 1.0)])
for k in range(10):
    reading, writing = os.pipe()
    workers = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            work(writing)
        workers.append(child)
    os.read(reading, 1)
    time.sleep(0.005 * k)
    for worker in workers:
        os.kill(worker, 9)
        os.waitpid(worker, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_kill_9_loses_no_acknowledged_report(tmp_path):
    """Pairs of processes on one file are killed at random moments, twenty in all."""
    path, out = tmp_path / "crawl.db", tmp_path / "acknowledged"
    command = [sys.executable, "-c", WORKERS, str(path), str(out)]
    subprocess.run(command, cwd=ROOT, check=True)
    acknowledged = {int(line) for line in out.read_text().splitlines()}
    assert len(acknowledged) >= 10
    with sqlite3.connect(path) as connection:
        reports = connection.execute(
            "SELECT json_extract(value, '$.lease'), json_array_length(value, '$.ages') "
            "FROM journal, json_each(event, '$.outcomes')"
        ).fetchall()
    numbers = [lease for lease, _ in reports]
    assert len(numbers) == len(set(numbers))  # none counts twice
    assert acknowledged <= set(numbers)  # none is lost
    assert all(items == lease % 4 for lease, items in reports)
    live = Scheduler(path)
    assert dump(live) == replayed(path)
    # Leases of the dead end, and can still be reported once.
    held = sorted(live._state.leases)
    assert all(live.report(lease) for lease in held)
    assert not any(live.report(lease) for lease in held)
    assert live.status().leased == 0


def test_an_error_while_applying_leaves_the_file_in_charge(tmp_path, monkeypatch):
    path, clock = tmp_path / "crawl.db", Clock()
    live = Scheduler(path, budget="20/h", clock=clock)
    live.add("a")
    with monkeypatch.context() as patch:
        patch.setattr(State, "_learn", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            live.report("a", [(None, 1.0)])
    assert live.explain("a").fetched_at == clock()  # it had been committed
    assert dump(live) == replayed(path)


def test_foreign_and_damaged_files_are_refused(tmp_path):
    text = tmp_path / "text.db"
    text.write_text("not a database " * 100)
    with refused("not a database"):
        Scheduler(text, budget="1/h")
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE journal (number INTEGER, event TEXT)")
    with refused("not one of a scheduler"):
        Scheduler(foreign, budget="1/h")
    with pytest.raises(FileNotFoundError, match="make it first"):
        Scheduler(tmp_path / "no" / "folder.db", budget="1/h")
    with refused("is a folder"):
        Scheduler(tmp_path, budget="1/h")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE journal SET event = '{' WHERE number = 2", "event 2 is damaged"),
        ("UPDATE journal SET event = '{\"time\": NaN}' WHERE number = 2", "a number is NaN"),
        ('UPDATE journal SET event = \'{"kind": "run"}\' WHERE number = 2', "event 2"),
        ("DELETE FROM journal WHERE number = 1", "events after the snapshot are missing"),
        ("INSERT INTO snapshot VALUES (1, 3, x'00')", "stored state is damaged"),
        ("CREATE TRIGGER t AFTER INSERT ON journal BEGIN SELECT 1; END", "not one of a scheduler"),
        ("PRAGMA user_version = 2", "version 2"),
    ],
)
def test_damaged_journals_are_refused(tmp_path, change, words):
    path = tmp_path / "crawl.db"
    live = Scheduler(path, budget="1/h")
    for i in range(3):
        live.add(str(i))
    live._journal.close()
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    with refused(words):
        Scheduler(path)


def test_the_journal_is_cut_behind_snapshots(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "_EVERY", 20)
    monkeypatch.setattr("ephemeral_crawl.live.journal.KEPT", 10)
    path, clock = tmp_path / "crawl.db", Clock()
    slow, live = (Scheduler(path, budget="40/h", clock=clock) for _ in range(2))
    busy(live, clock)
    with sqlite3.connect(path) as connection:
        ((oldest,),) = connection.execute("SELECT min(number) FROM journal").fetchall()
    assert oldest > 50
    assert slow.explain("eleven") == live.explain("eleven")  # it reads the snapshot
    assert dump(slow) == dump(live)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_has_a_connection_of_its_own(tmp_path):
    path, clock = tmp_path / "crawl.db", Clock()
    live = Scheduler(path, budget="20/h", clock=clock)
    live.add("a")
    code = (
        "import os, sys; from ephemeral_crawl.live import Scheduler\n"
        f"live = Scheduler({f'sqlite:///{path}'!r})\n"
        "child = os.fork()\n"
        "live.add('child' if child == 0 else 'parent')\n"
        "os._exit(0) if child == 0 else os.waitpid(child, 0)\n"
        "sys.exit(sorted(live.sources()) != ['a', 'child', 'parent'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert done.returncode == 0
