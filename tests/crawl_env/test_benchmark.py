"""The tasks of the benchmark: ids, seeds, information, and a golden value of each."""

import json
import re
import warnings
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from hypothesis import given
from hypothesis import strategies as st

from crawl_env import CrawlVectorEnv, tasks
from crawl_env.benchmark import CORE, SPLITS, TASKS, named
from tests.refusals import refused

GOLDEN = json.loads(Path(__file__).with_name("benchmark_golden.json").read_text())
MODELLED = {name: task for name, task in TASKS.items() if task.recording is None}
RECORDED = [task for task in TASKS.values() if task.recording is not None]
BY_ID = pytest.mark.parametrize("task", MODELLED.values(), ids=list(MODELLED))


def meaning(task):
    """The reward of twelve steps under priorities that depend on the observation and the step."""
    arguments = {**task.arguments_of("test", 0), "horizon": None}
    env = CrawlVectorEnv(1, **arguments)
    observation, _ = env.reset(seed=task.seed("test", 0))
    phases = np.arange(env.action_space.shape[-1]) + np.zeros(env.action_space.shape)
    total = 0.0
    for step in range(12):
        shown = np.nan_to_num(observation).astype(float).sum(axis=-1)
        observation, reward, *_ = env.step(np.cos(phases * (step + 1) + shown))
        total += float(reward[0])
    return total


@BY_ID
def test_the_meaning_of_a_task_changes_only_with_its_version(task):
    recorded = GOLDEN.get(task.id)
    assert recorded is not None, f"add {task.id}: {meaning(task)!r}, {task.hash!r}"
    assert meaning(task) == pytest.approx(recorded["reward"], rel=1e-9), "a new version is due"
    assert task.hash == recorded["hash"], "a new version is due"
    assert len(task.history) > task.version


@pytest.mark.parametrize("task", RECORDED, ids=[task.name for task in RECORDED])
def test_the_definition_of_a_recorded_task_changes_only_with_its_version(task):
    """Its log, which is not here, is part of it by a digest, but for a log of the machine."""
    log = replace(task.recording, digest=task.recording.digest or "of this machine")
    assert replace(task, recording=log).hash == GOLDEN[task.id]["hash"], "a new version is due"
    assert len(task.history) > task.version


def test_only_tasks_that_exist_have_golden_values():
    assert set(GOLDEN) == {task.id for task in TASKS.values()}


@BY_ID
def test_an_id_makes_the_environment_of_its_task(task):
    assert re.fullmatch(r"EphemeralCrawl/[A-Z]\w+-v\d+", task.id)
    assert named(task.id) is named(task.name) is tasks(task.tier)[task.id] is task
    if "100000" in task.name:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(task.id)
        vector = gym.make_vec(task.id, num_envs=2, vectorization_mode="vector_entry_point")
    assert env.spec.max_episode_steps == task.warmup + task.steps
    assert set(env.unwrapped.task.features) <= set(task.features)
    first, _ = env.reset(seed=1)
    same = gym.make(EnvSpec.from_json(env.unwrapped.spec.to_json()))
    assert np.array_equal(first, same.reset(seed=1)[0])
    assert vector.reset(seed=1)[0].shape == (2, *first.shape)


@given(st.text(max_size=5), st.text(max_size=5), st.integers(0, 99), st.integers(0, 99))
def test_seeds_of_different_splits_are_disjoint(salt, other, run, another):
    task = TASKS["Drift100"]
    seeds = {task.seed(split, run, salt) for split in SPLITS}
    assert len(seeds) == 3
    found = {split: task.seed(split, another, other) for split in SPLITS}
    for split, seed in found.items():
        assert seed not in {task.seed(s, run, salt) for s in SPLITS if s != split}
    assert (found["test"] == task.seed("test", run, salt)) == ((run, salt) == (another, other))


@pytest.mark.parametrize("name", [n for n, t in MODELLED.items() if not t.is_known])
def test_parameters_that_are_unknown_are_nowhere_in_the_environment(name):
    """Two fleets of one task pose the same task to an agent. `value` would tell of them: of sources
    that are not observed it is the posterior mean of the content."""
    task = TASKS[name]
    assert not {"value", "rate", "arrival_rate"} & set(task.features)
    envs = [CrawlVectorEnv(1, **task.arguments_of("test", run)) for run in (0, 1)]
    for env, run in zip(envs, (0, 1), strict=True):
        env.reset(seed=task.seed("test", run))
    true, other = (env.world.sources.arrival_rate for env in envs)
    assert not np.array_equal(true, other)
    assert np.array_equal(*(env.task.sources.arrival_rate for env in envs))
    assert not np.array_equal(envs[0].task.sources.arrival_rate, true[0])


def test_what_is_unknown_by_source_is_in_another_order_in_each_run():
    first, other = (TASKS["SignalsUnknown50"].arguments_of("test", i)["signals"] for i in (0, 1))
    pairs = [list(zip(one["recall"], one["precision"], strict=True)) for one in (first, other)]
    assert pairs[0] != pairs[1]
    assert sorted(pairs[0]) == sorted(pairs[1])
    phases = [
        TASKS["Phases100"].arguments_of("train", i)["arrivals"]["rate"]["phase"] for i in (0, 1)
    ]
    assert phases[0] != phases[1]
    assert sorted(phases[0]) == sorted(phases[1])


def test_the_core_is_frozen_and_names_are_explained():
    assert list(tasks("core")) == [named(name).id for name in CORE]
    assert " ".join(CORE) == "Sparse100Harvest Dense100Harvest Drift100 SignalsUnknown50 Looks100"
    assert [name.rpartition("/")[2] for name in tasks("trained")] == [
        *("Sparse10Trained-v0", "Dense10Trained-v0", "Sparse100Trained-v0", "Mixed20Trained-v1")
    ]
    with refused("unknown tier 'opne'; did you mean 'open'?"):
        tasks("opne")
    with refused("unknown task 'Drift10'; did you mean 'Drift100'?"):
        named("Drift10")
    with refused("not the current version of this task, which is EphemeralCrawl/Drift100-v0"):
        named("EphemeralCrawl/Drift100-v7")
    with refused("task is BenchmarkTask(", "give its name or its `id`"):
        named(TASKS["Drift100"])


def test_a_change_of_meaning_changes_the_hash_and_one_of_words_does_not():
    task = TASKS["Drift100"]
    assert replace(task, steps=7).hash != task.hash
    assert replace(task, label="other words").hash == task.hash
