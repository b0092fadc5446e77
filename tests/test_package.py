"""The wheel and the sdist, and what works with the core dependencies alone."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

import crawl_env
from tests.test_project import PROJECT

ROOT = Path(__file__).parent.parent
CITATION = (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def build(kind, source, target):
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (made,) = target.glob({"wheel": "*.whl", "sdist": "*.tar.gz"}[kind])
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_the_packages_with_their_types_and_data(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {
        "crawl_env",
        "agents",
        "ephemeral_crawl",
        f"ephemeral_crawl-{crawl_env.__version__}.dist-info",
    }
    for package in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        assert f"{package}/py.typed" in names
        tracked = {str(path.relative_to(ROOT)) for path in (ROOT / package).rglob("*.py")}
        assert tracked <= set(names)
    assert "crawl_env/fleet/presets/hacker-news.csv" in names
    assert any(name.endswith("LICENSE") for name in names)


def test_the_sdist_builds_the_same_wheel(wheel, tmp_path):
    sdist = build("sdist", ROOT, tmp_path)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    assert (unpacked / "CITATION.cff").read_text(encoding="utf-8") == CITATION
    again = build("wheel", unpacked, tmp_path)
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    """The environment variables with which Python finds the installed wheel and what it requires,
    but nothing else that is installed here."""
    folder = tmp_path_factory.mktemp("bare")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(folder), str(wheel)], check=True)
    pending, linked = list(PROJECT["project"]["dependencies"]), set()
    while pending:
        requirement = pending.pop()
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        if name in linked or "extra ==" in requirement:
            continue
        linked.add(name)
        found = distribution(name)
        pending += found.requires or []
        for top in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
            (folder / top).symlink_to(Path(str(found.locate_file(top))).resolve())
    assert linked >= {"numpy", "gymnasium", "numba"}
    variables = {"PYTHONPATH": str(folder), "PATH": os.defpath, "OMP_NUM_THREADS": "1"}
    return {**variables, "NUMBA_CACHE_DIR": os.environ["NUMBA_CACHE_DIR"]}


def run(bare, *words, cwd):
    # -S leaves out the packages that are installed for this interpreter.
    return subprocess.run(
        [sys.executable, "-S", *words],
        env=bare,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


CORE = """
import sys
import gymnasium as gym
import numpy as np

env = gym.make("crawl_env:EphemeralCrawl-v0", budget=2, arrivals="poisson")
observation, _ = env.reset(seed=0)
import agents
action, _ = agents.make("whittle", env).predict(observation)
assert env.step(action)[1] > 0
assert agents.evaluate("whittle", env, steps=20, seeds=3).reward.min() > 0

import crawl_env
assert crawl_env.__file__.startswith(sys.path[1]), crawl_env.__file__
open("log.parquet", "w").close()

def learning():
    import agents.learning

def sb3():
    import crawl_env.envs.sb3

def tensors():
    import crawl_env.envs.torch_env

def picture():
    drawn = gym.make("EphemeralCrawl-v0", render_mode="rgb_array")
    drawn.reset(seed=0)
    drawn.render()

def parquet():
    crawl_env.ItemLog.from_csv("log.parquet")

for attempt in (learning, sb3, tensors, picture, parquet):
    try:
        attempt()
    except Exception as error:
        print(f"{attempt.__name__}: {error}".replace("\\n", " "))
"""


def test_the_core_dependencies_run_the_environment_and_say_what_else_needs(bare, tmp_path):
    done = run(bare, "-c", CORE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    extras = {"learning": "learning", "sb3": "learning", "tensors": "learning"}
    extras |= {"picture": "render", "parquet": "parquet"}
    assert set(said) == set(extras)
    for attempt, extra in extras.items():
        assert f"part of the extra '{extra}'" in said[attempt]
        assert f'pip install ".[{extra}]"' in said[attempt]


def test_the_command_says_which_extra_it_needs(bare, tmp_path):
    script = str(Path(bare["PYTHONPATH"]) / "bin" / "ephemeral-crawl")
    shown = run(bare, script, "--help", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "evaluate" in shown.stdout
    assert "fit" in shown.stdout
    assert run(bare, script, "--version", cwd=tmp_path).stdout.strip() == crawl_env.__version__
    refused = run(bare, script, "evaluate", "--sources", "table1", "--budget", "2", cwd=tmp_path)
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    assert "part of the extra 'commands'" in refused.stderr


def test_the_command_names_a_package_of_the_same_name(bare, tmp_path):
    """openai-agents, installed later, overwrites the package `agents`."""
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").write_text("import openai\n")
    about = tmp_path / "openai_agents-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: openai-agents\nVersion: 1.0\n")
    (about / "top_level.txt").write_text("agents\n")
    paths = {**bare, "PYTHONPATH": f"{tmp_path}{os.pathsep}{bare['PYTHONPATH']}"}
    # What `evaluate` needs besides: without it, that is what the message would be about.
    (tmp_path / "tyro.py").write_text("import agents\n")
    done = run(paths, "-m", "ephemeral_crawl", "evaluate", cwd=tmp_path)
    assert done.returncode == 1
    assert "openai-agents installed files in this project's package 'agents'" in done.stderr
    assert "environment of its own" in done.stderr


def test_the_version_is_stated_once():
    assert "version" in PROJECT["project"]["dynamic"]
    assert re.search(rf"^version: {re.escape(crawl_env.__version__)}$", CITATION, re.M)
    cited = (ROOT / "docs" / "citing.md").read_text(encoding="utf-8")
    assert f"version = {{{crawl_env.__version__}}}" in cited
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(crawl_env.__version__)}\b", changelog, re.M)


WITHOUT_UNIX = """
import asyncio, multiprocessing, os, pathlib, signal, sys, time
import gymnasium, httpx, numba, numpy, uvicorn

for module, names in {
    os: ["fork", "register_at_fork", "sched_getaffinity"],
    signal: ["SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1"],
    time: ["CLOCK_BOOTTIME", "CLOCK_MONOTONIC", "clock_gettime"],
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
sys.modules.update(fcntl=None, resource=None)

import agents
import ephemeral_crawl.crawl.command
import ephemeral_crawl.serve.command
from ephemeral_crawl.crawl.limited import _why_ended
from ephemeral_crawl.live import Scheduler

with Scheduler(pathlib.Path(sys.argv[1]), budget="20/h") as scheduler:
    scheduler.add("https://example.org/feed")
    (lease,) = scheduler.lease()
    print(scheduler.report(lease.id, items=[]), "killed" in _why_ended(-9))
"""


def test_windows_lacks_nothing_that_is_needed(tmp_path):
    """It is simulated: the names of the standard library are removed that only Unix has."""
    command = [sys.executable, "-c", WITHOUT_UNIX, str(tmp_path / "crawl.sqlite")]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (shown.stdout, shown.stderr) == ("True True\n", "")
