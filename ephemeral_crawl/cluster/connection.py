"""The connection to a Ray cluster, and independent jobs as its tasks."""

from __future__ import annotations

import os
import secrets
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import joblib

from crawl_env.errors import shown
from crawl_env.extras import missing

_OBJECT_STORE = 256 * 2**20  # bytes; what tasks exchange here is small

# Of a Ray on this machine alone, and read when Ray is imported. Ray binds to all interfaces unless
# it takes this machine for one without clusters; whoever connects has to know the token.
_LOCAL = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}


def connect(cpus: int | None = None, address: str | None = None) -> Any:
    """Connect this process to Ray, unless it is connected, and return the module `ray`.

    The environment variable `RAY_ADDRESS` names the cluster, as in Ray's own commands. Without it,
    Ray is started on this machine and ends with this process. It listens on the loopback interface
    only, asks for a token, has no dashboard and reports nothing to anyone.

    Arguments:
        cpus: cores that a Ray started here uses; all by default.
        address: of a cluster, instead of `RAY_ADDRESS`; "auto" is that of which this machine is.

    Raises:
        ModuleNotFoundError: Ray is not installed.
        ConnectionError: no cluster answers at the address.
    """
    variable = "" if address else "RAY_ADDRESS="
    address = address or os.environ.get("RAY_ADDRESS", "local")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == "local":
        for name, value in {**_LOCAL, "RAY_AUTH_TOKEN": secrets.token_hex(32)}.items():
            os.environ.setdefault(name, value)
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(missing("ray", "Ray"), name=error.name) from None
    if ray.is_initialized():
        return ray
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if address == "local":
        options = {
            "num_cpus": cpus,
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE,
        }
        ray.init("local", **options, **quiet)
        if ray.util.get_node_ip_address() not in ("127.0.0.1", "::1"):
            warnings.warn(
                "Ray was imported before it was started here, so that it listens on all network "
                "interfaces; set RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 before the import",
                stacklevel=2,
            )
        return ray
    _check_reachable(address, variable)
    ray.init(address, **quiet)
    return ray


def _check_reachable(address: str, variable: str) -> None:
    """Refuse an address where nobody listens at once; Ray tries for minutes."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    try:
        if port.isdigit():
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        raise ConnectionError(
            f"no Ray cluster answers at {variable}{address} ({error}); start one there with `ray "
            "start --head`, or unset RAY_ADDRESS to use this machine alone"
        ) from None


Job = dict[str, Any]  # JSON
Result = dict[str, Any]  # JSON

_RETRIES = 3  # of a job whose worker process dies, or whose machine leaves the cluster
_AT_ONCE = 1000  # jobs submitted and not finished, on a cluster of any size


def run_tasks(
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
            (handle,), _ = ray.wait(list(running))
            number = running.pop(handle)
            yield number, _result(ray, handle, jobs[number])
    finally:
        for handle in running:
            ray.cancel(handle, force=True)


def _call(work: Callable[[Job], Result], job: Job) -> Result:
    return work(job)


def _result(ray: Any, handle: Any, job: Job) -> Result:
    try:
        return ray.get(handle)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # what the job itself raised
    except ray.exceptions.RayError as error:
        crashes = ray.exceptions.WorkerCrashedError | ray.exceptions.OutOfMemoryError
        if isinstance(error, crashes):
            reason = (
                f"the worker process of job {shown(job)} died {_RETRIES + 1} times, perhaps for "
                "lack of memory; fewer --jobs at the same time need less"
            )
        else:
            reason = f"Ray lost job {shown(job)}, as when its head node is stopped"
        raise ChildProcessError(
            f"{reason}. What was finished is kept, and the same command goes on from there. Ray "
            f"says: {_first_line(error)}"
        ) from None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
