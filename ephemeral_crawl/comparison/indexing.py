"""What an indexing engine that cannot index everything at once costs each policy.

Every policy is run in front of the engine, and whittle without one on the same arrivals: what it
then collects is what the sources and the budget give. Two more runs of whittle-engine say what
would help: twice the rate, or refusing items that are not worth a place in the engine.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from agents.evaluation.statistics import Estimate, number
from agents.policies.engine import WhittleEngine
from agents.theory.task_bound import Bound, EngineBound, task_bound
from crawl_env import Task
from ephemeral_crawl.comparison.events import REFERENCES as OBSERVERS
from ephemeral_crawl.comparison.events import C, StepEvents
from ephemeral_crawl.comparison.present import PLAYED
from ephemeral_crawl.core.evaluation import FLOOR, percent
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job

HEEDS = WhittleEngine.name
FREE, FASTER, REFUSING = (
    "whittle without an engine",
    "at twice the rate",
    "refusing items worth less than κ*",
)
REFERENCES = (FREE, FASTER, REFUSING)  # not ranked among the policies


class Cost(NamedTuple):
    """What the engine costs under one budget."""

    bound: Bound  # with the engine
    free: float  # reward / step of whittle without an engine
    reward: Mapping[str, float]  # reward / step of each policy
    lost: Mapping[str, Estimate]  # of each policy, as a fraction of `free`
    gain: Mapping[str, Estimate]  # of whittle-engine by what would help, as a fraction


def references(plain: Job, heeding: Job, bound: Bound) -> dict[str, Job]:
    """Return the jobs of the references, given those of whittle and whittle-engine."""
    free = dict(plain["arguments"])
    engine = free.pop("engine")

    def changed(**values: float) -> Job:
        return {**heeding, "arguments": {**heeding["arguments"], "engine": {**engine, **values}}}

    jobs = {FREE: {**plain, "arguments": free}, FASTER: changed(rate=2.0 * engine["rate"])}
    price = price_of(bound)
    return jobs | ({REFUSING: changed(threshold=price)} if price > engine["threshold"] else {})


def bound_of(task: Task, budget: float | None = None) -> Bound:
    """Return the bound of a task, or of that with another budget, with the multiplier of a budget
    that can be saved."""
    with warnings.catch_warnings():  # the command has warned of too expensive sources
        warnings.simplefilter("ignore")
        task = task if budget is None else task.replaced(budget=budget)
        engine = task.engine and replace(task.engine, capacity=None)  # λ* is that of any buffer
        multiplier = task_bound(task.replaced(budget_rule="average", engine=engine)).multiplier
        return task_bound(task)._replace(multiplier=multiplier)


def price_of(bound: Bound) -> float:
    """Return κ*, 0 without an engine."""
    return float(bound.price) if isinstance(bound, EngineBound) else 0.0


def multipliers(bound: Bound) -> str:
    """Return a sentence on the multiplier of the budget, and with an engine on that of its rate."""
    budget = "Under an average budget, one more unit of budget per step increases the "
    worth = f"by λ* = {float(bound.multiplier):.4g} per step"
    if not isinstance(bound, EngineBound):
        return f"{budget}reward {worth}."
    return (
        f"{budget}bound {worth}, and one more item indexed per step by κ* = {price_of(bound):.4g}."
    )


def cost_of(events: StepEvents[C], runs: dict[str, C], bound: Bound) -> Cost:
    """Return what the engine costs the policies, and take the references out of the runs."""
    aside = {name: runs.pop(name) for name in REFERENCES if name in runs}
    free, heeding = aside[FREE], runs[HEEDS]
    peers = {name: run for name, run in runs.items() if name not in (*OBSERVERS, PLAYED)}
    return Cost(
        bound,
        events.reward(free).mean,
        {name: events.reward(run).mean for name, run in peers.items()},
        {name: _loss(events.gain(run, free)) for name, run in peers.items()},
        {name: events.gain(run, heeding) for name, run in aside.items() if name != FREE},
    )


def _loss(gain: Estimate) -> Estimate:
    """Return a gain as a loss."""
    return Estimate(-gain.mean, -gain.high, -gain.low)


def answer(costs: Mapping[float, Cost]) -> str:
    """Return a sentence on what the engine costs, of the first budget if there are several; ""
    without an engine."""
    if not costs:
        return ""
    (budget, cost), *more = costs.items()
    if not cost.free > 0:
        return ""
    best = max((name for name in cost.reward if name != FLOOR), key=lambda name: cost.reward[name])
    under = f" under budget {budget:g}" * bool(more)
    return (
        f" The indexing engine costs {percent(cost.lost[best])} of what whittle collects without "
        f"one{under}, if {best} crawls; {_helps(cost)}."
    )


def write(report: Report, budget: float, cost: Cost) -> None:
    """Add what the engine costs under a budget."""
    report.heading(f"What the indexing engine costs under budget {budget:g}")
    order = sorted(cost.reward, key=lambda name: -cost.reward[name])
    report.table(
        "Policies in front of the engine, on the same arrivals as whittle without one",
        ["policy", "reward / step", f"lost of {FREE}"],
        [
            *([name, number(cost.reward[name]), percent(cost.lost[name])] for name in order),
            [FREE, number(cost.free), ""],
        ],
    )
    report.paragraph(f"{multipliers(cost.bound)} In simulation, {_helps(cost)}.")


def _helps(cost: Cost) -> str:
    gains = [f"{percent(gain)} more {remedy}" for remedy, gain in cost.gain.items()]
    return f"{HEEDS} would earn {' and '.join(gains)}"
