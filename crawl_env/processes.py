"""Worker processes, which end when the process that started them does."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time

_EVERY = 1.0  # seconds between two looks at the parent


def end_with_parent() -> None:
    """End this process within some seconds of its parent's end, however that ended.

    A pool of processes ends its workers when it is closed, which does not happen if the parent is
    killed: the workers finish what they have begun, and then wait for more. This is an initializer
    of pools, called once in each worker. It has no effect in a process that `multiprocessing` did
    not start, nor on Windows, where a process keeps the number of its parent.
    """
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_watch, args=(parent.pid,), name="parent", daemon=True).start()


def _watch(parent: int | None) -> None:
    # PR_SET_PDEATHSIG of Linux would be sent at the end of the thread that started the worker.
    while os.getppid() == parent:
        time.sleep(_EVERY)
    os._exit(1)
