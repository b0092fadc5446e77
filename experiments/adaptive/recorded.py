"""A recorded log: learning while it is played back, against what was fitted beforehand."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from agents.adaptive.in_context import InContext
from agents.adaptive.network import Network
from agents.evaluation import statistics
from agents.evaluation.experience import Experienced
from agents.evaluation.rollout import Rollout
from agents.policies.base import Predictor
from crawl_env import CrawlVectorEnv, Trace
from crawl_env.log.clock import HOURS
from ephemeral_crawl.comparison.events import REFITTED
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.evaluation import percent
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import Rows
from ephemeral_crawl.replay import play as replay
from ephemeral_crawl.replay.play import SCHEDULER, LiveScheduler
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
from experiments.adaptive.runs import RUNS as RUNS_FILE
from experiments.core import recordings
from experiments.core.data import (
    Column,
    Data,
    DerivedParts,
    Item,
    Lines,
    Paragraph,
    Table,
    gain,
    mean,
    total,
    versus,
)
from experiments.core.study import Part, each_run

BUDGETS = (2.0, 5.0, 10.0, 20.0)
MOST = 0.25  # of the sources a step; with more there is little to choose
RUNS = 5  # of each entrant, which start one step after the other
MONTH = 4  # blocks, which are weeks unless they were given
KEPT = 0.9995  # of what is known, over one step
FEWEST = 5  # blocks of which an interval is given
_LEARNS = "self-tuning from nothing"
COLD_SCHEDULER = "live scheduler from nothing, told μ"


def jobs(study: Any) -> list[Job]:
    """Return a job for each budget and entrant; none without a log."""
    size = study.size
    if study.items is None:
        return []
    options = {field.name: getattr(study, field.name) for field in fields(Log)}
    key = json.dumps([options, study.steps or (500 if size.quick else None)], default=str)
    split = _split(key)
    return [
        {
            "columns": {"budget": budget, "agent": name_of({"entrant": candidate})},
            "entrant": candidate,
            "arguments": {
                "sources": evaluation.fleet_as_json(
                    split.refitted
                    if name_of({"entrant": candidate}) == REFITTED and split.refitted
                    else split.fleet
                ),
                "budget": budget,
                "observed": False,
                "start": "empty",
                "features": list(shown(candidate)),
                "budget_rule": "average" if candidate["agent"] == SCHEDULER else "step",
            },
            "split": key,
            "runs": min(2 if size.quick else candidate.get("runs", RUNS), split.steps),
            "seed": size.seed,
            "log": split.digest,
            "block": study.block or WEEK / HOURS[study.unit],
        }
        for budget in ((5.0,) if size.quick else BUDGETS)
        if budget <= MOST * len(split.fleet)
        for candidate in entrants(split)
    ]


@lru_cache(maxsize=1)
def _split(key: str) -> Split:
    """Return the two parts of the log with some options, the rest of at most so many steps."""
    options, steps = json.loads(key)
    places = {name: Path(options[name]) for name in ("items", "curves", "signals") if options[name]}
    return Log(**{**options, **places}).split(None, 1.0, steps)


def work(job: Job) -> Result:
    """Play the runs of an entrant, which start one step after the other; return in lists what it
    collects and what is published in each block."""
    split = _split(job["split"])
    arguments = {**evaluation.arguments_of(job), "arrivals": split.trace}

    candidate, seed, runs = job["entrant"], job["seed"], job["runs"]

    def make_agent(env: CrawlVectorEnv) -> Predictor:
        if candidate["agent"] == SCHEDULER:
            task, log = env.task, split.trace.log
            starts = (LiveScheduler(task, log, start, taught=False) for start in range(runs))
            return replay.OnePerRun([*starts])
        if candidate["agent"] != IN_CONTEXT:
            return seat(env, candidate, seed)
        if candidate.get("finetuned"):
            networks = (_finetuned(job["split"], seed + run) for run in range(runs))
            return replay.OnePerRun([InContext(env, weights=network) for network in networks])
        agent = InContext(env)
        return _experienced(agent, split, arguments) if candidate.get("remembers") else agent

    run = replay.play(Rollout(make_agent, arguments, runs, seed), split.trace, split.steps)
    period = split.fleet.period
    length = max(1, round(job["block"] / period))
    starts = np.arange(0, split.steps, length)
    return {
        "from": (split.rest.start + starts * period).tolist(),
        "reward": recordings.by_block(run.reward.mean(axis=0), length),
        "published": recordings.by_block(split.published, length),
    }


def _experienced(agent: InContext, split: Split, arguments: dict[str, Any]) -> Experienced:
    """Return an agent after it has crawled the first part of a log."""
    past = Trace(split.past.select(split.trace.log.names), random_start=False)
    learner = Experienced(agent, {**arguments, "arrivals": past})
    return learner.learn(past.steps(split.fleet.period))


@lru_cache(maxsize=RUNS)
def _finetuned(key: str, seed: int) -> Network:
    """Return the network of in-context, trained further on the first part of a log alone."""
    from agents.adaptive.training import FINETUNING, finetune  # only this needs torch

    split, settings = _split(key), replace(FINETUNING, seed=seed)
    return finetune(split.fleet, split.past, settings=settings, processes=1, show=len)[0]


def entrants(split: Split) -> list[dict[str, Any]]:
    """Return everyone who plays: Whittle as fitted, then those who begin with nothing, then those
    with a prior."""
    count = dict(zip(split.past.names, split.past.counts.tolist(), strict=True))
    items = np.array([count.get(name, 0) for name in split.fleet.names], dtype=float)

    def prior(weight: float) -> list[Any]:
        """Return what the first part says of the rates, as if it were `weight` as long."""
        shape, rate = WEAK[0] + weight * items, WEAK[1] + weight * split.past.span
        return [shape.tolist(), rate]

    shares = (("the whole first part", 1.0), ("a tenth of it", 0.1), ("a hundredth of it", 0.01))
    networks: dict[str, dict[str, Any]] = {
        "": {},
        ", has crawled the first part": {"remembers": True},
        ", fine-tuned on the first part": {"finetuned": True},
    }
    refits = [named(REFITTED, entrant(REFERENCE))] if split.refitted is not None else []
    return [
        entrant(REFERENCE),
        *refits,
        named(COLD_SCHEDULER, {"agent": SCHEDULER, "runs": 1}),  # it takes ten times as long
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
            named(f"in-context, {words}{more}", entrant(IN_CONTEXT, brought=brought, **settings))
            for more, settings in networks.items()
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
            for of, weight in shares
        ),
        named("optimism .9, prior the whole first part", entrant(OPTIMISM, prior=prior(1.0))),
        *(
            named(f"certainty, prior {of}, {words}",
                  entrant(CERTAINTY, estimator, brought, prior=prior(weight), **own))
            for of, weight in shares[:1]
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


def verdict(data: Data) -> str:
    """Say under which budgets an entrant with a prior is better than Whittle."""
    names = [name for name in data.values("agent") if ", prior " in name]
    level = 1 - 0.05 / max(1, len(names))
    sentences = []
    for budget in data.values("budget") if names else ():
        best = max(names, key=lambda name: data.numbers("reward", budget=budget, agent=name).sum())
        own = gain("reward", level=level, agent=REFERENCE)(data, {"budget": budget, "agent": best})
        clear = "above whittle" if own.low > 0 else "not clearly above whittle"
        if data.numbers("reward", budget=budget, agent=REFERENCE).size < FEWEST:
            clear = "too few blocks to tell"
        sentences.append(
            f"M = {float(budget):g}: the best of those with a prior is {best}, by {percent(own)}: "
            f"{clear}."
        )
    return (
        " ".join(sentences) + f" Since it is the best of {len(names)}, these intervals are of "
        f"{level:.2%} each, nominally (Bonferroni)."
    )


def months(data: Data) -> Rows:
    """Return the reward of each month relative to whittle."""
    totals: dict[tuple[str, str, int], float] = {}
    for row in data.rows:
        key = str(row["budget"]), str(row["agent"]), int(row["block"]) // MONTH
        totals[key] = totals.get(key, 0.0) + float(row["reward"])
    return [
        {"budget": f"M = {float(m):g}", "agent": name, "month": month + 1, "share": share}
        for (m, name, month), total in totals.items()
        for share in [total / totals[m, REFERENCE, month]]
    ]


CONTENT: tuple[Item, ...] = (
    "The first part of the log is known beforehand, and the rest is replayed in five runs, each "
    "of which starts a step later; what arrives is the same in all of them. Each run of a "
    "fine-tuned network has a training of its own, and the live scheduler has one run. whittle "
    "knows rates, mean utilities and decay as fitted to the first part, and keeps to them. “From "
    "nothing”: knows only T and M, and learns from its own crawls. “Prior”: begins with the rates "
    "of the first part, with the weight of the whole of it, of a tenth or of a hundredth. All "
    "variants of this run are listed. Gain: over whittle, with 95 % intervals of the mean over "
    f"the runs, paired by block, which is a week by default. {REFITTED} is fitted to the part that "
    "is replayed: a reference.",
    Table(
        "M = {budget}",
        {"agent": "agent"},
        (
            Column("fraction of the utility published", total("reward", "published"), ".2%"),
            Column("gain over whittle", _GAIN),
        ),
        each=("budget",),
    ),
    Paragraph(verdict),
    DerivedParts(
        months,
        (
            Lines(
                "Reward of each month of four weeks relative to whittle.",
                x="month",
                y=mean("share"),
                line="agent",
                columns="budget",
                only=(
                    _LEARNS,
                    f"{_LEARNS}, keeps all",
                    "certainty, prior the whole first part",
                    "thompson, prior a tenth of it",
                    REFITTED,
                ),
                labels=("month", "relative to whittle, %"),
                scale=100,
                level=100,
                name="recorded",
            ),
        ),
    ),
)

PART = Part(
    jobs=jobs,
    work=work,
    rows=partial(each_run, run="block"),
    file=RUNS_FILE,
    heading="A recorded log",
    content=CONTENT,
    claim=claim,
)
