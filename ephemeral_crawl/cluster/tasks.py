"""Independent jobs as Ray tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import joblib

from ephemeral_crawl.cluster.connection import connect

Job = dict[str, Any]  # JSON
Result = dict[str, Any]  # JSON

_RETRIES = 3  # of a job whose worker process dies, or whose machine leaves the cluster
_AT_ONCE = 1000  # jobs submitted and not finished, on a cluster of any size


def results(
    work: Callable[[Job], Result], jobs: Mapping[int, Job], processes: int
) -> Iterator[tuple[int, Result]]:
    """Yield the number and the result of each job, as soon as it is finished.

    A job whose worker process is killed runs again.

    Arguments:
        jobs: by number.
        processes: at the same time; −1 for all cores of the cluster.

    Raises:
        ChildProcessError: a job whose worker process died again and again.
        Exception: whatever `work` raises.
    """
    if not jobs:
        return
    ray = connect(joblib.effective_n_jobs(processes))
    task = ray.remote(max_retries=_RETRIES)(_call)
    shared = ray.put(work)
    at_once = processes if processes > 0 else _AT_ONCE
    waiting = list(jobs.items())[::-1]
    running: dict[Any, int] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                number, job = waiting.pop()
                running[task.remote(shared, job)] = number
            (finished,), _ = ray.wait(list(running))
            number = running.pop(finished)
            yield number, _result(ray, finished, jobs[number])
    finally:
        for left in running:
            ray.cancel(left, force=True)


def _call(work: Callable[[Job], Result], job: Job) -> Result:
    return work(job)


def _result(ray: Any, finished: Any, job: Job) -> Result:
    try:
        return ray.get(finished)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # what the job itself raised
    except ray.exceptions.RayError as error:
        raise ChildProcessError(
            f"the worker process of job {job} died {_RETRIES + 1} times, perhaps for lack of "
            f"memory; fewer --jobs at the same time need less. Ray says: {_first_line(error)}"
        ) from None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
