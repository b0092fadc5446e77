"""What the crawler collects of two hundred feeds, day by day, if others beside them are dead.

Forty fetches an hour, without sockets; nothing is known at first. The rates are lognormal with a
median of .3 items an hour and σ = 1.2, the items' worths are equally distributed in all feeds, and
halve in three hours. With these, the share that is collected is about .66 on the first day and .71
on those after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ephemeral_crawl.backtest.rules import RULES as IN_USE
from ephemeral_crawl.core.runner import Job, Result
from experiments.core.data import Case, Cell, Column, Data, Table, mean, share
from experiments.core.study import Part
from experiments.live.rules import RULES, follow
from experiments.live.simulated import simulate
from experiments.live.world import HOUR, fleet

PER_HOUR, DAYS, SEEDS = 40.0, 4, 8
# Number of the feeds that are dead, and whether those that live fail at times.
CASES = {
    "none dead": (0, False),
    "25 % dead": (67, False),
    "50 % dead": (200, False),
    "some die and recover": (50, True),
}
SCHEDULER, INFORMED = "Scheduler", "dead ones paused at once"
POLICIES = (SCHEDULER, INFORMED, *RULES)
_DAYS = [f"day {day}" for day in range(1, DAYS + 1)]


def jobs(
    study: Any = None,
    seeds: Sequence[int] = range(SEEDS),
    cases: Mapping[str, tuple[int, bool]] = CASES,
) -> list[Job]:
    """Return a job for each case, seed and policy, each of which gives a row."""
    return [
        {
            "columns": {"case": case, "seed": seed, "policy": policy},
            "dead": dead,
            "failing": failing,
        }
        for seed in seeds
        for case, (dead, failing) in cases.items()
        for policy in POLICIES
    ]


def work(job: Job) -> Result:
    """Return the share of the worth published that a policy collects on each day, the fraction of
    its fetches that went to feeds that were dead or in an outage, and that of the budget that it
    used."""
    case = job["columns"]
    world = fleet(case["seed"], job["dead"], job["failing"], days=DAYS)
    policy = case["policy"]
    if policy in (SCHEDULER, INFORMED):
        simulate(world, PER_HOUR, informed=policy == INFORMED)
    else:
        follow(world, PER_HOUR, RULES[policy])
    days = dict(zip(_DAYS, (world.gains / world.published).tolist(), strict=True))
    usage = world.requests / (PER_HOUR * world.end / HOUR)
    return {**days, "dead": world.vain / world.requests, "used": usage}


def _by_seed(data: Data, column: str, case: Case) -> dict[str, float]:
    return {row["seed"]: float(row[column]) for row in data.where(**case)}


def lead(column: str) -> Cell:
    """Return the cell of what the scheduler collects more than the best of the rules in use, by
    seed, with its name."""

    def cell(data: Data, case: Case) -> str:
        means = {name: data.numbers(column, **{**case, "policy": name}).mean() for name in IN_USE}
        best = max(means, key=lambda name: means[name])
        mine, its = (_by_seed(data, column, {**case, "policy": name}) for name in (SCHEDULER, best))
        return f"{_mean(np.array([mine[seed] - its[seed] for seed in mine]), '+')} ({best})"

    return cell


def _of_day(column: str) -> Cell:
    return lambda data, case: data.numbers(column, **case)


def _mean(values: np.ndarray, sign: str = "") -> str:
    """Return the mean with its standard error."""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():{sign}.3f} ± {error:.3f}"


def claim(data: Data) -> str:
    """Return what is collected if half of the feeds are dead."""
    shares = {
        name: [data.numbers(day, case="50 % dead", policy=name).mean() for day in _DAYS]
        for name in (SCHEDULER, *IN_USE)
    }
    best = max(IN_USE, key=lambda name: sum(shares[name]))
    own, others = (", ".join(f"{x:.0%}" for x in shares[name]) for name in (SCHEDULER, best))
    return (
        f"If half of the feeds are dead, it collects {own} of all worth on days 1 to {DAYS}, and "
        f"the best rule in use {others}."
    )


PART = Part(
    jobs=jobs,
    work=work,
    file="failing.csv",
    heading="Feeds that are dead",
    content=(
        Table(
            f"200 living feeds beside dead ones, {PER_HOUR:g} fetches an hour, {{case}}: means "
            "over seeds ± standard errors",
            {"policy": ""},
            (
                *(Column(day, _of_day(day), _mean) for day in _DAYS),
                *(
                    Column(title, mean(name), share)
                    for title, name in (("fetches of dead feeds", "dead"), ("budget used", "used"))
                ),
            ),
            each=("case",),
        ),
        Table(
            "What the scheduler collects − what the rule in use does that is best on that day",
            {"case": ""},
            tuple(Column(day, lead(day), str) for day in _DAYS),
        ),
        "Dead feeds never answer: a third are not known to the DNS, a quarter answer 404, others "
        "403, 410 or 503, refuse connections or do not answer in time. In the last case more than "
        "half of those that live fail, too: sixty die and recover, twenty have outages of hours, "
        "and thirty fail or answer 429 at one request in eight. What happens depends on the seed "
        "and the time alone. Rules have the limits of errors of their programs. “Dead ones paused "
        "at once” is the scheduler, of which every feed in an outage is paused after its first "
        "failure, and resumed when it is over: a reference, as is the oracle, which knows rates "
        "and outages. Shares are of the worth published on that day; differences are paired by "
        "seed.",
    ),
    claim=claim,
)
