"""A recorded log: learning while it is played back, against what was fitted beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from agents.adaptive.in_context import InContext, Network
from agents.evaluation import statistics
from crawl_env import CrawlVectorEnv
from crawl_env.log.clock import HOURS
from ephemeral_crawl.comparison.events import REFITTED
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result, Runner
from ephemeral_crawl.core.study import attributed
from ephemeral_crawl.core.tables import percent
from ephemeral_crawl.replay import play as replay
from ephemeral_crawl.replay.play import Replay
from ephemeral_crawl.replay.split import WEEK, Log, Split
from experiments.adaptive.entrants import (
    CERTAINTY,
    IN_CONTEXT,
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
from experiments.adaptive.runs import Rows, Size
from experiments.core.data import Case, Column, Data, Lines, Table, versus

BUDGETS = (2.0, 5.0, 10.0, 20.0)
RUNS = 6  # of each entrant, which start one step after the other
MONTH = 4  # blocks, which are weeks unless they were given
KEPT = 0.9995  # of what is known, over one step
FEWEST = 5  # blocks of which an interval is given
_LEARNS = "self-tuning from nothing"
_TUNED_WORDS = ", fine-tuned on the first part"


def measured(log: Log, size: Size, steps: int | None, runner: Runner) -> Rows:
    """Return a row for each budget, entrant and block of the part of a log that is played back.

    Arguments:
        steps: at most so many of the log.
    """
    split = log.split(None, 1.0, steps or (500 if size.quick else None))
    budgets = (5.0,) if size.quick else BUDGETS
    runs = min(2 if size.quick else RUNS, split.steps)
    todo: list[Job] = [
        {
            "entrant": chosen,
            "arguments": {
                "sources": evaluation.fleet_as_json(
                    split.refitted
                    if name_of({"entrant": chosen}) == REFITTED and split.refitted
                    else split.fleet
                ),
                "budget": budget,
                "observed": False,
                "start": "empty",
                "features": list(shown(chosen)),
            },
            "steps": split.steps,
            "runs": runs,
            "seed": size.seed,
            "log": split.digest,
        }
        for budget in budgets
        for chosen in entrants(split)
    ]
    results = runner.run(todo, partial(work, split))
    period = split.fleet.period
    length = max(1, round((log.block or WEEK / HOURS[log.unit]) / period))
    starts = np.arange(0, split.steps, length)
    published = np.add.reduceat(split.published, starts)
    return attributed(
        {
            "part": "recorded",
            "budget": job["arguments"]["budget"],
            "agent": name_of(job),
            "block": k,
            "from": repr(float(split.rest.start + starts[k] * period)),
            "reward": repr(float(reward)),
            "published": repr(float(published[k])),
        }
        for job, result in zip(todo, results, strict=True)
        for k, reward in enumerate(
            np.add.reduceat(evaluation.measured_of(Replay, result).reward.mean(axis=0), starts)
        )
    )


def work(split: Split, job: Job) -> Result:
    """Play the runs of an entrant, which start one step after the other."""
    trace = split.trace
    arguments = {**evaluation.arguments_of(job), "arrivals": trace}
    seated = job["entrant"]
    tuned = _finetuned(split) if seated.get("finetuned") else None

    def chosen(env: CrawlVectorEnv, seed: int) -> Any:
        return InContext(env, seed=seed, weights=tuned) if tuned else seat(env, seated, seed)

    rollout = replay.runs_of(chosen, arguments, job["runs"], job["seed"])
    return evaluation.result_of(replay.play(rollout, trace, job["steps"]))


_TUNED: dict[str, Network] = {}  # by the hash of the log


def _finetuned(split: Split) -> Network:
    """Return the network of in-context, trained further on the first part of a log alone."""
    key = split.digest
    if key not in _TUNED:
        from agents.adaptive.training import finetune  # it imports torch, which others do not need

        _TUNED[key] = finetune(split.fleet, split.past, processes=1, show=len)[0]
    return _TUNED[key]


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
    networks: dict[str, dict[str, Any]] = {"": {}, _TUNED_WORDS: {"finetuned": True}}
    refitted = [named(REFITTED, entrant(REFERENCE))] if split.refitted is not None else []
    return [
        entrant(REFERENCE),
        *refitted,
        *(
            named(f"{_LEARNS}{words}", entrant(TUNING, estimator, brought, **own))
            for words, estimator, brought, own in (
                ("", "forgetting", "sums", {}),
                (", keeps all", "gamma-poisson", "sums", {}),
                (", fleet prior", "fleet-prior", "sums", {}),
                (", cusum", "drifting", "sums", {}),
                (f", keeps {KEPT:g}", "gamma-poisson", "sums", {"retention": KEPT}),
                (", number and utility alone", "forgetting", "items", {}),
                (", utility alone", None, "harvest", {}),
            )
        ),
        *(
            named(f"in-context, {words}{more}", entrant(IN_CONTEXT, brought=brought, **tuned))
            for more, tuned in networks.items()
            for words, brought in (
                ("from nothing", "sums"),
                ("utility alone", "harvest"),
                ("told μ and ξ̄ alone", "told"),
            )
        ),
        named("thompson, told μ and ξ̄ alone", entrant(THOMPSON, "fleet-prior")),
        named("optimism, told μ and ξ̄ alone", entrant(OPTIMISM, "fleet-prior")),
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


# --------------------------------------------------------------------------------------- the report

_GAIN = versus(statistics.gain, "reward", agent=REFERENCE)


def _collected(data: Data, case: Case) -> str:
    reward, published = (data.numbers(name, **case).sum() for name in ("reward", "published"))
    return f"{reward / published:.2%}"


def claim(data: Data) -> str:
    """Return what a crawler that begins with nothing collects of a recorded log."""
    shares = ", ".join(
        f"{1 + _GAIN(data, case).mean:.1%} (M = {float(case['budget']):g})"
        for case in data.cases("budget", agent=_LEARNS)
    )
    return (
        "on the recorded log, self-tuning from nothing collects, of what whittle collects as "
        f"fitted, {shares}"
    )


def verdict(report: Report, data: Data) -> None:
    """Say under which budgets an entrant with a prior is better than Whittle."""
    informed = [name for name in data.values("agent") if ", prior " in name]
    level = 1 - 0.05 / max(1, len(informed))
    said = []
    for budget in data.values("budget"):
        rewards = {name: data.numbers("reward", budget=budget, agent=name) for name in informed}
        if not rewards:
            continue
        best = max(rewards, key=lambda name: rewards[name].sum())
        whittle = data.numbers("reward", budget=budget, agent=REFERENCE)
        gain = statistics.ratio(rewards[best], whittle, level=level)
        gain = statistics.Estimate(*(x - 1 for x in gain))
        clear = "above whittle" if gain.low > 0 else "not clearly above whittle"
        if whittle.size < FEWEST:
            clear = "too few blocks to tell"
        said.append(
            f"M = {float(budget):g}: the best of those with a prior is {best}, by {percent(gain)}: "
            f"{clear}."
        )
    report.paragraph(
        " ".join(said) + f" Since it is the best of {len(informed)}, these intervals are of "
        f"{level:.2%} each, nominally (Bonferroni)."
    )


def by_month(report: Report, data: Data) -> None:
    """Add the figure of the rewards of each month relative to whittle."""
    totals: dict[tuple[str, str, int], float] = {}
    for row in data.rows:
        key = str(row["budget"]), str(row["agent"]), int(row["block"]) // MONTH
        totals[key] = totals.get(key, 0.0) + float(row["reward"])
    monthly: list[Mapping[str, Any]] = [
        {"budget": f"M = {float(m):g}", "agent": name, "month": month + 1, "share": share}
        for (m, name, month), total in totals.items()
        for share in [total / totals[m, REFERENCE, month]]
    ]
    Lines(
        "Reward of each month of four weeks relative to whittle.",
        x="month",
        y=lambda found, case: statistics.Estimate(*[found.numbers("share", **case)[0]] * 3),
        line="agent",
        columns="budget",
        only=(_LEARNS, f"{_LEARNS}, keeps all", "certainty, prior the whole first part",
              "thompson, prior a tenth of it", REFITTED),
        labels=("month", "relative to whittle, %"),
        scale=100,
        level=100,
        name="recorded",
    )(report, Data(monthly))  # fmt: skip


CONTENT = (
    "The first part of the log is known beforehand, and the rest is replayed, several times, each "
    "start a step later. whittle knows rates, mean utilities and decay as fitted to the first "
    "part, and keeps to them. “From nothing”: knows only T and M, and learns from its own crawls. "
    "“Prior”: begins with the rates of the first part, with the weight of the whole of it, of a "
    "tenth or of a hundredth. All variants that were tried are listed. Gain: over whittle, with "
    f"95 % intervals, paired by block, which is a week by default. {REFITTED} is fitted to the "
    "part that is replayed: a reference.",
    Table(
        "M = {budget}",
        {"agent": "agent"},
        (
            Column("fraction of the utility published", _collected, str),
            Column("gain over whittle", _GAIN),
        ),
        each=("budget",),
    ),
    verdict,
    by_month,
)
