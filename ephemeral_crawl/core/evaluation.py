"""Policies on one task: evaluations as jobs, and the statistics and formats of their tables."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.rollout import Evaluation, evaluate
from agents.evaluation.statistics import Estimate
from agents.policies.base import Agent
from agents.policies.index import WhittleExact
from agents.policies.static import Scheduled
from agents.registry import CLAIRVOYANT, AgentOptions, make
from agents.theory.task_bound import Bound, task_bound
from crawl_env import CrawlVectorEnv, Sources
from crawl_env.fleet.parameters import DESCRIBED, SIGNALS
from crawl_env.numerics import FloatArray, IntArray
from crawl_env.simulation.task import make_sources
from ephemeral_crawl.core.runner import Job, Result

REFERENCE, FLOOR = "whittle", "random"
OBSERVES_ALL = "clairvoyant (observes all content; reference)"


def fraction(numerator: FloatArray, denominator: float | FloatArray) -> Estimate:
    """Return the mean ratio to a known quantity; NaN if that is unknown or zero."""
    whole = np.broadcast_to(np.asarray(denominator, dtype=float), numerator.shape)
    if not np.all(whole > 0):
        return statistics.UNKNOWN
    return statistics.mean(numerator / whole)


def best_first(rewards: Mapping[str, FloatArray]) -> list[str]:
    """Return the agents' names in decreasing mean reward, given the rewards of their runs."""
    return sorted(rewards, key=lambda name: -rewards[name].mean())


def percent(estimate: Estimate) -> str:
    """Return a fraction in percent, with its interval if there is one."""
    return _text(estimate, ".2%")


def part_of(part: float, whole: float, digits: int = 2) -> str:
    """Return a part of a whole in percent.

    >>> part_of(1.0, 8.0), part_of(1.0, 0.0)
    ('12.50%', 'n/a')
    """
    return f"{part / whole:.{digits}%}" if whole > 0 else "n/a"


def plain(estimate: Estimate, digits: int = 3) -> str:
    """Return a score as text, with its interval if there is one."""
    return _text(estimate, f".{digits}f")


def _text(estimate: Estimate, form: str) -> str:
    mean, low, high = estimate
    if np.isnan(mean):
        return "n/a"
    if np.isnan(low):
        return f"{mean:{form}} [n/a]"
    if high - low < 5e-7:
        return f"{mean:{form}}"
    return f"{mean:{form}} [{low:{form}}, {high:{form}}]"


def records(agent: str, run: Evaluation, seed: int, **common: Any) -> Sequence[dict[str, Any]]:
    """Return one row of measurements per seed."""
    return [
        {
            **common,
            "agent": agent,
            "seed": seed,
            "run": s,
            "reward": repr(float(run.reward[s])),
            "cost": repr(float(run.cost[s])),
            "never_visited": int(run.never[s]),
            "delay": repr(float(run.delay[s])),
        }
        for s in range(len(run.reward))
    ]


def bound_of(arguments: Mapping[str, Any], seeds: int, seed: int) -> Bound:
    """Return the upper bound of a task; arrays (S,), one entry per run, if fleets are drawn."""
    env = CrawlVectorEnv(seeds, **arguments)
    env.reset(seed=seed)
    return task_bound(env.task, env.world.sources)


# The policies for which a bound holds, by its name.
HOLDS_FOR = {
    "deterministic": "policy",
    "not observed": "policy that does not observe content before it crawls",
    "observed": "policy, even one that observes all content before it crawls,",
    "partly observed": "policy with the same observations",
    "cycle known": "policy that does not observe content, even one that knows the daily cycle,",
    "regimes known": "policy that does not observe content, even one that is told the regimes,",
    "looks": "policy of crawls and looks",
    "signals": "policy with the same signals, which observes no content before it crawls,",
    "partly observed, signals": "policy with the same observations and signals",
}


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the second line of cells has the alignments."""
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def collected(content: FloatArray, picked: IntArray) -> FloatArray:
    """Return what crawls collect, (B,): the sum of `content`, (B, N), over the `picked` cells of
    each environment."""
    num_envs, n = content.shape
    sums = np.bincount(picked.ravel() // n, content.reshape(-1)[picked.ravel()], num_envs)
    return np.asarray(sums, dtype=np.float64)  # of nothing, bincount returns integers


def fleet_as_json(sources: Sources) -> dict[str, Any]:
    """Return a fleet as JSON, so that a job's key changes with its numbers.

    Parameters of signals are left out where they have no effect, so that earlier records are found.
    """
    state = sources.__getstate__()
    for name in SIGNALS:
        if (state[name] == DESCRIBED[name].default).all():
            del state[name]
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in state.items()}


def arguments_of(job: Job) -> dict[str, Any]:
    """Return the arguments of a job's environment, with a known fleet as `Sources`."""
    arguments = dict(job["arguments"])
    sources = arguments.get("sources")
    if isinstance(sources, dict) or str(sources).startswith("random-"):
        arguments["sources"] = make_sources(sources)
    return arguments


def agent_of(job: Job) -> str | Callable[[CrawlVectorEnv], Agent]:
    """Return the agent of a job: its name; a function that makes it with the job's `options`, which
    adds no features to the environment; or the schedule of its `rates`, crawls per step."""
    if "rates" in job:
        return partial(Scheduled, rates=job["rates"])
    if "options" in job:
        return partial(_with_options, name=job["agent"], options=job["options"])
    return str(job["agent"])


def _with_options(env: CrawlVectorEnv, name: str, options: AgentOptions) -> Agent:
    return make(name, env, **options)


def work(job: Job) -> Result:
    """Evaluate the job's agent on its task; see `agents.evaluation.rollout.evaluate`."""
    with warnings.catch_warnings():  # the command has shown them once for all jobs
        warnings.simplefilter("ignore")
        run = evaluate(agent_of(job), arguments_of(job), **job["runs"])
    return {name: getattr(run, name).tolist() for name in Evaluation.__dataclass_fields__}


def entrants(agents: Iterable[str], arguments: dict[str, Any]) -> tuple[str, ...]:
    """Return the agents to run on a task: without the exact index if it equals Theorem 1, and with
    the clairvoyant if random content is not observed."""
    has_signals = arguments.get("signals") is not None
    random = has_signals or arguments["arrivals"] != "deterministic"
    observed = arguments.get("observed", not has_signals)
    exact = random and (observed or has_signals)
    peers = tuple(name for name in agents if exact or name != WhittleExact.name)
    return peers if observed or not random else (*peers, CLAIRVOYANT)


def bound(job: Job) -> Result:
    """Return the bound of a job's task, for the fleet of each run if fleets are drawn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = bound_of(arguments_of(job), job["runs"]["seeds"], job["runs"]["seed"])
    return {"bound": np.asarray(result.bound).tolist(), "name": result.name}


def joined(parts: Sequence[Result]) -> Result:
    """Return the results of several jobs, which are seeds of one evaluation, as one."""
    weights = [len(part["reward"]) for part in parts]
    frequencies = [part["frequency"] for part in parts]
    together = {name: [x for part in parts for x in part[name]] for name in parts[0]}
    return {**together, "frequency": np.average(frequencies, axis=0, weights=weights).tolist()}


def as_evaluation(result: Result, seeds: int) -> Evaluation:
    """Return a job's result; if only one seed was run because nothing is random, it is repeated."""
    arrays = {name: np.array(values, dtype=float) for name, values in result.items()}
    frequency = arrays.pop("frequency")
    if len(arrays["reward"]) == 1:
        arrays = {name: np.repeat(values, seeds) for name, values in arrays.items()}
    return Evaluation(**arrays, frequency=frequency)


def seeds_needed(arguments: dict[str, Any], agent: str, seeds: int) -> int:
    """Return the number of seeds to run: 1 if neither environment nor agent is random."""
    sources = arguments.get("sources")
    is_drawn = isinstance(sources, str) and sources.startswith("drawn-")
    still = arguments["arrivals"] == "deterministic" and arguments.get("start") != "random"
    return 1 if still and not is_drawn and agent != "random" else seeds
