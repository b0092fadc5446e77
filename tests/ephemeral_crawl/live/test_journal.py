"""What is acknowledged survives: kill −9, several processes, snapshots, foreign files."""

import http.client
import json
import os
import signal
import sqlite3
import subprocess
import threading
import time
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from unittest.mock import Mock

import numpy as np
import psycopg
import pytest

from ephemeral_crawl.live import Lesson, Scheduler, columns, ledger, outcomes, snapshot
from ephemeral_crawl.live.errors import DamagedStore
from ephemeral_crawl.live.journal import base, open_journal, postgres, sqlite
from ephemeral_crawl.live.state import State
from ephemeral_crawl.reshard import Reshard
from tests.ephemeral_crawl.live import kills
from tests.ephemeral_crawl.live.stores import NO_SERVER, Store, reported, servers
from tests.ephemeral_crawl.live.world import Clock
from tests.ephemeral_crawl.serve.running import running
from tests.processes import command, forked
from tests.refusals import refused


def dump(live):
    return snapshot.to_bytes(live._ledger.state)


@pytest.fixture(scope="module")
def server():
    yield from servers()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    if request.param == "sqlite":
        return Store(f"sqlite:///{tmp_path / 'crawl.db'}", tmp_path / "crawl.db")
    server = request.getfixturevalue("server")
    if server is None:
        pytest.skip(NO_SERVER)
    return server.new()


on_postgres = pytest.mark.parametrize("store", ["postgres"], indirect=True)


def replayed(store):
    """Return the state as all events of the journal, from the first, give it."""
    state = State()
    for (event,) in store.run("SELECT event FROM journal ORDER BY number"):
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


def test_changes_one_by_one_take_less_of_them_until_a_snapshot(store, monkeypatch):
    """Since they take longer to read again, after a kill."""
    monkeypatch.setattr(ledger, "_EVERY", 10)
    live = Scheduler(store.address, budget="40/h", clock=Clock())
    live.add_many({"source": str(i)} for i in range(100))
    assert live._ledger.snapshot_number == 2
    live.update_many({"source": str(i), "weight": 2.0} for i in range(96))
    assert live._ledger.snapshot_number == 2
    for i in range(30):
        live.update(str(i), weight=3.0)
    assert live._ledger.snapshot_number == 4 + 25
    with Scheduler(store.address, clock=Clock()) as again:
        assert dump(again) == dump(live)


def test_the_state_is_a_replay_of_the_journal(store, monkeypatch):
    monkeypatch.setattr(ledger, "_EVERY", 50)  # snapshots
    clock = Clock()
    with Scheduler(store.address, budget="40/h", clock=clock) as live:
        busy(live, clock)
        expected = dump(live)
        assert replayed(store) == expected
        assert live._ledger.snapshot_number > 100
        told, numbers = [live.explain(name) for name in live.sources()], live.status()
    with Scheduler(store.address, clock=clock) as again:
        assert dump(again) == expected
        assert again.status() == numbers
        assert [again.explain(name) for name in again.sources()] == told
    # In memory the same happens.
    memory_clock = Clock()
    memory = Scheduler(":memory:", budget="40/h", clock=memory_clock)
    busy(memory, memory_clock)
    assert dump(memory) == expected


def test_a_copy_goes_on_where_it_was_made(store, tmp_path):
    clock = Clock()
    live = Scheduler(store.address, budget="40/h", clock=clock)
    busy(live, clock, steps=20)
    with refused("there is a scheduler"):
        live.copy(store.address)
    backup = f"sqlite:///{tmp_path / 'backup.db'}"
    live.copy(backup)
    with Scheduler(backup, clock=clock) as copy:
        assert dump(copy) == dump(live)
        copy.add("only in the copy")
    with Scheduler(backup, clock=clock) as copy:
        assert "only in the copy" in copy
        assert "only in the copy" not in live


def test_a_backup_that_is_put_back_gives_no_number_of_a_lease_again(store, tmp_path):
    clock, backup = Clock(), f"sqlite:///{tmp_path / 'backup.db'}"
    live = Scheduler(store.address, budget="40/h", clock=clock)
    live.add_many({"source": name} for name in "abc")
    live.copy(backup)
    (lost,) = live.lease(1)
    clock.now += 60
    with Scheduler(backup, clock=clock) as again:
        assert lost.id not in {lease.id for lease in again.lease(3)}
        assert not again.report(lost.id)  # it is of no source there


def test_a_copy_is_one_transaction(store):
    live = Scheduler(":memory:", budget="20/h")
    live.add("a")
    target = open_journal(store.address, full=True)

    def dies():
        yield b"a part"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        target.begin_with(1, dies())
    assert target.snapshot() is None

    def overtaken():  # another process opens the store meanwhile: it waits
        other.start()
        other.join(0.2)
        yield from snapshot.parts(live._ledger.state)

    opened = []
    other = threading.Thread(target=lambda: opened.append(Scheduler(store.address, budget="9/h")))
    target.begin_with(live._ledger.number, overtaken())
    other.join()
    assert opened[0].sources() == ["a"]
    assert opened[0].status().budget == 9
    opened[0].close()
    with refused("there is a scheduler"):
        target.begin_with(1, iter([b""]))
    target.close()


def test_closing_hides_no_exception(tmp_path, monkeypatch, caplog):
    live = Scheduler(tmp_path / "a.db", budget="1/h")
    monkeypatch.setattr(live._ledger, "close", lambda: (tmp_path / "none" / "file").read_text())
    with pytest.raises(ZeroDivisionError), live:
        _ = 1 / 0
    assert "could not be closed" in caplog.text
    with pytest.raises(FileNotFoundError), live:
        pass


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


def test_two_schedulers_on_a_store_are_one(store):
    clock = Clock()
    one, two = (Scheduler(store.address, budget="600/h", clock=clock) for _ in range(2))
    one.add_many({"source": str(i)} for i in range(10))
    first, second = one.lease(5), two.lease(10)
    assert len({lease.source for lease in first + second}) == 10
    for lease in first:
        assert two.report(lease.id, [(clock() - 60.0, 1.0)])
        assert not one.report(lease.id, [(clock() - 60.0, 1.0)])
    assert one.explain(first[0].source) == two.explain(first[0].source)
    assert dump(one) == dump(two)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_kill_9_loses_no_acknowledged_report(store, tmp_path):
    """Processes on one store are killed at random moments."""
    out = tmp_path / "acknowledged"
    assert forked(partial(kills.main, store.address, str(out), 4)).wait() == 0
    acknowledged = {int(line) for line in out.read_text().splitlines()}
    assert len(acknowledged) >= 3
    reports = reported(store)  # none counts twice
    assert acknowledged <= set(reports)  # none is lost
    assert all(n == kills.items_of(lease) for lease, n in reports.items() if lease > 1)
    live = Scheduler(store.address)
    assert dump(live) == replayed(store)
    # Leases of the dead end, and can still be reported once.
    held = sorted(live._ledger.state.leases)
    assert all(live.report(lease) for lease in held)
    assert not any(live.report(lease) for lease in held)
    assert live.status().leased == 0


def test_kill_9_of_a_server_loses_no_acknowledged_report(store):
    """Eight connections, whose reports are committed together, and visitors of the store."""
    with Scheduler(store.address, budget="100000/h", burst=1e6) as live:
        live.add_many({"source": str(i), "min_interval": 0} for i in range(500))
    acknowledged = set()

    def crawl(port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

        def ask(method, arguments):
            headers = {"Content-Type": "application/json"}
            connection.request("POST", f"/v1/{method}", json.dumps(arguments), headers)
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, text
            return json.loads(text)

        with closing(connection), suppress(ConnectionError, http.client.HTTPException):
            while True:
                for lease in ask("lease", {"limit": 1, "wait": "1s"})["leases"]:
                    assert ask("report", {"lease": lease["id"]}) == {"recorded": True}
                    acknowledged.add(lease["id"])

    words = ["serve", "--store", store.address, "--port", 0, "--full"]
    served = command(*words, stdout=subprocess.PIPE)
    port = int(served.stdout.readline().rpartition(":")[2].partition("/")[0])
    crawlers = [threading.Thread(target=crawl, args=(port,)) for _ in range(8)]
    for crawler in crawlers:
        crawler.start()
    while len(acknowledged) < 60 and crawlers[0].is_alive():
        with Scheduler(store.address) as visitor:
            visitor.status()
        time.sleep(0.1)
    served.kill()
    served.communicate()
    for crawler in crawlers:
        crawler.join()
    assert len(acknowledged) >= 60
    assert acknowledged <= set(reported(store))


def test_what_cannot_be_applied_is_not_stored(store, monkeypatch):
    clock = Clock()
    live = Scheduler(store.address, budget="20/h", clock=clock)
    live.add("a")
    with monkeypatch.context() as patch:
        patch.setattr(outcomes, "apply", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            live.report("a", [(None, 1.0)])
    assert live.explain("a").fetched_at is None
    assert dump(live) == replayed(store)


def test_of_changes_together_nothing_is_stored_if_a_part_of_them_has_failed(store):
    """Also if the error of the part is caught."""

    def change():
        with live.together():
            live.add("a")
            with suppress(ZeroDivisionError), live.together():
                live.add("b")
                _ = 1 / 0

    live, other = (Scheduler(store.address, budget="20/h") for _ in range(2))
    with live, other:
        with pytest.raises(ZeroDivisionError):
            change()
        assert live.sources() == other.sources() == []


@pytest.mark.parametrize("fails", ["append", "apply", "commit", "caller", None])
def test_changes_together_are_all_stored_or_none(store, monkeypatch, caplog, fails):
    clock = Clock()
    live, other = (Scheduler(store.address, budget="600/h", clock=clock) for _ in range(2))
    live.add_many({"source": name} for name in "ab")
    live.lease()
    journal, before = live._ledger.journal, dump(live)
    exclusive = journal.exclusive

    @contextmanager
    def not_committed():
        with exclusive():
            yield
            fail()

    def fail(*_):
        raise ZeroDivisionError

    with monkeypatch.context() as patch, suppress(ZeroDivisionError):
        if fails == "commit":
            patch.setattr(journal, "exclusive", not_committed)
        with live.together():
            live.rename("a", "c")
            with refused("there is no source 'a'"):  # which does not spoil the rest
                live.pause("a")
            live.report("c", [(None, 1.0)])
            assert live.sources() == ["c", "b"]
            assert other.sources() == ["a", "b"]
            if fails in ("append", "apply"):
                patch.setattr(*(journal, "append") if fails == "append" else (State, "apply"), fail)
                with pytest.raises(ZeroDivisionError):
                    live.pause("b")
                patch.undo()
                with pytest.raises(ZeroDivisionError):  # there is nothing to read any more
                    live.status()
            if fails == "caller":
                fail()
    assert live.sources() == other.sources() == (["a", "b"] if fails else ["c", "b"])
    assert (dump(live) == before) == bool(fails)
    assert dump(live) == dump(other) == replayed(store)
    live.add("d")
    assert "d" in other
    assert caplog.text == ""  # the store is not another one than before


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


def test_a_file_that_is_cut_off_is_damaged_not_foreign(tmp_path):
    path = tmp_path / "crawl.db"
    Scheduler(path, budget="1/h").close()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with refused("crawl.db is damaged: database disk image is malformed", "Put a copy"):
        Scheduler(path)


@pytest.mark.parametrize("given", [{}, {"budget": "many"}, {"budget": "1/h", "explore": 2.0}])
def test_a_store_that_cannot_be_made_leaves_nothing_behind(tmp_path, given):
    for store in (tmp_path / "typo.db", f"sqlite:///{tmp_path / 'typo.db'}"):
        with pytest.raises(
            ValueError, match="budget is|explore is" if given else r"typo\.db is new: give"
        ):
            Scheduler(store, **given)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bytes_", [b"x", b"SQLite", b"\0" * 600])
def test_a_file_of_a_few_bytes_is_not_a_new_store(tmp_path, bytes_):
    file = tmp_path / "crawl.db"
    file.write_bytes(bytes_)
    with refused("not a database"):
        Scheduler(file, budget="1/h")
    assert file.read_bytes() == bytes_
    (tmp_path / "empty.db").touch()  # as mktemp makes it
    Scheduler(tmp_path / "empty.db", budget="1/h").close()


WRITTEN = "UPDATE journal SET checksum = crc(2, 0, {0}), event = {0} WHERE number = 2"


def crc(number, part, content):
    """Return the checksum of a row, in SQL."""
    return base._checksum(number, part, content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE journal SET event = event || ' ' WHERE number = 2", "event 2 is damaged: it is"),
        ("UPDATE journal SET checksum = checksum + 1 WHERE number = 2", "event 2 is damaged: it"),
        ("UPDATE journal SET checksum = NULL WHERE number = 2", "event 2 is damaged: it is not"),
        (WRITTEN.format("'{'"), "event 2 is damaged"),
        (WRITTEN.format("'{\"time\": NaN}'"), "a number is NaN"),
        (WRITTEN.format('\'{"kind": "run"}\''), "event 2"),
        (WRITTEN.format('\'{"time": 1e999, "offset": 0}\''), "a time is infinite"),
        ("DELETE FROM journal WHERE number = 2", "event 3 is damaged: it follows event 1"),
        ("DELETE FROM journal WHERE number = 1", "events after the snapshot are missing"),
        ("INSERT INTO snapshot VALUES (3, 1, 1, x'00', 0)", "part 1 of snapshot 3 is not what was"),
        (
            "INSERT INTO snapshot VALUES (3, 2, 1, x'00', crc(3, 2, x'00'))",
            "part 2 of snapshot 3 is not",
        ),
        ("INSERT INTO snapshot VALUES (3, 1, 1, x'00', crc(3, 1, x'00'))", "stored state cannot"),
        ("CREATE TRIGGER t AFTER INSERT ON journal BEGIN SELECT 1; END", "not one of a scheduler"),
        ("ALTER TABLE journal ADD x INTEGER AS (abs(number))", "not one of a scheduler"),
    ],
)
def test_damaged_journals_are_refused(tmp_path, change, words):
    path = tmp_path / "crawl.db"
    live = Scheduler(path, budget="1/h")
    for i in range(3):
        live.add(str(i))
    live._ledger.journal.close()
    with sqlite3.connect(path) as connection:
        connection.create_function("crc", 3, crc)
        connection.execute(change)
    connection.close()
    with refused(words):
        Scheduler(path)


def test_a_damaged_state_is_not_taken_for_an_empty_one_when_it_is_read_again(tmp_path):
    live = Scheduler(tmp_path / "crawl.db", budget="1/h")
    live.add("a")
    live._ledger.write_snapshot()
    ((number,),) = live._ledger.journal.rows("SELECT number FROM snapshot WHERE part = 1")
    summed = [crc(number, 1, b"\0")]
    live._ledger.journal.rows(
        "UPDATE snapshot SET state = x'00', checksum = ? WHERE part = 1", summed
    )
    live._ledger.state = None  # as after a change that was not committed
    for _ in range(2):
        with refused("crawl.db is damaged: its stored state cannot be read"):
            live.sources()


def test_a_flipped_bit_that_makes_a_number_of_text_is_noticed(tmp_path, monkeypatch):
    """In the header of a row, where SQLite does not look at the type of the column again."""
    with Scheduler(tmp_path / "crawl.db", budget="1/h") as live, monkeypatch.context() as patch:
        journal = live._ledger.journal
        patch.setattr(journal, "rows", lambda *_: [(1, 819604603, None)])
        with refused("event 1 is damaged: it is 819604603"):
            journal.since(0)
        patch.setattr(journal, "rows", lambda *_: [(3, 1, 1, 7, 0)])
        with refused("part 1 of snapshot 3 is not what was written"):
            journal.snapshot()


def test_a_state_in_memory_is_not_written(monkeypatch):
    monkeypatch.setattr(snapshot, "parts", lambda state: pytest.fail("it was"))
    with Scheduler(":memory:", budget="1/h") as live:
        live.add_many({"source": str(i)} for i in range(1100))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b'"free": [1]', b'"free": [0]', "free rows"),  # where a source is
        (b'"balance": 1.0', b'"balance": 1e999', "a number is 1e999"),
        (b'"run": ', b'"run": ' + 10**5 * b"[", "cannot be read"),
        (b'"reasons": []', b'"reasons": [[3, 0.0, "HTTP 500", ""]]', "source that does not exist"),
        (b'"reasons": []', b'"reasons": [[0, 0.0, "HTTP 500", "x"]]', "'x', which is not known"),
        (b'"renamed": []', b'"renamed": [[-1, 0.0, "a"]]', "source that does not exist"),
        (b'"columns": ["fetched", ', b'"columns": [', "are not those that this program knows"),
        (b'"run": [0.0, 0.0]', b'"run": [0.0]', "1 rows of numbers instead of 2"),
        (b'"leases": []', b'"leases": [[1, 3, 0.0, 0.0]]', "a lease refers to a source that"),
    ],
)
def test_damaged_snapshots_are_refused(old, new, words):
    live = Scheduler(":memory:", budget="1/h")
    for name in ("a", "b", "c"):
        live.add(name)
    live.remove("b")
    data = dump(live)
    end = 8 + int.from_bytes(data[:8], "little")
    assert snapshot.to_bytes(snapshot.from_bytes(data)) == data
    header = data[8:end].replace(old, new)
    assert header != data[8:end]
    with refused(words):
        snapshot.from_bytes(len(header).to_bytes(8, "little") + header + data[end:])


@pytest.mark.parametrize("host", [-2, 1, 2**31 - 1])
def test_snapshots_whose_sources_refer_to_no_host_are_refused(host):
    live = Scheduler(":memory:", budget="1/h")
    live.add("a", host="h")
    for row, words in ((-1, ""), (0, ""), (host, "refers to a host that does not exist")):
        live._ledger.state.table["host"][0] = row
        with refused(words) if words else nullcontext():
            snapshot.from_bytes(dump(live))


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("importance", 0.0, "the weight of a source is not above 0"),
        ("fetched", np.nan, "a number is NaN"),
        ("kind", 1, "refers to a signal that does not exist"),
        ("tag", 1, "refers to a tag that does not exist"),
        ("cause", 99, "failed of something that is not known"),
    ],
)
def test_snapshots_of_impossible_numbers_are_refused(column, value, words):
    live = Scheduler(":memory:", budget="1/h")
    live.add("a")
    live._ledger.state.table[column][0] = value
    with refused(words):
        snapshot.from_bytes(dump(live))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("row", 1), ("row", -1), ("outcome", 3), ("cause", 99)),
        *(("items", 1001), ("items", 0), ("dated", 2), ("dated", -1)),
    ],
)
def test_outcomes_that_do_not_fit_together_are_refused(column, value):
    batch, numbers = np.zeros(1, outcomes.OUTCOME), {"items": 1, "dated": 1}
    for name, number in numbers.items():
        batch[name] = number
    assert outcomes._fit_together(batch, 1, 1, 1)
    batch[column] = value
    assert not outcomes._fit_together(batch, 1, int(batch["dated"][0]), int(batch["items"][0]))


def test_rows_of_hosts_and_tags_that_nothing_uses_are_used_again(store):
    clock = Clock()
    set_up = {"kept.example", "*.inner.example", "*.limited.example", "stopped.example"}
    with Scheduler(store.address, budget="600/h", clock=clock) as live:
        live.add("kept", host="kept.example", tag="kept")
        live.add("inner", host="a.inner.example")
        live.limit_hosts({"*.limited.example": 60.0, "was.example": 60.0, "*.inner.example": 0.0})
        live.limit_hosts({"was.example": 0.0})
        live.pause(host="stopped.example")
        live.pause(tag="stopped")
        live.add("busy", host="busy.example")
        live.failed("busy", status=429, retry_after="10d")
        live.remove("busy")
    for k in range(4):  # by processes one after the other, the last of which reads a snapshot
        with Scheduler(store.address, clock=clock) as live, live.together():
            for i in range(25 * k, 25 * k + 25):
                live.add(str(i), host=f"{i}.limited.example", tag=str(i))
                assert (live.settings(str(i))["tag"], live.count(tag=str(i))) == (str(i), 1)
                live.remove(str(i))
            state = live._ledger.state
            assert max(len(state.host_names), len(state.tags.names)) <= 65
            assert set_up | {"busy.example"} <= set(state.host_names)
            assert {"kept", "stopped"} <= {tag.tag for tag in live.tags()}
            assert set(live.settings("kept").values()) >= {"kept.example", "kept"}
            assert live.host_limit("*.limited.example") == 60.0
        assert snapshot.to_bytes(state) == replayed(store)
    assert "was.example" not in state.host_names
    clock.now += 11 * 86_400.0
    with Scheduler(store.address, clock=clock) as live:
        live.add_many({"source": str(i), "host": str(i), "tag": "kept"} for i in range(100))
        assert "busy.example" not in live._ledger.state.host_names
        assert live.count(tag="kept") == 101
        assert live.count(host="7") == 1


def test_a_snapshot_that_is_read_while_all_changes_is_of_one_moment(monkeypatch):
    monkeypatch.setattr(columns, "_BLOCK", 2)
    monkeypatch.setattr(columns, "_PART", 1)
    clock = Clock()
    live = Scheduler(":memory:", budget="400/h", burst=400, clock=clock)
    busy(live, clock)
    live.add_many({"source": f"later {i}", "host": f"host {i % 5}"} for i in range(40))
    live.remove("later 7")
    clock.now += 3600.0
    changes = [
        lambda: live.add("again", host="new"),  # in the row of one that was removed
        lambda: live.remove("later 30"),
        lambda: live.rename("later 31", "renamed"),
        lambda: live.update("later 32", cost=3.0, host="newer"),
        lambda: live.limit_hosts({"host 1": "1h", "newest": "2h"}),
        lambda: live.lease(30),
        lambda: live.record({"source": str(i), "items": [(None, 1.0)]} for i in (1, 2, 3)),
        lambda: live.failed("later 33"),
        lambda: live.signal_many({"source": f"later {i}"} for i in (35, 36)),
        lambda: live.teach([Lesson.of_rate("later 34", 3.0, worth=2.0)]),
        lambda: live.add_many({"source": f"last {i}"} for i in range(200)),
    ]
    for first in range(len(changes)):
        before = dump(live)
        parts = snapshot.parts(live._ledger.state)
        read = [next(parts) for _ in range(1 + first)]
        for change in changes[first:]:
            change()
            read.append(next(parts))
        assert dump(live) != before
        assert b"".join([*read, *parts]) == before
        live = Scheduler(":memory:", budget="1/h", clock=clock)
        live._ledger.state = snapshot.from_bytes(before)


def test_the_journal_is_cut_behind_snapshots(store, monkeypatch):
    monkeypatch.setattr(ledger, "_EVERY", 20)
    monkeypatch.setattr(base, "HISTORY", 10)
    clock = Clock()
    slow, live = (Scheduler(store.address, budget="40/h", clock=clock) for _ in range(2))
    busy(live, clock)
    ((oldest,),) = store.run("SELECT min(number) FROM journal")
    assert oldest > 50
    assert slow.explain("eleven") == live.explain("eleven")  # it reads the snapshot
    assert dump(slow) == dump(live)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_has_a_connection_of_its_own(store):
    live = Scheduler(store.address, budget="20/h")
    live.add("a")
    child = os.fork()
    if child == 0:
        try:
            live.add("child")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    live.add("parent")
    assert sorted(live.sources()) == ["a", "child", "parent"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_waits_for_the_changes_of_other_threads():
    live, inside = Scheduler(":memory:", budget="20/h"), threading.Event()
    live.add("a")

    def slowly(state, moment):
        inside.set()
        time.sleep(0.2)
        return {"kind": "rename", "source": "a", "name": "b"}

    thread = threading.Thread(target=live._ledger.change, args=(slowly,))
    thread.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if live.sources() == ["b"] else 1)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("does", ["snapshot", "copy"])
def test_a_fork_waits_for_other_uses_of_a_database(tmp_path, monkeypatch, does):
    """A lock of SQLite that another thread holds then would never be released in the child."""
    monkeypatch.setattr(ledger, "_AT_ONCE", -1)
    live, inside, left = Scheduler(tmp_path / "a.db", budget="20/h"), threading.Event(), []

    def slowly(*_):
        inside.set()
        time.sleep(0.2)
        left.append(True)

    if does == "snapshot":
        monkeypatch.setattr(live._ledger.journal, "write_snapshot", slowly)
        live._ledger.write_snapshot()  # by a thread
    else:
        monkeypatch.setattr(sqlite.SqliteJournal, "begin_with", slowly)
        threading.Thread(target=live.copy, args=(tmp_path / "b.db",)).start()
    inside.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        live.add("a")
        os._exit(0 if left else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert live.sources() == ["a"]


# ------------------------------------------------------------------------------- versions


def test_stores_of_other_versions_are_refused(store):
    Scheduler(store.address, budget="20/h").close()
    version = "PRAGMA user_version" if store.file is not None else "SELECT version FROM version"
    for other in (base.VERSION - 1, base.VERSION + 1):
        change = "PRAGMA user_version =" if store.file else "UPDATE version SET version ="
        store.run(f"{change} {other}")
        for use in (Scheduler, lambda place: Scheduler(":memory:", budget="1/h").copy(place)):
            with refused(f"has version {other} of the tables", "sources --write sources.csv"):
                use(store.address)
        assert store.run(version) == [(other,)]


def test_tags_pauses_weights_and_hours_survive(store):
    clock = Clock()
    live = Scheduler(store.address, budget="00:00 40/h, 12:00 20/h", clock=clock)
    busy(live, clock, steps=3)
    live.add_many({"source": f"tagged {i}", "tag": "x", "weight": 2.0} for i in range(9))
    live.limit_tag("x", least="5%", most="9/h")
    live.pause(tag="y")
    live.pause(host="quiet.example")
    live.add("hushed", host="quiet.example", tag="x")
    for _ in range(40):
        clock.now += 1800.0
        live.record([{"lease": lease.id, "items": [(None, 1.0)]} for lease in live.lease(3)])
    assert live.settings()["budget"] == "00:00 40/h, 12:00 20/h"
    state = dump(live)
    assert replayed(store) == state  # as after a kill
    assert snapshot.to_bytes(snapshot.from_bytes(state)) == state
    live.close()
    with Scheduler(store.address, clock=clock) as again:
        assert dump(again) == state
        assert [(tag.tag, tag.sources, tag.paused) for tag in again.tags()][1:] == [
            ("x", 10, False),
            ("y", 0, True),
        ]
        assert again.explain("hushed").reason == "since its host is paused"


def test_a_file_in_which_bits_are_flipped_is_refused_or_has_lost_nothing(tmp_path):
    clock, path = Clock(), tmp_path / "crawl.db"
    with Scheduler(path, budget="40/h", clock=clock) as live:
        busy(live, clock, steps=30)
    live = Scheduler(path, clock=clock)
    for i in range(30):
        live.add(f"later {i}")
    state = dump(live)
    live._ledger.journal.close()  # without a snapshot
    whole, rng, refusals = path.read_bytes(), np.random.default_rng(5), []
    for place in rng.integers(0, len(whole), 16):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            with Scheduler(path, clock=clock) as live:
                assert dump(live) == state, place
        except (OSError, ValueError) as error:
            refusals.append(str(error))
        for rest in tmp_path.glob("crawl.db-*"):
            rest.unlink()
    assert len(refusals) > 1
    assert all(str(path) in refusal for refusal in refusals)


def test_a_store_that_goes_back_is_followed_and_not_damaged(store, caplog):
    """As where a replica takes over that lacks the last changes."""
    one, other, idle = (Scheduler(store.address, budget="1/h") for _ in range(3))
    for name in "abc":
        one.add(name)
    assert other.sources() == idle.sources() == ["a", "b", "c"]
    store.run("DELETE FROM journal WHERE number > 2")
    other.add("d")
    assert "is in another state than before" in caplog.text
    other.add("e")
    assert one.sources() == other.sources() == ["a", "d", "e"]
    idle.close()  # without a snapshot of what it knew
    assert Scheduler(store.address).sources() == ["a", "d", "e"]
    store.run("DELETE FROM journal")
    for call in (one.lease, one.status):
        with refused("nothing is left in it"):
            call()


def test_a_store_that_another_process_makes_is_waited_for(store, monkeypatch):
    kind = postgres.PostgresJournal if store.file is None else sqlite.SqliteJournal
    inside, rows, made = threading.Event(), kind.rows, []

    def slowly(journal, statement, parameters=()):
        if statement.startswith("CREATE TABLE journal"):
            inside.set()
            time.sleep(0.2)
        return rows(journal, statement, parameters)

    monkeypatch.setattr(kind, "rows", slowly)
    other = threading.Thread(target=lambda: made.append(Scheduler(store.address, budget="20/h")))
    other.start()
    inside.wait()
    open_journal(store.address, full=False, new=lambda name: pytest.fail("it is not new")).close()
    other.join()
    assert made[0].sources() == []


def test_a_store_that_was_made_and_not_used_is_new(store):
    journal = open_journal(store.address, full=False)
    journal.close()
    with refused(f"{journal.name} is new: give its budget"):
        Scheduler(store.address)
    assert Scheduler(store.address, budget="20/h").status().budget == 20.0


@on_postgres
def test_a_store_that_is_being_made_for_too_long_says_so(store):
    schema = store.address.rpartition("=")[2]
    with psycopg.connect(store.address.partition("&schema=")[0]) as other:
        other.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [schema])
        with pytest.raises(TimeoutError, match="locked by another process"):
            Scheduler(store.address, budget="20/h", patience=0.1)


def test_an_interrupt_while_another_process_is_waited_for_leaves_the_store_usable(store):
    live = Scheduler(store.address, budget="20/h")
    other = Scheduler(store.address, patience=0.1)
    journal = live._ledger.journal
    connection = journal._connection

    class Interrupted:  # by Ctrl-C or the time limit of a job, which Python raises after the call
        def __getattr__(self, name):
            return getattr(connection, name)

        def execute(self, statement, *arguments):
            result = connection.execute(statement, *arguments)
            if "BEGIN" in str(statement):
                raise KeyboardInterrupt
            return result

    journal._connection = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        live.add("a")
    journal._connection = connection
    other.add("b")
    live.add("c")
    assert other.sources() == ["b", "c"]


def test_an_interrupt_within_a_change_in_memory_is_told(monkeypatch):
    live = Scheduler(":memory:", budget="20/h")
    live.add("a")
    monkeypatch.setattr(State, "count", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        live.pause(host="example.org")
    with pytest.raises(DamagedStore, match="a change was interrupted, which loses"):
        live.add("b")


def test_a_snapshot_that_is_not_finished_changes_nothing(store):
    live = Scheduler(store.address, budget="20/h")
    live.add("a")
    live._ledger.write_snapshot()
    before = live._ledger.journal.snapshot()

    def dies():
        yield b"part"
        yield b"part"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        live._ledger.journal.write_snapshot(before[0] + 5, dies())
    assert live._ledger.journal.snapshot() == before

    def overtaken():
        yield b"part"
        yield b"part"
        live._ledger.journal.write_snapshot(before[0] + 6, [b"later", b"one"])

    live._ledger.journal.write_snapshot(before[0] + 5, overtaken())
    assert live._ledger.journal.snapshot() == (before[0] + 6, b"laterone")
    live._ledger.journal.write_snapshot(before[0] + 5, [b"earlier"])
    assert store.run("SELECT DISTINCT number FROM snapshot") == [(before[0] + 6,)]


def test_of_two_snapshots_at_once_none_deletes_a_valid_one(store, monkeypatch):
    """One process finishes its snapshot while another, about to die, removes unfinished ones."""
    live = Scheduler(store.address, budget="20/h")
    live.add("a")
    live._ledger.write_snapshot()
    journal, before, go = live._ledger.journal, live._ledger.journal.snapshot(), threading.Event()

    def later():
        yield b"later "
        yield b"one, "
        go.wait(60)
        yield b"whole"

    def dies():
        yield b"earlier"
        raise KeyboardInterrupt

    other = threading.Thread(target=journal.again().write_snapshot, args=(before[0] + 6, later()))
    other.start()
    rows = type(journal).rows

    def slowly(self, statement, parameters=()):
        if statement.startswith("DELETE FROM snapshot WHERE number <>"):
            go.set()
            other.join(0.3)
        return rows(self, statement, parameters)

    while not store.run(f"SELECT 1 FROM snapshot WHERE number = {before[0] + 6}"):
        pass
    monkeypatch.setattr(type(journal), "rows", slowly)
    with pytest.raises(KeyboardInterrupt):
        journal.write_snapshot(before[0] + 5, dies())
    other.join()
    assert journal.snapshot() in (before, (before[0] + 6, b"later one, whole"))


@pytest.mark.parametrize("error", [OSError("disk full"), sqlite3.OperationalError("locked")])
def test_a_snapshot_that_fails_does_not_fail_the_call(tmp_path, monkeypatch, caplog, error):
    path = tmp_path / "crawl.db"
    monkeypatch.setattr(ledger, "_EVERY", 1)

    def fails(*_):
        raise error

    with Scheduler(path, budget="20/h") as live:
        monkeypatch.setattr(live._ledger.journal, "write_snapshot", fails)
        live.add("a")
        (lease,) = live.lease()
        assert live.report(lease.id)
    assert str(error) in caplog.text
    with Scheduler(path) as live:
        assert live.status().new == 0


# ------------------------------------------------------------------------------- PostgreSQL


def test_a_restart_of_the_server_is_survived(server, store, monkeypatch):
    if store.file is not None:
        pytest.skip("SQLite has no server")
    live = Scheduler(store.address, budget="20/h")
    live.add("a")
    server.stop("immediate")  # as if it had crashed
    threading.Timer(0.3, server.start).start()
    live.add("b")  # waits
    assert live.sources() == ["a", "b"]
    now = live._ledger.clock.now(live._ledger.state)
    ((session,),) = live._ledger.journal.rows("SELECT pg_backend_pid()")
    monkeypatch.setattr(  # just before an event is stored
        live._ledger.clock,
        "now",
        lambda state: (store.run(f"SELECT pg_terminate_backend({session})"), now)[1],
    )
    with pytest.raises(ConnectionError, match="may or may not"):
        live.add("d")
    monkeypatch.undo()
    live.add("c")
    assert live.sources() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("postgresql://user:secret@127.0.0.1:1/db", "Connection refused"),
        ("postgresql://user:secret@127.0.0.1:x/db", "invalid integer value"),
        ("postgresql://user:secret@127.0.0.1/db?nothing=1", "cannot be read"),
        ("postgresql://user:secret@[::1/db", "cannot be read"),
        ("postgresql://user:secret@127.0.0.1/db?schema=A b", "lower-case"),
        ("postgresql://user:secret@127.0.0.1/db?schema=pg_catalog", "lower-case"),
    ],
)
def test_addresses_that_are_wrong(address, words):
    with pytest.raises((ValueError, ConnectionError), match=words) as error:
        Scheduler(address, budget="1/h")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE {}.journal (number integer)",
        "CREATE VIEW {}.version AS SELECT 1 AS version",
    ],
)
@on_postgres
def test_schemas_of_others_are_refused(store, statement):
    schema = store.address.rpartition("=")[2]
    store.run(f"CREATE SCHEMA {schema}")
    store.run(statement.format(schema))
    with refused("not one of a scheduler"):
        Scheduler(store.address, budget="1/h")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {}.journal ADD CHECK (length(event) > 0)",
        "ALTER TABLE {}.journal ALTER event SET DEFAULT current_user",
        "ALTER TABLE {0}.journal ALTER event TYPE {0}.evil",
        "CREATE INDEX evil ON {}.journal (length(event))",
        "ALTER TABLE {}.journal ENABLE ROW LEVEL SECURITY",
    ],
)
@on_postgres
def test_nothing_that_a_schema_hides_is_run(store, statement):
    schema = store.address.rpartition("=")[2]
    Scheduler(store.address, budget="1/h").close()
    store.run("CREATE DOMAIN evil AS text CHECK (length(VALUE) > 0)")
    Scheduler(store.address).close()
    store.run(statement.format(schema))
    with refused("not one of a scheduler"):
        Scheduler(store.address)


@on_postgres
def test_a_store_that_is_named_in_two_ways_is_one(store, server):
    """`reshard` would move its sources to itself, and remove them."""
    other = server.new()
    link = server.folder.with_name(f"{server.folder.name}.link")
    link.symlink_to(server.folder)
    names = (store.address, other.address, store.address.replace(server.folder.name, link.name))
    try:
        with Scheduler(names[0], budget="1/h") as live, Scheduler(names[1], budget="1/h"):
            live.add_many({"source": name} for name in "abcd")
            Reshard(stores=names[:2]).run()
            assert 0 < len(live) < 4
            with refused("are one store; give each shard a store of its own"):
                Reshard(stores=names).run()
            assert 0 < len(live) < 4
    finally:
        link.unlink()


@on_postgres
def test_a_server_that_refuses_is_a_connection_error(store):
    live = Scheduler(store.address, budget="1/h")
    store.run("ALTER TABLE journal ADD CHECK (number < 2)")
    with pytest.raises(ConnectionError, match="check constraint"):
        live.add("a")
    store.run("DROP TABLE journal")
    for call in (live.status, lambda: live.add("a"), live.status):
        with pytest.raises(ConnectionError, match="does not exist"):
            call()


@on_postgres
def test_of_a_server_that_takes_no_writes_it_is_said_what_to_name(store):
    live = Scheduler(store.address, budget="1/h")
    live._ledger.journal._connection.execute("SET default_transaction_read_only = on")
    with pytest.raises(ConnectionError, match=r"read-only.*name the server that takes writes"):
        live.add("a")
    with pytest.raises(ConnectionError, match="read-only"):
        Scheduler(f"{store.address}&options=-cdefault_transaction_read_only%3Don")


@on_postgres
def test_a_store_is_opened_again_whatever_the_encoding_of_the_server(store):
    store.run("ALTER ROLE postgres SET client_encoding = 'SQL_ASCII'")  # as in such a database
    try:
        Scheduler(store.address, budget="1/h").add("é")
        assert Scheduler(store.address).sources() == ["é"]
    finally:
        store.run("ALTER ROLE postgres RESET client_encoding")


@on_postgres
def test_nothing_relies_on_a_session_behind_a_pooler(store, server, monkeypatch):
    """PgBouncer gives each transaction another session, which another store may have had."""
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", 0)  # as poolers have their own
    other = server.new().address.rpartition("=")[2]
    with Scheduler(store.address, budget="20/h") as live:
        for k in range(8):  # enough for a statement to be prepared
            live._ledger.journal._connection.execute(f"SET search_path = {other}".encode())
            live.add(str(k))
            live._ledger.write_snapshot()
        assert live._ledger.journal.rows("SELECT name FROM pg_prepared_statements") == []
        assert live._ledger.journal.rows("SHOW lock_timeout") == [("0",)]
    assert len(Scheduler(store.address)) == 8


@on_postgres
def test_tables_that_another_program_locks_are_waited_for(store):
    live = Scheduler(store.address, budget="20/h", patience=0.05)
    with psycopg.connect(store.address.partition("&schema=")[0]) as other:
        schema = store.address.rpartition("=")[2]
        other.execute(f"LOCK TABLE {schema}.journal IN ACCESS EXCLUSIVE MODE")  # as VACUUM FULL
        for call in (live.status, lambda: live.add("a")):
            with pytest.raises(TimeoutError, match="locked by another process"):
                call()
    live.add("a")


@on_postgres
def test_a_server_over_http_works_on_it(server, store, capfd):
    with running(Scheduler(store.address, budget="60/h")) as client:
        assert client.post("add", {"source": "a"}).status == 200
        (lease,) = client.post("lease", {}).json["leases"]
        server.stop("immediate")
        threading.Timer(0.3, server.start).start()
        assert client.post("report", {"lease": lease["id"]}).json == {"recorded": True}  # waits
        store.run("DROP TABLE journal")
        failed = client.get("/v1/status")
        assert (failed.status, failed.json["error"]) == (503, "store")
        assert "SELECT" not in failed.text
    assert "no snapshot was written" in capfd.readouterr().err
