"""The scheduler as a service: calls in a thread of their own, one commit for all waiting changes,
and leases that wait until something is due."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from ephemeral_crawl.live import Lease, Overview, Scheduler, Status

_LOG = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

_MOST_CALLS = 512  # that wait for the scheduler
_LONGEST = 0.02  # seconds after which no further change is made before the commit
_PAUSE = 0.1  # of the time that a commit with its changes took: those answered may ask again
_AGAIN = 0.5  # seconds after which a waiting lease looks again, if nothing changes before
_MOST_WAIT = 60.0  # seconds that a lease may wait
_EVERY = 60.0  # seconds between two samples
_SAMPLES = 24 * 60  # kept: those of a day
_OLD = 15.0  # seconds for which an overview is shown again
_OLD_PER_SECOND = 200.0  # and for so many times as long as it took to make


_Result = tuple[asyncio.Future[Any], Any, Exception | None]  # what was returned, or raised


class _Call(NamedTuple):
    changes: bool  # something, unless it is refused
    function: Callable[[], Any]
    answer: asyncio.Future[Any]


class Busy(Exception):
    """There are more calls than the scheduler can handle."""


class Service:
    """Calls of a scheduler from the event loop.

    Arguments:
        scheduler: it should not be used by others in this process.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.started = time.time()
        self.samples: deque[tuple[float, Status]] = deque(maxlen=_SAMPLES)
        self.stopping = asyncio.Event()
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="scheduler", daemon=True)
        self._thread.start()
        self._calls = 0
        self._change = asyncio.Event()
        self._turn = asyncio.Lock()
        self._overview: tuple[float, Overview] | None = None
        self._overview_lock = asyncio.Lock()

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of the scheduler that changes nothing.

        Raises:
            Busy: too many calls wait.
        """
        return await self._call(False, partial(function, *args, **kwargs))

    async def change(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method that changes something, for which leases may wait. What it returns has been
        committed, together with all other changes that waited.

        Raises:
            Busy: too many calls wait.
        """
        try:
            return await self._call(True, partial(function, *args, **kwargs))
        finally:
            self._change.set()

    async def _call(self, changes: bool, function: Callable[[], T]) -> T:
        if self._calls >= _MOST_CALLS:
            raise Busy
        self._calls += 1
        answer = asyncio.get_running_loop().create_future()
        context = copy_context()
        self._queue.put(_Call(changes, partial(context.run, function), answer))
        try:
            return cast(T, await answer)
        finally:
            self._calls -= 1

    def _work(self) -> None:
        """Make the waiting calls, alternating between changes and calls that change nothing, until
        all calls from before `close` have been made."""
        changes, others, pause, closing = deque[_Call](), deque[_Call](), 0.0, False
        while changes or others or not closing:
            time.sleep(pause)
            while not self._queue.empty() or not (changes or others or closing):
                call = self._queue.get()
                if call is None:
                    closing = True
                else:
                    (changes if call.changes else others).append(call)
            pause = 0.0
            if changes:
                start = time.monotonic()
                results = self._commit(changes)
                _answer(results)
                if len(results) > 1:
                    pause = _PAUSE * (time.monotonic() - start)
            while others:
                _answer([_make(others.popleft())])

    def _commit(self, changes: deque[_Call]) -> list[_Result]:
        """Make waiting changes in one commit; return their results."""
        results: list[_Result] = []
        try:
            with self.scheduler.together():
                end = time.monotonic() + _LONGEST
                while not results or (changes and time.monotonic() < end):
                    results.append(_make(changes.popleft()))
        except Exception as error:  # nothing was stored
            results = [(answer, None, error) for answer, _, _ in results]
            if not results:
                results = [(call.answer, None, error) for call in changes]
                changes.clear()
        return results

    async def lease(
        self, limit: int, timeout: Any, wait: float, gone: Callable[[], Any]
    ) -> list[Lease]:
        """Lease sources; if nothing is due, wait until something is.

        Of the calls that wait, only the first polls the scheduler.

        Arguments:
            wait: seconds.
            gone: asynchronous function that tells whether the client has left; it is given nothing.
        """
        lease = partial(self.scheduler.lease, limit, timeout)
        leases = await self._call(True, lease)
        if leases or not wait > 0.0:
            return leases
        try:
            async with asyncio.timeout(min(wait, _MOST_WAIT)) as patience, self._turn:
                while not (leases or self.stopping.is_set() or await gone()):
                    self._change.clear()
                    # Not to be interrupted by the timeout: leases would be lost until they expire.
                    request = asyncio.ensure_future(self._call(True, lease))
                    try:
                        leases = await asyncio.shield(request)
                    except asyncio.CancelledError:
                        leases = await request
                        raise
                    if not leases:
                        await self._pause()
        except TimeoutError:
            if not patience.expired():  # it is the store that others kept for too long
                raise
        return leases

    async def _pause(self) -> None:
        """Wait until something has changed, but not for long."""
        waits = [asyncio.ensure_future(e.wait()) for e in (self._change, self.stopping)]
        try:
            await asyncio.wait(waits, timeout=_AGAIN, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def overview(self) -> Overview:
        """Return the fleet at a glance, at most some seconds old, or older if it takes long to
        compute."""
        async with self._overview_lock:
            now = time.monotonic()
            if self._overview is None or now >= self._overview[0]:
                # In a thread of its own: others use the scheduler between its parts.
                overview = await asyncio.to_thread(self.scheduler.overview)
                took = time.monotonic() - now
                self._overview = now + max(_OLD, _OLD_PER_SECOND * took), overview
            return self._overview[1]

    async def sample(self) -> Status:
        """Return the status, and keep it if the last sample is a minute old."""
        status = await self.call(self.scheduler.status)
        now = time.time()
        if not self.samples or not 0.0 <= now - self.samples[-1][0] < 0.9 * _EVERY:
            self.samples.append((now, status))
        return status

    async def keep_sampling(self) -> None:
        """Take a sample every minute, until it is cancelled."""
        while True:
            try:
                await self.sample()
            except (OSError, sqlite3.Error) as error:  # such as a file that is locked
                _LOG.warning("the status cannot be read, a minute is left out: %s", error)
            except Exception:  # the next minute is another
                _LOG.exception("the status cannot be read, a minute is left out")
            await asyncio.sleep(_EVERY)

    def stop(self) -> None:
        """End the waits of leases."""
        self.stopping.set()

    def close(self) -> None:
        """Wait for the calls under way, and close the scheduler."""
        self._queue.put(None)
        self._thread.join()
        try:
            self.scheduler.close()
        except (OSError, sqlite3.Error) as error:  # all that was acknowledged is in the journal
            _LOG.warning("no snapshot was written at the end: %s", error)


def _make(call: _Call) -> _Result:
    """Make a call, unless it was cancelled."""
    try:
        return call.answer, None if call.answer.cancelled() else call.function(), None
    except Exception as error:
        return call.answer, None, error


def _answer(results: list[_Result]) -> None:
    """Pass the results of calls to the coroutines that wait for them."""

    def deliver() -> None:
        for answer, value, error in results:
            if answer.cancelled():
                continue
            if error is None:
                answer.set_result(value)
            else:
                answer.set_exception(error)

    with suppress(RuntimeError):  # the loop has ended, and nobody waits
        results[0][0].get_loop().call_soon_threadsafe(deliver)
