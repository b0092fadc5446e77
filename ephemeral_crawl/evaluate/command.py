"""`ephemeral-crawl evaluate`: compares all policies on a given fleet, and writes a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from agents.evaluation.statistics import FEWEST_RUNS
from crawl_env.content.names import GRAMMAR
from crawl_env.errors import counted
from crawl_env.fleet.columns import FleetColumns
from crawl_env.fleet.sources import PRESETS
from ephemeral_crawl.comparison.events import Results, play_all
from ephemeral_crawl.comparison.present import Present
from ephemeral_crawl.comparison.study import ComparisonStudy, fleet_of
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.results import provenance
from ephemeral_crawl.evaluate import large
from ephemeral_crawl.evaluate.model import ITEMS, Model


@dataclass(kw_only=True)
class Evaluate(ComparisonStudy):
    """Compares how much utility each policy collects from your sources under a budget, and writes
    the schedule of the best one.

    The sources are simulated. With --items LOG instead of --sources, this is the command `replay`.
    """

    main: ClassVar[tuple[str, ...]] = (
        *("sources", "budget", "period", "arrivals", "present", "max_interval", "last_crawls"),
        *("agents", "quick", "out", "replace"),
    )
    quickly: ClassVar[dict[str, int]] = {"steps": 400, "warmup": 100, "seeds": 5}

    sources: Annotated[
        str,
        tyro.conf.arg(
            help="CSV file of the fleet, with the columns source, arrival_rate (items / time), "
            "mean_utility, decay_rate (1 / time) and, optional, cost, crawl_delay (time), host, "
            "capacity (items), failure_rate, recall, precision and signal_delay (time); or the "
            f"name of a preset ({', '.join(PRESETS)})."
        ),
    ] = ""
    arrivals: Annotated[
        str,
        tyro.conf.arg(
            help=f"{GRAMMAR}; poisson means poisson-items, that is, single items are drawn, if "
            "sources have a finite capacity or send signals, there is an indexing engine, or the "
            f"fleet publishes at most {ITEMS:.0f} items per step."
        ),
    ] = "poisson"
    steps: Annotated[int | None, tyro.conf.arg(metavar="H")] = None
    """Steps evaluated in each run; by default 2000, with --quick 400."""
    warmup: Annotated[int | None, tyro.conf.arg(metavar="H")] = None
    """Steps before the evaluation; by default 200, with --quick 100."""
    seeds: Annotated[int | None, tyro.conf.arg(metavar="S")] = None
    """Runs of each policy, on the same arrivals for all policies; by default 20, with --quick
    5."""

    def run(self) -> None:
        self._check_options()
        self.check(self.sources, self.present, self.last_crawls)
        if (columns := large.columns_of(self)) is not None:
            self._run_large(columns)
            return
        events = self._events()
        if not self.quick and (columns := large.as_columns(self, events.fleet)) is not None:
            self._run_large(columns, events.fleet.names)
            return
        self.compare(events)

    def _events(self) -> Model:
        fleet = self._with_signals(fleet_of(self.sources, self.period))
        return Model(
            fleet=fleet,
            arguments=self._task_arguments,
            seed=self.seed,
            title=self._title(len(fleet)),
            conditions=self._conditions(),
            drawn=self.arrivals,
            steps=self._option("steps", 2000),
            warmup=self._option("warmup", 200),
            seeds=self._option("seeds", 20),
        )

    def _title(self, n: int) -> str:
        return f"Schedule of the {counted(n, 'source')} of {Path(self.sources).name}"

    def _run_large(self, columns: FleetColumns, names: Sequence[str] | None = None) -> None:
        """Compare policies on a large fleet crawl by crawl."""
        self._names()  # raises ValueError for an unknown one
        budgets = self._budgets()
        policies = large.policies(self.agents, self.present)
        steps = self.quickly["steps"] // 4 if self.quick and self.steps is None else self.steps
        events = large.Fleet(
            fleet=columns,
            plans={m: large.plan(columns, m, steps, self.warmup) for m in budgets},
            utility=large.utility_of(self.arrivals),
            per_host=self.per_host,
            seed=self.seed,
            seeds=large.SEEDS if self.seeds is None else self.seeds,
            folder=large.mapped(columns, self.runner.folder),
            names=large.names_of(columns, self.sources, names),
        )
        print(
            f"{len(columns):,} sources, simulated crawl by crawl, as fleets from {large.LARGE:,} "
            f"on are: {events.length}, {counted(len(policies), 'policy', 'policies')}, "
            f"{counted(len(budgets), 'budget')}"
        )
        parts = {(m, name): events.jobs(name, m) for m in budgets for name in policies}
        runs = play_all(self.runner, events, parts)
        report = Report(self._title(len(columns)))
        rule = Present(self.present, None) if self.present else None
        large.write(report, events, Results(events, runs, rule))
        kind = "parquet" if names is None else "csv"
        self.publish(
            report,
            {
                f"schedule.{kind}": partial(large.write_schedule, events=events),
                "records.csv": large.records(runs, self.seed, **provenance()),
            },
        )

    def _check_options(self) -> None:
        if not self.sources:
            raise ValueError(
                "no sources were given; give --sources fleet.csv (or a preset), or --items "
                "log.csv for the replay of a log"
            )
        for option, default, least in (("steps", 2000, 1), ("warmup", 200, 0)):
            if (value := self._option(option, default)) < least:
                raise ValueError(f"--{option} is {value}; it must be at least {least}")
        if (seeds := self._option("seeds", 20)) < FEWEST_RUNS:
            raise ValueError(
                f"--seeds is {seeds}; intervals need at least {FEWEST_RUNS} runs of each policy"
            )
