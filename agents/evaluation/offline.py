"""Offline data sets: recorded steps of a policy on a task of the benchmark, as Minari reads them.

The layout is that of Minari 0.5 (https://minari.farama.org): NAMESPACE/NAME-v0/data with
`main_data.hdf5`, a group for each episode, and `metadata.json`. It is written by h5py alone (the
extra `offline`); Minari is not needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import crawl_env
from agents.evaluation.benchmark import name_of
from agents.evaluation.rollout import new, with_features
from agents.policies.base import Predictor
from agents.registry import make
from crawl_env import BenchmarkTask, CrawlEnv
from crawl_env.benchmark import named
from crawl_env.errors import check_whole, check_within
from crawl_env.extras import missing
from crawl_env.files.atomic import write_text

NAMESPACE = "ephemeral-crawl"
_INFOS = ("crawled", "collected")  # of the info of a step, for learners that value single sources
_VERSION = "0.5.4"  # of Minari, whose layout this is


class Episode(NamedTuple):
    """The steps of one episode."""

    seed: int
    observations: NDArray[np.float32]  # (H + 1, N, F)
    actions: NDArray[np.float32]  # (H, N) priorities in [−1, 1]
    rewards: NDArray[np.float64]  # (H,) utility
    infos: dict[str, NDArray[Any]]  # (H + 1, N) each


def record(
    task: str,
    policy: str | Callable[..., Predictor],
    folder: str | Path,
    episodes: int = 20,
    random: float = 0.2,
) -> Path:
    """Record a policy on the training runs of a task as a data set in Minari's format.

    Episodes are the runs 0, 1, … of the split "train", so that no test run is in the data. The
    observations are those of the environment of the task's id, and the infos what each step crawled
    and collected, by source. The same call writes the same bytes.

    Arguments:
        task: id or name of a task of the benchmark.
        policy: name of an agent that can play it; or a class, or another function, called as
            `policy(env, seed=seed)`, such as one that returns a model of Stable-Baselines3. What it
            observes besides, as its class states in `features`, is not recorded.
        folder: of data sets, such as the one that `MINARI_DATASETS_PATH` names.
        episodes: number of episodes, each as long as a run with its warm-up.
        random: fraction of the steps with random priorities.

    Returns the folder of the data set, `ephemeral-crawl/<task>-<policy>-v0`.

    Raises:
        ModuleNotFoundError: h5py is not installed.
        ValueError: the policy cannot play the task, a number is out of range, or the data set
            exists.
    """
    try:
        import h5py
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            missing("h5py", "agents.evaluation.offline"), name="h5py"
        ) from None
    entry = named(task)
    check_whole("episodes", episodes, 1)
    check_within("random", random, 0.0, 1.0)
    if not re.fullmatch(r"[\w-]+", name_of(policy)):
        raise ValueError(
            f"the name of the policy is {name_of(policy)!r}; names of data sets have letters, "
            "digits, - and _ only"
        )
    name = f"{entry.name}-{name_of(policy)}-v{entry.version}"
    place = Path(folder) / NAMESPACE / name / "data"
    if place.exists():
        raise ValueError(f"{place} exists; remove it, or name another folder")
    recording = list(_episodes(entry, policy, episodes, random))
    place.mkdir(parents=True)
    with h5py.File(place / "main_data.hdf5", "w", track_order=True) as file:
        for number, episode in enumerate(recording):
            group = file.create_group(f"episode_{number}")
            steps = len(episode.rewards)
            group.attrs.update({"id": number, "seed": episode.seed, "total_steps": steps})
            group["observations"], group["actions"] = episode.observations, episode.actions
            group["rewards"] = episode.rewards
            for key, values in episode.infos.items():
                group[f"infos/{key}"] = values
            group["terminations"] = np.zeros(steps, dtype=bool)
            group["truncations"] = np.arange(steps) == steps - 1
    size = (place / "main_data.hdf5").stat().st_size
    made_by = repr(policy) if isinstance(policy, str) else name_of(policy)
    call = f"record({entry.name!r}, {made_by}, folder, episodes={episodes}, random={random})"
    metadata = _metadata(entry, name_of(policy), name, call, recording, size)
    write_text(place / "metadata.json", json.dumps(metadata))
    return place.parent


def _episodes(
    task: BenchmarkTask, policy: str | Callable[..., Predictor], episodes: int, random: float
) -> Iterator[Episode]:
    """Yield the episodes of a policy."""
    horizon = task.warmup + task.steps
    for run in range(episodes):
        seed = task.seed("train", run)
        arguments = task.arguments_of("train", run)
        shown = len(arguments["features"])  # come first
        _, arguments = with_features(policy, arguments)
        hidden = [name for name in arguments["features"] if name not in task.features]
        if hidden:
            raise ValueError(
                f"{name_of(policy)} observes {', '.join(hidden)}, which {task.id} does not show; "
                f"it shows {', '.join(task.features)}"
            )
        env = CrawlEnv(**{**arguments, "horizon": horizon})
        if isinstance(policy, str):
            agent: Predictor = make(policy, env, seed=seed)
        else:
            agent = new(policy, env, seed)
        state: Any = None
        rng = np.random.default_rng(seed)
        observation, info = env.reset(seed=seed)
        observations, actions, rewards, infos = [observation], [], [], [info]
        for _ in range(horizon):
            action, state = agent.predict(observation, state)
            if rng.random() < random:
                action = rng.uniform(-1, 1, env.action_space.shape)
            elif action.shape != env.action_space.shape:  # of a policy that does not look
                action = np.stack([action, np.full_like(action, -1)])
            actions.append(np.asarray(action, dtype=np.float32))
            observation, reward, _, _, info = env.step(actions[-1])
            observations.append(observation)
            infos.append(info)
            rewards.append(float(reward))
        yield Episode(
            seed,
            np.stack(observations)[..., :shown],
            np.stack(actions),
            np.array(rewards),
            {key: np.stack([info[key] for info in infos]) for key in _INFOS},
        )


def _metadata(
    task: BenchmarkTask, policy: str, name: str, call: str, recording: list[Episode], size: int
) -> dict[str, Any]:
    """Return the content of `metadata.json`: Minari's keys, and the protocol."""
    env = CrawlEnv(**task.environment)
    spec = gym.spec(task.id).to_json()
    return {
        "dataset_id": f"{NAMESPACE}/{name}",
        "total_episodes": len(recording),
        "total_steps": sum(len(episode.rewards) for episode in recording),
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "observation_space": _space(env.observation_space),
        "action_space": _space(env.action_space),
        "env_spec": spec,
        "eval_env_spec": spec,
        "dataset_size": round(size / 1e6, 1),
        "algorithm_name": policy,
        "author": ["ephemeral-crawl"],
        "minari_version": _VERSION,
        "requirements": [f"ephemeral-crawl=={crawl_env.__version__}"],
        "description": f"{policy} on the training runs of {task.id}, some priorities at random, by "
        f"agents.evaluation.offline.{call}. Agents are scored on the test runs by "
        "agents.benchmark; the reference scores are mean rewards of these, as in its result, and "
        "not returns of episodes",
        "ref_min_score": task.ref_min_score,
        "ref_max_score": task.ref_max_score,
        "num_episodes_average_score": task.seeds,
        "task_hash": task.hash,
    }


def _space(space: Any) -> str:
    """Return a box as Minari writes it."""
    return json.dumps(
        {
            "type": "Box",
            "dtype": str(space.dtype),
            "shape": list(space.shape),
            "low": space.low.tolist(),
            "high": space.high.tolist(),
        }
    )
