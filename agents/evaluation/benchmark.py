"""`benchmark`: an agent on tasks of the benchmark, and the file of its results."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, cached_property, partial
from importlib.metadata import version
from operator import methodcaller
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

import crawl_env
from agents.evaluation import aggregate, statistics
from agents.evaluation.experience import Experienced
from agents.evaluation.rollout import (
    LEARNERS,
    AgentLike,
    check_progress,
    evaluate,
    made_of,
    new,
    place_of,
    try_out,
    with_features,
)
from agents.evaluation.statistics import Estimate
from agents.policies.base import Agent
from agents.registry import find
from crawl_env import BenchmarkTask, CrawlVectorEnv, tasks
from crawl_env.benchmark import TASK_SETS, TASKS, named
from crawl_env.benchmark.task import BUDGETS, TRIALS, Split
from crawl_env.errors import check_whole, shown, unknown
from crawl_env.files.atomic import write_text
from crawl_env.numerics import FloatArray

FORMAT = 1
_ENVIRONMENTS = 8  # in which an agent trains at once
_OVERSHOOT = 1.05  # of the budget of training: the last update is completed
_LARGEST = 1e300  # of any number in a result
_LONGEST_NAME = 100  # characters
_HEAD = {
    "format": int,
    "agent": str,
    "made_by": str,
    "settings": dict,
    "training": int,
    "trials": int,
    "split": str,
    "salted": bool,
    "complete": bool,
    "runs": list,
    "hash": str,
}
_ROW = {
    "task": str,
    "spec": str,
    "run": int,
    "seed": int,
    "reward": float,
    "samples": int,
    "training_seconds": float,
    "seconds": float,
    "revision": str,
}

_WORDS = {  # of the head, where the key says less
    "made_by": "class or function",
    "code": "version of the agent",
    "trials": "number of trials",
    "salted": "salt",
}

Row = dict[str, Any]  # JSON
Result = dict[str, Any]  # JSON


def benchmark(
    agent: AgentLike,
    tasks: str | Sequence[str] = "core",
    *,
    name: str = "",
    out: str | Path | None = None,
    training: int = 0,
    settings: Mapping[str, Any] | None = None,
    trials: int = 0,
    features: Sequence[str] = (),
    split: Split = "test",
    salt: str = "",
    progress: Callable[[int, int, str], object] | None = None,
) -> Result:
    """Run an agent on tasks of the benchmark; return its results, as they are submitted.

    Arguments:
        agent: as in `evaluate`; with `training`, the name of a learner of `agents.learning`, or a
            class or function called as `agent(env, seed=seed)` whose result has `learn(steps)`, or
            an agent that learns while it crawls (`Experienced`).
        tasks: a tier of `crawl_env.tasks`, "core", "trained", the id or name of a task, or several
            of these. Of a tier or set, tasks that show less than the agent observes are left out,
            and stated in the result.
        name: of the agent in tables; by default its own.
        out: a file that is written after every run (JSON). If it exists, the runs in it are not
            made again.
        training: source-steps (steps × environments × sources) of training before each run: on the
            split "test" 10⁴, 10⁵ or 10⁶; 0: the agent learns, if at all, during the run.
        settings: hyper-parameters of the agent, to be stated.
        trials: number of settings that were tried; stated, and at most `BenchmarkTask.trials`.
        features: what the agent observes, if its class does not say so in `features`; of tasks
            with unknown parameters all that may be observed is shown.
        split: "validation" and "train" are for tuning: such results are not submitted.
        salt: secret of an organiser, from which other seeds follow.
        progress: called with the number of finished runs, that of all, and the id of the task.

    Returns a dictionary that JSON can hold: `runs`, a row each; `scores` by task, 0 = random and 1
    = the reference of the task; their interquartile mean, `iqm`; the agent, revision, versions,
    machine; and the `hash` of all of it.

    Raises:
        ValueError: the agent observes more than a named task shows, or plays none of a tier; it
            has to be trained, and `training` is 0; it trained longer than it was allowed; or `out`
            holds other results.

    >>> from agents import Whittle, benchmark
    >>> result = benchmark(Whittle, "Recovering4M1Discounted")
    >>> result["scores"]["EphemeralCrawl/Recovering4M1Discounted-v0"]["mean"]
    1.0
    """
    check_progress(progress, "the number of finished runs, that of all and the id of the task")
    agent = entrant(agent)
    entries, left_out = playable(agent, tasks, features, training)
    head = header(agent, name, training, settings, trials, split, salt)
    todo = [(task, run) for task in entries for run in range(task.seeds)]
    rows = _resumed(out, head, {task.id for task in entries})
    existing = {(row["task"], row["run"]) for row in rows}
    if out is not None and not existing:  # a file that cannot be written is refused before any run
        _write(out, sealed({**head, "complete": False, "runs": rows}))
    for task, run in todo:
        if (task.id, run) not in existing:
            rows.append(play(agent, task, run, training, features, split, salt))
            if out is not None:
                _write(out, sealed({**head, "complete": False, "runs": rows}))
        if progress is not None:
            progress(len(rows), len(todo), task.id)
    result = completed(head, rows, left_out, salt)
    if out is not None:
        _write(out, result)
    if split == "test" and len(rows) > len(existing):
        again = play(agent, named(rows[0]["task"]), rows[0]["run"], training, features, split, salt)
        if warning := differing(rows[0], again):
            warnings.warn(warning, stacklevel=2)
    return result


def entrant(agent: AgentLike) -> AgentLike:
    """Return the class of a learner that is given by name, and any other agent as it is.

    Raises:
        ValueError: the name is unknown.
    """
    if not isinstance(agent, str):
        return agent
    try:
        kind: Any = find(agent)
    except ValueError:
        kind = None
        with suppress(ImportError):  # of the extra `learning`
            from agents.learning import LEARNERS

            kind = LEARNERS.get(agent)
        if kind is None:
            raise
    return kind if hasattr(kind, "learn") else agent


def playable(
    agent: AgentLike, tasks: str | Sequence[str], features: Sequence[str] = (), training: int = 0
) -> tuple[list[BenchmarkTask], dict[str, str]]:
    """Return the tasks that an agent can play, and why it cannot play others of a tier, by id.

    An agent that is not trained first takes a step in each of them; one that is, is made for each.

    Raises:
        ValueError: a task that is named shows less than the agent observes, or all of a tier do; or
            the agent is a learner of `agents.learning`, and is not trained.
    """
    kind = made_of(agent)
    if not training and isinstance(kind, type) and kind.__module__.startswith(LEARNERS):
        raise ValueError(
            f"{name_of(agent)} has to be trained before each run; state the source-steps of its "
            f"training, such as {BUDGETS[0]}"
        )
    candidates, in_tiers = chosen_tasks(tasks)
    if not candidates:
        raise ValueError("tasks is empty; name at least one task, or a tier")
    reasons = {task.id: _lacking(agent, task, features, training) for task in candidates}
    can = [task for task in candidates if not reasons[task.id]]
    left_out = {name: why for name, why in reasons.items() if why}
    for name, why in left_out.items():
        if name not in in_tiers or not can:
            raise ValueError(why)
    return can, left_out


def chosen_tasks(names: str | Sequence[str]) -> tuple[list[BenchmarkTask], set[str]]:
    """Return the tasks that names, ids and tiers choose, each once, and the ids of those that are
    in one of the tiers and not named themselves."""
    choice: dict[str, BenchmarkTask] = {}
    in_tiers: set[str] = set()
    singly: set[str] = set()
    listed = isinstance(names, Iterable) and not isinstance(names, str)
    for name in names if listed else [names]:
        if not isinstance(name, str):
            raise ValueError(
                f"tasks has {shown(name)}; give names of tiers or tasks, of a task its `id`"
            )
        if name in TASK_SETS:
            members = tasks(name)
            in_tiers |= members.keys()
        elif name in TASKS or "/" in name or "-v" in name:
            members = {named(name).id: named(name)}
            singly |= members.keys()
        else:
            raise unknown("task or tier", name, (*TASK_SETS, *TASKS))
        choice |= members
    return list(choice.values()), in_tiers - singly


def _lacking(agent: AgentLike, task: BenchmarkTask, features: Sequence[str], training: int) -> str:
    """Return why an agent cannot play a task; "" if it can."""
    name = name_of(agent)
    try:
        arguments = _arguments(agent, task, 0, features, "train", "")
    except ValueError as error:  # such as that the recording is not there
        return f"{task.id}: {error}"
    missing = [x for x in arguments["features"] if x not in task.features]
    if missing:
        return (
            f"{name} observes {', '.join(missing)}, which {task.id} does not show: there the "
            f"information is {task.information!r} ({', '.join(task.features)})"
        )
    try:
        if training:
            _ = _learner(agent, task, 0, training, arguments, "")
        else:
            try_out(agent, arguments, name)
    except ValueError as error:
        return f"{task.id}: {error}{place_of(error)}"
    return ""


def play(
    agent: AgentLike,
    task: BenchmarkTask,
    run: int,
    training: int = 0,
    features: Sequence[str] = (),
    split: Split = "test",
    salt: str = "",
) -> Row:
    """Return the row of one run: of the training, if there is one, and of the evaluation."""
    seed = task.seed(split, run, salt)
    arguments = _arguments(agent, task, run, features, split, salt)
    with _placed(task, run, split), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start, samples = time.process_time(), 0
        if training:
            agent, samples = _trained(agent, task, run, training, arguments, salt)
        middle = time.process_time()
        evaluation = evaluate(
            agent,
            arguments,
            steps=task.steps,
            warmup=task.warmup,
            discount=task.discount,
            seeds=1,
            seed=seed,
        )
    return {
        "task": task.id,
        "spec": task.hash,
        "run": run,
        "seed": seed,
        "reward": float(evaluation.reward[0]),
        "samples": samples,
        "training_seconds": middle - start,
        "seconds": time.process_time() - middle,
        "revision": revision(),
    }


def differing(row: Row, again: Row) -> str:
    """Return a warning if a run that was played again has another reward, in its first nine digits;
    "" if it has not."""
    first, second = (f"{one['reward']:.9g}" for one in (row, again))
    if first == second:
        return ""
    return (
        f"run {row['run']} of {row['task']} had the reward {first}, and {second} when it was "
        "played again: the result cannot be verified. An agent repeats its runs if it draws from "
        "its generator, `self.rng`, or with the seed that it is given, and keeps nothing between "
        "runs"
    )


@contextmanager
def _placed(task: BenchmarkTask, run: int, split: Split) -> Iterator[None]:
    """Add to an error in which run it occurred."""
    try:
        yield
    except Exception as error:
        error.add_note(f"This was in run {run} of {task.id}, split {split!r}{place_of(error)}.")
        raise


def _arguments(
    agent: AgentLike,
    task: BenchmarkTask,
    run: int,
    features: Sequence[str],
    split: Split,
    salt: str,
) -> dict[str, Any]:
    """Return the arguments of the environment of a run, which shows what the agent observes."""
    arguments = task.arguments_of(split, run, salt)
    if task.is_known:
        arguments["features"] = list(dict.fromkeys((*arguments["features"], *features)))
    return {**arguments, "features": list(with_features(agent, arguments)[1]["features"])}


class _CountingEnv(CrawlVectorEnv):
    """A vector environment that counts the source-steps taken in it."""

    samples = 0

    def step(self, actions: Any) -> Any:
        self.samples += self.num_envs * self.task.n
        return super().step(actions)


def _learner(
    agent: Any, task: BenchmarkTask, run: int, training: int, arguments: Row, salt: str
) -> tuple[Any, Sequence[CrawlVectorEnv], int]:
    """Return a new agent, the environments that it is given to train in, and the steps in each."""
    if isinstance(agent, str):
        agent = find(agent)
    if not callable(agent) or (hasattr(agent, "predict") and not isinstance(agent, type)):
        raise ValueError(
            f"training is {training:,}, and {name_of(agent)} is not something that makes a new "
            "agent for each run; give a class or a function, called as agent(env, seed=seed)"
        )
    trains_in = [TASKS[other] for other in task.trains_on] or [task] * (not task.has_own_fleet)
    variants = [
        {**one.arguments_of("train", run, salt), "features": arguments["features"]}
        for one in trains_in
    ] or [arguments]
    horizon = task.warmup + task.steps
    envs: list[CrawlVectorEnv] = [
        _CountingEnv(_ENVIRONMENTS, **{**one, "horizon": horizon}) for one in variants
    ]
    seed = task.seed("train", run, salt) % 2**32
    kind = made_of(agent)
    alone = len(envs) == 1 or (isinstance(kind, type) and issubclass(kind, Agent))
    learner: Any = new(agent, envs[0] if alone else envs, seed)
    if not hasattr(learner, "learn"):  # it may learn while it crawls
        try:
            learner = Experienced(learner, {**variants[0], "horizon": None}, seed)
        except ValueError as error:
            raise ValueError(
                f"training is {training:,}, and {name_of(agent)} has no method `learn` and cannot "
                f"learn by crawling: {error}; or leave out the training"
            ) from None
        envs = [learner.rollout.env]
    whole = getattr(learner, "steps_per_update", 1)  # what `learn` rounds up to
    steps = max(1, training // _sources(envs) // whole) * whole
    if steps * _sources(envs) > _OVERSHOOT * training:
        raise ValueError(
            f"{name_of(agent)} learns from {steps} steps at a time, which are "
            f"{steps * _sources(envs):,} source-steps here, and {training:,} are allowed; state a "
            "larger budget, or settings with shorter updates"
        )
    return learner, envs, steps


def _sources(envs: Sequence[CrawlVectorEnv]) -> int:
    """Return the source-steps in a step of every environment."""
    return sum(env.num_envs * env.task.n for env in envs)


def _trained(
    agent: Any, task: BenchmarkTask, run: int, training: int, arguments: Row, salt: str
) -> tuple[Any, int]:
    """Return an agent after its training, and the source-steps that it took. If it trains in
    environments that it makes itself, they are those that a model of Stable-Baselines3 counted, and
    as many as another agent was told."""
    learner, envs, steps = _learner(agent, task, run, training, arguments, salt)
    samples = steps * _sources(envs)
    if hasattr(learner, "num_timesteps"):  # a model of Stable-Baselines3: steps of one env
        count = sum(env.num_envs for env in envs)
        learner.learn(steps * count)
        samples = learner.num_timesteps * _sources(envs) // count
    else:
        learner.learn(steps)
    samples = sum(getattr(env, "samples", 0) for env in envs) or samples
    if samples > _OVERSHOOT * training:
        raise ValueError(
            f"{name_of(agent)} took {samples:,} source-steps of training in {task.id}, and "
            f"{training:,} are allowed; let it stop earlier, or state the larger budget"
        )
    return getattr(learner, "policy_for", learner), samples


# ------------------------------------------------------------------------------------ the result


def header(
    agent: AgentLike,
    name: str = "",
    training: int = 0,
    settings: Mapping[str, Any] | None = None,
    trials: int = 0,
    split: Split = "test",
    salt: str = "",
) -> Result:
    """Return the part of a result that all of its runs share."""
    if check_whole("training", training, 0) not in (0, *BUDGETS) and split == "test":
        budgets = ", ".join(f"{budget:,}" for budget in BUDGETS)
        raise ValueError(
            f"training is {training:,}; give one of {budgets} (or 0, for none), so that the result "
            "can be published, or another split than 'test'"
        )
    if check_whole("trials", trials, 0) > TRIALS:
        raise ValueError(
            f"trials is {trials}; at most {TRIALS} settings may be tried, or the result "
            "cannot be published"
        )
    _check_name(name or name_of(agent))
    try:  # as a file has them, in which an interrupted call finds them again
        text = json.dumps(dict(settings or {}), allow_nan=False, default=methodcaller("tolist"))
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            f"settings is {shown(settings)}, which JSON cannot hold; give finite numbers and text"
        ) from None
    return {
        "format": FORMAT,
        "agent": name or name_of(agent),
        "made_by": _origin(agent),
        "code": _code_of(agent),
        "settings": json.loads(text),
        "training": training,
        "trials": trials,
        "split": split,
        "salted": bool(salt),
    }


def completed(
    head: Result, rows: Sequence[Row], left_out: Mapping[str, str], salt: str = ""
) -> Result:
    """Return the whole result of an agent, from all of its rows."""
    order = {task_id: i for i, task_id in enumerate(tasks())}
    ordered = sorted(rows, key=lambda row: (order[row["task"]], row["run"]))
    scores = scores_of(ordered, head["split"], salt)
    return sealed(
        {
            **head,
            "complete": True,
            "runs": ordered,
            "left_out": dict(left_out),
            "scores": _as_json(scores),
            "iqm": _iqm(ordered, head["split"], salt),
            "versions": {
                "ephemeral-crawl": crawl_env.__version__,
                "python": platform.python_version(),
                **{name: version(name) for name in ("numpy", "gymnasium", "numba")},
            },
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        }
    )


def scores_of(rows: Sequence[Row], split: Split = "test", salt: str = "") -> dict[str, Estimate]:
    """Return the score of each task with its interval, by id."""
    scores = {}
    for name, mine in _rewards(rows).items():
        low, high = reference_rewards(named(name), split, salt)
        scores[name] = statistics.score(mine, low[: mine.size], high[: mine.size])
    return scores


def run_scores(rows: Sequence[Row], split: Split = "test", salt: str = "") -> dict[str, FloatArray]:
    """Return the scores of single runs, (S,), by task; see `run_score`."""
    scores = {}
    for name, mine in _rewards(rows).items():
        low, high = (x[: mine.size] for x in reference_rewards(named(name), split, salt))
        scores[name] = run_score(mine, low, high)
    return scores


def _iqm(rows: Sequence[Row], split: Split, salt: str) -> float:
    """Return the interquartile mean of the scores of all runs."""
    return aggregate.iqm(list(run_scores(rows, split, salt).values()), 0).mean


def run_score(reward: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the scores of single runs, (S,), whose mean is that of the task.

    They are not ratios of single differences, which may be small by chance: with d = reward −
    random and g = reference − random, run s has score ρ + (d_s − ρ g_s)/mean(g) for the score ρ of
    the task, the linear term of the ratio of means. The reference has 1 and random 0 in all runs.

    Arguments:
        reward: of the agent, (S,).
        low, high: of the random policy and of the reference in the same runs, (S,).
    """
    gain, gap = reward - low, high - low
    score = gain.mean() / gap.mean()
    return np.asarray(score + (gain - score * gap) / gap.mean())


def _rewards(rows: Sequence[Row]) -> dict[str, FloatArray]:
    names = dict.fromkeys(row["task"] for row in rows)
    return {name: np.array([r["reward"] for r in rows if r["task"] == name]) for name in names}


def reference_rewards(
    task: BenchmarkTask, split: Split = "test", salt: str = ""
) -> tuple[FloatArray, FloatArray]:
    """Return the rewards, (S,), of the random policy and of the reference that scores 1, by run;
    computed if they are not recorded, as those of other splits and salts."""
    references = task.references
    if split == "test" and not salt and {"random", task.best} <= set(references):
        low, high = references["random"].rewards, references[task.best].rewards
    else:
        low, high = (_played(name, task.id, split, salt) for name in ("random", task.best))
    return np.array(low), np.array(high)


@cache
def _played(policy: str, task_id: str, split: Split, salt: str) -> tuple[float, ...]:
    """Return the rewards of a reference in all runs."""
    task = named(task_id)
    return tuple(reference_run(policy, task, run, split, salt) for run in range(task.seeds))


def reference_run(
    policy: str, task: BenchmarkTask, run: int, split: Split = "test", salt: str = ""
) -> float:
    """Return the reward of a policy that is shown the true parameters, in a run."""
    evaluation = evaluate(
        policy,
        task.informed_arguments(split, run, salt),
        steps=task.steps,
        warmup=task.warmup,
        discount=task.discount,
        seeds=1,
        seed=task.seed(split, run, salt),
    )
    return float(evaluation.reward[0])


def sealed(result: Result) -> Result:
    """Return a result with the hash of its content."""
    content = {key: value for key, value in result.items() if key != "hash"}
    return {**content, "hash": hashlib.sha256(_text(content).encode()).hexdigest()}


def check_result(result: Any, salt: str = "") -> None:
    """Raise ValueError unless a result may be published: complete, whole and unaltered.

    Arguments:
        result: what `benchmark` returned, as read from JSON.
        salt: the organiser's, with which the seeds were made.
    """
    if not isinstance(result, dict) or not _is_like(result, _HEAD):
        raise ValueError("this is no result of agents.benchmark; submit the file that it wrote")
    name = shown(result["agent"])
    rows = result["runs"]
    if not rows:
        raise ValueError(f"the result of {name} has no runs; submit the file as it was written")
    for row in rows:
        if not isinstance(row, dict) or not _is_like(row, _ROW):
            raise ValueError(
                f"a run of {name} lacks a value, or has one that is not a finite number; find out "
                "why the agent's result is not, and run it again"
            )
    if sealed(result)["hash"] != result["hash"]:
        raise ValueError(
            f"the result of {name} was altered: its hash is not that of its content. Submit the "
            "file as it was written"
        )
    if result["format"] != FORMAT:
        raise ValueError(f"the result of {name} has format {result['format']}, and not {FORMAT}")
    if not result["complete"]:
        raise ValueError(f"the result of {name} is incomplete; the same call goes on from it")
    _check_name(result["agent"])
    if result["split"] != "test":
        raise ValueError(f"{name} was run on the split {result['split']!r}; run it on 'test'")
    if result["salted"] != bool(salt):
        how = (
            "with an organiser's salt; give it" if result["salted"] else "without a salt; give none"
        )
        raise ValueError(f"the seeds of {name} were made {how}")
    revisions = {row["revision"] for row in rows}
    if len(revisions) != 1:
        raise ValueError(
            f"the runs of {name} were made by {len(revisions)} revisions of the code "
            f"({', '.join(sorted(revisions))}); make all of them with one"
        )
    for task_id in dict.fromkeys(row["task"] for row in rows):
        _check_runs(task_id, [row for row in rows if row["task"] == task_id], result, salt)
    values = {"scores": _as_json(scores_of(rows, "test", salt)), "iqm": _iqm(rows, "test", salt)}
    if not _are_close({key: result.get(key) for key in values}, values):
        raise ValueError(
            f"the scores of {name}, or their interquartile mean, do not follow from its rewards "
            "and the recorded references of this version; run it again with this version"
        )


def _check_name(name: object) -> None:
    """Raise ValueError unless tables can show the name of an agent."""
    sound = isinstance(name, str) and name.strip() and name.isprintable()
    if not sound or len(str(name)) > _LONGEST_NAME:
        raise ValueError(
            f"the name of the agent is {shown(name)}; give one of 1 to {_LONGEST_NAME} characters "
            "that can be printed, as in name='mine'"
        )


def _check_runs(task_id: str, rows: Sequence[Row], result: Result, salt: str) -> None:
    task = named(task_id)
    runs = [row["run"] for row in rows]
    double = sorted({run for run in runs if runs.count(run) > 1})
    missing = sorted(set(range(task.seeds)) - set(runs))
    if double or missing or len(runs) != task.seeds:
        what = f"run {double[0]} twice" if double else f"no run {missing[0] if missing else '?'}"
        raise ValueError(
            f"the result has {what} of {task.id}, which has runs 0 to {task.seeds - 1}"
        )
    if task_id != task.id or any(row["spec"] != task.hash for row in rows):
        raise ValueError(
            f"the runs of {task.id} were made with another definition of this task; run them again "
            "with this version"
        )
    for row in rows:
        if row["seed"] != task.seed("test", row["run"], salt):
            raise ValueError(
                f"run {row['run']} of {task.id} has the seed {row['seed']}, which is not its seed"
                f"{' with this salt' if salt else ''}; submit runs as agents.benchmark makes them"
            )
    if result["training"] not in (0, *task.budgets):
        budgets = ", ".join(f"{budget:,}" for budget in task.budgets)
        raise ValueError(
            f"{result['training']:,} source-steps of training were allowed; {task.id} has scores "
            f"for 0, {budgets}"
        )
    if result["trials"] > task.trials:
        raise ValueError(
            f"{result['trials']} settings were tried, and {task.id} allows {task.trials}"
        )
    if any(row["samples"] > _OVERSHOOT * result["training"] for row in rows):
        raise ValueError(
            f"an agent trained longer in {task.id} than the {result['training']} stated"
        )


def score_name(task: BenchmarkTask, training: int) -> str:
    """Return the name of a score, which has the budget of training in it.

    >>> from crawl_env.benchmark import named
    >>> score_name(named("Drift100"), 100_000), score_name(named("Drift100"), 0)
    ('Drift100-v0@1e5', 'Drift100-v0@0')
    """
    exponent = round(math.log10(training)) if training else 0
    size = f"1e{exponent}" if training == 10**exponent else f"{training:,}".replace(",", "_")
    return f"{task.name}-v{task.version}@{size if training else 0}"


def name_of(agent: AgentLike) -> str:
    """Return the name of an agent for tables: its own `name`, which is not that of a base class, or
    that of its class or function."""
    if isinstance(agent, str):
        return agent
    kind: Any = made_of(agent)
    kinds = (kind,) if isinstance(kind, type) else (kind, type(kind))
    own = [getattr(kind, "name", "") for one in kinds if "name" in getattr(one, "__dict__", {})]
    texts = (name for name in own if isinstance(name, str) and name)  # not a property, of a class
    return str(next(texts, getattr(kind, "__name__", type(kind).__name__)))


def _origin(agent: AgentLike) -> str:
    if isinstance(agent, str):
        return agent
    kind: Any = made_of(agent)
    kind = kind if hasattr(kind, "__qualname__") else type(kind)
    return f"{kind.__module__}:{kind.__qualname__}"


def _code_of(agent: AgentLike) -> str:
    """Return a hash of what decides how an agent acts, so that results of another version of it are
    not taken up: the file of its module, if there is one, its code, and the numbers that it holds;
    see `_version`."""
    if isinstance(agent, str):
        return ""
    kind: Any = made_of(agent)
    module = kind.__module__  # of an object, that of its class
    file = Path(getattr(sys.modules.get(module), "__file__", None) or "")
    parts = [file.read_bytes()] if file.is_file() else []
    return hashlib.sha256(b"\0".join([*parts, *_version(agent, module, {})])).hexdigest()[:12]


def _version(value: Any, module: str, seen: dict[int, Any]) -> Iterator[bytes]:
    """Yield what distinguishes a value from another version of it: constants, the entries of arrays
    and containers, the parameters of models, the arguments of `functools.partial`, and of classes,
    functions and objects of the module, their code, attributes, and variables of the module.

    Other objects, such as environments and generators, are not looked into.
    """
    for wrapped in ("fget", "__func__", "__wrapped__"):  # of a property, method, compiled function
        value = getattr(value, wrapped, value)
    torch = sys.modules.get("torch")
    if torch and isinstance(value, torch.Tensor):  # of any type and on any device
        value = value.detach().double().cpu()
    if hasattr(value, "__array__") and not isinstance(value, type):
        value = np.asarray(value)
    if value is None or isinstance(value, str | bytes | int | float | complex):
        yield repr(value).encode()
    elif isinstance(value, set | frozenset):  # their order differs between processes
        yield repr(sorted(map(repr, value))).encode()
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        yield repr((value.shape, value.dtype.str)).encode() + value.tobytes()
    elif id(value) not in seen:
        seen[id(value)] = value  # also kept, so that no other value has this id
        if inspect.iscode(value):
            yield value.co_code + repr(value.co_names).encode()
        for part in _parts(value, module):
            yield from _version(part, module, seen)


def _parts(value: Any, module: str) -> Iterable[Any]:
    """Return the values on which the version of another one depends."""
    if isinstance(value, np.ndarray | list | tuple):
        return [len(value), *value]
    if isinstance(value, Mapping):
        return [part for item in value.items() for part in item]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if inspect.iscode(value):
        return value.co_consts
    if inspect.ismodule(value):
        return ()
    model = getattr(value, "policy", value)  # of Stable-Baselines3
    if hasattr(model, "state_dict") and not isinstance(model, type):
        normaliser = getattr(value, "get_vec_normalize_env", lambda: None)()
        moments = getattr(normaliser, "obs_rms", None)
        return [model.state_dict(), moments and vars(moments)]
    if inspect.isfunction(value):
        own = [value.__code__, value.__defaults__, value.__kwdefaults__, *_variables_of(value)]
        return own if value.__module__ == module else ()
    kind = value if isinstance(value, type) else type(value)
    if kind.__module__ != module:
        return ()
    items = getattr(value, "__dict__", {}).items()
    if isinstance(value, type):
        own = [x for name, x in items if inspect.isfunction(x) or not name.startswith("__")]
        return [*own, *value.__bases__]
    own = [x for x in items if not isinstance(getattr(kind, x[0], None), cached_property)]
    return [kind, *own]


def _variables_of(function: FunctionType) -> list[Any]:
    """Return the values of the variables around a function to which it, or a function or a
    comprehension within it, refers."""
    codes = [function.__code__]
    for code in codes:
        codes += filter(inspect.iscode, code.co_consts)
    names = dict.fromkeys(name for code in codes for name in code.co_names)
    around = function.__globals__
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return cells + [around[name] for name in names if name in around]


@cache
def revision() -> str:
    """Return the version of this project and a hash of the code that results depend on."""
    digest = hashlib.sha256()
    for package in (Path(crawl_env.__file__).parent, Path(__file__).parents[1]):
        for file in sorted(package.rglob("*.py")):
            digest.update(file.read_bytes())
    return f"{crawl_env.__version__}+{digest.hexdigest()[:12]}"


def _resumed(out: str | Path | None, head: Result, task_ids: set[str]) -> list[Row]:
    """Return the rows of an earlier call that was interrupted."""
    if out is None or not Path(out).exists():
        return []
    try:
        result = json.loads(Path(out).read_text(encoding="utf-8"))
        other = [_WORDS.get(key, key) for key, value in head.items() if result[key] != value]
        if any(row["revision"] != revision() for row in result["runs"]):
            other.append("revision of the project's code")
        altered = sealed(result)["hash"] != result["hash"]
    except (ValueError, KeyError, TypeError):
        other, altered = [], True
    if other or altered:
        differs = ", another ".join(other)
        what = f"results of another {differs}" if other else "no result, or an altered one"
        raise ValueError(f"{out} holds {what}; name another file, or remove it")
    for row in result["runs"]:
        if row["task"] not in task_ids:
            raise ValueError(
                f"{out} also holds runs of {row['task']}, which would be lost; name it among the "
                "tasks, or another file"
            )
    rows: list[Row] = result["runs"]
    return rows


def _write(out: str | Path, result: Result) -> None:
    write_text(out, json.dumps(result, indent=1) + "\n")


def _text(content: Any) -> str:
    return json.dumps(content, sort_keys=True)


def _is_like(value: Mapping[str, Any], kinds: Mapping[str, type]) -> bool:
    """Return whether a dictionary has values of these types: finite numbers, and not negative but
    for rewards."""
    return all(_is_of(value.get(key), kind, key == "reward") for key, kind in kinds.items())


def _is_of(value: Any, kind: type, signed: bool) -> bool:
    if isinstance(value, bool) or kind not in (int, float):
        return type(value) is kind
    number = isinstance(value, int if kind is int else (int, float)) and abs(value) < _LARGEST
    return number and (signed or bool(value >= 0))


def _as_json(scores: Mapping[str, Estimate]) -> dict[str, dict[str, float | None]]:
    """Return scores as dictionaries; NaN, where there is no interval, is None."""
    return {
        task: {key: None if math.isnan(x) else x for key, x in score._asdict().items()}
        for task, score in scores.items()
    }


def _are_close(stated: Any, actual: Any) -> bool:
    """Return whether two values of JSON have the same form and, but for rounding, numbers."""
    if isinstance(actual, dict):
        same = isinstance(stated, dict) and set(stated) == set(actual)
        return same and all(_are_close(stated[key], value) for key, value in actual.items())
    if isinstance(actual, float) and isinstance(stated, float | int):
        return math.isclose(stated, actual, rel_tol=1e-6, abs_tol=1e-9)
    return bool(stated == actual)
