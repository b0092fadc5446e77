"""Sweeps on Ray: results are stored as they finish, and a killed worker process costs nothing."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from ephemeral_crawl.cluster import connection
from ephemeral_crawl.cluster.connection import connect
from ephemeral_crawl.core.runner import Runner
from tests.conftest import wait_until


def squares(job):
    """Say which process works on a job, and wait where the test wants to meet it."""
    place = Path(job["place"])
    with (place / f"tries{job['i']}").open("a") as tries:
        tries.write(f"{os.getpid()}\n")
    while job.get("waits") and not (place / "go").exists():
        time.sleep(0.02)
    if "raises" in job:
        raise ValueError(job["raises"])
    return {"square": job["i"] ** 2, "process": os.getpid()}


def wait_for(path):
    for _ in range(3000):
        if path.exists() and path.read_text().endswith("\n"):
            return path.read_text()
        time.sleep(0.02)
    raise AssertionError(f"{path} was not written")


def test_a_sweep_outlives_a_worker_that_is_killed(tmp_path, local_ray):
    """Job 0 waits until the test has killed its process; the others are done meanwhile."""
    runner = Runner(tmp_path / "kept", jobs=2, run_on="ray")
    todo = [{"i": i, "place": str(tmp_path), "waits": i == 0} for i in range(8)]
    killer = subprocess.Popen(
        [sys.executable, "-c", KILL, str(tmp_path / "tries0"), str(tmp_path / "go")]
    )
    found = runner.run(todo, squares, quiet=True)
    assert killer.wait() == 0
    assert [result["square"] for result in found] == [i**2 for i in range(8)]
    first, second = (tmp_path / "tries0").read_text().split()
    assert first != second, "the job ran again in another process"
    assert found[0]["process"] == int(second)
    for i in range(1, 8):
        assert len((tmp_path / f"tries{i}").read_text().split()) <= 2


KILL = """
import os, signal, sys, time
from pathlib import Path
tries, go = map(Path, sys.argv[1:])
for _ in range(3000):
    if tries.exists() and tries.read_text().endswith("\\n"):
        break
    time.sleep(0.02)
os.kill(int(tries.read_text()), signal.SIGKILL)
go.touch()
"""


def test_finished_jobs_are_stored_when_another_fails(tmp_path, local_ray):
    runner = Runner(tmp_path / "kept", jobs=1, run_on="ray")
    todo = [{"i": i, "place": str(tmp_path)} for i in range(3)]
    todo[2]["raises"] = "source 3: decay_rate is −0.1"
    with pytest.raises(ValueError, match=r"^source 3: decay_rate is −0.1$"):
        runner.run(todo, squares, quiet=True)
    assert [runner.has(job) for job in todo] == [True, True, False]
    assert [r["square"] for r in runner.run(todo[:2], squares, quiet=True)] == [0, 1]
    assert len((tmp_path / "tries0").read_text().split()) == 1, "not run again"


def test_a_job_that_always_kills_its_process_is_named(tmp_path, local_ray, monkeypatch):
    monkeypatch.setattr(connection, "_RETRIES", 1)
    runner = Runner(tmp_path / "kept", jobs=2, run_on="ray")
    with pytest.raises(
        ChildProcessError, match=r"process of job \{'i': 5, .* died 2 times"
    ) as error:
        runner.run([{"i": 5, "fleet": [0.5] * 1000}], die, quiet=True)
    assert "What was finished is kept" in str(error.value)
    assert len(str(error.value)) < 600


def test_a_cluster_that_is_lost_is_told(local_ray, monkeypatch):
    def lost(_):
        raise local_ray.exceptions.LocalRayletDiedError

    monkeypatch.setattr(local_ray, "get", lost)
    with pytest.raises(ChildProcessError, match=r"Ray lost job \{'i': 5\}, as when .* is kept"):
        connection._result(local_ray, None, {"i": 5})


def die(job):
    os.kill(os.getpid(), signal.SIGKILL)


def test_ray_listens_on_this_machine_only(local_ray):
    """Everything that processes of this Ray listen on is a loopback address."""
    psutil = pytest.importorskip("psutil")
    assert local_ray.util.get_node_ip_address() == "127.0.0.1"
    me = psutil.Process()
    seen = 0
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            for found in process.net_connections("tcp"):
                if found.status == "LISTEN":
                    assert found.laddr.ip in ("127.0.0.1", "::1", "::ffff:127.0.0.1"), process
                    seen += 1
    assert seen


def test_an_address_without_a_cluster_is_refused_at_once(monkeypatch, local_ray):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(local_ray, "is_initialized", lambda: False)
    with pytest.raises(ConnectionError, match=f"no Ray cluster answers at RAY_ADDRESS={address}"):
        connect()


def test_without_ray_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match="part of the extra 'ray'"):
        Runner(tmp_path / "kept", run_on="ray").run([{"i": 1}], dict)


def test_ctrl_c_keeps_what_is_finished(tmp_path, local_ray):
    """A program of its own, which finds the cluster by RAY_ADDRESS."""
    todo = [{"i": i, "place": str(tmp_path), "waits": i == 3} for i in range(4)]
    code = (
        "from pathlib import Path; from ephemeral_crawl.core.runner import Runner;"
        "from tests.ephemeral_crawl.cluster.test_tasks import squares;"
        f"Runner(Path({str(tmp_path / 'kept')!r}), 1, 'ray').run({todo!r}, squares, quiet=True)"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "RAY_ADDRESS": local_ray.get_runtime_context().gcs_address},
        start_new_session=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for(tmp_path / "tries3")
    wait_until(lambda: len(list((tmp_path / "kept").glob("*.json"))) == 3)
    time.sleep(0.2)
    os.killpg(started.pid, signal.SIGINT)
    said, _ = started.communicate(timeout=60)
    assert started.returncode == 130
    assert "Stopped. 3 of 4 parts are finished" in said
    process = int((tmp_path / "tries3").read_text())
    for _ in range(1000):
        if not Path(f"/proc/{process}").exists():
            return
        time.sleep(0.02)
    raise AssertionError("the worker goes on")
