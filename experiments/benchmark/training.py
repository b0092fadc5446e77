"""Runs one training, with evaluations of the frozen policy at intermediate steps."""

from __future__ import annotations

import inspect
import json
import sys
import time
import warnings
from collections.abc import Callable
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.evaluation.rollout import Rollout, evaluate
from agents.learning import Learner
from agents.policies.base import Policy, State
from agents.theory.index import whittle_index
from crawl_env import CrawlVectorEnv
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core.evaluation import arguments_of
from ephemeral_crawl.core.results import provenance
from ephemeral_crawl.core.runner import Job, Result
from experiments.benchmark.entrants import KINDS

_OWN = (
    "agents.learning.",
    "agents.adaptive.",
    "agents.inference.",
)  # packages that contain the learners' code


_EVALUATIONS = 10
_UPDATES = 10  # that must fit into a budget


def train(job: Job) -> Result:
    """Return the rows of one training: `runs`, one for each test, and `curves` of the first test.

    Times are those of learning on one core, without the evaluations.
    """
    import torch

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _train(job)


def _train(job: Job) -> Result:
    envs, learner = prepared(job)
    first = job["tests"][0]
    cpu = wall = 0.0
    curve: list[dict[str, Any]] = []
    for steps in _pauses(job["budget"] // _sources(envs), learner.steps_per_update):
        began = time.process_time(), time.perf_counter()
        learner.learn(steps - learner.steps)
        cpu += time.process_time() - began[0]
        wall += time.perf_counter() - began[1]
        now = {**_spent(learner, envs), "cpu_seconds": cpu}
        curve.append({**now, "reward": float(_measure(learner, job, first, "short").mean())})
    common = {
        **{name: job[name] for name in ("entrant", "information", "budget", "trial")},
        "protocol": job["protocol"],
        "run": job["seed"],
        **_spent(learner, envs),
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "settings": json.dumps(job["settings"], sort_keys=True),
        "features": " ".join(job["features"]),
        "code": code_of(type(learner)),
    }
    runs = [
        {
            **common,
            "task": test["task"],
            "fleet": test["fleet"],
            "rewards": listed(_measure(learner, job, test, "full")),
            "index_error": index_error(
                learner, _arguments_of(job, test), job["index_steps"], test["full"]["seed"]
            ),
        }
        for test in job["tests"]
    ]
    who = {name: common[name] for name in ("entrant", "budget", "run")}
    who |= {"task": first["task"], "fleet": first["fleet"]}
    points = [{**who, **point} for point in curve]
    return {"runs": [{**row, **made_by()} for row in runs], "curves": points}


def prepared(job: Job) -> tuple[list[CrawlVectorEnv], Learner[Any]]:
    """Return new environments and the untrained learner of a job.

    The number of parallel environments is halved until at least ten updates fit into the budget.

    Raises:
        ValueError: the learner cannot be trained in these environments.
    """
    num_envs = job["num_envs"]
    envs = _envs(job, num_envs)
    learner = _learner(job, envs)
    while _UPDATES * learner.steps_per_update * _sources(envs) > job["budget"] and not num_envs % 2:
        num_envs //= 2
        fewer = _envs(job, num_envs)
        try:
            learner = _learner(job, fewer)
        except ValueError:  # NeurWIN's mini-batches take eight
            break
        envs = fewer
    return envs, learner


def _pauses(steps: int, per_update: int) -> list[int]:
    """Return the steps of each environment at which the policy is evaluated: 0, about ten spaced
    evenly on a logarithmic scale from 2 % of the training to its end, and the end. All are whole
    updates, so that a training never takes more steps than it may.

    >>> _pauses(1000, 100)
    [0, 100, 200, 400, 600, 1000]
    """
    last = _EVALUATIONS - 1
    targets = (steps * 0.02 ** (1 - i / last) for i in range(_EVALUATIONS))
    return sorted({0, *(int(x + 1e-6) // per_update * per_update for x in targets)})


def _sources(envs: list[CrawlVectorEnv]) -> int:
    """Return the source steps in a step of every environment."""
    return sum(env.num_envs * env.task.n for env in envs)


def _spent(learner: Learner[Any], envs: list[CrawlVectorEnv]) -> dict[str, int]:
    """Return the environment steps and the source steps, N for each environment step."""
    return {
        "num_envs": envs[0].num_envs,
        "env_steps": learner.steps * sum(env.num_envs for env in envs),
        "source_steps": learner.steps * _sources(envs),
    }


def listed(rewards: Any) -> str:
    """Return numbers as one text, exactly.

    >>> listed([1.0, 0.5])
    '1.0 0.5'
    """
    return " ".join(repr(float(x)) for x in rewards)


def made_by() -> dict[str, str]:
    """Return date, commit, versions and machine; the main process adds the command."""
    torch = {"torch": version("torch"), "stable_baselines3": version("stable_baselines3")}
    return {**{k: v for k, v in provenance().items() if k != "command"}, **torch}


def code_of(kind: type) -> str:
    """Return a hash of a learner's code: the modules that `modules_of` lists."""
    files = [str(sys.modules[name].__file__) for name in modules_of(kind)]
    return sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()[:12]


def modules_of(kind: type) -> list[str]:
    """Return a learner's module and the modules of `_OWN` that it imports, directly or not."""
    modules: set[str] = set()
    todo = [kind.__module__]
    while todo:
        name = todo.pop()
        if name in modules or not name.startswith(_OWN):
            continue
        modules.add(name)
        for value in vars(sys.modules[name]).values():
            todo.append(value.__name__ if inspect.ismodule(value) else _module_of(value))
    return sorted(modules)


def _module_of(value: object) -> str:
    return str(getattr(value, "__module__", None) or "")


def _envs(job: Job, num_envs: int) -> list[CrawlVectorEnv]:
    return [
        CrawlVectorEnv(
            num_envs,
            **{
                **arguments_of({"arguments": arguments}),
                "features": tuple(job["features"]),
            },
        )
        for arguments in job["environments"]
    ]


def _learner(job: Job, envs: list[CrawlVectorEnv]) -> Learner[Any]:
    kind = KINDS[job["learner"]]
    arms: Any = envs[0] if len(envs) == 1 else envs
    return kind(arms, kind.Settings(**job["settings"]), seed=job["seed"])


def _arguments_of(job: Job, test: dict[str, Any]) -> dict[str, Any]:
    return {**arguments_of(test), "features": tuple(job["features"])}


def _measure(learner: Learner[Any], job: Job, test: dict[str, Any], protocol: str) -> FloatArray:
    """Return the mean reward per step of the frozen policy in each run, (S,)."""
    policy_for: Callable[[CrawlVectorEnv], Policy] = getattr(
        learner, "policy_for", lambda _: learner
    )
    repeats = test["arguments"]["arrivals"] == "deterministic"

    def agent(env: CrawlVectorEnv) -> Policy:
        return LookedUp(policy_for(env)) if repeats else policy_for(env)

    return evaluate(agent, _arguments_of(job, test), **test[protocol]).reward


class LookedUp(Policy):
    """A frozen policy whose decisions are looked up where it has had the same observation before.

    With deterministic arrivals a fleet soon goes through the same few states again and again.
    Decisions of a policy with a recurrent state are not kept, since they depend on more than the
    observation.
    """

    def __init__(self, policy: Policy) -> None:
        self.task, self._policy = policy.task, policy
        self._actions: dict[bytes, NDArray[Any]] = {}

    def predict(
        self,
        observation: ArrayLike,
        state: State | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], State | None]:
        key = np.asarray(observation).tobytes()
        if key in self._actions:
            return self._actions[key], None
        action, state = self._policy.predict(observation, state, episode_start, deterministic)
        if state is None:
            self._actions[key] = action
        return action, state


def index_error(
    learner: Learner[Any], arguments: dict[str, Any], steps: int = 300, seed: int = 0
) -> float | None:
    """Return Σ |learnt − true|/Σ true over the sources and steps of a rollout of the policy.

    Returns None for a learner that does not estimate a Whittle index. The true index is that of
    unobserved content, since the learner observes ages only, with the learner's discount factor.
    """
    if not learner.estimates_index:
        return None
    rollout = Rollout(learner, arguments, seed=seed)
    sources, features = rollout.env.task.sources, rollout.env.task.features
    columns = [features.index(name) for name in learner.state_features]
    error = total = 0.0
    for step in range(steps):
        observation = rollout.observation
        age = observation[..., features.index("age")].astype(np.float64)
        if step >= steps // 3:
            value = -np.expm1(age * np.log(sources.retention)) * sources.ceiling
            true = whittle_index(value, sources, getattr(learner.settings, "gamma", 1.0))
            error += float(
                np.abs(learner.score(observation[..., columns].astype(np.float64)) - true).sum()
            )
            total += float(true.sum())
        rollout.step()
    return error / total
