"""Large fleets, of which every crawl is simulated and not every source in every step.

From `LARGE` sources on, `evaluate` plays the policies of `agents.scheduling.FleetScheduler` on
content that is drawn when a source is crawled. With the default options, the step-by-step
simulation of so many sources would take hours: 2,200 steps of 13 ms for each of 20 runs of 13
policies (`python -m experiments scale`).
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from agents.evaluation.statistics import number
from agents.scheduling.relaxation import (
    ColumnsRelaxation,
    best_ages,
    columns_relaxation,
    stationary_ages,
)
from agents.scheduling.scheduler import POLICIES
from agents.scheduling.simulation import simulate
from agents.theory.price import first_where
from crawl_env import Sources
from crawl_env.content.arrivals import Arrivals
from crawl_env.content.names import make_arrivals
from crawl_env.content.utility import UTILITIES, make_distribution
from crawl_env.files.batches import SUFFIXES, count_rows, read_column
from crawl_env.fleet.columns import COLUMNS, FleetColumns
from crawl_env.numerics import BoolArray, FloatArray
from ephemeral_crawl.comparison.events import IN_TURN, Column, RandomEvents, Results
from ephemeral_crawl.comparison.report import answer, overview
from ephemeral_crawl.core.evaluation import REFERENCE, fraction, part_of, percent
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result

if TYPE_CHECKING:
    from ephemeral_crawl.evaluate.command import Evaluate

LARGE = 200_000  # sources
CRAWLS = 4e6  # of a run, unless --steps says how many steps
_STEPS = (50, 2000)
SEEDS = 3
_SHOWN = 20  # rows of the schedule in the report
_GAP = 1e-6  # of the bounds from which a budget is computed
_NEAR = 1e-3  # of this budget


def columns_of(study: Evaluate) -> FleetColumns | None:
    """Return the fleet of a Parquet or Arrow file with many sources, if its crawls can be
    simulated alone; else None."""
    path = Path(study.sources)
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        return None
    if count_rows(path) < LARGE or not _suits(study):
        return None
    return FleetColumns.from_file(path, study.period)


def as_columns(study: Evaluate, fleet: Sources) -> FleetColumns | None:
    """Return a fleet as columns, if it is large and its crawls can be simulated alone.

    Raises:
        ValueError: the fleet is large and sends signals.
    """
    if len(fleet) < LARGE:
        return None
    if fleet.is_signalled:
        raise ValueError(
            f"the fleet has {len(fleet):,} sources and sends signals, which arrive whether or not "
            f"a source is crawled: from {LARGE:,} sources on, only crawls are simulated. Use a "
            "sample (--quick), a part of the fleet, or no signals (--recall 0)"
        )
    return FleetColumns.of(fleet) if _suits(study) and not fleet.is_capped else None


def _suits(study: Evaluate) -> bool:
    """Return whether no option needs every source to be simulated in every step."""
    arrivals = make_arrivals(study.arrivals)
    plain = isinstance(arrivals, Arrivals) and arrivals.rate.constant and arrivals.exponential
    stepwise = study.observed or study.last_crawls or study.recall or study.max_interval > 0
    is_policy = not study.present or study.present in POLICIES
    return (
        plain
        and is_policy
        and not stepwise
        and study.budget_rule == "step"
        and study.engine_rate is None
    )


# Yields parts of a fleet, in order, with the names of their sources.
NameParts = Callable[[], Iterator[tuple[slice, Sequence[Any]]]]


def names_of(columns: FleetColumns, path: str, names: Sequence[str] | None) -> NameParts:
    """Return the names of the sources: those given, else the column `source` of the file if it has
    one, as Arrow arrays, else the numbers from 1."""

    def parts() -> Iterator[tuple[slice, Sequence[Any]]]:
        if names is None and (cells := read_column(path, "source")) is not None:
            start = 0
            for chunk in cells:
                yield slice(start, start + len(chunk)), chunk
                start += len(chunk)
        else:
            all_names = range(1, len(columns) + 1) if names is None else names
            yield from ((part, all_names[part]) for part in columns.chunks())

    return parts


# ----------------------------------------------------------------------------------------- running


class Plan(NamedTuple):
    """What is run on a fleet under one budget."""

    budget: float
    relaxed: ColumnsRelaxation
    steps: int
    warmup: int


def plan(columns: FleetColumns, budget: float, steps: int | None, warmup: int | None) -> Plan:
    """Return how long a fleet is simulated under a budget."""
    relaxed = columns_relaxation(columns, budget)
    crawls = min(budget, len(columns))
    number = int(np.clip(CRAWLS / crawls, *_STEPS)) if steps is None else steps
    return Plan(budget, relaxed, number, number // 4 if warmup is None else warmup)


def utility_of(arrivals: str) -> dict[str, Any]:
    """Return the distribution of utility of arrivals, as JSON."""
    process = make_arrivals(arrivals)
    assert isinstance(process, Arrivals)
    names = {kind: name for name, kind in UTILITIES.items()}
    return {"name": names[type(process.utility)]}


def mapped(columns: FleetColumns, cache: Path) -> Path:
    """Return a folder with the columns, from which every process maps them. Its name tells what it
    holds, so that an interrupted run finds its own."""
    digest = hashlib.sha256(repr((len(columns), columns.period)).encode())
    for name in COLUMNS:
        column = getattr(columns, name)
        digest.update(name.encode() if column is None else np.ascontiguousarray(column).data)
    folder = cache / f"fleet-{digest.hexdigest()[:24]}"
    if not (folder / "fleet.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        columns.save(folder)
    return folder


def work(job: Job) -> Result:
    """Run a job."""
    columns = FleetColumns.open(job["columns"])
    policy, seed = job["policy"], job["seed"]
    start: Any = "random"
    if policy != IN_TURN:
        start = stationary_ages(columns, job["multiplier"], seed)
    run = simulate(
        columns,
        job["budget"],
        policy,
        steps=job["steps"],
        warmup=job["warmup"],
        utility=make_distribution(job["utility"]),
        start=start,
        seed=seed,
        per_host=job["per_host"],
    )
    return {
        "expected": run.mean,
        "reward": float(run.reward.mean()),
        "cost": float(run.cost.mean()),
        "items": float(run.items.mean()),
        "price": float(run.price.mean()),
        "seconds": run.scheduling + run.drawing,
    }


class PolicyRuns(NamedTuple):
    """The runs of a policy, by seed."""

    expected: FloatArray  # (S,) utility / step: the mean, given what was crawled and when
    reward: FloatArray  # (S,) utility / step, as drawn
    cost: FloatArray  # (S,) budget units / step
    items: FloatArray  # (S,) new items / step
    price: FloatArray  # (S,)
    seconds: FloatArray  # (S,) processor time / step


@dataclass(frozen=True)
class Fleet(RandomEvents[PolicyRuns]):
    """Events of a large fleet: the content of a source is drawn when it is crawled.

    Arguments:
        columns: the sources.
        plans: what is run, by budget.
        utility: the distribution of utility, as JSON.
        per_host: crawls per step of sources that share a host.
        seed, seeds: the first seed and the number of runs.
        folder: from which processes map the columns.
        names: of the sources.
    """

    fleet: FleetColumns
    plans: Mapping[float, Plan]
    utility: dict[str, Any]
    per_host: int
    seed: int
    seeds: int
    folder: Path
    names: NameParts

    @property
    def published(self) -> float:
        return float(self.fleet.published)

    @property
    def length(self) -> str:
        """How much is run, in words."""
        plan = next(iter(self.plans.values()))
        return f"{plan.steps} steps after a warm-up of {plan.warmup}, {self.seeds} seeds"

    def jobs(self, agent: str, budget: float) -> list[Job]:
        plan = self.plans[budget]
        return [
            {
                "columns": str(self.folder),
                "policy": agent,
                "budget": budget,
                "multiplier": plan.relaxed.multiplier,
                "steps": plan.steps,
                "warmup": plan.warmup,
                "utility": self.utility,
                "per_host": self.per_host,
                "seed": self.seed + i,
            }
            for i in range(self.seeds)
        ]

    @property
    def work(self) -> Callable[[Job], Result]:
        return work

    def run_of(self, results: Sequence[Result]) -> PolicyRuns:
        columns = (np.array([r[name] for r in results]) for name in PolicyRuns._fields)
        return PolicyRuns(*columns)

    def sample(self, run: PolicyRuns) -> FloatArray:
        return run.expected

    def bound(self, budget: float) -> float:
        return self.plans[budget].relaxed.bound

    def prices(self, budgets: Sequence[float]) -> dict[str, list[float]]:
        return {"λ*": [self.plans[m].relaxed.multiplier for m in budgets]}

    def columns(
        self, budget: float, runs: Mapping[str, PolicyRuns]
    ) -> dict[str, Column[PolicyRuns]]:
        bound, whole = self.bound(budget), self.published
        return {
            "reward / step": lambda _, run: self.reward(run),
            "as drawn": lambda _, run: number(float(run.reward.mean())),
            "of bound": lambda _, run: percent(fraction(run.expected, bound)),
            "of published": lambda _, run: part_of(float(run.expected.mean()), whole, 1),
            "new items / step": lambda _, run: number(float(run.items.mean())),
            "cost / step": lambda _, run: number(float(run.cost.mean())),
            "time, ms / step": lambda _, run: f"{run.seconds.mean() * 1e3:.3g}",
        }


def policies(agents: Sequence[str], present: str) -> list[str]:
    """Return the policies that are compared, of those that were asked for."""
    names = [name for name in POLICIES if name in (*agents, present)]
    return list(dict.fromkeys((REFERENCE, *names, IN_TURN)))


# --------------------------------------------------------------------------------------- reporting


def write(report: Report, events: Fleet, results: Results[PolicyRuns]) -> None:
    """Write the report."""
    report.answer(answer(results))
    overview(report, results)
    for m, plan in events.plans.items():
        report.heading(f"Budget {m:g}")
        if results.present is not None:
            report.paragraph(_saving(events, results, plan, results.present.name))
        results.table(report, m)
        report.paragraph(
            f"The relaxed bound is {number(plan.relaxed.bound)} per step; one more unit of budget "
            f"per step adds λ* = {plan.relaxed.multiplier:.4g} to it."
        )
        _schedule(report, events, plan)
    with report.details("How this was measured, and definitions"):
        report.paragraph(
            f"The fleet has {len(events.fleet):,} sources, from {LARGE:,} on it is simulated crawl "
            "by crawl: the content of a source is drawn when it is crawled, and a source costs no "
            "time in between. Policies: whittle crawls the sources of the largest Whittle index; "
            "static those whose own optimal constant interval has passed by the largest factor; "
            "myopic maximises the reward of the next step; oldest-first crawls the sources in "
            f"turn. {events.length}, from ages as in a "
            "fleet crawled for long under the optimal Lagrange multiplier. "
            "Reward: the mean of the "
            "collected utility given what was crawled and when, for which content need not be "
            "drawn; as drawn: the collected utility itself. Intervals: 95 % confidence (Student's "
            "t over runs). Of bound: of the relaxed bound, which no policy that does not observe "
            "content exceeds on average in the long run; it leaves limits per host out. "
            "Parameters are held in single precision. "
            f"The fleet publishes {number(events.published)} utility per step on average."
        )


def _saving(events: Fleet, results: Results[PolicyRuns], plan: Plan, rule: str) -> str:
    """Return a sentence on the budget with which whittle would collect as much as the rule."""
    target = results.reward(plan.budget, rule)
    share = results.reward(plan.budget, REFERENCE) / plan.relaxed.bound

    def enough(budget: FloatArray) -> BoolArray:
        relaxation = columns_relaxation(events.fleet, float(budget), _GAP)
        return np.asarray(share * relaxation.bound >= target)

    high = float(first_where(enough, np.array(plan.budget), 1e-3 * plan.budget, _NEAR)[1])
    if high >= plan.budget:
        return f"whittle does not collect more than your present rule ({rule})."
    return (
        f"Your present rule ({rule}) collects {number(target)} per step. By the relaxed bound, of "
        f"which whittle collects {share:.2%}, it would collect as much with a budget of "
        f"{high:.4g}, {1 - high / plan.budget:.0%} fewer fetches."
    )


def _schedule(report: Report, events: Fleet, plan: Plan) -> None:
    columns = events.fleet
    counts, edges = np.zeros(4), (1.0, 10.0, 100.0)
    never, top = 0, []
    for part, sources in events.names():
        ages = best_ages(columns, plan.relaxed.multiplier, part)
        crawled = np.isfinite(ages)
        never += int((~crawled).sum())
        counts += np.bincount(np.searchsorted(edges, ages[crawled], "left"), minlength=4)
        first = np.argsort(ages, kind="stable")[:_SHOWN]
        top += [(float(ages[i]), str(sources[int(i)])) for i in first if crawled[i]]
    words = ("in every step", "every 2 to 10 steps", "every 11 to 100 steps", "less often")
    spread = ", ".join(f"{int(c):,} {w}" for c, w in zip(counts, words, strict=True) if c)
    report.paragraph(
        f"At λ* = {plan.relaxed.multiplier:.4g} sources are crawled when their index reaches it: "
        f"{spread or 'none'}; {never:,} are never worth a crawl. The intervals of all sources are "
        "in the schedule beside this page."
    )
    top.sort(key=lambda row: row[0])
    rows = [[name, f"{age * columns.period:.4g}"] for age, name in top[:_SHOWN]]
    report.table(f"The most frequent of {len(columns):,}", ["source", "interval (time)"], rows)


def records(
    runs: Mapping[float, Mapping[str, PolicyRuns]], seed: int, **common: Any
) -> list[dict[str, Any]]:
    """Return a row per budget, policy and seed."""
    return [
        {
            **common,
            "budget": budget,
            "agent": name,
            "seed": seed,
            "run": s,
            "reward": repr(float(run.expected[s])),
            "reward_drawn": repr(float(run.reward[s])),
            "cost": repr(float(run.cost[s])),
            "items": repr(float(run.items[s])),
        }
        for budget, policies in runs.items()
        for name, run in policies.items()
        for s in range(len(run.expected))
    ]


def schedule_rows(columns: FleetColumns, plan: Plan, part: slice) -> dict[str, FloatArray]:
    """Return the columns of the schedule for some of the sources: the interval in units of time,
    infinite for a source that is never crawled, and the mean utility of a crawl."""
    ages = best_ages(columns, plan.relaxed.multiplier, part)
    decay = columns.decay_rate[part].astype(np.float64)
    ceiling = columns.arrival_rate[part] * columns.mean_utility[part].astype(np.float64) / decay
    worth = ceiling * -np.expm1(-decay * columns.period * ages)
    return {"interval": ages * columns.period, "utility_per_crawl": worth}


def write_schedule(path: Path, events: Fleet) -> None:
    """Write the schedule of all sources in the order of the fleet, as CSV or as Parquet."""
    if path.suffix == ".csv":
        _write_csv(path, events)
        return
    import pyarrow as arrow
    from pyarrow import parquet

    kind = arrow.array(next(events.names())[1][:1]).type
    kinds = {"budget": arrow.float64(), "source": kind}
    kinds |= {"interval": arrow.float32(), "utility_per_crawl": arrow.float32()}
    schema = arrow.schema(list(kinds.items()))
    with parquet.ParquetWriter(path, schema) as file:
        for plan in events.plans.values():
            for part, sources in events.names():
                rows = {"budget": np.full(len(sources), plan.budget), "source": sources}
                rows |= schedule_rows(events.fleet, plan, part)
                arrays = [arrow.array(rows[n]).cast(kinds[n], safe=False) for n in kinds]
                file.write_batch(arrow.record_batch(arrays, schema=schema))


def _write_csv(path: Path, events: Fleet) -> None:
    import csv

    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["budget", "source", "interval", "utility_per_crawl"])
        for plan in events.plans.values():
            for part, sources in events.names():
                rows = schedule_rows(events.fleet, plan, part)
                for name, interval, worth in zip(
                    sources, *(values.tolist() for values in rows.values()), strict=True
                ):
                    often = interval < np.inf
                    cells = (f"{interval:.6g}", f"{worth:.6g}") if often else ("", "")
                    writer.writerow([f"{plan.budget:g}", name, *cells])
