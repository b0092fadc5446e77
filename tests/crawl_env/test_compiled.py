"""Compiled functions: where their machine code is cached, when it is stale, forks and threads."""

import importlib
import math
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.caching import IndexDataCacheFile

from crawl_env import Arrivals, CrawlEnv, CrawlVectorEnv, Sources
from crawl_env.compiled import compiled
from crawl_env.simulation.selection import Hosts, select, select_top
from ephemeral_crawl.live import Scheduler

ROOT = Path(__file__).parent.parent.parent


def python(code, folder, **variables):
    """Return what code prints that runs in a new process, with modules of the folder first."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    paths = f"{folder}{os.pathsep}{ROOT}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ------------------------------------------------------------------------- the cache

CALLER = """
from crawl_env.compiled import compiled
from callee import factor

@compiled
def times(x):
    return factor(x) * x
"""
CALLEE = """
from crawl_env.compiled import compiled

@compiled
def factor(x):
    return {}
"""
CONSTANT = """
import callee
from callee import FACTOR
from crawl_env.compiled import compiled

@compiled
def times(x):
    return x * FACTOR + x * callee.FACTOR
"""

TUPLE = """
from typing import NamedTuple
from crawl_env.compiled import compiled

class {name}(NamedTuple):
    x: float

@compiled
def first(pair):
    return pair.x

Pair = {name}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of modules, next to which their machine code is cached, and no bytecode: Python
    would read it after a change in the same second that leaves the size of the file."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def loaded(name):
    """Import a module and its callees as a new process would."""
    for old in (name, "callee"):
        sys.modules.pop(old, None)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def hits(function):
    """Return how often the machine code was read instead of made."""
    return sum(function.stats.cache_hits.values())


def test_machine_code_is_cached_until_a_function_that_it_contains_changes(folder):
    (folder / "caller.py").write_text(CALLER)
    for factor, found in (("3.0", 0), ("3.0", 1), ("4.5", 0)):
        (folder / "callee.py").write_text(CALLEE.format(factor))
        times = loaded("caller").times
        assert times(2.0) == 2.0 * float(factor)
        assert hits(times) == found


def test_checkouts_share_a_chosen_folder_and_leave_the_code_of_others_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "code"))
    for place, factor, found in (
        ("a", "3.0", 0),
        ("b", "3.0", 1),
        ("c", "4.5", 0),
        ("a", "3.0", 1),
    ):
        checkout = tmp_path / place
        checkout.mkdir(exist_ok=True)
        (checkout / "caller.py").write_text(CALLER)
        (checkout / "callee.py").write_text(CALLEE.format(factor))
        monkeypatch.syspath_prepend(str(checkout))
        times = loaded("caller").times
        assert times(2.0) == 2.0 * float(factor)
        assert hits(times) == found


def test_machine_code_depends_on_constants_of_other_modules(folder):
    (folder / "caller.py").write_text(CONSTANT)
    for factor, found in (("3.0", 0), ("3.0", 1), ("4.5", 0)):
        (folder / "callee.py").write_text(f"FACTOR = {factor}")
        times = loaded("caller").times
        assert times(2.0) == 4.0 * float(factor)
        assert hits(times) == found


def test_an_unreadable_cache_is_made_again(folder):
    (folder / "caller.py").write_text(CALLER)
    (folder / "callee.py").write_text(CALLEE.format("3.0"))
    loaded("caller").times(2.0)
    (index,) = folder.glob("__pycache__/caller.times*.nbi")
    whole = index.read_bytes()
    for content in (b"no pickle", whole[:-9]):
        index.write_bytes(content)
        times = loaded("caller").times
        assert times(2.0) == 6.0
        assert hits(times) == 0
    times = loaded("caller").times
    assert times(2.0) == 6.0
    assert hits(times) == 1


def test_a_cache_that_names_a_class_which_is_gone_is_made_again(folder):
    for name in ("Before", "After_"):  # of one length: the line of the function stays
        (folder / "module.py").write_text(TUPLE.format(name=name))
        module = loaded("module")
        assert module.first(module.Pair(5.0)) == 5.0
        assert hits(module.first) == 0


def test_one_version_serves_all_constants():
    @compiled
    def sum_of(n, times):
        return n * times

    @compiled
    def several(x):
        return sum_of(1, x) + sum_of(2, times=x) + sum_of(int(x), x)

    assert several(3.0) == 18.0
    assert len(sum_of.overloads) == 1


INSTALLED = """
import sys
import gymnasium, numba
before = set(sys.modules)
import crawl_env, agents
print(sorted({"email.utils", "importlib.metadata"} & (sys.modules.keys() - before)))
tops = {name.partition(".")[0] for name in sys.modules.keys() - before}
print(*sorted(tops - sys.stdlib_module_names))
from numba.core.dispatcher import Dispatcher
import gc
ours = [x for x in gc.get_objects() if isinstance(x, Dispatcher)
        and x.py_func.__module__.startswith("crawl_env")]
print(len(ours) > 5, sum(len(x.overloads) for x in ours))
from crawl_env.content.draws import log_poisson
print(crawl_env.__file__)
print(log_poisson(3.0, 2.0))
"""


def test_an_installed_package_needs_no_folder_to_write_to(tmp_path):
    """It loads numba besides Gymnasium and nothing slow, and compiles nothing before a function is
    called. Files in the place of the folders of caches and of the home refuse these to every user,
    root included."""
    package, home = tmp_path / "crawl_env", tmp_path / "home"
    shutil.copytree(ROOT / "crawl_env", package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [package, *package.rglob("*/")]:
        (folder / "__pycache__").touch()
    home.touch()
    variables = {"HOME": str(home), "XDG_CACHE_HOME": str(home)}
    found = python(INSTALLED, tmp_path, **variables).splitlines()
    slow, loaded, compiled, place, result = found
    assert slow == "[]"
    assert loaded == "agents crawl_env"
    assert compiled == "True 0"
    assert place == str(package / "__init__.py")
    assert float(result) == pytest.approx(3 * math.log(2) - 2 - math.log(6))
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".nbi", ".nbc")]


def test_a_full_disk_does_not_stop_a_call(folder, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, "_open_for_write", fail)
    (folder / "caller.py").write_text(CALLER)
    (folder / "callee.py").write_text(CALLEE.format("3.0"))
    assert loaded("caller").times(2.0) == 6.0
    assert not list(folder.rglob("*.nb?"))


# ------------------------------------------------------------------------- without compilation


WITHOUT = """
import warnings
warnings.simplefilter("error")
from tests.crawl_env.test_compiled import leases, random_rewards, selections
print(*random_rewards())
print(leases())
print(selections())
"""


def selections():
    """Return which sources are taken under limits of all kinds, and what is said of a NaN."""
    rng, found = np.random.default_rng(0), []
    hosts, cost = Hosts(np.array([0, 1, 0, 2, 3, 1]), 1), np.array([0.5, 1, 2, 1, 0.5, 1])
    cost.flags.writeable = False  # as in a fleet
    for _ in range(9):
        priority, crawled_at = rng.integers(0, 3, (2, 6)) / 2.0, rng.integers(-9, 0, (2, 6)) / 1.0
        allowed = rng.random((2, 6)) < 0.8
        found.append(select_top(priority, 3, crawled_at).tolist())
        for balance in (None, np.array([1.0, 4.0])):
            taken = select(priority, crawled_at, cost, 3.0, None, balance, allowed, hosts)
            found.append(taken.tolist())
    try:
        select_top(np.array([[0.0, np.nan]]), 1, np.zeros((1, 2)))
    except ValueError as error:
        found.append(str(error))
    return found


def random_rewards():
    """Return rewards of environments with random content of several kinds."""
    kinds = ["poisson", "poisson-items", Arrivals(utility="lognormal", rate="drift")]
    found = []
    for arrivals in (*kinds, Arrivals(decay="lomax"), Arrivals(rate="hawkes")):
        # Cells whose totals are drawn by inversion, by rejection, and hardly ever.
        sources = Sources([0.1, 3.0, 60.0, 1e-9], [1.0, 2.0, 3.0, 4.0], [0.5, 9.0, 0.1, 1.0])
        env = CrawlEnv(sources=sources, budget=2, arrivals=arrivals)
        env.reset(seed=0)
        for i in range(12):
            found.append(env.step(np.roll(np.array([0.1, 0.5, 0.5, 0.0], np.float32), i))[1])
    return found


def leases():
    """Return what a live scheduler leases of feeds, hosts with limits and feeds that fail."""
    now = [1e9]
    scheduler = Scheduler(":memory:", budget="60/h", clock=lambda: now[0])
    scheduler.add_many({"source": f"s{i}", "host": f"h{i % 3}.test"} for i in range(9))
    scheduler.limit_host("*.test", "30s")
    found = []
    for _ in range(15):
        now[0] += 60.0
        for lease in scheduler.lease(2):
            found.append(lease.source)
            if lease.source == "s4":
                scheduler.failed(lease.id, kind="dns")
            else:
                scheduler.report(
                    lease.id, [(now[0] - 30.0 * k, 1.0) for k in range(len(found) % 3)]
                )
        scheduler.signal(f"s{len(found) % 9}")
    return found


def test_the_same_functions_run_without_compilation_and_without_warnings():
    """Selections, random content, and the live scheduler."""
    rewards, leased, selected = python(WITHOUT, ROOT, NUMBA_DISABLE_JIT="1").splitlines()
    found = [float(reward) for reward in rewards.split()]
    assert np.count_nonzero(found) > 30
    np.testing.assert_allclose(found, random_rewards(), rtol=1e-9)
    assert leased == str(leases())
    assert selected == str(selections())
    assert "NaN" in selected


# ------------------------------------------------------------------------- processes and threads


def rewards(seed, n=40):
    """Return rewards of a scalar and of a vector environment of random actions."""
    env, vec, rng = CrawlEnv(budget=2), CrawlVectorEnv(3, budget=2), np.random.default_rng(seed)
    env.reset(seed=seed)
    vec.reset(seed=seed)
    found = []
    for _ in range(n):
        found.append(env.step(rng.random(4, dtype=np.float32))[1])
        found += vec.step(rng.random((3, 4), dtype=np.float32))[1].tolist()
    return found


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_goes_on_with_compiled_functions():
    expected = rewards(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        alike = False
        try:
            alike = rewards(1) == expected
        finally:
            os.write(writer, b"alike" if alike else b"other")
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == "alike"
    os.waitpid(child, 0)


def test_threads_step_their_environments_at_the_same_time():
    expected = [rewards(seed, 80) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda seed: rewards(seed, 80), range(4))) == expected


def test_threads_may_compile_at_the_same_time(folder):
    (folder / "caller.py").write_text(CALLER)
    (folder / "callee.py").write_text(CALLEE.format("3.0"))
    times = loaded("caller").times
    with ThreadPoolExecutor(4) as pool:
        assert {*pool.map(times, [2.0] * 8)} == {6.0}
    assert len(times.overloads) == 1
