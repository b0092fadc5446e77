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
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.statistics import number
from agents.scheduling.relaxation import (
    ColumnsRelaxation,
    best_ages,
    columns_relaxation,
    stationary_ages,
)
from agents.scheduling.scheduler import POLICIES
from agents.scheduling.simulation import simulate
from crawl_env import Sources
from crawl_env.content.arrivals import Arrivals
from crawl_env.content.names import make_arrivals
from crawl_env.content.utility import UTILITIES, make_distribution
from crawl_env.files.batches import SUFFIXES, count_rows, read_column
from crawl_env.fleet.columns import COLUMNS, FleetColumns
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.tables import REFERENCE, best_first_of, percent

LARGE = 200_000  # sources
IN_TURN = "oldest-first"
CRAWLS = 4e6  # of a run, unless --steps says how many steps
_STEPS = (50, 2000)
SEEDS = 3
_SHOWN = 20  # rows of the schedule in the report
_NOTABLE = 1e-3  # gain below which another policy is not preferred to whittle
_GAP = 1e-6  # of the bounds from which a budget is computed


class Options(Protocol):
    """The options of `evaluate` that matter here."""

    @property
    def sources(self) -> str: ...
    @property
    def period(self) -> float: ...
    @property
    def arrivals(self) -> str: ...
    @property
    def observed(self) -> bool: ...
    @property
    def budget_rule(self) -> str: ...
    @property
    def present(self) -> str: ...
    @property
    def last_crawls(self) -> str: ...
    @property
    def max_interval(self) -> float: ...
    @property
    def start(self) -> str: ...
    @property
    def recall(self) -> float | None: ...
    @property
    def engine_rate(self) -> float | None: ...


def columns_of(options: Options) -> FleetColumns | None:
    """Return the fleet of a Parquet or Arrow file with many sources, if its crawls can be
    simulated alone; else None."""
    path = Path(options.sources)
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        return None
    if count_rows(path) < LARGE or _against(options):
        return None
    return FleetColumns.from_file(path, options.period)


def as_columns(options: Options, fleet: Sources) -> FleetColumns | None:
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
    if fleet.is_capped or _against(options):
        return None
    return FleetColumns.of(fleet)


def _against(options: Options) -> list[str]:
    """Return the options with which every source has to be simulated in every step."""
    arrivals = make_arrivals(options.arrivals)
    plain = isinstance(arrivals, Arrivals) and arrivals.rate.constant and arrivals.exponential
    asked = {
        "--observed": options.observed,
        "--budget-rule": options.budget_rule != "step",
        "--arrivals": not plain,
        "--last-crawls": bool(options.last_crawls),
        "--max-interval": options.max_interval > 0,
        "--present": bool(options.present) and options.present not in POLICIES,
        "--recall": bool(options.recall),
        "--engine-rate": options.engine_rate is not None,
        "--start": options.start not in ("fresh", "random"),
    }
    return [name for name, given in asked.items() if given]


# Yields parts of a fleet, in order, with the names of their sources.
Named = Callable[[], Iterator[tuple[slice, Sequence[Any]]]]


def named(columns: FleetColumns, path: str, names: Sequence[str] | None) -> Named:
    """Return the names of the sources: those given, else the column `source` of the file if it has
    one, as Arrow arrays, else the numbers from 1."""

    def parts() -> Iterator[tuple[slice, Sequence[Any]]]:
        if names is None and (cells := read_column(path, "source")) is not None:
            start = 0
            for some in cells:
                yield slice(start, start + len(some)), some
                start += len(some)
        else:
            of_all = range(1, len(columns) + 1) if names is None else names
            yield from ((part, of_all[part]) for part in columns.chunks())

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
    some = int(np.clip(CRAWLS / crawls, *_STEPS)) if steps is None else steps
    return Plan(budget, relaxed, some, some // 4 if warmup is None else warmup)


def utility_of(arrivals: str) -> dict[str, Any]:
    """Return the distribution of utility of arrivals, as JSON."""
    process = make_arrivals(arrivals)
    assert isinstance(process, Arrivals)
    names = {kind: name for name, kind in UTILITIES.items()}
    return {"name": names[type(process.utility)]}


def jobs(
    plan: Plan,
    policy: str,
    utility: dict[str, Any],
    per_host: int,
    seed: int,
    seeds: int,
    folder: Path,
) -> list[Job]:
    """Return the jobs of a policy, one for each seed."""
    return [
        {
            "columns": str(folder),
            "policy": policy,
            "budget": plan.budget,
            "multiplier": plan.relaxed.multiplier,
            "steps": plan.steps,
            "warmup": plan.warmup,
            "utility": utility,
            "per_host": per_host,
            "seed": seed + i,
        }
        for i in range(seeds)
    ]


def mapped(columns: FleetColumns, kept: Path) -> Path:
    """Return a folder with the columns, from which every process maps them. Its name tells what it
    holds, so that an interrupted run finds its own."""
    digest = hashlib.sha256(repr((len(columns), columns.period)).encode())
    for name in COLUMNS:
        column = getattr(columns, name)
        digest.update(name.encode() if column is None else np.ascontiguousarray(column).data)
    folder = kept / f"fleet-{digest.hexdigest()[:24]}"
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


class Measured(NamedTuple):
    """The runs of a policy, by seed."""

    expected: FloatArray  # (S,) utility / step: the mean, given what was crawled and when
    reward: FloatArray  # (S,) utility / step, as drawn
    cost: FloatArray  # (S,) budget units / step
    items: FloatArray  # (S,) new items / step
    price: FloatArray  # (S,)
    seconds: FloatArray  # (S,) processor time / step

    @staticmethod
    def of(results: Sequence[Result]) -> Measured:
        """Return the results of jobs."""
        columns = (np.array([r[name] for r in results]) for name in Measured._fields)
        return Measured(*columns)


# --------------------------------------------------------------------------------------- reporting


def write(
    report: Report,
    columns: FleetColumns,
    plans: Sequence[Plan],
    runs: Mapping[float, Mapping[str, Measured]],
    present: str,
    names: Named,
) -> None:
    """Write the report."""
    rule = present or IN_TURN
    report.answer(_answer(columns, plans, runs, rule, bool(present)))
    for found in plans:
        policies = runs[found.budget]
        report.heading(f"Budget {found.budget:g}")
        if present:
            report.paragraph(_saved(columns, found, policies, rule))
        _bars(report, columns, found, policies)
        _table(report, columns, found, policies)
        _schedule(report, columns, found, names)
    with report.details("How this was measured, and definitions"):
        report.paragraph(
            f"The fleet has {len(columns):,} sources, from {LARGE:,} on it is simulated crawl by "
            "crawl: the content of a source is drawn when it is crawled, and a source costs no "
            "time in between. Policies: whittle crawls the sources of the largest Whittle index; "
            "static those whose own optimal constant interval has passed by the largest factor; "
            "myopic maximises the reward of the next step; oldest-first crawls the sources in "
            f"turn. {plans[0].steps} steps after a warm-up of {plans[0].warmup}, from ages as in a "
            "fleet crawled for long under the optimal Lagrange multiplier; "
            f"{len(runs[plans[0].budget][REFERENCE].expected)} runs. Reward: the mean of the "
            "collected utility given what was crawled and when, for which content need not be "
            "drawn; as drawn: the collected utility itself. Intervals: 95 % confidence (Student's "
            "t over runs). Of bound: of the relaxed bound, which no policy that does not observe "
            "content exceeds on average in the long run; it leaves limits per host out. "
            "Parameters are held in single precision. "
            f"The fleet publishes {number(columns.published)} utility per step on average."
        )


def _answer(
    columns: FleetColumns,
    plans: Sequence[Plan],
    runs: Mapping[float, Mapping[str, Measured]],
    rule: str,
    is_present: bool,
) -> str:
    whole = columns.published
    if not whole > 0:
        return "No policy collected any utility: the sources publish nothing."
    words = "your present rule" if is_present else "crawling all sources in turn"
    parts = []
    for found in plans:
        policies = runs[found.budget]
        best = _recommended(policies)
        gain = statistics.gain(policies[best].expected, policies[rule].expected)
        more = "" if best == rule else f", {gain.mean:.0%} more than {words}"
        parts.append(
            f"{best} collects {policies[best].expected.mean() / whole:.0%} with a budget of "
            f"{found.budget:g} per step{more}"
        )
    return f"Of all utility that the sources publish, {'; '.join(parts)}."


def _recommended(policies: Mapping[str, Measured]) -> str:
    """Return the best policy, or whittle where it does not differ significantly from it."""
    best = best_first_of({name: run.expected for name, run in policies.items()})[0]
    ahead = statistics.gain(policies[best].expected, policies[REFERENCE].expected)
    return best if ahead.excludes(0.0) and ahead.mean > _NOTABLE else REFERENCE


def _saved(columns: FleetColumns, found: Plan, policies: Mapping[str, Measured], rule: str) -> str:
    """Return a sentence on the budget with which whittle would collect as much as the rule."""
    wanted = float(policies[rule].expected.mean())
    share = float(policies[REFERENCE].expected.mean()) / found.relaxed.bound
    low, high = 1e-3 * found.budget, found.budget
    for _ in range(12):
        middle = float(np.sqrt(low * high))
        enough = share * columns_relaxation(columns, middle, _GAP).bound >= wanted
        low, high = (low, middle) if enough else (middle, high)
    if high >= found.budget:
        return f"whittle does not collect more than your present rule ({rule})."
    return (
        f"Your present rule ({rule}) collects {number(wanted)} per step. By the relaxed bound, of "
        f"which whittle collects {share:.2%}, it would collect as much with a budget of "
        f"{high:.4g}, {1 - high / found.budget:.0%} fewer fetches."
    )


def _bars(
    report: Report, columns: FleetColumns, found: Plan, policies: Mapping[str, Measured]
) -> None:
    whole = columns.published
    if not whole > 0:
        return
    order = best_first_of({name: run.expected for name, run in policies.items()})[::-1]
    figure, axis = plots.new(width=8, height=0.8 + 0.3 * len(order))
    for i, name in enumerate(order):
        axis.barh(
            name,
            100 * policies[name].expected.mean() / whole,
            color=plots.colour(name, i),
            height=0.7,
        )
    axis.axvline(
        100 * found.relaxed.bound / whole, color=plots.INK, ls="--", lw=1, label="upper bound"
    )
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axis.set(xlabel="collected, % of all utility published", xlim=(0, None))
    axis.grid(axis="y", visible=False)
    report.figure(figure, f"Utility collected by each policy under budget {found.budget:g}.")


def _table(
    report: Report, columns: FleetColumns, found: Plan, policies: Mapping[str, Measured]
) -> None:
    order = best_first_of({name: run.expected for name, run in policies.items()})
    rows = [
        [
            name,
            statistics.mean(policies[name].expected),
            number(float(policies[name].reward.mean())),
            percent(statistics.mean(policies[name].expected / found.relaxed.bound))
            if found.relaxed.bound > 0
            else "n/a",
            f"{policies[name].expected.mean() / columns.published:.1%}"
            if columns.published > 0
            else "n/a",
            number(float(policies[name].items.mean())),
            number(float(policies[name].cost.mean())),
            f"{policies[name].seconds.mean() * 1e3:.3g}",
        ]
        for name in order
    ]
    report.table(
        f"Policies under budget {found.budget:g}",
        [
            "policy",
            "reward / step",
            "as drawn",
            "of bound",
            "of published",
            "new items / step",
            "cost / step",
            "time, ms / step",
        ],
        rows,
    )
    report.paragraph(
        f"The relaxed bound is {number(found.relaxed.bound)} per step; one more unit of budget per "
        f"step adds λ* = {found.relaxed.multiplier:.4g} to it."
    )


def _schedule(report: Report, columns: FleetColumns, found: Plan, names: Named) -> None:
    counts, edges = np.zeros(4), (1.0, 10.0, 100.0)
    never, shown = 0, []
    for part, sources in names():
        ages = best_ages(columns, found.relaxed.multiplier, part)
        crawled = np.isfinite(ages)
        never += int((~crawled).sum())
        counts += np.bincount(np.searchsorted(edges, ages[crawled], "left"), minlength=4)
        first = np.argsort(ages, kind="stable")[:_SHOWN]
        shown += [(float(ages[i]), str(sources[int(i)])) for i in first if crawled[i]]
    words = ("in every step", "every 2 to 10 steps", "every 11 to 100 steps", "less often")
    spread = ", ".join(f"{int(c):,} {w}" for c, w in zip(counts, words, strict=True) if c)
    report.paragraph(
        f"At λ* = {found.relaxed.multiplier:.4g} sources are crawled when their index reaches it: "
        f"{spread or 'none'}; {never:,} are never worth a crawl. The intervals of all sources are "
        "in the schedule beside this page."
    )
    shown.sort(key=lambda row: row[0])
    rows = [[name, f"{age * columns.period:.4g}"] for age, name in shown[:_SHOWN]]
    report.table(f"The most frequent of {len(columns):,}", ["source", "interval (time)"], rows)


def records(
    runs: Mapping[float, Mapping[str, Measured]], seed: int, **common: Any
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


def schedule_rows(columns: FleetColumns, found: Plan, part: slice) -> dict[str, FloatArray]:
    """Return the columns of the schedule for some of the sources: the interval in units of time,
    infinite for a source that is never crawled, and the mean utility of a crawl."""
    ages = best_ages(columns, found.relaxed.multiplier, part)
    decay = columns.decay_rate[part].astype(np.float64)
    ceiling = columns.arrival_rate[part] * columns.mean_utility[part].astype(np.float64) / decay
    worth = ceiling * -np.expm1(-decay * columns.period * ages)
    return {"interval": ages * columns.period, "utility_per_crawl": worth}


def write_schedule(path: Path, columns: FleetColumns, plans: Sequence[Plan], names: Named) -> None:
    """Write the schedule of all sources in the order of the fleet, as CSV or as Parquet."""
    if path.suffix == ".csv":
        _write_csv(path, columns, plans, names)
        return
    import pyarrow as arrow
    from pyarrow import parquet

    kind = arrow.array(next(names())[1][:1]).type
    kinds = {"budget": arrow.float64(), "source": kind}
    kinds |= {"interval": arrow.float32(), "utility_per_crawl": arrow.float32()}
    schema = arrow.schema(list(kinds.items()))
    with parquet.ParquetWriter(path, schema) as file:
        for found in plans:
            for part, sources in names():
                rows = {"budget": np.full(len(sources), found.budget), "source": sources}
                rows |= schedule_rows(columns, found, part)
                arrays = [arrow.array(rows[n]).cast(kinds[n], safe=False) for n in kinds]
                file.write_batch(arrow.record_batch(arrays, schema=schema))


def _write_csv(path: Path, columns: FleetColumns, plans: Sequence[Plan], names: Named) -> None:
    import csv

    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["budget", "source", "interval", "utility_per_crawl"])
        for found in plans:
            for part, sources in names():
                rows = schedule_rows(columns, found, part)
                for name, interval, worth in zip(
                    sources, *(values.tolist() for values in rows.values()), strict=True
                ):
                    often = interval < np.inf
                    cells = (f"{interval:.6g}", f"{worth:.6g}") if often else ("", "")
                    writer.writerow([f"{found.budget:g}", name, *cells])
