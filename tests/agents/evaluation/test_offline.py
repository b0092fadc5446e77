"""Offline data sets, read by Minari itself where it is installed."""

import json
from dataclasses import replace

import numpy as np
import pytest

from agents import Agent
from agents.evaluation import offline
from agents.evaluation.offline import record
from crawl_env import CrawlEnv
from crawl_env.benchmark import named
from tests.refusals import refused

TASK = "SignalsUnknown50"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("h5py")
    folder = tmp_path_factory.mktemp("datasets")
    record(TASK, "oldest-first", folder, episodes=2)
    return folder


def test_the_layout_is_minaris(folder):
    h5py = pytest.importorskip("h5py")
    place = folder / "ephemeral-crawl" / f"{TASK}-oldest-first-v0" / "data"
    known, task = json.loads((place / "metadata.json").read_text()), named(TASK)
    assert known["total_steps"] == 2 * (task.steps + task.warmup)
    assert known["ref_max_score"] == task.ref_max_score > known["ref_min_score"]
    with h5py.File(place / "main_data.hdf5") as file:
        assert list(file) == ["episode_0", "episode_1"]
        assert [file[name].attrs["seed"] for name in file] == [
            task.seed("train", run) for run in (0, 1)
        ]
        steps = task.steps + task.warmup
        assert file["episode_1/observations"].shape == (steps + 1, 50, len(task.features))
        assert file["episode_1/truncations"][()].tolist() == [False] * (steps - 1) + [True]
    with refused("exists; remove it, or name another folder"):
        record(TASK, "oldest-first", folder)


@pytest.mark.parametrize(
    ("task", "policy"), [("Looks100", "oldest-first"), ("Sparse10Trained", "random")]
)
def test_a_call_writes_the_same_bytes_and_the_environment_of_an_episode_repeats_it(
    task, policy, tmp_path, monkeypatch
):
    """Also where priorities are for looks, too, and where every run has a fleet of its own."""
    h5py = pytest.importorskip("h5py")
    short = replace(named(task), steps=12, warmup=8)
    monkeypatch.setattr(offline, "named", lambda _: short)
    one, two = (record(task, policy, tmp_path / x, episodes=2) / "data" for x in "ab")
    for name in ("main_data.hdf5", "metadata.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    with h5py.File(one / "main_data.hdf5") as file:
        for run, episode in enumerate(file.values()):
            env = CrawlEnv(**short.arguments_of("train", run))
            assert np.array_equal(
                env.reset(seed=episode.attrs["seed"])[0], episode["observations"][0]
            )
            for action, reward in zip(episode["actions"], episode["rewards"], strict=True):
                assert env.action_space.contains(action)
                assert env.step(action)[1] == reward
            collected, crawled = episode["infos/collected"][1:], episode["infos/crawled"][1:]
            assert collected.sum(axis=1) == pytest.approx(episode["rewards"][()])
            assert not collected[~crawled].any()


class Freshest(Agent):
    """Not registered; where the parameters are known, only the value is recorded."""

    name = "freshest"
    features = ("age",)

    def priority(self, view):
        return -view["age"] / (1 + view["age"])


def test_a_class_of_ones_own_is_recorded_and_may_observe_what_the_task_shows(tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py")
    task = replace(named("Table1M2Deterministic"), steps=12, warmup=8)
    monkeypatch.setattr(offline, "named", lambda _: task)
    place = record("Table1M2Deterministic", Freshest, tmp_path, episodes=1, random=0)
    assert place == tmp_path / "ephemeral-crawl" / "Table1M2Deterministic-freshest-v0"
    assert (
        json.loads((place / "data" / "metadata.json").read_text())["algorithm_name"] == "freshest"
    )
    with h5py.File(place / "data" / "main_data.hdf5") as file:
        assert file["episode_0/observations"].shape == (
            21,
            *CrawlEnv(**task.environment).observation_space.shape,
        )
        assert (file["episode_0/infos/crawled"][2:] == file["episode_0/infos/crawled"][1]).all()


@pytest.mark.parametrize(
    ("name", "features", "words"),
    [
        ("my agent", ("age",), "the name of the policy is 'my agent'; names of data sets have"),
        (
            "mine",
            ("age", "pings"),
            "mine observes pings, which EphemeralCrawl/General100-v0 does not",
        ),
    ],
)
def test_policies_that_cannot_be_recorded_are_refused(name, features, words, tmp_path):
    pytest.importorskip("h5py")
    kind = type("Mine", (Freshest,), {"name": name, "features": features})
    with refused(words):
        record("General100", kind, tmp_path)
    assert not list(tmp_path.iterdir())


def test_minari_reads_the_data_set_and_makes_its_environment_again(folder, monkeypatch):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    data = minari.load_dataset(f"ephemeral-crawl/{TASK}-oldest-first-v0")
    known = data.storage.metadata
    assert data[0].infos["crawled"].shape == data[0].observations.shape[:2]
    assert known["author"] == {"ephemeral-crawl"}
    assert known["num_episodes_average_score"] == named(TASK).seeds
    env = data.recover_environment(eval_env=True)
    (first,) = data.filter_episodes(lambda episode: episode.id == 0).iterate_episodes()
    observation, _ = env.reset(seed=named(TASK).seed("train", 0))
    assert np.array_equal(observation, first.observations[0])
    for action, following, reward in zip(
        first.actions, first.observations[1:], first.rewards, strict=True
    ):
        observation, found, *_ = env.step(action)
        assert np.array_equal(observation, following)
        assert found == pytest.approx(reward)


def test_without_h5py_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(ModuleNotFoundError, match="part of the extra 'offline'"):
        record(TASK, "random", "nowhere")
