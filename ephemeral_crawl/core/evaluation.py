"""Evaluations of one agent on one task as jobs of `ephemeral_crawl.core.runner`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from agents.evaluation.rollout import Evaluation, evaluate
from agents.policies.base import Agent
from agents.policies.index import WhittleExact
from agents.policies.static import Scheduled
from agents.registry import CLAIRVOYANT, AgentOptions, make
from crawl_env import CrawlVectorEnv, Sources
from crawl_env.fleet.parameters import DESCRIBED, SIGNALS
from crawl_env.numerics import FloatArray, IntArray
from crawl_env.simulation.task import make_sources
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.tables import bound_of


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
    signalled = arguments.get("signals") is not None
    random = signalled or arguments["arrivals"] != "deterministic"
    observed = arguments.get("observed", not signalled)
    exact = random and (observed or signalled)
    peers = tuple(name for name in agents if exact or name != WhittleExact.name)
    return peers if observed or not random else (*peers, CLAIRVOYANT)


def bound(job: Job) -> Result:
    """Return the bound of a job's task, for the fleet of each run if fleets are drawn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = bound_of(arguments_of(job), job["runs"]["seeds"], job["runs"]["seed"])
    return {"bound": np.asarray(found.bound).tolist(), "name": found.name}


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
    drawn = isinstance(sources, str) and sources.startswith("drawn-")
    still = arguments["arrivals"] == "deterministic" and arguments.get("start") != "random"
    return 1 if still and not drawn and agent != "random" else seeds
