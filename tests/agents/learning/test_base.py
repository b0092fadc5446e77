"""What all learners share: the same run again, resuming, stopping, files, evaluation."""

import json
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from agents.adaptive.learner import ThompsonLearner
from agents.evaluation.rollout import evaluate
from agents.learning import LEARNERS, load, storage
from agents.learning.base import epsilon_greedy, priorities_of
from agents.learning.sb3.learners import StableBaselines
from agents.learning.tabular.base import Tabular
from agents.learning.tabular.lagrange_q import LagrangeQ, LagrangeQSettings
from agents.learning.tabular.wiql import WIQL
from crawl_env import Arrivals, CrawlEnv, CrawlVectorEnv, Sources
from tests.agents.learning.common import same

FEATURES = ("age", "crawled", "harvest")
KINDS = {**LEARNERS, "adaptive-thompson": ThompsonLearner}
# Environments, and steps until a run is stopped and in all; for the others see sb3/test_learners
# and fleet/test_base.
RUNS = {
    **{name: (1, 100, 200) for name, kind in LEARNERS.items() if issubclass(kind, Tabular)},
    "neurwin": (8, 50, 100),
    "deeptop": (8, 6, 10),
    "qwinn": (8, 6, 10),
    "residual-evolution": (4, 96, 192),
    "adaptive-thompson": (1, 20, 45),
}


def crawl(rows=1, **arguments):
    return CrawlVectorEnv(rows, **{"features": FEATURES, "arrivals": "poisson", **arguments})


def content(path):
    """Return all of a file that a run leaves, in a form that can be compared."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))["__metadata__"]
    return {"header": header, **{k: v.tobytes() for k, v in load_file(path).items()}}


@pytest.mark.parametrize("name", RUNS)
def test_runs_repeat_differ_with_the_seed_and_resume_exactly(name, tmp_path):
    kind, (rows, some, more) = KINDS[name], RUNS[name]
    options = {"rows": rows, "budget": 2, "observed": False, "start": "random"}
    if issubclass(kind, Tabular):
        fleet = Sources([5.0, 2.0, 1.0], [1, 2, 3], [0.3, 0.1, 0.5], failure_rate=[0.2, 0, 0.1])
        options |= {"sources": fleet, "arrivals": "poisson-lomax", "horizon": 130}
        options |= {"budget": 1, "features": (*FEATURES, "failed")}

    def agent(seed=3):
        return kind(crawl(**options), seed=seed)

    torch.manual_seed(5)
    before = torch.get_rng_state()
    through, other = agent().learn(more), agent(4).learn(more)
    through.save(tmp_path / "whole")
    for total in (some, more):
        agent().learn(total, checkpoint=tmp_path / "parts")
    assert content(tmp_path / "parts") == content(tmp_path / "whole")
    assert not same(through.state_dict(), other.state_dict())
    assert torch.equal(before, torch.get_rng_state())
    loaded = kind.load(tmp_path / "whole", crawl(**options))
    assert type(loaded) is kind
    assert loaded.steps == through.steps
    assert same(loaded.state_dict(), through.state_dict())
    assert loaded.learn(some).steps == through.steps + some  # it adds, as in Stable-Baselines3


def run(path, epochs):
    """Learn in a process of its own, and say so if Ctrl-C stops it."""
    try:
        LEARNERS["lagrange-q"](crawl(), seed=5).learn(
            epochs, checkpoint=path, checkpoint_interval=0
        )
    except KeyboardInterrupt:
        sys.exit(STOPPED)


STOPPED = 130


@pytest.fixture(scope="module")
def server():
    """Where processes start that have imported this module once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def begun(server, path):
    """Start a run, and return when it has written a checkpoint newer than the one there was."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    started = server.Process(target=run, args=(path, 10**9))
    started.start()
    for _ in range(6000):
        if path.exists() and path.stat().st_mtime_ns > before:
            return started
        time.sleep(0.01)
    raise AssertionError("no checkpoint within a minute")


def test_a_killed_run_goes_on_and_ends_as_one_that_was_not(tmp_path, server):
    path, rng = tmp_path / "killed", np.random.default_rng(0)
    for _ in range(3):
        started = begun(server, path)
        time.sleep(rng.uniform(0, 0.1))  # into learning or into writing
        started.kill()
        started.join()
    reached = storage.load(path)["steps"]
    whole = LEARNERS["lagrange-q"](crawl(), seed=5).learn(reached + 500)
    whole.save(tmp_path / "whole")
    run(path, reached + 500)
    assert content(path) == content(tmp_path / "whole")


def test_a_run_stopped_by_ctrl_c_leaves_a_checkpoint(tmp_path, server):
    started = begun(server, tmp_path / "stopped")
    assert started.pid is not None
    os.kill(started.pid, signal.SIGINT)
    started.join()
    assert started.exitcode == STOPPED
    agent = load(tmp_path / "stopped", crawl())
    assert agent.steps > 0
    assert [file.name for file in tmp_path.iterdir()] == ["stopped"]


def test_ctrl_c_is_granted_between_improvements_and_then_as_before(tmp_path):
    agent = WIQL(crawl())

    def stop(epochs, facts):
        if epochs == 300:
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(10**6, checkpoint=tmp_path / "stopped", progress=stop)
    assert signal.getsignal(signal.SIGINT) is before
    assert storage.load(tmp_path / "stopped")["steps"] == 300


def test_a_second_ctrl_c_does_not_wait():
    def stop(epochs, facts):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("went on")

    with pytest.raises(KeyboardInterrupt):
        WIQL(crawl()).learn(10**6, progress=stop)


def test_a_file_that_is_not_there_or_another_agents_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing", crawl())
    WIQL(crawl()).save(tmp_path / "wiql")
    with pytest.raises(ValueError, match="'wiql', not the agent 'lagrange-q'"):
        LagrangeQ.load(tmp_path / "wiql", crawl())
    with pytest.raises(ValueError, match="4 arms"):
        WIQL.load(tmp_path / "wiql", crawl(sources="recovering-10"))


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / "run"
    LagrangeQ(crawl(), LagrangeQSettings(max_age=32), np.int64(1)).learn(100, checkpoint=path)
    LagrangeQ(crawl(), seed=1).learn(100, checkpoint=path)
    with pytest.raises(ValueError, match="settings"):
        LagrangeQ(crawl(), LagrangeQSettings(epsilon=0.2), seed=1).learn(200, checkpoint=path)
    with pytest.raises(ValueError, match="seed"):
        LagrangeQ(crawl(), seed=2).learn(200, checkpoint=path)
    for what, other in (
        ("budget", {"budget": 2}),
        ("arrivals", {"arrivals": Arrivals(utility="lognormal")}),
        ("sources", {"sources": "recovering-4"}),
        ("observed", {"observed": False}),
        ("horizon", {"horizon": None}),
        ("num_envs", {"rows": 2}),
    ):
        with pytest.raises(ValueError, match=what):
            LagrangeQ(crawl(**other), seed=1).learn(200, checkpoint=path)


@pytest.mark.parametrize("seed", [None, -1, 1.5, True, 2**63])
def test_a_seed_that_a_file_could_not_hold_is_refused(seed):
    for kind in (WIQL, LEARNERS["equivariant-ppo"], StableBaselines.of("ppo")):
        with pytest.raises(ValueError, match=r"seed is .*; it must be a whole number"):
            kind(crawl(), seed=seed)


def test_wrong_environments_are_refused_with_a_remedy():
    for missing in FEATURES:
        shown = [name for name in FEATURES if name != missing]
        with pytest.raises(ValueError, match=f"needs the feature '{missing}'"):
            WIQL(crawl(features=shown))
    fails = Sources.preset("table1").__getstate__() | {"failure_rate": [0.1] * 4}
    with pytest.raises(ValueError, match="needs the feature 'failed'"):
        WIQL(crawl(sources=Sources(**fails)))
    with pytest.raises(ValueError, match="budget_rule='step'"):
        WIQL(crawl(budget_rule="average"))
    with pytest.raises(ValueError, match="with an engine the reward is what is indexed"):
        WIQL(crawl(arrivals="poisson-items", engine={"rate": 2}))
    with pytest.raises(ValueError, match="NEXT_STEP"):
        WIQL(CrawlVectorEnv(1, autoreset_mode="SameStep", features=FEATURES))
    with pytest.raises(ValueError, match=r"gym\.make_vec"):
        WIQL(CrawlEnv(features=FEATURES))
    with pytest.raises(ValueError, match="one fleet"):
        WIQL(crawl(sources=lambda rng: Sources.random(4, rng.integers(99), "dense")))


@pytest.mark.parametrize(
    ("name", "wrong", "what"),
    [
        ("lagrange-q", {"max_age": 1}, ""),
        ("lagrange-q", {"epsilon": 1.5}, ""),
        ("lagrange-q", {"learning_rate_decay_visits": 0}, ""),
        ("lagrange-q", {"multiplier_learning_rate": -1.0}, ""),
        ("wiql", {"gamma": 1}, "at least 0 and below 1"),
        ("plug-in", {"gamma": "0.9"}, "at least 0 and below 1"),
        ("deeptop", {"gamma": 1.5}, "between 0 and 1"),
        ("qwinn", {"batch_size": 0}, "whole number"),
        ("neurwin", {"n_steps": 2.5}, "whole number"),
        ("equivariant-ppo", {"learning_rate": -1e-3}, "zero or positive"),
        ("ppo", {"learning_rate": float("nan")}, "finite"),
        ("dqn", {"exploration_final_eps": 1.5}, ""),
        ("a2c", {"normalize_advantage": "no"}, ""),
    ],
)
def test_settings_out_of_range_are_refused_by_name(name, wrong, what):
    kind = LEARNERS[name]
    (field,) = wrong
    with pytest.raises(ValueError, match=f"{field} is .*{what}"):
        kind(crawl(8, budget=2), kind.Settings(**wrong))


def test_settings_of_another_agent_are_refused():
    with pytest.raises(ValueError, match="agent 'wiql' needs an instance of"):
        WIQL(crawl(), LagrangeQSettings())


def test_the_log_is_written_and_goes_on(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for epochs in (300, 500):
        agent = WIQL(crawl()).learn(
            epochs, checkpoint=tmp_path / "run", tensorboard_log=tmp_path / "log"
        )
    events = EventAccumulator(str(tmp_path / "log")).Reload()
    (tag,) = events.Tags()["scalars"]
    assert [event.step for event in events.Scalars(tag)] == [100, 200, 300, 400, 500]
    assert events.Scalars(tag)[-1].value == pytest.approx(agent.index[:, 0].mean(), rel=1e-6)


def test_evaluations_take_what_has_learnt():
    from stable_baselines3.common.evaluation import evaluate_policy

    from crawl_env.envs.sb3 import CrawlVecEnv

    arguments = {"arrivals": "deterministic", "features": FEATURES}
    agent = LagrangeQ(crawl(4, **arguments)).learn(1000)
    mean = evaluate(agent, arguments, steps=100, seeds=1).reward.mean()
    assert mean == pytest.approx(260.38993, rel=0.01)  # chance: 177
    env = CrawlVecEnv(num_envs=2, horizon=100, **arguments)
    total, _ = evaluate_policy(agent, env, n_eval_episodes=2, warn=False)
    assert total / 100 == pytest.approx(260.38993, rel=0.02)
    with pytest.raises(ValueError, match="made for the features"):
        evaluate(agent, {"features": ("age",)}, steps=1, seeds=1)


def test_ranks_keep_the_order_of_scores_that_float32_cannot_tell_apart():
    score = np.array([1e9, 1e9 + 1e-6, -5.0, 1e9 + 2e-6])
    assert np.argsort(-priorities_of(score)).tolist() == [3, 1, 0, 2]
    assert np.abs(priorities_of(score)).max() <= 1


def test_exploration_is_pure_chance_in_its_share_of_the_rows():
    rng = np.random.default_rng(0)
    score = np.tile([3.0, 2.0, 1.0, 0.0], (20_000, 1))
    first = epsilon_greedy(score, 0.4, rng).argmax(axis=-1)
    # 0.4 of the rows, of which 1/4 choose each; standard error .0035
    assert np.bincount(first) / 20_000 == pytest.approx([0.7, 0.1, 0.1, 0.1], abs=0.015)


def test_importing_agents_imports_no_library_of_learning():
    code = (
        "import sys, agents; heavy = {'torch', 'safetensors', 'stable_baselines3', 'tensorboard'};"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_bar_shows_progress_on_request(capfd):
    env = CrawlVectorEnv(1, budget=2, features=("age", "crawled", "harvest"), horizon=None)
    LEARNERS["wiql"](env).learn(200, progress=True)
    assert "wiql: 100%" in capfd.readouterr().err


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the overflow itself
@pytest.mark.parametrize("name", ["lagrange-q", "lspe", "a2c"])
def test_learning_that_diverges_says_so_and_keeps_the_checkpoint(name, tmp_path):
    kind, file = LEARNERS[name], tmp_path / "run"
    agent = kind(crawl(2, budget=2), kind.Settings(learning_rate=1e30))
    agent.save(file)
    before = file.read_bytes()
    with pytest.raises(ValueError, match=rf"learning of '{name}' diverged by step .* Lower the"):
        agent.learn(300, checkpoint=file)
    assert file.read_bytes() == before


def test_a_device_that_this_machine_lacks_is_named():
    for name in ("ppo", "neurwin"):
        with pytest.raises(ValueError, match="device is 'gpu', which torch cannot use here"):
            LEARNERS[name](crawl(8), device="gpu")
