"""A recorded log: learning while it is played back, against what was fitted beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from crawl_env import CrawlVectorEnv, Trace
from crawl_env.log.clock import HOURS
from crawl_env.numerics import FloatArray
from ephemeral_crawl.comparison.events import REFITTED
from ephemeral_crawl.core import evaluation, plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.results import provenance
from ephemeral_crawl.core.runner import Job, Result, Runner
from ephemeral_crawl.core.tables import percent
from ephemeral_crawl.replay import play as replay
from ephemeral_crawl.replay.play import Replay
from ephemeral_crawl.replay.split import WEEK, Log, Split
from ephemeral_crawl.replay.view import FEWEST, View, records
from experiments.adaptive.entrants import (
    CERTAINTY,
    OPTIMISM,
    REFERENCE,
    THOMPSON,
    TUNING,
    WEAK,
    entrant,
    name_of,
    named,
    seat,
    shown,
)
from experiments.adaptive.runs import Size

PART = "recorded"
BUDGETS = (2.0, 5.0, 10.0, 20.0)
RUNS = 6  # of each entrant, which start one step after the other
MONTH = 30 * 24.0  # hours
KEPT = 0.9995  # of what is known, over one step

Runs = Mapping[float, Mapping[str, Replay]]


class Recorded:
    """The part of the experiment that plays back a log, `steps` of it at most."""

    def __init__(self, log: Log, size: Size, steps: int | None) -> None:
        short = 500 if size.quick else None
        self._split = log.split(None, 1.0, steps or short)
        self._log, self._seed = log, size.seed
        self._budgets = (5.0,) if size.quick else BUDGETS
        self._runs = min(2 if size.quick else RUNS, self._split.steps)

    def run(self, report: Report, runner: Runner) -> tuple[list[dict[str, Any]], str]:
        """Write the part of the report; return one row for each budget, entrant and week, and what
        was found, in half a sentence."""
        parts = {(m, name_of(job)): job for m in self._budgets for job in self._jobs(m)}
        results = runner.run(list(parts.values()), partial(work, self._split.trace))
        runs: dict[float, dict[str, Replay]] = {m: {} for m in self._budgets}
        for (m, name), result in zip(parts, results, strict=True):
            runs[m][name] = evaluation.measured_of(Replay, result)
        view = self._view()
        write(report, view, runs)
        return records(view, runs, {"part": PART, **provenance()}), finding(view, runs)

    def _jobs(self, budget: float) -> list[Job]:
        return [
            {
                "part": PART,
                "entrant": chosen,
                "arguments": {
                    "sources": evaluation.fleet_as_json(
                        self._split.refitted
                        if name_of({"entrant": chosen}) == REFITTED and self._split.refitted
                        else self._split.fleet
                    ),
                    "budget": budget,
                    "observed": False,
                    "start": "empty",
                    "features": list(shown(chosen)),
                },
                "steps": self._split.steps,
                "runs": self._runs,
                "seed": self._seed,
                "log": self._split.digest,
            }
            for chosen in entrants(self._split)
        ]

    def _view(self) -> View:
        log, fleet = self._log, self._split.fleet
        block = log.block or WEEK / HOURS[log.unit]
        length = max(1, round(block / fleet.period))
        return View(self._split, length, self._runs)


def entrants(split: Split) -> list[dict[str, Any]]:
    """Return everyone who plays: Whittle as fitted, then those who begin with nothing, then those
    with a prior."""
    published = np.bincount(split.past.source, minlength=len(split.past.names))
    count = dict(zip(split.past.names, published.tolist(), strict=True))
    items = np.array([count.get(name, 0) for name in split.fleet.names], dtype=float)

    def prior(weight: float) -> list[Any]:
        """Return what the first part says of the rates, as if it were `weight` as long."""
        shape, rate = WEAK[0] + weight * items, WEAK[1] + weight * split.past.span
        return [shape.tolist(), rate]

    known = (("the whole first part", 1.0), ("a tenth of it", 0.1), ("a hundredth of it", 0.01))
    refitted = [named(REFITTED, entrant(REFERENCE))] if split.refitted is not None else []
    return [
        entrant(REFERENCE),
        *refitted,
        *(
            named(f"self-tuning from nothing{words}", entrant(TUNING, estimator, brought, **own))
            for words, estimator, brought, own in (
                ("", "forgetting", "sums", {}),
                (", keeps all", "gamma-poisson", "sums", {}),
                (", fleet prior", "fleet-prior", "sums", {}),
                (", cusum", "drifting", "sums", {}),
                (f", keeps {KEPT:g}", "gamma-poisson", "sums", {"retention": KEPT}),
                (", number and utility alone", "forgetting", "items", {}),
            )
        ),
        named("thompson, told μ and ξ̄ alone", entrant(THOMPSON, "fleet-prior")),
        *(
            named(f"{words}, prior {of}", entrant(agent, prior=prior(weight)))
            for agent, words in ((CERTAINTY, "certainty"), (THOMPSON, "thompson"))
            for of, weight in known
        ),
        named("optimism .9, prior the whole first part", entrant(OPTIMISM, prior=prior(1.0))),
        *(
            named(f"certainty, prior {of}, {words}",
                  entrant(CERTAINTY, estimator, brought, prior=prior(weight), **own))
            for of, weight in known[:2]
            for words, estimator, brought, own in (
                (f"keeps {KEPT:g}", "gamma-poisson", "items", {"retention": KEPT}),
                ("learns what to keep", "forgetting", "items", {}),
                ("told utility alone", "gamma-poisson", "harvest", {}),
                (f"told utility alone, keeps {KEPT:g}", "gamma-poisson", "harvest",
                 {"retention": KEPT}),
            )
        ),
        named("certainty, prior the whole first part, cusum", entrant(
            CERTAINTY, "drifting", prior=prior(1.0))),
        named("self-tuning, prior the whole first part", entrant(
            TUNING, "forgetting", "sums", prior=prior(1.0))),
    ]  # fmt: skip


def work(trace: Trace, job: Job) -> Result:
    """Play the runs of an entrant, which start one step after the other."""
    arguments = {**evaluation.arguments_of(job), "arrivals": trace}

    def chosen(env: CrawlVectorEnv, seed: int) -> Any:
        return seat(env, job["entrant"], seed)

    rollout = replay.runs_of(chosen, arguments, job["runs"], job["seed"])
    return evaluation.result_of(replay.play(rollout, trace, job["steps"]))


def write(report: Report, view: View, runs: Runs) -> None:
    report.heading("A recorded log")
    report.paragraph(
        f"{len(view.split.fleet)} sources; the first part of the log is known beforehand, "
        f"{view.steps} steps of the rest are replayed, {view.runs} times, each start a step "
        "later. whittle knows rates, mean utilities and decay as fitted to the first part, and "
        "keeps to them. “From nothing”: knows only T and M, and learns from its own crawls. "
        "“Prior”: begins with the rates of the first part, with the weight of the whole of it, of "
        "a tenth or of a hundredth. All variants that were tried are listed. Gain: over whittle, "
        f"with 95 % intervals, paired by {view.block_name}. {REFITTED} is fitted to the part that "
        "is replayed: a reference."
    )
    for m, of_budget in runs.items():
        best = of_budget[REFERENCE]
        rows = [
            [name, f"{run.total / view.published.sum():.2%}", percent(view.gain(run, best))]
            for name, run in of_budget.items()
        ]
        columns = ["agent", "fraction of the utility published", "gain over whittle"]
        report.table(f"M = {m:g}", columns, rows)
    report.paragraph(verdict(view, runs))
    report.figure(
        picture(view, runs),
        "Reward of each month relative to whittle.",
        PART,
    )


def finding(view: View, runs: Runs) -> str:
    """Return what a crawler that begins with nothing collects of a recorded log."""
    learns = "self-tuning from nothing"
    shares = [
        f"{of_budget[learns].total / of_budget[REFERENCE].total:.1%} (M = {m:g})"
        for m, of_budget in runs.items()
    ]
    return (
        "on the recorded log, self-tuning from nothing collects, of what whittle collects as "
        f"fitted, {', '.join(shares)}"
    )


def verdict(view: View, runs: Runs) -> str:
    """Return sentences on the budgets under which an entrant with a prior is better than
    Whittle."""
    informed = [name_of({"entrant": each}) for each in entrants(view.split) if "prior" in each]
    level = 1 - 0.05 / len(informed)
    said = []
    for m, of_budget in runs.items():
        name = max(informed, key=lambda key: of_budget[key].total)
        gain = view.gain(of_budget[name], of_budget[REFERENCE], level)
        clear = "above whittle" if gain.low > 0 else "not clearly above whittle"
        if view.blocks < FEWEST:
            clear = f"too few {view.block_name}s to tell"
        said.append(
            f"M = {m:g}: the best of those with a prior is {name}, by {percent(gain)}: {clear}."
        )
    return (
        " ".join(said) + f" Since it is the best of {len(informed)}, these intervals are of "
        f"{level:.2%} each, nominally (Bonferroni)."
    )


def by_month(view: View, run: Replay) -> FloatArray:
    """Return what was collected in each month of 30 days, mean over runs."""
    period, unit = view.split.fleet.period, view.split.rest.unit
    length = max(1, round(MONTH / HOURS[unit] / period))
    starts = np.arange(0, max(1, view.steps - length // 2), length)
    return np.asarray(np.add.reduceat(run.reward.mean(axis=0), starts))


def picture(view: View, runs: Runs) -> Any:
    figure, axes = plots.new(
        1, len(runs), width=3.2 * len(runs) + 2, height=3.4, sharey=True, squeeze=False
    )
    drawn = (
        "self-tuning from nothing",
        "self-tuning from nothing, keeps all",
        "certainty, prior the whole first part",
        "thompson, prior a tenth of it",
        REFITTED,
    )
    for axis, (m, of_budget) in zip(axes[0], runs.items(), strict=True):
        best = by_month(view, of_budget[REFERENCE])
        for i, name in enumerate(name for name in drawn if name in of_budget):
            share = 100 * by_month(view, of_budget[name]) / best
            month = np.arange(1, share.size + 1)
            axis.plot(month, share, "o-", ms=3, color=plots.PALETTE[i], label=name)
        axis.axhline(100, color=plots.FAINT, lw=0.8)
        axis.set_title(f"M = {m:g}")
        axis.set_xlabel("month")
    axes[0][0].set_ylabel("relative to whittle, %")
    axes[0][0].legend(fontsize=7)
    return figure
