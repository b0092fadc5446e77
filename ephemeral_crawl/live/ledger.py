"""The state of a scheduler and the journal that it follows from: time, transactions, snapshots."""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from crawl_env.errors import check_within, shown
from ephemeral_crawl.live import snapshot
from ephemeral_crawl.live.errors import DamagedStore, StoreLocked
from ephemeral_crawl.live.journal import Journal, NoJournal, file_of, open_journal
from ephemeral_crawl.live.journal.base import RESTORE
from ephemeral_crawl.live.journal.sqlite import remove_file
from ephemeral_crawl.live.state import Event, Moment, State

_STEP = 60.0  # seconds by which a clock may differ from the last event without being set
_EVERY = 4000  # changes of a source between two snapshots, at least
_OF_EVENT = 3  # changes that take as long to read again, after a kill, as the rest of an event
_AT_ONCE = 10_000  # sources of which a snapshot takes some milliseconds
_DAMAGES = (KeyError, TypeError, ValueError, IndexError, OverflowError)
_LOG = logging.getLogger(__name__)

Decide = Callable[[State, Moment], Event | None]


class Clock:
    """Tells the scheduler's time from that of a clock that may be set back or forth.

    Arguments:
        clock: function that returns seconds since 1970. If it is `time.time`, it is compared with a
            clock that cannot be set, so that a leap is told from time that has passed.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        if not callable(clock):
            raise ValueError(f"clock is {shown(clock)}; give a function that returns seconds")
        self._clock = clock
        self.steady = _steady if clock is time.time else None
        # The scheduler's time, a steady clock's, and the offset that was stored then.
        self._last: tuple[float, float, float] | None = None
        self._offset: float | None = None  # of this clock: those of other machines have their own

    def now(self, state: State) -> Moment:
        """Return the time after the last event of a state."""
        # Between these, the process may be stopped for a while: time must not seem longer by it.
        before = self.steady() if self.steady is not None else 0.0
        clock = self._clock()
        if not (type(clock) is float and -1e11 <= clock <= 1e12):
            clock = check_within("the clock's time", clock, -1e11, 1e12, unit="seconds")
        offset = state.offset if self._offset is None else self._offset
        if self._last is None and offset > 0.0 and clock >= state.time - max(_STEP, offset / 2.0):
            # It was set back, as where a machine without a battery starts in 1970, and is right
            # again, or the offset is of another machine: it lags less than half as far behind. With
            # it, this would be a long outage.
            offset = 0.0
        now = clock + offset
        if self._last is not None and self.steady is not None:
            expected = self._last[0] + max(before - self._last[1], 0.0)
            if now < expected - _STEP and state.offset != self._last[2]:
                # The clock was set back, and others have noted it, who may have lost time.
                now = min(clock + state.offset, expected)
                offset = now - clock
            elif abs(now - expected) > _STEP:
                # The clock was set, rather than time passed. No time is lost, since another process
                # would catch up with it: too fast for hosts.
                now = max(expected, state.time)
                offset = now - clock
            else:  # nor where the clock of another machine is ahead
                now = max(now, expected)
        if now < state.time - _STEP:
            now, offset = state.time, state.time - clock
        if self.steady is not None:
            self._last = max(now, state.time), self.steady(), state.offset
        self._offset = offset
        return Moment(max(now, state.time), offset)


def _steady() -> float:
    """Return a clock that cannot be set, and counts the time in which the machine sleeps."""
    if not hasattr(time, "clock_gettime"):  # pragma: no cover - Windows
        return time.monotonic()
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Ledger:
    """The state after all events in a journal, for all threads of this process.

    Arguments:
        journal: it may be used by other processes, too.
        clock: tells the time of events.
    """

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self.journal, self.clock = journal, clock
        self.state: State | None = None
        self.number = 0  # of the last event applied
        self.snapshot_number = 0  # number of the last event in the snapshot
        self.lock = threading.RLock()
        self._in_transaction = False  # whether this is within a transaction
        self._failure: BaseException | None = None  # because of which it cannot be committed
        self._changes = 0  # of a source, and for each event, since the snapshot
        self._writer: threading.Thread | None = None  # of a snapshot
        _LEDGERS.add(self)

    @contextmanager
    def reading(self) -> Iterator[tuple[State, Moment]]:
        """Return a context with the present state and time, in which no other thread changes it."""
        with self.lock:
            state = self._current()
            yield state, self.clock.now(state)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Return a context whose changes are one transaction: each is applied at once, and all are
        committed at the end, or none if it is left by an exception, or if one of them could not be
        stored or applied. It may be nested."""
        with self.lock:
            if self._in_transaction:
                yield
                return
            before = math.inf
            if self.state is None:  # it may take long to read and to compile: nobody waits for that
                self._current()
                if self.number == 0:  # what another process copies into a new store has no events
                    self.state = None
            try:
                with self.journal.exclusive():
                    self._current()
                    before, self._in_transaction = self.number, True
                    yield
                    if self._failure is not None:
                        raise self._failure
            except BaseException:
                if self.number > before and not isinstance(self.journal, NoJournal):
                    self.state = None  # it is ahead of the journal, and is read again
                raise
            finally:
                self._in_transaction, self._failure = False, None
            if self.state is not None and self._changes >= max(_EVERY, self.state.rows):
                self.write_snapshot()

    @contextmanager
    def group(self) -> Iterator[None]:
        """Return a context like `together`, of which nothing is stored if it is left by an
        exception, even if that is caught within a larger context."""
        with self.together():
            before = self.number
            try:
                yield
            except BaseException as error:
                if self.number > before:
                    self._failure = error
                raise

    def change(self, decide: Decide) -> bool:
        """Append the event that `decide` returns for the present state and time, apply it, and
        commit it, unless this is part of a larger transaction.

        An error leaves everything as it was.

        Returns:
            Whether there was an event.
        """
        with self.together():
            state = self._current()
            moment = self.clock.now(state)
            event = decide(state, moment)
            if event is None:
                return False
            state.check(event)
            event |= {"time": moment.time, "offset": moment.offset}
            try:
                self.journal.append(self.number + 1, event)
                self._apply(state, self.number + 1, event)
            except BaseException as error:
                self._failure = error
                raise
            return True

    def copy(self, store: object) -> None:
        """Write the state to another store."""
        self._check_stored("copied")
        with self.reading() as (state, _):
            number, parts = self.number, snapshot.parts(state)
        file = file_of(store)
        is_made = file is not None and not file.exists()
        with without_forks():
            try:
                target = open_journal(store, full=True)
                try:
                    target.begin_with(number, parts)
                finally:
                    target.close()
            except StoreLocked:  # by another process, which has made it meanwhile
                raise
            except OSError:  # such as that the disk is full
                if file is not None and is_made:
                    remove_file(file)
                raise

    def write_snapshot(self) -> None:
        """Store the state: at once if it is small, else by a thread, so that nobody waits."""
        writing = self._writer is not None and self._writer.is_alive()
        if writing or isinstance(self.journal, NoJournal):
            return
        state = self.state
        assert state is not None
        arguments = self.number, snapshot.parts(state)
        self.snapshot_number, self._changes = self.number, 0
        if state.rows <= _AT_ONCE:
            self._store(*arguments)
        else:
            self._writer = threading.Thread(target=self._store, args=arguments, name="snapshot")
            self._writer.start()

    def close(self) -> None:
        """Store the state, and close the journal."""
        with self.lock:
            self._check_stored("closed")
            self._await_snapshot()
            if self.state is not None and self.number > self.snapshot_number:
                self.write_snapshot()
                self._await_snapshot()
            self.journal.close()

    def _check_stored(self, action: str) -> None:
        with self.lock:
            if self._in_transaction:
                raise ValueError(
                    f"a scheduler cannot be {action} while changes are made together: end the "
                    "context of `together` first"
                )

    def _await_snapshot(self) -> None:
        if self._writer is not None:
            self._writer.join()

    def _store(self, number: int, parts: Iterable[bytes]) -> None:
        try:
            with without_forks():
                self.journal.write_snapshot(number, parts)
        except (OSError, ValueError, sqlite3.Error) as error:  # what was called is recorded
            _LOG.warning("no snapshot was written, the journal has all: %s", error)

    def _current(self) -> State:
        """Return the state with all events in the journal applied."""
        if self._failure is not None:
            raise self._failure
        if self._in_transaction and self.state is not None:
            return self.state
        if self.state is not None:
            events = self.journal.since(self.number)
            if events is not None:
                return self._apply_all(self.state, events)
        if self.number and isinstance(self.journal, NoJournal):
            raise DamagedStore(
                "a change was interrupted, which loses what a scheduler in memory knows; make "
                "another one, in a file if it must survive interrupts"
            )
        self.state = None  # unless all can be read
        number, data = self.journal.snapshot() or (0, None)
        try:
            state = State() if data is None else snapshot.from_bytes(data)
        except DamagedStore as error:
            raise self._damage_error(str(error)) from error
        events = self.journal.since(number)
        if events is None:
            raise self._damage_error("events after the snapshot are missing")
        if self.number and not (number or events):
            raise self._damage_error("nothing is left in it")
        self.state, self.number, self.snapshot_number = state, number, number
        self._apply_all(state, events)
        if self.number:  # of a backup, leases may have been given whose numbers it does not know
            state.least_lease = int(1e3 * self.clock.now(state).time)
        return state

    def _apply_all(self, state: State, events: list[tuple[int, Event]]) -> State:
        for number, event in events:
            try:
                self._apply(state, number, event)
            except _DAMAGES as error:
                raise self._damage_error(f"event {number}: {error}") from error
        return state

    def _damage_error(self, reason: str) -> DamagedStore:
        return DamagedStore(f"{self.journal.name} is damaged: {reason}. {RESTORE}")

    def _apply(self, state: State, number: int, event: Event) -> None:
        try:
            state.apply(event)
            self.number = number
        except BaseException:
            self.state = None
            raise
        self._changes += _OF_EVENT + state.size_of(event)


# A fork waits until no other thread is in the middle of a change, or uses a database: the child
# would have half of it, and locks, also those within SQLite, that nobody releases.
_LEDGERS: weakref.WeakSet[Ledger] = weakref.WeakSet()
_FORKING = threading.RLock()
_locked: list[Ledger] = []
_IDLE = threading.Condition()  # taken after the locks of ledgers
_busy = 0  # threads that use a database without the lock of a ledger


@contextmanager
def without_forks() -> Iterator[None]:
    """Return a context in which forks of other threads wait; it must not wait for a ledger."""
    global _busy
    with _IDLE:
        _busy += 1
    try:
        yield
    finally:
        with _IDLE:
            _busy -= 1
            _IDLE.notify_all()


def _before_fork() -> None:
    _FORKING.acquire()
    _locked[:] = _LEDGERS
    for ledger in _locked:
        ledger.lock.acquire()
    _IDLE.acquire()
    while _busy:
        _IDLE.wait()
    for ledger in _locked:
        ledger.journal.disconnect()


def _after_fork() -> None:
    _IDLE.release()
    for ledger in _locked:
        ledger.lock.release()
    _locked.clear()
    _FORKING.release()


if hasattr(os, "register_at_fork"):  # not on Windows, where no process forks
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
