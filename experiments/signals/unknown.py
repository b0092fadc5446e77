"""Agents that learn the quality of the signals, against knowing it and against ignoring pings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import agents
from agents.evaluation import statistics
from agents.evaluation.statistics import Estimate
from agents.inference import CrawlOutcome, HarvestSums, Quality, SignalQuality, State
from crawl_env import CrawlVectorEnv
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.numerics import FloatArray, IntArray
from crawl_env.rng import generator
from ephemeral_crawl.core.evaluation import arguments_of
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import Rows
from ephemeral_crawl.core.tables import percent
from experiments.parts import Size
from experiments.signals import runs
from experiments.signals.quality import label
from experiments.signals.runs import Results, signals

PART = "unknown"
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
_KEY = ("fleet", "budget", "signals", "agent")


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


def jobs(size: Size) -> list[Job]:
    steps = size.steps // 4 if size.quick else STEPS // 2
    size = replace(size, steps=steps, warmup=steps)
    fleets = list(FLEETS.items())[: 1 if size.quick else None]
    return [
        runs.job(
            PART,
            f"{fleet}, M = {budget}, {name}",
            agent,
            {
                "sources": f"drawn-{fleet}-{n}",
                "budget": budget,
                "signals": quality,
                "features": [*SHOWN, *PARAMETERS],
            },
            replace(size, seeds=min(size.seeds, most)),
            fleet=fleet,
            signals=name,
        )
        for fleet, (n, budgets, most) in fleets
        for budget in (budgets[:1] if size.quick else budgets)
        for name, quality in _qualities(n, size.quick)
        for agent in _entrants(name)
    ]


def _qualities(n: int, quick: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    for precision in PRECISIONS[:1] if quick else PRECISIONS:
        yield label(RECALL, precision), signals(RECALL, precision)
    if not quick:
        recalls = [RECALL, 0.0] * (n // 2)
        yield HALF, {"recall": recalls, "precision": PRECISIONS[0]}
    yield FALLS, signals(RECALL, PRECISIONS[0])


def _entrants(name: str) -> list[str]:
    if name == FALLS:  # what is known would be wrong afterwards
        return [agent + words for agent in AGENTS for words in ("", IGNORED)]
    return [REFERENCE, *(agent + words for agent in AGENTS for words in ("", KNOWN, IGNORED))]


def work(job: Job) -> Result:
    """Return the reward per step of each run after `warmup` steps, and the expected utility
    published per step, (S,) each."""
    length, seeds = job["runs"], job["runs"]["seeds"]
    env = CrawlVectorEnv(seeds, **arguments_of(job), horizon=None)
    agent = _agent(job["agent"], env, length["seed"])
    seen, _ = env.reset(seed=length["seed"])
    arrival_rate, utility = (
        seen[..., len(SHOWN) + i].astype(float)
        for i, name in enumerate(PARAMETERS)
        if name in ("arrival_rate", "mean_utility")
    )
    falls = job["columns"]["signals"] == FALLS
    false = (1 - LEFT) * arrival_rate * RECALL / PRECISIONS[0]
    pings, rng = SHOWN.index("pings"), generator(length["seed"], "policy")
    state, total = None, np.zeros(seeds)
    for step in range(length["warmup"] + length["steps"]):
        measured = step >= length["warmup"]
        if falls and measured:
            kept = rng.binomial(seen[..., pings].astype(int), LEFT)
            seen[..., pings] = kept + rng.poisson(false)
        action, state = agent.predict(seen, state)
        seen, reward, *_ = env.step(action)
        total += reward * measured
    return {
        "reward": (total / length["steps"]).tolist(),
        "published": (arrival_rate * utility).sum(axis=-1).tolist(),
    }


def _agent(name: str, env: CrawlVectorEnv, seed: int) -> agents.Agent:
    """Return an agent by its name in the table."""
    kind = name.removesuffix(KNOWN).removesuffix(IGNORED)
    if name.endswith(IGNORED):
        return agents.make(kind, env, seed=seed, estimator=AGENTS[kind])
    if name.endswith(KNOWN):
        fleet = env.task.sources
        quality = KnownQuality(recall=fleet.recall, known_precision=fleet.precision)
        return agents.make(kind, env, seed=seed, estimator=quality)
    return agents.make(kind, env, seed=seed)


def records(jobs: Sequence[Job], results: Sequence[Result]) -> Iterator[dict[str, Any]]:
    """Yield one row for each run of each job."""
    for job, result in zip(jobs, results, strict=True):
        both = zip(result["reward"], result["published"], strict=True)
        for run, (reward, published) in enumerate(both):
            yield {
                "case": job["case"],
                "agent": job["agent"],
                "budget": job["arguments"]["budget"],
                **job["columns"],
                "seed": job["runs"]["seed"],
                "run": run,
                "reward": repr(reward),
                "published": repr(published),
            }


def write(report: Report, rows: Rows) -> None:
    results = Results(rows, *_KEY)
    report.heading("Signals of unknown quality")
    report.paragraph(
        "Adaptive agents that know neither the arrival rates nor the recall and precision of any "
        "source (`adaptive-self-tuning`: nor utilities and decay) learn from pings and crawls: the "
        f"share of utility collected in the second half of {STEPS:,} steps, of "
        f"{FLEETS['sparse'][0]} sparse or {FLEETS['dense'][0]} dense sources, a fleet drawn for "
        "each run, relative to the same agent that knows recall and precision, to "
        "`whittle`, which knows everything, and to the same agent without pings. 95 % intervals "
        f"(Fieller). “{FALLS.capitalize()}”: from the middle on, a tenth of the true pings is "
        "left, and false ones replace the others; agents are not told."
    )
    table = [
        [
            f"{fleet}, M = {budget}",
            name,
            agent,
            *(
                percent(_ratio(results, (fleet, budget, name), agent, other))
                if (fleet, budget, name, other) in results
                else "n/a"
                for other in (agent + KNOWN, REFERENCE, agent + IGNORED)
            ),
        ]
        for fleet, budget, name in _cases(results)
        for agent in AGENTS
    ]
    columns = ["task", "signals", "agent", "of quality known", "of `whittle`", "of pings ignored"]
    report.table("Learning the quality of signals", columns, table)


def finding(rows: Rows) -> str:
    results = Results(rows, *_KEY)
    found = {
        (case, agent, words): _ratio(results, case, agent, agent + words)
        for case in _cases(results)
        for agent in AGENTS
        for words in (KNOWN, IGNORED)
        if (*case, agent + words) in results
    }
    known = {key: ratio for key, ratio in found.items() if key[2] == KNOWN}
    least = min(known, key=lambda key: known[key].mean)
    steady = [r for (case, _, words), r in found.items() if words == IGNORED and case[2] != FALLS]
    fallen = [r for (case, _, words), r in found.items() if words == IGNORED and case[2] == FALLS]
    return (
        f"agents that learn the quality of signals collect at least {known[least].mean:.1%} of "
        f"what they collect when they know it ({least[1]}, {least[0][0]}, M = {least[0][1]}, "
        f"{least[0][2]}); they are clearly behind the same agents without pings in "
        f"{sum(r.high < 1 for r in steady)} of {len(steady)} cases, and in "
        f"{sum(r.high < 1 for r in fallen)} of {len(fallen)} where the precision falls unannounced"
    )


def _ratio(results: Results, case: tuple[str, str, str], agent: str, other: str) -> Estimate:
    return statistics.ratio(results.share(*case, agent), results.share(*case, other))


def _cases(results: Results) -> list[tuple[str, str, str]]:
    return list(dict.fromkeys((key[0], key[1], key[2]) for key in results))
