"""Changes that wait are made in one commit, and nobody is answered before it."""

import asyncio
import threading
from contextlib import contextmanager

import pytest

from ephemeral_crawl.live import Scheduler, SourceExists
from ephemeral_crawl.serve import service as services
from ephemeral_crawl.serve.service import Busy, Service


class Commits:
    """Lets commits wait, counts them, and lets them fail."""

    def __init__(self, live, monkeypatch):
        self.number, self.error = 0, None
        self.asked, self.allowed = threading.Event(), threading.Event()
        self._exclusive = live._ledger.journal.exclusive
        monkeypatch.setattr(live._ledger.journal, "exclusive", self._transaction)
        # By a copy of the journal, which would wait for the connection of this one.
        monkeypatch.setattr(live._ledger, "write_snapshot", lambda: None)

    @contextmanager
    def _transaction(self):
        with self._exclusive():
            yield
            self.number += 1
            self.asked.set()
            assert self.allowed.wait(60)
            if self.error is not None:
                raise self.error


def ask(store, monkeypatch, error=None):
    """Return what eight changes and a reader are told, the first commit being made when all of
    them wait, and the commits."""
    live = Scheduler(store)
    commits = Commits(live, monkeypatch)
    commits.error = error

    async def main():
        service = Service(live)
        asked = [asyncio.create_task(service.change(live.add, "0"))]
        assert await asyncio.to_thread(commits.asked.wait, 60)
        asked.append(asyncio.create_task(service.change(live.add, "1")))
        gone = asyncio.create_task(service.change(live.add, "gone"))
        asked += [asyncio.create_task(service.change(live.add, f"{k % 7}")) for k in range(2, 8)]
        asked.append(asyncio.create_task(service.call(live.sources)))
        _, early = await asyncio.wait(asked, timeout=0.1), [task.done() for task in asked]
        gone.cancel()
        commits.allowed.set()
        told = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 60)
        service.close()
        return early, told

    early, told = asyncio.run(main())
    assert not any(early)
    return told, commits.number


@pytest.fixture
def store(tmp_path):
    with Scheduler(tmp_path / "crawl.db", budget="20/h"):
        return tmp_path / "crawl.db"


def stored(store):
    with Scheduler(store) as live:
        return live.sources()


def test_changes_that_wait_are_made_in_one_commit(store, monkeypatch):
    monkeypatch.setattr(services, "_LONGEST", 60.0)
    told, commits = ask(store, monkeypatch)
    assert [type(answer) for answer in told[:8]] == [type(None)] * 7 + [SourceExists]
    assert told[8] == stored(store) == list("0123456")
    assert commits == 2


def test_a_commit_does_not_hold_the_store_for_long(store, monkeypatch):
    monkeypatch.setattr(services, "_LONGEST", 0.0)
    told, commits = ask(store, monkeypatch)
    assert told[8] == ["0", "1"]  # it is not kept waiting, either
    assert stored(store) == list("0123456")
    assert commits == 9  # one of what is refused, and one of what nobody waits for


def test_more_than_can_wait_are_refused(store, monkeypatch):
    monkeypatch.setattr(services, "_MOST_CALLS", 2)

    async def main():
        service = Service(Scheduler(store))
        changes = [service.change(service.scheduler.add, x) for x in "abc"]
        told = await asyncio.gather(*changes, return_exceptions=True)
        await service.change(service.scheduler.add, "d")
        service.close()
        return [type(answer) for answer in told]

    assert asyncio.run(main()) == [type(None), type(None), Busy]
    assert stored(store) == list("abd")


def test_changes_that_wait_are_made_before_the_end(store, monkeypatch):
    monkeypatch.setattr(services, "_LONGEST", 0.0)

    async def main():
        service = Service(Scheduler(store))
        asked = [asyncio.create_task(service.change(service.scheduler.add, x)) for x in "abcd"]
        await asyncio.sleep(0)
        await asyncio.to_thread(service.close)
        await asyncio.wait_for(asyncio.gather(*asked), 60)

    asyncio.run(main())
    assert stored(store) == list("abcd")


@pytest.mark.parametrize("error", [OSError("disk full"), TimeoutError("locked")])
def test_a_commit_that_fails_is_told_to_all(store, monkeypatch, error):
    told, _ = ask(store, monkeypatch, error)
    assert told[:8] == [error] * 8
    assert told[8] == stored(store) == []


def test_a_store_that_is_locked_is_told_to_all(store, monkeypatch):
    live = Scheduler(store)
    error = TimeoutError("locked")

    @contextmanager
    def locked():
        raise error
        yield

    async def main():
        service = Service(live)
        changes = [service.change(live.add, name) for name in "abc"]
        with monkeypatch.context() as patch:
            patch.setattr(live._ledger.journal, "exclusive", locked)
            told = await asyncio.gather(*changes, return_exceptions=True)
        await service.change(live.add, "d")
        service.close()
        return told

    assert asyncio.run(main()) == 3 * [error]
    assert stored(store) == ["d"]


def test_a_lease_that_waits_is_told_that_the_store_is_locked(monkeypatch):
    live, answers = Scheduler(":memory:", budget="9/h"), iter([[], TimeoutError("locked")])

    def lease(*_):
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    monkeypatch.setattr(live, "lease", lease)

    async def main():
        service = Service(live)
        try:
            await service.lease(1, "1min", 30.0, here)
        finally:
            service.close()

    with pytest.raises(TimeoutError, match="locked"):
        asyncio.run(main())


async def here():
    """Return whether a client has left."""
    return False


def test_leases_that_are_given_when_the_wait_is_over_are_not_lost(monkeypatch):
    live, over, leases = Scheduler(":memory:", budget="9/h"), threading.Event(), ["a lease"]
    asked = []

    def lease(*_):
        asked.append(None)
        return leases if len(asked) > 1 and over.wait(60) else []

    monkeypatch.setattr(live, "lease", lease)

    async def main():
        service = Service(live)
        try:
            waiting = asyncio.create_task(service.lease(1, "1min", 0.01, here))
            await asyncio.wait({waiting}, timeout=0.05)
            over.set()
            return await waiting
        finally:
            service.close()

    assert asyncio.run(main()) == leases


def test_a_lease_waits_no_longer_than_it_may(monkeypatch):
    monkeypatch.setattr(services, "_MOST_WAIT", 0.01)

    async def main():
        service = Service(Scheduler(":memory:", budget="9/h"))
        try:
            return await asyncio.wait_for(service.lease(1, "1min", 3600.0, here), 60)
        finally:
            service.close()

    assert asyncio.run(main()) == []


def test_samples_go_on_where_the_clock_was_set_back():
    async def main():
        service = Service(Scheduler(":memory:", budget="9/h"))
        service.samples.append((service.started + 1e6, await service.sample()))
        await service.sample()
        service.close()
        return [at - service.started for at, _ in service.samples]

    assert [at > 1e5 for at in asyncio.run(main())] == [False, True, False]


@pytest.mark.parametrize(
    ("error", "traces"), [(ConnectionError("the database is down"), 0), (KeyError("x"), 1)]
)
def test_a_store_out_of_reach_is_told_in_a_line(monkeypatch, caplog, error, traces):
    def status():
        raise error

    async def main():
        service = Service(live)
        sampling = asyncio.create_task(service.keep_sampling())
        while not caplog.records:
            await asyncio.sleep(0.001)
        sampling.cancel()
        service.close()

    live = Scheduler(":memory:", budget="9/h")
    monkeypatch.setattr(live, "status", status)
    asyncio.run(main())
    (record,) = caplog.records
    assert "a minute is left out" in record.message
    assert bool(record.exc_info) == traces
    assert ("the database is down" in record.message) != traces


def test_an_overview_is_shown_again_for_a_while(monkeypatch):
    live, made = Scheduler(":memory:", budget="1/h"), []
    overview = live.overview
    monkeypatch.setattr(live, "overview", lambda: made.append(None) or overview())

    async def main(number):
        service = Service(live)
        for _ in range(number):
            await service.overview()

    for least, factor, times in ((60.0, 0.0, 1), (0.0, 1e6, 2), (0.0, 0.0, 7)):
        monkeypatch.setattr(services, "_OLD", least)
        monkeypatch.setattr(services, "_OLD_PER_SECOND", factor)
        asyncio.run(main(5))
        assert len(made) == times
