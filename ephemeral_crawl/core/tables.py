"""Comparison of policies on one task: statistics and formats of the tables, and records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.rollout import Evaluation
from agents.evaluation.statistics import Estimate
from agents.theory.task_bound import Bound, task_bound
from crawl_env import CrawlVectorEnv
from crawl_env.numerics import FloatArray

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
