"""The tasks of the study: fleets, budgets, and the quality of signals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents.evaluation.statistics import Estimate
from ephemeral_crawl.core.runner import Job
from experiments.core import data
from experiments.core.data import Cell, change, mean, share
from experiments.core.study import Size

# By name: the argument `sources` and the crawls per step.
FLEETS: dict[str, tuple[str, tuple[int, ...]]] = {
    "Hacker News": ("hacker-news", (2, 5, 10, 20)),
    "fleet F": ("fleet-f", (2, 5, 10)),
    "sparse": ("random-sparse-50-0", (1, 3, 10)),
    "dense": ("random-dense-50-0", (2, 5, 10)),
}
DESCRIPTION = (
    "Hacker News: 105 sites, hours, rates fitted to the recorded front page (preset "
    "`hacker-news`). Fleet F: 25 sources of five kinds. Sparse, dense: 50 sources of "
    "`Sources.random`, with .003 to .3 and .5 to 50 items per step and source. Arrivals are "
    "Poisson, utilities exponential, rates and the quality of the signals known."
)
TASK = {"fleet": "fleet", "budget": "M"}  # columns of the record, with their headings
NONE, OBSERVED = "no signals", "observed"
PUBLISHED = "reward", "published"  # the share of what is published: the measure of all parts
BOUND = "reward", "bound"

SHARE = mean(*PUBLISHED)


def gain(level: float = 0.95, **other: Any) -> Cell:
    """Return the cell of the relative gain in reward over another case, on the same arrivals."""
    return data.gain(*PUBLISHED, level, **other)


def share_and_gain(collected: Estimate, gained: Estimate) -> str:
    """Return what stands in a cell: the share, and what is gained."""
    return share(collected) + (f" ({change(gained)})" if gained.mean else "")


def tasks(size: Size) -> list[tuple[str, str, int]]:
    """Return name, `sources` and budget of every task."""
    fleets = {"fleet F": FLEETS["fleet F"]} if size.quick else FLEETS
    return [
        (name, sources, budget)
        for name, (sources, budgets) in fleets.items()
        for budget in (budgets[:1] if size.quick else budgets)
    ]


def signals(recall: float, precision: float, delay: float = 0.0) -> dict[str, Any]:
    """Return the environment's argument `signals` as JSON."""
    return {"signals": {"recall": recall, "precision": precision, "delay": delay}}


def label(recall: float, precision: float) -> str:
    """Return the name of a quality.

    >>> label(0.5, 0.8)
    'r = 0.5, p = 0.8'
    """
    return f"r = {recall:g}, p = {precision:g}"


def job(
    size: Size,
    task: tuple[str, str, int],
    agent: str,
    arguments: Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
    **columns: Any,
) -> Job:
    """Return the job of an agent on a task.

    Arguments:
        task: name, `sources` and budget.
        arguments: more of the environment, as JSON.
        options: of the agent.
        columns: more columns of the records.
    """
    fleet, sources, budget = task
    own = {"case": f"{fleet}, M = {budget}", "agent": agent, "budget": budget, "fleet": fleet}
    task_posed = {
        "arrivals": "poisson-items",  # signals announce single items
        "observed": False,
        "sources": sources,
        "budget": budget,
        **arguments,
    }
    found: Job = {
        "columns": {**own, **columns, "seed": size.seed},
        "agent": agent,
        "arguments": task_posed,
        "runs": size.runs,
    }
    return found | ({"options": dict(options)} if options else {})
