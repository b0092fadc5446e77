"""What the crawler collects in fourteen days, against rules in use, an oracle and a bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ephemeral_crawl.backtest.rules import RULES as IN_USE
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from experiments.live.feeds.bound import bound
from experiments.live.feeds.crawl import crawl
from experiments.live.feeds.rules import RULES, Oracle, follow
from experiments.live.feeds.simulated import simulate
from experiments.live.feeds.world import HOUR, World

TABLE = "feeds.csv"
BUDGETS = (3, 6, 12)  # fetches an hour
SEEDS = 8
CASES = ("own hosts", "shared hosts", "pings")
HTTP, SIMULATED = "Scheduler over HTTP", "Scheduler"

Row = dict[str, Any]


def jobs(
    seeds: Sequence[int] = range(SEEDS),
    http_seeds: int = SEEDS,
    budgets: Sequence[float] = BUDGETS,
    days: float = 14.0,
) -> list[Job]:
    """Return a job for each case, seed, budget and policy, each of which gives a row.

    Cases: each feed on a host of its own; half of them on three hosts that accept one fetch an hour
    each; pings of recall .8 and precision .5, to be learnt, with hosts of their own.

    Arguments:
        http_seeds: number of the seeds, the first of them, that are crawled over HTTP, too.
    """
    return [
        {"case": case, "seed": seed, "budget": budget, "policy": policy, "days": days}
        for policies in (False, True)
        for seed in seeds
        for case in CASES
        for budget in budgets
        for policy in ([HTTP] if policies else _policies(case))
        if not policies or seed in seeds[:http_seeds]
    ]


def _policies(case: str) -> tuple[str, ...]:
    if case == "pings":
        return (SIMULATED, "oracle")
    return (SIMULATED, *RULES, "bound")


def work(job: Job) -> Result:
    """Return the fraction of all worth that a policy collects."""
    case, budget, policy = job["case"], job["budget"], job["policy"]
    shared, pings = case == "shared hosts", case == "pings"
    per_host = HOUR if shared else 0.0
    world = World(job["seed"], days=job["days"], shared_hosts=shared)
    if policy in (HTTP, SIMULATED):
        run = crawl if policy == HTTP else simulate
        run(world, budget, per_host=per_host, pings=pings)
        return {"fraction": world.fraction}
    if policy == "bound":
        return {"fraction": bound(world, budget, per_host)}
    rule = partial(Oracle, pings=True) if pings else RULES[policy]
    return {"fraction": follow(world, budget, rule, per_host)}


def rows(todo: Iterable[Job], results: Iterable[Result]) -> list[Row]:
    """Return the rows of the table."""
    found = zip(todo, results, strict=True)
    return [{k: v for k, v in {**job, **result}.items() if k != "days"} for job, result in found]


def answer(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return what was found in a sentence."""
    table = _Table(rows)
    shares = [f"{table.mean('own hosts', b, SIMULATED, 'oracle'):.1%} at {b}" for b in BUDGETS]
    return (
        "In a crawl of sixty feeds, the scheduler collects, of what an oracle does, "
        f"{', '.join(shares)} fetches an hour."
    )


def write(report: Report, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add the part to the report."""
    table = _Table(rows)
    report.heading("Sixty feeds")
    report.table(
        "Fraction of all worth collected in fourteen days, means over seeds",
        ["hosts", "fetches / h", SIMULATED, *RULES],
        [
            [case, budget, *(f"{table.mean(case, budget, p):.3f}" for p in (SIMULATED, *RULES))]
            for case in ("own hosts", "shared hosts")
            for budget in BUDGETS
        ],
    )
    report.table(
        "What the scheduler collects ÷ what others do: means over seeds, and the smallest",
        ["case", "fetches / h", "÷ oracle", "smallest", "÷ bound", "÷ best rule in use"],
        [
            [
                case,
                budget,
                f"{table.mean(case, budget, SIMULATED, 'oracle'):.1%}",
                f"{min(table.ratios(case, budget, SIMULATED, 'oracle')):.1%}",
                "" if case == "pings" else f"{table.mean(case, budget, SIMULATED, 'bound'):.1%}",
                "" if case == "pings" else f"{_least(table, case, budget):.2f}",
            ]
            for case in CASES
            for budget in BUDGETS
        ],
    )
    report.paragraph(
        "The oracle fetches the feed of the highest Whittle index, with true rates and worths at "
        "every moment; in the third case it also knows recall and precision of the pings. The "
        "bound is that of two relaxed constraints, of the budget and of the hosts, on the expected "
        "worth (`experiments.live.feeds.bound`); it holds for every crawler that is not told of "
        "pings."
    )
    gains = [
        f"{_gain(table, SIMULATED, b):+.1%} at {b} (oracle {_gain(table, 'oracle', b):+.1%})"
        for b in BUDGETS
    ]
    report.paragraph(
        "With pings of recall .8 and precision .5, to be learnt, the scheduler collects more: "
        f"{', '.join(gains)} fetches an hour."
    )
    differences = table.differences()
    if len(differences):
        report.paragraph(
            f"Of these crawls {len(differences)} were also made by the crawler over HTTP, in "
            "accelerated time. What it collects differs from what is stated here by at most "
            f"{differences.max():.1e} of it."
        )


def _least(table: _Table, case: str, budget: float) -> float:
    """Return the mean ratio to the best of the rules in use."""
    return min(table.mean(case, budget, SIMULATED, name) for name in IN_USE)


def _gain(table: _Table, policy: str, budget: float) -> float:
    """Return by how much pings raise what is collected: the mean over the seeds."""
    with_pings = table.of("pings", budget, policy)
    without = table.of("own hosts", budget, policy)
    return float(np.mean([with_pings[seed] / without[seed] for seed in with_pings])) - 1.0


class _Table:
    """Rows by case, budget and policy."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._found: dict[tuple[str, float, str], dict[int, float]] = {}
        for row in rows:
            key = str(row["case"]), float(row["budget"]), str(row["policy"])
            self._found.setdefault(key, {})[int(row["seed"])] = float(row["fraction"])

    def of(self, case: str, budget: float, policy: str) -> dict[int, float]:
        """Return the fraction of each seed."""
        return self._found.get((case, float(budget), policy), {})

    def ratios(self, case: str, budget: float, policy: str, by: str = "") -> list[float]:
        """Return the fraction of each seed, or its ratio to that of another policy."""
        found, other = self.of(case, budget, policy), self.of(case, budget, by) if by else {}
        return [value / other.get(seed, 1.0) for seed, value in found.items()]

    def mean(self, case: str, budget: float, policy: str, by: str = "") -> float:
        """Return the mean over the seeds of these."""
        return float(np.mean(self.ratios(case, budget, policy, by)))

    def differences(self) -> np.ndarray:
        """Return the relative differences of crawls over HTTP from those without."""
        return np.array(
            [
                abs(value / self.of(case, budget, SIMULATED)[seed] - 1.0)
                for (case, budget, policy), found in self._found.items()
                if policy == HTTP
                for seed, value in found.items()
            ]
        )
