"""Threads that run compiled functions, which release the global interpreter lock.

There are as many as cores may be used, or as `OMP_NUM_THREADS` says, but a single one in processes
that `multiprocessing` started, whose siblings use the other cores. Results never depend on the
number of threads.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait


def number() -> int:
    """Return the number of threads that `each` uses at most.

    It is read from the machine and from `OMP_NUM_THREADS` when a process first asks for it.
    """
    if not _threads.number:
        _threads.number = _allowed()
    return _threads.number


def each(function: Callable[[int], None], n: int) -> None:
    """Call function(0), …, function(n − 1), in any order and, if possible, several at once.

    An exception is raised here after all calls under way have ended; no further ones are begun.

    >>> squares = [0] * 4
    >>> def square(i: int) -> None:
    ...     squares[i] = i * i
    >>> each(square, 4)
    >>> squares
    [0, 1, 4, 9]
    """
    queue = deque(range(n))

    def work() -> None:
        try:
            while (i := _next(queue)) is not None:
                function(i)
        except BaseException:
            queue.clear()
            raise

    helpers = _start(work, min(number(), n) - 1)
    try:
        work()
    finally:
        queue.clear()
        # Those not yet begun are not needed, and may wait for this thread if calls are nested.
        wait([helper for helper in helpers if not helper.cancel()])
    for helper in helpers:
        if not helper.cancelled():
            helper.result()


def _next(queue: deque[int]) -> int | None:
    try:
        return queue.popleft()
    except IndexError:
        return None


def _start(work: Callable[[], None], helpers: int) -> list[Future[None]]:
    if helpers < 1:
        return []
    if _threads.pool is None:
        _threads.pool = ThreadPoolExecutor(number() - 1, thread_name_prefix="crawl_env")
    try:
        return [_threads.pool.submit(work) for _ in range(helpers)]
    except RuntimeError:  # the interpreter is about to exit
        return []


def _allowed() -> int:
    if multiprocessing.parent_process() is not None:
        return 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    setting = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return min(cores, int(setting)) if setting.isdecimal() and int(setting) > 0 else cores


class _Threads:
    """The threads of this process, started when they are first needed."""

    def __init__(self) -> None:
        self.number = 0  # not yet known
        self.pool: ThreadPoolExecutor | None = None


_threads = _Threads()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _threads.__init__())  # type: ignore[misc]
