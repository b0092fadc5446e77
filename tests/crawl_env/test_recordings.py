"""Recorded tasks: the log is checked, its parts are kept apart, and nothing is told of sources."""

import gzip
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

import agents
from crawl_env import CrawlVectorEnv, ItemLog, tasks
from crawl_env.benchmark import TASKS, catalogue
from crawl_env.benchmark.recordings import CURVES, FOLDER, ITEMS, Recording
from crawl_env.log.changelogs import debian_changelogs
from experiments.references import _bound
from tests.refusals import refused

NAME = "DebianChangelogs"  # without recorded references, which are those of other logs


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A recording of 40 hours, of which the task plays the second half."""
    rng = np.random.default_rng(0)
    place = tmp_path / "small"
    place.mkdir()
    rows = ["item,source,published,utility"]
    rows += [f"{i},{'abc'[i % 3]},{rng.uniform(0, 40)},{1 + i % 3}" for i in range(300)]
    rows += ["300,late,35,9"]  # a source that the first part lacks
    with gzip.open(place / ITEMS, "wt") as file:
        file.write("\n".join(rows) + "\n")
    with gzip.open(place / CURVES, "wt") as file:
        file.write("item,age,remaining\n0,1,0.5\n0,2,0\n")
    monkeypatch.setenv(FOLDER, str(tmp_path))
    digest = ItemLog.from_csv(place / ITEMS, place / CURVES).digest()
    recording = Recording(
        name="small", digest=digest, start=0.0, split=20.0, end=40.0, decay_rate=0.3
    )
    task = replace(TASKS[NAME], recording=recording, steps=15, warmup=5, seeds=2)
    monkeypatch.setitem(TASKS, NAME, replace(task, arguments={**task.arguments, "budget": 1}))
    return place


@pytest.mark.usefixtures("folder")
def test_a_recorded_task_is_played_on_the_second_part_and_trained_on_the_first():
    task = TASKS[NAME]
    spans = {}
    for split in ("train", "validation", "test"):
        posed = task.arguments_of(split, 0)
        log = posed["arrivals"].log
        spans[split] = log.start, log.end
        fleet = posed["sources"]
        assert fleet.names == ("a", "b", "c")
        assert np.ptp(fleet.arrival_rate) == np.ptp(fleet.mean_utility) == 0  # says nothing
    assert spans == {"train": (0, 20), "validation": (0, 20), "test": (20, 40)}
    past = task.recording.parts()[0]
    fitted = task.informed_arguments("test", 0)["sources"]
    assert fitted.arrival_rate == pytest.approx(np.bincount(past.source) / 20)
    assert fitted.mean_utility == pytest.approx([1, 2, 3])
    env = gym.make(task.id)
    assert env.reset(seed=0)[0].shape == (3, len(task.features))
    assert env.spec.max_episode_steps is not None
    assert gym.make(task.id, render_mode="rgb_array_list").render_mode == "rgb_array_list"
    vector = gym.make_vec(task.id, num_envs=2, vectorization_mode="vector_entry_point")
    assert isinstance(vector.unwrapped, CrawlVectorEnv)


@pytest.mark.usefixtures("folder")
def test_an_agent_is_scored_on_a_recording():
    score = {
        name: agents.benchmark(name, NAME)["scores"][TASKS[NAME].id]["mean"]
        for name in ("random", "oldest-first")
    }
    assert score["random"] == pytest.approx(0)
    again = agents.benchmark("oldest-first", NAME)["scores"][TASKS[NAME].id]["mean"]
    assert again == score["oldest-first"] != 0


@pytest.mark.usefixtures("folder")
def test_the_bound_of_a_recording_is_above_who_sees_the_present_content():
    task = TASKS[NAME]
    for run in range(task.seeds):
        posed = {**task.informed_arguments("test", run), "observed": True}
        given = {"steps": task.steps, "warmup": task.warmup, "seed": task.seed("test", run)}
        reward = agents.evaluate("clairvoyant", posed, seeds=1, **given).reward[0]
        assert reward < _bound(task, run) < 1.5 * reward


def test_another_log_is_refused(folder, monkeypatch):
    task = TASKS[NAME]
    before = task.hash
    with gzip.open(folder / ITEMS, "at") as file:
        file.write("301,a,3,1\n")
    other = folder.with_name("other")
    folder.rename(other)
    changed = replace(task, recording=replace(task.recording, name="other"))
    with refused("has another log than the protocol: its SHA-256 is", task.recording.digest):
        changed.arguments_of("test", 0)
    monkeypatch.setenv(FOLDER, "")
    with refused("the recording 'other' is not part of the package; set " + FOLDER):
        changed.arguments_of("test", 0)
    assert task.hash == before  # known without the log


def test_without_the_recordings_their_tasks_are_left_out(monkeypatch):
    monkeypatch.delenv(FOLDER, raising=False)
    with refused("EphemeralCrawl/Weibo-v0: the recording 'weibo' is not part of the package"):
        agents.benchmark("oldest-first", "Weibo")
    assert {task.recording.name for task in tasks("recorded").values()} == {
        recording.name for recording in (catalogue.HACKER_NEWS, catalogue.WEIBO, catalogue.DEBIAN)
    }


def entry(package, version, date):
    return f"{package} ({version}) unstable; urgency=low\n\n  * Text.\n\n -- A B <a@b>  {date}\n\n"


def test_changelogs_become_a_log(tmp_path):
    texts = {
        "one/changelog.Debian.gz": entry("lib", "2-1", "Tue, 02 Jan 1990 12:00:00 +0000")
        + entry("lib", "1-1", "Mon, 01 Jan 1990 06:00:00 +0600"),
        "two/changelog.gz": entry("lib", "2-1", "Tue, 02 Jan 1990 12:00:00 +0000")
        + entry("app", "3~rc1", "Thu, 04 Jan 1990 00:00:00 +0000")
        + entry("app", "2", "no date")
        + entry("app", "1", "Thu, 04 Jan 1973 00:00:00 +0000"),
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    (tmp_path / "one" / "changelog.gz").write_bytes(b"damaged")
    log = debian_changelogs(tmp_path)
    found = [(log.names[i], t) for i, t in zip(log.source, log.published, strict=True)]
    assert found == [("lib", 0.0), ("lib", 1.5), ("app", 3.0)]
    assert log.digest() == debian_changelogs(tmp_path).digest()
    with refused("has no changelogs of Debian packages"):
        debian_changelogs(tmp_path / "one" / "nothing")
