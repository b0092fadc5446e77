"""What the crawler collects of two hundred feeds, day by day, if others beside them are dead.

Forty fetches an hour, without sockets; nothing is known at first. For the scheduler alone, a seed
in some seconds:

    python -m experiments.live.feeds.failing --dead 0 60 200 --seeds 0 1

The rates are lognormal with a median of .3 items an hour and σ = 1.2, the items' worths are equally
distributed in all feeds, and halve in three hours. With these, the share that is collected is about
.66 on the first day and .71 on those after it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ephemeral_crawl.backtest.rules import RULES as IN_USE
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from experiments.live.feeds.rules import RULES, follow
from experiments.live.feeds.simulated import simulate
from experiments.live.feeds.world import HOUR, fleet

TABLE = "failing.csv"
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
_COLUMNS = (*_DAYS, "dead", "used")

Row = dict[str, Any]


def jobs(
    seeds: Sequence[int] = range(SEEDS), cases: Mapping[str, tuple[int, bool]] = CASES
) -> list[Job]:
    """Return a job for each case, seed and policy, each of which gives a row."""
    return [
        {"case": case, "seed": seed, "policy": policy, "dead": dead, "failing": failing}
        for seed in seeds
        for case, (dead, failing) in cases.items()
        for policy in POLICIES
    ]


def work(job: Job) -> Result:
    """Return the share of the worth published that a policy collects on each day, the fraction of
    its fetches that went to feeds that were dead or in an outage, and that of the budget that it
    used."""
    world = fleet(job["seed"], job["dead"], job["failing"], days=DAYS)
    policy = job["policy"]
    if policy in (SCHEDULER, INFORMED):
        simulate(world, PER_HOUR, informed=policy == INFORMED)
    else:
        follow(world, PER_HOUR, RULES[policy])
    days = dict(zip(_DAYS, (world.gains / world.published).tolist(), strict=True))
    used = world.requests / (PER_HOUR * world.end / HOUR)
    return {**days, "dead": world.vain / world.requests, "used": used}


def rows(todo: Iterable[Job], results: Iterable[Result]) -> list[Row]:
    """Return the rows of the table."""
    return [
        {**{key: job[key] for key in ("case", "seed", "policy")}, **result}
        for job, result in zip(todo, results, strict=True)
    ]


def answer(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return what was found in a sentence."""
    found = _by_policy(rows, "50 % dead")
    own = found[SCHEDULER][:, :DAYS].mean(axis=0)
    best = max((found[name][:, :DAYS].mean(axis=0) for name in IN_USE), key=lambda x: x.sum())
    return (
        f"If half of the feeds are dead, it collects {_shares(own)} of all worth on days 1 to "
        f"{DAYS}, and the best rule in use {_shares(best)}."
    )


def write(report: Report, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add the part to the report."""
    report.heading("Feeds that are dead")
    found = {case: _by_policy(rows, case) for case in CASES}
    for case, (dead, _) in CASES.items():
        report.table(
            f"{case.capitalize()}: 200 living feeds and {dead} dead, {PER_HOUR:g} fetches an hour; "
            f"means of {len(found[case][SCHEDULER])} seeds ± standard errors",
            ["", *_DAYS, "fetches of dead feeds", "budget used"],
            [
                [
                    name,
                    *map(_mean, x[:, :DAYS].T),
                    *(f"{value:.1%}" for value in x[:, DAYS:].mean(axis=0)),
                ]
                for name, x in found[case].items()
            ],
        )
    report.table(
        "What the scheduler collects − what the rule in use does that is best on that day",
        ["", *_DAYS],
        [[case, *(_lead(x, day) for day in range(DAYS))] for case, x in found.items()],
    )
    report.paragraph(
        "Dead feeds never answer: a third are not known to the DNS, a quarter answer 404, others "
        "403, 410 or 503, refuse connections or do not answer in time. In the last case more than "
        "half of those that live fail, too: sixty die and recover, twenty have outages of hours, "
        "and thirty fail or answer 429 at one request in eight. What happens depends on the seed "
        "and the time alone. Rules have the limits of errors of their programs. “Dead ones paused "
        "at once” is the scheduler, of which every feed in an outage is paused after its first "
        "failure, and resumed when it is over: a reference, as is the oracle, which knows rates "
        "and outages. Shares are of the worth published on that day; differences are paired by "
        "seed."
    )


def _by_policy(rows: Sequence[Mapping[str, Any]], case: str) -> dict[str, np.ndarray]:
    """Return the columns of each policy, (seeds, columns)."""
    own = [row for row in rows if row["case"] == case]
    return {
        name: np.array(
            [
                [float(row[c]) for c in _COLUMNS]
                for row in sorted(own, key=lambda row: int(row["seed"]))
                if row["policy"] == name
            ]
        )
        for name in POLICIES
    }


def _lead(found: Mapping[str, np.ndarray], day: int) -> str:
    """Return what the scheduler collects on a day more than the best of the rules in use."""
    name = max(IN_USE, key=lambda name: float(found[name][:, day].mean()))
    return f"{_mean(found[SCHEDULER][:, day] - found[name][:, day], '+')} ({name})"


def _mean(values: np.ndarray, sign: str = "") -> str:
    """Return the mean with its standard error."""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():{sign}.3f} ± {error:.3f}"


def _shares(values: np.ndarray) -> str:
    return ", ".join(f"{value:.0%}" for value in values)


def main() -> None:
    """Print the shares by day, those of the scheduler alone unless told otherwise."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dead", type=int, nargs="+", default=[0, 60, 200])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--failing", action="store_true", help="the living fail at times, too")
    parser.add_argument("--policies", nargs="+", default=[SCHEDULER], choices=POLICIES)
    given = parser.parse_args()
    print(f"{'dead':>4}  {'policy':24}  {'share by day':{6 * DAYS}}  dead  used")
    for dead in given.dead:
        todo = jobs(given.seeds, {"": (dead, given.failing)})
        todo = [job for job in todo if job["policy"] in given.policies]
        found = rows(todo, map(work, todo))
        for policy, values in _by_policy(found, "").items():
            if len(values):
                means = " ".join(f"{value:.3f}" for value in values.mean(axis=0))
                print(f"{dead:4}  {policy:24}  {means}", flush=True)


if __name__ == "__main__":
    main()
