"""`python -m experiments scale`: fleets of up to 10⁹ sources."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import perf_counter, process_time
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import tyro

from agents.evaluation.rollout import Rollout
from agents.evaluation.statistics import number
from agents.scheduling import FleetScheduler
from agents.scheduling.relaxation import columns_relaxation, stationary_ages
from agents.scheduling.simulation import error_of, simulate
from crawl_env.fleet.columns import FleetColumns
from crawl_env.processes import end_with_parent
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from experiments.core.data import (
    Across,
    Case,
    Cell,
    Column,
    Data,
    Details,
    Lines,
    Table,
    mean,
    write,
)
from experiments.core.study import Part, PartsStudy, single

POLICIES = ("whittle", "static", "myopic", "oldest-first")
ADAPTIVE = ("adaptive-certainty", "adaptive-thompson")
CRAWLS = 400_000  # of a run, unless that takes too few or too many steps
STEPS = (20, 200)
WARMUP = 100  # steps, at most
SEED = 0
PART, FIXED = 100, 1000.0  # budgets: the number of sources over this, and one that stays
LEARNING = 1000  # steps before the evaluation of adaptive policies
MOST_ADAPTIVE = 10**6  # sources of a fleet on which these are played
_COMPILED = 2000  # sources of the fleet with which everything is compiled before it is timed
_DENSE_STEPS = 3


class Measurement(NamedTuple):
    """A policy at one size; times are processor times of one thread."""

    n: int
    budget: float
    regime: str
    policy: str
    steps: int
    reward: float  # utility / step, as collected
    expected: float  # utility / step, its mean given what was crawled and when
    error: float  # standard error of `expected`
    bound: float  # utility / step
    published: float  # utility / step
    scheduling: float  # seconds / step
    drawing: float  # seconds / step
    dense: float  # seconds / step of the dense world and policy; NaN where that was not run
    built: float  # seconds for the columns
    relaxed: float  # seconds for the bound
    filed: float  # seconds for the scheduler
    columns: float  # bytes a source
    memory: float  # bytes a source beyond those of an empty process, at the peak; NaN if not alone


def jobs(study: Any) -> list[Job]:
    """Return a job for each size and budget."""
    return [
        {
            "n": n,
            "budget": budget,
            "regime": study.regime,
            "dense": n <= study.largest_dense and budget == n / PART,
        }
        for n in study.sizes
        for budget in dict.fromkeys((n / PART, FIXED))
        if budget <= n / 5
    ]


def measured_apart(job: Job) -> Result:
    """Return the rows of a size, made by `measured` in a process of its own, whose peak memory is
    that of this size alone."""
    context = multiprocessing.get_context("spawn")
    arguments = {name: job[name] for name in ("n", "budget", "regime", "dense")}
    with ProcessPoolExecutor(1, context, end_with_parent) as pool:
        sizes = pool.submit(partial(measured, **arguments)).result()
    return {"rows": [size._asdict() for size in sizes]}


def measured(n: int, budget: float, regime: str, dense: bool) -> list[Measurement]:
    """Return the measurements of a size, policy by policy."""
    _compile(regime)
    before = _peak()
    began = perf_counter()
    fleet = FleetColumns.random(n, SEED, regime)
    built_at = perf_counter()
    relaxed = columns_relaxation(fleet, budget)
    solved_at = perf_counter()
    scheduler = FleetScheduler(fleet, budget)
    filed_at = perf_counter()
    scheduler.step()
    memory = (_peak() - before) / n
    del scheduler
    steps, warmup = int(np.clip(CRAWLS / budget, *STEPS)), int(min(n / budget, WARMUP))
    measurements = []
    ages = stationary_ages(fleet, relaxed.multiplier)
    learning = ADAPTIVE if n <= MOST_ADAPTIVE and n / budget <= LEARNING / 5 else ()
    for policy in (*POLICIES, *learning):
        start = "random" if policy == "oldest-first" else ages
        preparation = warmup if policy in POLICIES else LEARNING
        run = simulate(fleet, budget, policy, steps=steps, warmup=preparation, start=start)
        measurements.append(
            Measurement(
                n=n,
                budget=budget,
                regime=regime,
                policy=policy,
                steps=steps,
                reward=float(run.reward.mean()),
                expected=run.mean,
                error=error_of(run.expected),
                bound=relaxed.bound,
                published=fleet.published,
                scheduling=run.scheduling,
                drawing=run.drawing,
                dense=_dense(fleet, budget) if dense and policy == "whittle" else np.nan,
                built=built_at - began,
                relaxed=solved_at - built_at,
                filed=filed_at - solved_at,
                columns=fleet.nbytes / n,
                memory=memory if policy == "whittle" else np.nan,
            )
        )
    return measurements


def _compile(regime: str) -> None:
    fleet = FleetColumns.random(_COMPILED, SEED, regime)
    stationary = stationary_ages(fleet, columns_relaxation(fleet, 10).multiplier)
    for policy in (*POLICIES, *ADAPTIVE):
        simulate(fleet, 10, policy, steps=5, start=stationary)


def _dense(fleet: FleetColumns, budget: float) -> float:
    """Return the time of a step of the dense world with the dense Whittle policy."""
    task = {
        "sources": fleet.to_sources(),
        "budget": budget,
        "arrivals": "poisson",
        "observed": False,
        "start": "random",
    }
    rollout, times = Rollout("whittle", task, seed=SEED), []
    for _ in range(_DENSE_STEPS):
        began = process_time()
        rollout.step()
        times.append(process_time() - began)
    return float(np.median(times))


def _peak() -> float:
    """Return the largest memory that this process has had, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


# --------------------------------------------------------------------------------------- the report

_WHITTLE = {"policy": "whittle"}
_KINDS = ("a hundredth of the sources", "1,000 per step")


def _derived(data: Data) -> tuple[Data, Data]:
    """Return the rows with the kind of their budget, the bound as one more policy; and the parts of
    the time of a step."""
    rows = []
    for row in data.rows:
        grows = float(row["budget"]) == int(row["n"]) / PART
        kinds = zip(_KINDS, (grows, float(row["budget"]) == FIXED), strict=True)
        rows += [{**row, "kind": kind} for kind, is_so in kinds if is_so]
    whittle = [row for row in rows if row["policy"] == "whittle"]
    bounds = [{**row, "policy": "bound", "expected": row["bound"]} for row in whittle]
    times = [
        {"kind": row["kind"], "n": row["n"], "time": name, "seconds": row[column]}
        for row in whittle
        for name, column in (("scheduling", "scheduling"), ("content", "drawing"),
                             ("dense step", "dense"))
    ]  # fmt: skip
    return Data([*rows, *bounds]), Data(times)


def _as(form: str, times: float = 1.0) -> Any:
    """Return a function to the text of an estimate; "n/a" where there is none."""
    return lambda x: "n/a" if np.isnan(x.mean) else format(times * x.mean, form)


def claim(data: Data) -> str:
    """Return what is collected of the largest fleet, and what that takes."""
    case = max(data.cases("n", "budget"), key=lambda row: (int(row["n"]), float(row["budget"])))
    share = {
        name: float(data.numbers("expected", "bound", **case, policy=name)[0]) for name in POLICIES
    }
    per_crawl = sum(data.numbers(x, "budget", **case, **_WHITTLE)[0]
                    for x in ("scheduling", "drawing"))  # fmt: skip
    memory = data.numbers("memory", **case, **_WHITTLE)[0]
    return (
        f"Of {int(case['n']):,} sources, {float(case['budget']):,.0f} crawled per step, whittle "
        f"collects {share['whittle']:.2%} of the relaxed bound, static frequencies "
        f"{share['static']:.2%} and round robin {share['oldest-first']:.2%}; a crawl takes "
        f"{per_crawl * 1e6:.1f} µs of one core, and a source {memory:.0f} bytes."
    )


def figures(report: Report, data: Data) -> None:
    """Add the figures of rewards and times."""
    rows, times = _derived(data)
    common: Any = {"x": "n", "columns": "kind", "log": "xy", "size": (5.0, 3.6)}
    write(report, rows, [
        Lines(
            "Reward per crawl by the number of sources.", y=mean("expected", "budget"),
            line="policy", only=(*POLICIES, "bound"), labels=("sources", "utility / crawl"),
            **common,
        )
    ])  # fmt: skip
    write(report, times, [
        Lines(
            "Processor time of a step by the number of sources.", y=mean("seconds"), line="time",
            labels=("sources", "s / step"), **common,
        )
    ])  # fmt: skip


def tables(report: Report, data: Data) -> None:
    """Add the tables of both kinds of budgets."""
    rows, _ = _derived(data)
    size = {"n": "sources", "budget": "crawls / step"}

    def column(title: str, cell: Cell, form: str, times: float = 1.0) -> Column:
        return Column(title, cell, _as(form, times), _WHITTLE)

    def step(table: Data, case: Case) -> Any:
        return mean("scheduling")(table, case)._replace(
            mean=sum(table.numbers(x, **case)[0] for x in ("scheduling", "drawing"))
        )

    of_policies = Across("policy", (mean("expected", "bound"),), _as(".2%"), POLICIES)
    write(report, rows, [
        Table("What the policies collect, of the bound; budget: {kind}", size, (
            Column("utility / crawl, expected", mean("expected", "budget"),
                   lambda x: number(x.mean), _WHITTLE),
            Column("as drawn", mean("reward", "budget"), lambda x: number(x.mean), _WHITTLE),
            of_policies,
            column("± s.e.", mean("error", "bound"), ".2%"),
        ), each=("kind",)),
        Table("What that takes, whittle; budget: {kind}", size, (
            column("scheduling, µs / crawl", mean("scheduling", "budget"), ".2f", 1e6),
            column("content, µs / crawl", mean("drawing", "budget"), ".2f", 1e6),
            column("step, ms", step, ".3g", 1e3),
            column("dense step, ms", mean("dense"), ".3g", 1e3),
            column("columns built, s", mean("built"), ".2g"),
            column("bound, s", mean("relaxed"), ".2g"),
            column("scheduler built, s", mean("filed"), ".2g"),
            column("columns, B / source", mean("columns"), ".0f"),
            column("peak, B / source", mean("memory"), ".1f"),
        ), each=("kind",)),
    ])  # fmt: skip
    learning = Data([row for row in data.rows if row["policy"] in (*ADAPTIVE, "whittle")])
    expected = {(row["n"], row["budget"]): row["expected"] for row in learning.where(**_WHITTLE)}
    adaptive = [
        {**row, "known": expected[row["n"], row["budget"]]}
        for row in learning.rows
        if row["policy"] in ADAPTIVE
    ]
    if adaptive:
        write(report, Data(adaptive), [
            Table(f"Adaptive policies after {LEARNING:,} steps of learning",
                  {"policy": "policy", **size}, (
                Column("of whittle, known rates", mean("expected", "known"), _as(".2%")),
                Column("of bound", mean("expected", "bound"), _as(".2%")),
                Column("scheduling, µs / crawl", mean("scheduling", "budget"), _as(".2f", 1e6)),
            )),
        ])  # fmt: skip


REWARDS_AND_TIMES = Part(
    jobs=jobs,
    work=measured_apart,
    content=(
        figures,
        tables,
        Details(
            "How this was measured, and definitions",
            (
                "Random fleets of one regime (`Sources.random`), not observed, exponential "
                "utility, one seed. Every policy meets the same content, which is drawn when a "
                "source is crawled. It begins with random ages as in a fleet crawled for long at "
                "the optimal Lagrange multiplier (oldest-first: in turn), and is warmed up for N/M "
                "steps, at most 100. Expected: the mean of the reward given what was crawled and "
                "when, which has less noise than the reward as drawn. Of bound: of the relaxed "
                "bound, which no policy exceeds on average; more is the rest of a start that "
                "collects what had waited. Times are processor times of one thread, after "
                "compilation. Dense step: the vector environment with the dense Whittle policy, "
                "median of three steps. Peak: memory of the process beyond that of an empty one, "
                "after the columns, the bound and a scheduler's first step.",
            ),
        ),
    ),
    claim=claim,
)


@dataclass(kw_only=True)
class Scale(PartsStudy):
    """Measures reward, time and memory of the event-driven scheduler on fleets of 10⁴ to 10⁸ or
    more sources, beside the relaxed bound and the dense world. The budget is a hundredth of the
    sources, which keeps the work per source the same; and 1,000 crawls per step, which keeps the
    work per step the same."""

    title: ClassVar[str] = "Scale"
    parts: ClassVar[Mapping[str, Part]] = single(REWARDS_AND_TIMES)

    sizes: Annotated[tuple[int, ...], tyro.conf.arg(metavar="N")] = tuple(
        10**k for k in range(4, 9)
    )
    """Numbers of sources."""
    regime: Literal["sparse", "dense"] = "sparse"
    """Arrival rates of the random fleets, as in `Sources.random`."""
    largest_dense: int = 10**7
    """Largest fleet of which the dense world is timed, too."""
