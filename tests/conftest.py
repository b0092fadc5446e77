"""Settings of all tests, the machine code that they share with other checkouts, and one Ray on this
machine for those that need it."""

import contextlib
import gc
import hashlib
import io
import os
import pickle
import signal
import sys
import time
import types
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

# Python's own bytecode is kept, too: the processes that tests start would all compile the sources.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Compiled functions are kept in the user's cache folder, where a new checkout finds those of
# another one that have the same source. This must be set before numba is imported.
USER_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
MACHINE_CODE = USER_CACHE / "ephemeral-crawl" / "tests"
os.environ.setdefault("NUMBA_CACHE_DIR", str(MACHINE_CODE))
# So is what Hypothesis reads in all sources, and its table of characters: 4 s of each process.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(MACHINE_CODE.with_name("hypothesis")))
# Stable-Baselines3 makes a folder for logs in each training, into which nothing is written here.
os.environ.setdefault("SB3_LOGDIR", str(MACHINE_CODE.with_name("sb3")))

collect_ignore = ["crawl_env/envs/typed_calls.py"]  # for the type checker: it cannot be imported

# A first example may have to be compiled, and no test depends on the speed of the machine. Examples
# are the same in each run.
settings.register_profile("ephemeral-crawl", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("ephemeral-crawl")

# Pools of processes have one, unless a test asks for more, and so has linear algebra, whose threads
# wait for each other by spinning: the cores are busy with other tests.
os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Torch's first optimiser imports a compiler, which nothing here uses, to say that its steps are not
# to be compiled: 1.4 s of each process.
NO_COMPILER = types.ModuleType("torch._dynamo")
NO_COMPILER.disable = lambda function, *_, **__: function
NO_COMPILER.graph_break = lambda *_: None
sys.modules[NO_COMPILER.__name__] = NO_COMPILER

# A shell lets what it starts in the background ignore Ctrl+C, and so would the processes in which
# tests try it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A node that is killed is noticed after 1.5 s, and Ray's workers, which are of lower priority by
# default, have that of the tests which wait for them.
RAY_SETTINGS = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_worker_niceness": "0",
}


def pytest_sessionstart(session):
    """Keep the latest 500 MB of machine code: most of the rest is of sources that have changed."""
    if hasattr(session.config, "workerinput"):
        return
    with contextlib.suppress(OSError):  # another session may remove files, too
        files = [(file.stat(), file) for file in MACHINE_CODE.glob("*/*.nb?")]
        size = 0
        for status, file in sorted(files, key=lambda pair: pair[0].st_mtime, reverse=True):
            size += status.st_size
            if size > 500_000_000:
                file.unlink()
    for folder in MACHINE_CODE.glob("*/"):
        with contextlib.suppress(OSError):  # only those that are empty, as numba leaves them
            folder.rmdir()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One process for each core. One more saves no time: each collects all tests once more."""
    return os.cpu_count() or 1


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is imported and collected stays until the end: Python need not look for garbage in it
    again and again, which takes a third of the time of the collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000)  # instead of 700: 3 % of the time of the tests
        gc.enable()


def pytest_collection_modifyitems(items):
    """First the longest test, so that no process works on it alone at the end; then those that need
    Ray, so that one process starts it."""
    items.sort(key=lambda item: ("test_the_site_builds" not in item.nodeid, not needs_ray(item)))


def needs_ray(item):
    return item is not None and "local_ray" in getattr(item, "fixturenames", ())


@pytest.fixture
def local_ray():
    """Ray, which goes on until the next test does not need it: its processes are never idle."""
    if not find_spec("ray"):  # not imported before `connect`, as in a program
        pytest.skip("needs the extra 'ray'")
    from ephemeral_crawl.cluster.connection import connect  # by the processes that run tests alone

    os.environ.update(RAY_SETTINGS)
    return connect(cpus=2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    yield
    if needs_ray(item) and not needs_ray(nextitem):
        end_ray()


def end_ray():
    if "ray" in sys.modules and (ray := sys.modules["ray"]).is_initialized():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # Ray does not wait for what it ends
            ray.shutdown()
            gc.collect()


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """A function that returns what was made for a key, in this session by any of its processes."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    cache = {}

    def get(key, make):
        if key not in cache:
            file = folder / f"once-{hashlib.sha256(repr(key).encode()).hexdigest()}"
            if not file.exists():
                new = file.with_suffix(f".{os.getpid()}")
                new.write_bytes(pickle.dumps(make()))
                new.replace(file)
            cache[key] = pickle.loads(file.read_bytes())
        return cache[key]

    return get


@pytest.fixture(autouse=True)
def each_figure_is_drawn_once(request):
    """In the tests of commands, a figure is drawn in the page when the code first makes one of its
    form, and the first one is also drawn beside the page.

    To draw figures takes most of the time of a report. What figures look like, and that they are
    the same each time, is tested in `core` and with the studies of `experiments`.
    """
    if not request.node.nodeid.startswith(COMMANDS):
        return
    monkeypatch, once = map(request.getfixturevalue, ("monkeypatch", "once"))
    from matplotlib.figure import Figure

    from ephemeral_crawl.core import plots

    draw = plots.inline

    def drawn(figure, number):
        place = sys._getframe(2)  # of the code that calls `Report.figure`
        key = place.f_code.co_filename, place.f_lineno, *map(form, figure.axes)
        old, (picture, *more) = once(key, lambda: (number, draw(figure, number)))
        return picture.replace(f"f{old}-", f"f{number}-"), *more

    save = Figure.savefig

    def saved(figure, file, **how):
        if how.get("format") == "svg":
            return save(figure, file, **{**how, "bbox_inches": None})  # or it is drawn twice

        def png():
            save(figure, buffer := io.BytesIO(), **{"format": "png", **how})
            return buffer.getvalue()

        write = file.write if hasattr(file, "write") else Path(file).write_bytes
        return write(once("beside a page", png))

    monkeypatch.setattr(plots, "inline", drawn)
    monkeypatch.setattr(Figure, "savefig", saved)


@pytest.fixture(autouse=True)
def each_log_is_fitted_once(request):
    """In the tests that run the commands of pages and of the example, the decay and the signals of
    a log are estimated by the first command that is given it, and the clocks of pings are fast by
    nothing or by two hours. What is estimated is tested in `fit`."""
    if not request.node.nodeid.startswith(EXAMPLES):
        return
    monkeypatch, once = map(request.getfixturevalue, ("monkeypatch", "once"))
    from ephemeral_crawl.fit import decay, signals

    def fitted_once(measure):
        def fitted(*arguments, **keywords):
            key = measure.__module__, pickle.dumps((arguments, keywords))
            return once(key, lambda: measure(*arguments, **keywords))

        return fitted

    for module in (decay, signals):
        monkeypatch.setattr(module, "measure", fitted_once(module.measure))
    monkeypatch.setattr(signals, "_SKEWS", signals._SKEWS[-1:])


COMMANDS = (
    "tests/test_docs.py",
    "tests/experiments",
    *(
        f"tests/ephemeral_crawl/{name}"
        for name in ("backtest", "comparison", "evaluate", "example", "fit", "replay", "schedule")
    ),
)
EXAMPLES = (
    "tests/test_docs.py",
    "tests/ephemeral_crawl/comparison/test_signals.py",
    "tests/ephemeral_crawl/example",
)


def form(axes):
    """What tells a figure of a usual report from one of an edge: scales, and how much there is."""
    lines = tuple(min(len(line.get_xdata()), 2) for line in axes.lines)
    shapes = (axes.collections, axes.patches, axes.texts)
    return axes.get_xscale(), axes.get_yscale(), lines, *(min(len(x), 2) for x in shapes)


@pytest.fixture
def cluster(local_ray):
    """A cluster of two nodes; the second has two cores and may be removed."""
    from ray._private.worker import _global_node
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    cluster.head_node = _global_node
    node = cluster.add_node(num_cpus=2, wait=False)
    wait_until(lambda: len(alive(local_ray)) == 2)
    yield cluster
    if node in cluster.worker_nodes:
        remove(cluster, node, local_ray)


def remove(cluster, node, ray):
    """Kill all processes of a node, and wait until the cluster has noticed it."""
    cluster.remove_node(node, allow_graceful=False)
    wait_until(lambda: len(alive(ray)) == 1)


def alive(ray):
    return [node for node in ray.nodes() if node["Alive"]]


def wait_until(condition):
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("not within a minute")
