"""What becomes of the files of a store: locks, links, forks, and names that others get."""

import errno
import os
import resource
import signal
import sqlite3
import subprocess
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from ephemeral_crawl.crawl.command import CrawlFeeds
from ephemeral_crawl.crawl.memory import Memory
from ephemeral_crawl.live import Lesson, Scheduler, ledger
from ephemeral_crawl.live.errors import DamagedStore
from ephemeral_crawl.live.journal import sqlite
from ephemeral_crawl.sources import ManageSources
from ephemeral_crawl.store import ManageStore
from tests.ephemeral_crawl.live.world import Clock
from tests.processes import forked
from tests.refusals import refused

LOCKS = Path("/proc/locks")


@pytest.fixture
def path(tmp_path):
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder" / "crawl.db"


def locks(path):
    """Return the locks that this process has on the files of a store."""
    files = {str(file.stat().st_ino): file.name for file in path.parent.glob(path.name + "*")}
    found = []
    for line in LOCKS.read_text().splitlines():
        _, *what, process, place, start, end = line.split()
        number = place.rpartition(":")[2]
        if process == str(os.getpid()) and number in files:
            found.append((files[number], *what, start, end))
    return sorted(found)


@pytest.mark.skipif(not LOCKS.exists(), reason="no list of locks")
def test_no_use_of_a_store_drops_its_locks(path, monkeypatch):
    """To close a file drops all locks that the process has on it, those of SQLite included."""
    live = Scheduler(path, budget="1000/h", clock=Clock())
    live.add_many({"source": str(i)} for i in range(12))

    def together():
        with live.together():
            live.add("d")

    other = Scheduler(":memory:", budget="1/h")
    other.add("elsewhere")

    calls = {
        "add": lambda: live.add("a"),
        "add_many": lambda: live.add_many([{"source": "b"}]),
        "remove": lambda: live.remove("a"),
        "rename": lambda: live.rename("b", "c"),
        "expired_at": lambda: live.expired_at(1),
        "update": lambda: live.update("c", cost=2.0),
        "update_many": lambda: live.update_many([{"source": "c", "cost": 3.0}]),
        "pause": lambda: live.pause("c"),
        "resume": lambda: live.resume("c"),
        "limit_host": lambda: live.limit_host("h", "1h"),
        "host_limit": lambda: live.host_limit("h"),
        "limit_tag": lambda: live.limit_tag("news", most="50%"),
        "tags": live.tags,
        "limit_hosts": lambda: live.limit_hosts({"i": "1h"}),
        "configure": lambda: live.configure(explore=0.1),
        "teach": lambda: live.teach([Lesson.of_rate("c", 1.0, worth=1.0)]),
        "export": lambda: live.export(["5"]),
        "adopt": lambda: live.adopt(other.export(["elsewhere"])),
        "settings": lambda: live.settings("c"),
        "sources": live.sources,
        "find": lambda: live.find("c"),
        "count": lambda: live.count(host="h"),
        "lease": live.lease,
        "record": lambda: live.record([{"lease": 1}]),
        "record_one": lambda: live.record_one({"source": "0"}),
        "report": lambda: live.report("1"),
        "failed": lambda: live.failed("2"),
        "release": lambda: live.release(live.lease()[0].id),
        "signal": lambda: live.signal("3"),
        "signal_many": lambda: live.signal_many([{"source": "4"}]),
        "next_due": live.next_due,
        "explain": lambda: live.explain("5"),
        "status": live.status,
        "overview": live.overview,
        "outline": live.outline,
        "together": together,
        "unused_limits": live.unused_limits,
        "paused_hosts": live.paused_hosts,
        "copy": lambda: live.copy(path.with_name("copy")),
        "close": lambda: Scheduler(path).close(),  # of another on the same file
    }
    assert set(calls) == {name for name in vars(Scheduler) if not name.startswith("_")}

    def elsewhere():
        with monkeypatch.context() as patch:
            patch.setattr(ledger, "_AT_ONCE", -1)
            live._ledger.write_snapshot()
            live._ledger._await_snapshot()

    def fails():
        with refused("there is a scheduler"):
            live.copy(path)

    def forks():
        child = os.fork()
        if child == 0:
            try:
                live.add("of the child")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert "of the child" in live

    calls |= {
        "snapshot": live._ledger.write_snapshot,
        "snapshot by a thread": elsewhere,
        "copy onto itself": fails,
        "is new": lambda: sqlite.is_new(path),
        "memory": lambda: Memory(f"{path}.items").close(),
        "crawl --dry-run": CrawlFeeds(store=path, dry_run=True).run,
        "crawl --explain": CrawlFeeds(store=path, explain="11").run,
        "crawl --once": CrawlFeeds(store=path, once=True, quiet=True).run,
        "sources --write": ManageSources(
            store=(str(path),), write=(path.with_name("all.csv"),)
        ).run,
        "store": ManageStore(store=str(path), budget="30/h", copy_to=f"{path}.copy").run,
        "fork": forks,
    }
    before = locks(path)
    assert before
    for name, call in calls.items():
        call()
        assert locks(path) == before, name


@pytest.mark.parametrize("how", ["deleted", "replaced", "-wal", "-shm", "moved"])
def test_a_store_that_is_not_in_its_place_any_more_says_so(path, how):
    live = Scheduler(path, budget="20/h")
    live.add("a")
    other = None
    if how == "moved":
        path.parent.rename(path.parent.with_name("moved"))
    elif how.startswith("-"):
        path.with_name(path.name + how).unlink()
    else:
        for file in path.parent.iterdir():
            file.unlink()
    if how == "replaced":
        other = Scheduler(path, budget="1/h")
        other.add("another")
    for call in (lambda: live.add("b"), live.status, live.lease):
        with pytest.raises(OSError, match="deleted, moved or replaced"):
            call()
    if other is None:
        links = [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]
        assert not [link for link in links if str(path.parent.parent) in link], "it closed them"
    live.close()
    if other is not None:
        assert other.sources() == ["another"]
        other.add("one more")
        del other  # as if it were killed
        assert Scheduler(path).sources() == ["another", "one more"]
    elif how == "moved":
        path.parent.with_name("moved").rename(path.parent)
        assert "a" in Scheduler(path)
    elif how.startswith("-"):  # nothing is lost that was acknowledged
        assert "a" in Scheduler(path)
    else:
        assert list(path.parent.iterdir()) == []


def test_a_snapshot_is_not_written_to_a_store_that_has_the_same_name(path, caplog):
    live = Scheduler(path, budget="20/h")
    live.add_many({"source": str(i)} for i in range(20))
    for file in path.parent.iterdir():
        file.unlink()
    Scheduler(path, budget="1/h").close()
    live._ledger.write_snapshot()
    assert "deleted, moved or replaced" in caplog.text
    assert Scheduler(path).status().budget == 1.0


def test_items_are_not_appended_to_the_store(path):
    Scheduler(path, budget="20/h").close()
    for out in (path, path.with_name("crawl.db.items")):
        with refused("which is the store"):
            CrawlFeeds(store=path, out=str(out)).run()


def test_sources_that_are_removed_during_an_export_are_left_out(path, monkeypatch):
    with Scheduler(path, budget="20/h") as live:
        live.add_many({"source": name} for name in "abc")
        names = live.sources()
        live.remove("b")
    monkeypatch.setattr(Scheduler, "sources", lambda _: names)
    written = path.with_name("all.csv")
    ManageSources(store=(str(path),), write=(written,)).run()
    assert [line.partition(",")[0] for line in written.read_text().split()] == ["source", "a", "c"]


def test_the_folder_of_the_process_may_change(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    live = Scheduler("sqlite:///crawl.db", budget="20/h")
    monkeypatch.chdir(tmp_path)
    live.add("a")
    live.close()
    assert Scheduler(tmp_path / "a" / "crawl.db").sources() == ["a"]
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(("full", "synchronous"), [(True, 2), (False, 1)])
def test_changes_survive_a_power_failure_where_that_is_asked(path, full, synchronous):
    with Scheduler(path, budget="1/h", full=full) as live:
        assert live._ledger.journal.rows("PRAGMA synchronous") == [(synchronous,)]


def test_names_of_one_file(path):
    live = Scheduler(path, budget="20/h")
    live.add("a")
    link = path.with_name("link")
    link.symlink_to(path)
    Scheduler(link).add("b")
    assert live.sources() == ["a", "b"]
    link.unlink()
    os.link(path, link)
    for name in (path, link):  # their logs have different names
        with refused("hard link"):
            Scheduler(name)


def test_a_fork_keeps_the_files_when_its_parent_ends(path):
    """Locks are not inherited: the parent would delete the log that the child writes to."""
    live = Scheduler(path, budget="20/h")
    live.add("a")
    (told, tell), (done, say) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            live.add("b")
            os.write(say, b"x")
            os.read(told, 1)
            live.add("c")
            os.write(say, b"x")
            time.sleep(60)
        finally:
            os._exit(1)
    os.close(say)
    os.read(done, 1)
    live.close()
    Scheduler(path).close()
    os.write(tell, b"x")
    os.read(done, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert sorted(Scheduler(path).sources()) == ["a", "b", "c"]


def test_a_store_that_is_opened_keeps_nobody_waiting_while_it_is_read(path, monkeypatch):
    live, read = Scheduler(path, budget="20/h"), ledger.Ledger._apply_all
    live.add("a")
    added = []

    def slowly(self, state, missed):
        if missed and not added:
            added.append(live.add("b"))
        return read(self, state, missed)

    monkeypatch.setattr(ledger.Ledger, "_apply_all", slowly)
    assert len(Scheduler(path, budget="30/h", patience=0.0)) == 2
    assert len(added) == 1


@pytest.mark.parametrize("place", [None, 5, 20, 0.3, 0.9])
def test_what_a_damaged_log_has_lost_is_said(path, tmp_path, caplog, place):
    live, copy = Scheduler(path, budget="20/h"), tmp_path / "copy.db"
    for k in range(10):
        live.add(str(k))
    log = bytearray(Path(f"{path}-wal").read_bytes())
    if place is not None:
        at = place if place >= 1 else int(place * len(log))
        log[at : at + 4] = b"dirt"
    copy.write_bytes(path.read_bytes())  # as they are if the process is killed
    Path(f"{copy}-wal").write_bytes(log)
    sqlite.copy_file(copy, tmp_path / "look.db")  # as `crawl --dry-run` does
    assert (copy.read_bytes(), Path(f"{copy}-wal").read_bytes()) == (path.read_bytes(), log)
    found = len(Scheduler(copy, budget="20/h"))
    said = [record.getMessage() for record in caplog.records]
    assert len(Scheduler(tmp_path / "look.db", budget="20/h")) == found
    if place is None:
        assert (found, said) == (10, [])
    else:
        assert found < 10
        assert f"{copy}-wal is damaged" in said[0] == said[1]
    assert len(live) == 10


def test_a_copy_without_its_log_is_not_empty_without_a_word(path, tmp_path, caplog):
    live, copy = Scheduler(path, budget="20/h"), tmp_path / "copy.db"
    live.add("a")
    assert not caplog.records
    copy.write_bytes(path.read_bytes())
    assert len(Scheduler(copy, budget="20/h")) == 0
    assert "copy.db was an empty database" in caplog.text
    assert len(Scheduler(copy)) == 0
    assert len(caplog.records) == 1


def test_what_the_first_sources_need_is_compiled_before_a_store_is_locked(path, monkeypatch):
    made, add = [], Scheduler.add
    monkeypatch.setattr(Scheduler, "add", lambda *args: made.append(path.exists()) or add(*args))
    assert len(Scheduler(path, budget="20/h")) == 0
    assert len(Scheduler(path)) == 0
    assert made == [False]


def test_a_file_that_is_being_made_is_waited_for(path):
    with sqlite3.connect(path, isolation_level=None, check_same_thread=False) as other:
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.2, lambda: other.execute("ROLLBACK")).start()
        Scheduler(path, budget="1/h").close()
    other.close()


def test_a_file_that_is_kept_by_another_program_says_so(path):
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TimeoutError, match="locked by another process"):
            Scheduler(path, budget="1/h", patience="0.1s")
    other.close()


def test_a_store_that_was_out_of_reach_after_a_fork_is_used_again(path):
    live = Scheduler(path, budget="1/h")
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    path.rename(path.with_name("away"))
    with pytest.raises(OSError, match="unable to open"):
        live.status()
    path.with_name("away").rename(path)
    live.add("a")
    assert Scheduler(path).sources() == ["a"]


def test_a_file_that_is_read_only_is_refused_at_the_start(path, monkeypatch):
    """SQLite opens it as if it were told to write nothing, and begins transactions in it."""
    Scheduler(path, budget="1/h").close()
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda name, **words: connect(name.replace("=rwc", "=ro"), **words)
    )
    with pytest.raises(OSError, match="a readonly database; it and its folder must be writable"):
        Scheduler(path)


@pytest.mark.parametrize(
    ("statement", "kind", "words"),
    [
        ("INSERT INTO t VALUES (1)", OSError, "cannot be used: UNIQUE constraint failed"),
        ("INSERT INTO t VALUES (zeroblob(100000))", OSError, "is full; make room on the disk"),
        ("SELECT zeroblob(2000000000)", OSError, "blob too big; change fewer sources at once"),
        ("PRAGMA query_only = 1; DELETE FROM t", OSError, "readonly database; it and its folder"),
        ("ATTACH 'no/folder' AS b", OSError, "unable to open database: no/folder; it and its"),
        ("ATTACH 'text' AS b", DamagedStore, "not a database of SQLite"),
        ("SELECT CAST(x'ff' AS text)", DamagedStore, "is damaged: Could not decode"),
    ],
)
def test_each_error_of_sqlite_says_what_to_do(tmp_path, monkeypatch, statement, kind, words):
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("text" * 200)
    live = sqlite.SqliteJournal(tmp_path / "crawl.db")
    for before in (
        "CREATE TABLE t (a PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "PRAGMA max_page_count = 8",
        *statement.split("; ")[:-1],
    ):
        live.rows(before)
    with pytest.raises(kind, match=words) as raised:
        live.rows(statement.split("; ")[-1])
    assert type(raised.value) is kind
    assert str(raised.value).startswith(str(tmp_path / "crawl.db"))


def test_a_store_in_a_folder_that_cannot_be_written_is_looked_at(
    path, tmp_path, monkeypatch, capsys
):
    """SQLite reads a file there only if it is told that nothing changes it, or with the index."""
    folder = tmp_path / "fixed"
    folder.mkdir()
    fixed = folder / "crawl.db"
    with Scheduler(path, budget="20/h") as live:
        live.add("a")
        for end in ("", "-wal"):  # as they are if the process is killed
            Path(f"{fixed}{end}").write_bytes(Path(f"{path}{end}").read_bytes())
    connect = sqlite3.connect

    def connect_there(name, **keywords):
        if str(folder) in str(name) and "immutable" not in str(name):
            raise sqlite3.OperationalError("unable to open database file")
        return connect(name, **keywords)

    monkeypatch.setattr(os, "access", lambda place, mode: place != folder)
    monkeypatch.setattr(sqlite3, "connect", connect_there)
    CrawlFeeds(store=fixed, dry_run=True).run()
    assert "1 source," in capsys.readouterr().out
    assert sorted(x.name for x in folder.iterdir()) == ["crawl.db", "crawl.db-wal"]
    Path(f"{fixed}-shm").touch()  # of somebody who uses it, whose changes SQLite has to read
    with refused("unable to open"):
        CrawlFeeds(store=fixed, dry_run=True).run()
    for end in ("-wal", "-shm"):
        Path(f"{fixed}{end}").unlink()
    fixed.write_bytes(path.read_bytes())  # of a scheduler that was closed
    CrawlFeeds(store=fixed, dry_run=True).run()
    assert "1 source," in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs", "ext4"])
def test_file_systems_of_networks_are_warned_of(path, monkeypatch, caplog, kind):
    device = path.parent.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = path.with_name("mounts")
    mounts.write_text(f"22 27 0:0 / /proc rw - proc proc rw\n1 1 {number} / / rw - {kind} x rw\n")
    monkeypatch.setattr(sqlite, "_MOUNTS", mounts)
    Scheduler(path, budget="1/h").close()
    assert ("one machine" in caplog.text) == (kind != "ext4")


def fill(path, room):
    """Add sources to a file that may grow by so many bytes; print which were added."""
    live = Scheduler(path, budget="20/h")
    live.add_many({"source": str(i)} for i in range(50))
    size = path.with_name(path.name + "-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, resource.RLIM_INFINITY))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    errors = []
    for k in range(30):
        try:
            live.add(f"later {k}", host="h" * 500)
        except OSError as error:
            errors.append(str(error))
        else:
            print(f"later {k}", flush=True)
    assert errors, "the disk was not full"
    assert all("crawl.db cannot be used: " in text for text in errors)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    live.add("last")
    print("last", flush=True)


@pytest.mark.parametrize("room", [5000, 20_000])
def test_on_a_full_disk_what_is_acknowledged_is_stored(path, room):
    run = forked(partial(fill, path, room), stdout=subprocess.PIPE)
    acknowledged = run.communicate()[0].splitlines()
    assert run.returncode == 0
    assert acknowledged[-1] == "last"
    assert Scheduler(path).sources()[50:] == acknowledged


def copy_to_full_disk(path, room):
    """Copy a store to files that may have so many bytes."""
    live = Scheduler(path, budget="20/h")
    live.add_many({"source": f"https://example.org/{i}"} for i in range(1000))
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with pytest.raises(OSError, match=r"copy\.db cannot be used: "):
        live.copy(path.with_name("copy.db"))


@pytest.mark.parametrize("room", [1000, 5000, 40_000, 100_000])
def test_a_copy_for_which_there_is_no_room_leaves_nothing_behind(path, room):
    run = forked(partial(copy_to_full_disk, path, room))
    assert run.wait() == 0
    assert not list(path.parent.glob("copy.db*"))
    taken = path.with_name("copy.db")
    Scheduler(taken, budget="1/h").close()
    with pytest.raises(ValueError, match="there is a scheduler"):
        Scheduler(path).copy(taken)
    assert taken.exists()


def test_where_nothing_can_be_removed_it_is_said_why_there_is_no_copy(path, monkeypatch):
    def fixed(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "unlink", fixed)
    with pytest.raises(FileNotFoundError, match=r"the folder .*no does not exist"):
        Scheduler(path, budget="1/h").copy(path.with_name("no") / "copy.db")
