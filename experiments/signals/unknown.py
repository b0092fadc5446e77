"""Agents that learn the quality of the signals, against knowing it and against ignoring pings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import agents
from agents.evaluation import statistics
from agents.evaluation.rollout import Rollout
from agents.evaluation.statistics import Estimate
from agents.inference import CrawlOutcome, HarvestSums, Quality, SignalQuality, State
from crawl_env import CrawlVectorEnv
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.numerics import FloatArray, IntArray
from crawl_env.rng import generator
from ephemeral_crawl.core.evaluation import arguments_of, percent
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from experiments.core.data import Case, Data, versus
from experiments.core.study import Part, Size
from experiments.signals.tasks import PUBLISHED, label, signals

REFERENCE = "whittle"
# The estimator with which each agent ignores the pings.
AGENTS = {
    "adaptive-certainty": "gamma-poisson",
    "adaptive-optimism": "gamma-poisson",
    "adaptive-thompson": "gamma-poisson",
    "adaptive-self-tuning": "forgetting",
}
KNOWN, IGNORED = ", quality known", ", pings ignored"
# By regime: sources, budgets, and runs at most; dense ones have many items, and little noise.
FLEETS = {"sparse": (50, (1, 5), 24), "dense": (20, (2,), 8)}
RECALL, PRECISIONS = 0.5, (0.8, 0.2, 0.02)
HALF, FALLS = "half of the sources never ping", "the precision falls"
LEFT = 0.1  # fraction of the true pings that still come after the fall; false ones replace the rest
STEPS = 2000  # of which the second half is measured
# What the agents see: the results of crawls, item by item, and pings.
SHOWN = ("age", "crawled", "items", "harvest", *HarvestSums.features, "pings", "pings_aged")


@dataclass(frozen=True)
class KnownQuality(SignalQuality):
    """The posterior of Λ alone, where recall and precision are known: Λ_s = (1 − r)Λ."""

    recall: FloatArray | float = 0.0  # (N,)
    known_precision: FloatArray | float = 1.0  # (N,)

    def update(self, state: State, outcome: CrawlOutcome) -> State:
        return super().update(state, replace(outcome, pings=None, arrived=None))

    def quality(self, state: State, cells: IntArray | None = None) -> Quality:
        return self._of(self.posterior(state, cells).mean, cells)

    def draw(self, state: State, cells: IntArray, rng: np.random.Generator) -> Quality:
        return self._of(self.posterior(state, cells).draw(rng), cells)

    def _of(self, rate: FloatArray, cells: IntArray | None) -> Quality:
        n = np.size(self.recall)
        source = np.arange(rate.shape[-1]) if cells is None else cells % n
        recall, precision = np.asarray(self.recall), np.asarray(self.known_precision)
        return Quality(
            rate, (1 - recall[source]) * rate, np.broadcast_to(precision[source], rate.shape)
        )


def jobs(study: Any) -> list[Job]:
    """Return a job for each fleet, quality and agent."""
    size: Size = study.size
    steps = size.steps // 4 if size.quick else STEPS // 2
    size = replace(size, steps=steps, warmup=steps)
    return [
        {
            "columns": {
                "case": f"{fleet}, M = {budget}, {name}",
                "agent": agent,
                "budget": budget,
                "fleet": fleet,
                "signals": name,
                "seed": size.seed,
            },
            "agent": agent,
            "arguments": {
                "arrivals": "poisson-items",
                "observed": False,
                "sources": f"drawn-{fleet}-{n}",
                "budget": budget,
                "features": [*SHOWN, *PARAMETERS],
                **quality,
            },
            "falls": name == FALLS,
            "runs": {**size.runs, "seeds": min(size.seeds, most)},
        }
        for fleet, (n, budgets, most) in list(FLEETS.items())[: 1 if size.quick else None]
        for budget in (budgets[:1] if size.quick else budgets)
        for name, quality in _qualities(n, size.quick)
        for agent in _entrants(name)
    ]


def _qualities(n: int, quick: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    for precision in PRECISIONS[:1] if quick else PRECISIONS:
        yield label(RECALL, precision), signals(RECALL, precision)
    if not quick:
        recalls = [RECALL, 0.0] * (n // 2)
        yield HALF, {"signals": {"recall": recalls, "precision": PRECISIONS[0]}}
    yield FALLS, signals(RECALL, PRECISIONS[0])


def _entrants(name: str) -> list[str]:
    if name == FALLS:  # what is known would be wrong afterwards
        return [agent + words for agent in AGENTS for words in ("", IGNORED)]
    return [REFERENCE, *(agent + words for agent in AGENTS for words in ("", KNOWN, IGNORED))]


def work(job: Job) -> Result:
    """Return the reward per step of each run after `warmup` steps, and the expected utility
    published per step, (S,) each."""
    length, seeds = job["runs"], job["runs"]["seeds"]
    agent = partial(_agent, name=job["agent"], seed=length["seed"])
    rollout = Rollout(agent, arguments_of(job), seeds, length["seed"])
    arrival_rate, utility = (
        rollout.observation[..., len(SHOWN) + i].astype(float)
        for i, name in enumerate(PARAMETERS)
        if name in ("arrival_rate", "mean_utility")
    )
    false = (1 - LEFT) * arrival_rate * RECALL / PRECISIONS[0]
    pings, rng = SHOWN.index("pings"), generator(length["seed"], "policy")
    total = np.zeros(seeds)
    for step in range(length["warmup"] + length["steps"]):
        is_measured = step >= length["warmup"]
        if job["falls"] and is_measured:
            remaining = rng.binomial(rollout.observation[..., pings].astype(int), LEFT)
            rollout.observation[..., pings] = remaining + rng.poisson(false)
        total += rollout.step() * is_measured
    return {
        "reward": (total / length["steps"]).tolist(),
        "published": (arrival_rate * utility).sum(axis=-1).tolist(),
    }


def _agent(env: CrawlVectorEnv, name: str, seed: int) -> agents.Agent:
    """Return an agent by its name in the table."""
    kind = name.removesuffix(KNOWN).removesuffix(IGNORED)
    if name.endswith(IGNORED):
        return agents.make(kind, env, seed=seed, estimator=AGENTS[kind])
    if name.endswith(KNOWN):
        fleet = env.task.sources
        quality = KnownQuality(recall=fleet.recall, known_precision=fleet.precision)
        return agents.make(kind, env, seed=seed, estimator=quality)
    return agents.make(kind, env, seed=seed)


def _ratio(words: str) -> Any:
    """Return the cell of the ratio of a learner to the agent whose name has these words."""

    def cell(data: Data, case: Case) -> Estimate:
        other = REFERENCE if words == REFERENCE else case["agent"] + words
        return versus(statistics.ratio, *PUBLISHED, agent=other)(data, case)

    return cell


def table(report: Report, data: Data) -> None:
    """Add the table: a row for each task and learner."""
    cells = {"of quality known": KNOWN, "of `whittle`": REFERENCE, "of pings ignored": IGNORED}
    learners = Data([row for row in data.rows if row["agent"] in AGENTS])
    rows = [
        [*case.values(), *(percent(_ratio(words)(data, case)) for words in cells.values())]
        for case in learners.cases("fleet", "budget", "signals", "agent")
    ]
    titles = ["fleet", "M", "signals", "agent", *cells]
    report.table("Learning the quality of signals", titles, rows)


def claim(data: Data) -> str:
    """Return what learning costs, and how often pings mislead."""
    cases = [c for c in data.cases("case", "signals", "agent") if c["agent"] in AGENTS]
    steady = [case for case in cases if case["signals"] != FALLS]
    fallen = [case for case in cases if case["signals"] == FALLS]
    least = min(steady, key=lambda case: _ratio(KNOWN)(data, case).mean)
    behind, at_last = (
        sum(_ratio(IGNORED)(data, case).high < 1 for case in some) for some in (steady, fallen)
    )
    return (
        f"agents that learn the quality of signals collect at least "
        f"{_ratio(KNOWN)(data, least).mean:.1%} of what they collect when they know it "
        f"({least['agent']}, {least['case']}); they are clearly behind the same agents without "
        f"pings in {behind} of {len(steady)} cases, and in {at_last} of {len(fallen)} where the "
        "precision falls unannounced"
    )


PART = Part(
    jobs=jobs,
    work=work,
    heading="Signals of unknown quality",
    content=(
        "Adaptive agents that know neither the arrival rates nor the recall and precision of any "
        "source (`adaptive-self-tuning`: nor utilities and decay) learn from pings and crawls: the "
        f"share of utility collected in the second half of {STEPS:,} steps, of "
        f"{FLEETS['sparse'][0]} sparse or {FLEETS['dense'][0]} dense sources, a fleet drawn for "
        "each run, relative to the same agent that knows recall and precision, to "
        "`whittle`, which knows everything, and to the same agent without pings. 95 % intervals. "
        f"“{FALLS.capitalize()}”: from the middle on, a tenth of the true pings is "
        "left, and false ones replace the others; agents are not told.",
        table,
    ),
    claim=claim,
)
