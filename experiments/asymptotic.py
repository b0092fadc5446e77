"""`python -m experiments asymptotic`: k copies of a fleet under k times its budget."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from agents import optimal_reward, relaxation, relaxed_bound
from agents.evaluation.rollout import evaluate
from agents.evaluation.statistics import UNKNOWN, Estimate
from crawl_env import Sources
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.evaluation import plain
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import ParallelStudy
from experiments.core.data import Across, Case, Column, Data, Table, mean, value
from experiments.core.study import Part, PartsStudy, single

# ------------------------------------------------------------------------------- copies of a fleet


@dataclass(frozen=True)
class Prototype:
    """N sources and M budget units, to be copied k times."""

    sources: Callable[[], Sources]
    budget: float

    def copies(self, k: int) -> Sources:
        fleet = self.sources()
        return fleet.select(np.tile(np.arange(len(fleet)), k))

    @property
    def bound(self) -> float:
        """The relaxed bound of one copy: exactly 1/k of that of k copies."""
        return float(relaxation(self.sources(), self.budget).bound)


def mixed_costs() -> Sources:
    """Four sources with costs that leave two thirds of a budget of 3 unspent."""
    return Sources([10.0, 20, 5, 5], 1.0, [0.8, 0.4, 0.8, 0.4], [3.0, 1, 3, 3])


FLEETS = {
    "Table 1, M = 2": Prototype(lambda: Sources.preset("table1"), 2),
    "Table 1, M = 1.5": Prototype(lambda: Sources.preset("table1"), 1.5),
    "recovering-10, M = 3": Prototype(lambda: Sources.preset("recovering-10"), 3),
    "random, N = 10, M = 2": Prototype(lambda: Sources.random(10, seed=0), 2),
    "mixed costs, N = 4, M = 3": Prototype(mixed_costs, 3),
}
COPIES = (1, 2, 5, 10, 30, 100, 300, 1000, 3000, 10_000)
STEPS, WARMUP = 420, 300
SEEDS = ((10, 20), (100, 10), (1000, 4), (10_000, 2))  # up to so many copies, so many runs


class Curve(NamedTuple):
    """One curve: an agent, and arguments of its environment."""

    agent: str
    arguments: dict[str, Any]
    most: int  # copies


UNOBSERVED = "whittle, Poisson, not observed"
LINES = {
    "whittle": Curve("whittle", {"start": "random"}, 10_000),
    "lagrangian": Curve("lagrangian", {"start": "random"}, 10_000),
    "static": Curve("static", {"start": "random"}, 1000),
    "myopic": Curve("myopic", {"start": "random"}, 1000),
    "whittle, equal ages": Curve("whittle", {"start": "fresh"}, 1000),
    "whittle, budget on average": Curve(
        "whittle", {"start": "random", "budget_rule": "average"}, 1000
    ),
    UNOBSERVED: Curve(
        "whittle", {"start": "random", "arrivals": "poisson", "observed": False}, 100
    ),
}


def jobs(study: Any) -> list[Job]:
    """Return a job for each fleet, line and number of copies, the longest first; and one for each
    way to spend a budget under mixed costs."""
    return [
        *(
            {
                "columns": {"fleet": fleet, "policy": name, "copies": k},
                "agent": line.agent,
                "arguments": line.arguments,
                "runs": {
                    "steps": STEPS,
                    "warmup": WARMUP,
                    "seeds": 1 if name == "whittle, equal ages" else _seeds(k),
                    "seed": study.seed,
                },
            }
            for k in reversed(COPIES)
            for fleet in FLEETS
            for name, line in LINES.items()
            if k <= min(line.most, study.most)
        ),
        *({"columns": {"case": case, "way": way}} for case in CASES for way in WAYS),
    ]


def _seeds(k: int) -> int:
    return next(seeds for most, seeds in SEEDS if k <= most)


def work(job: Job) -> Result:
    """Return the rewards per step and copy of one agent on k copies of a fleet, and the gaps; or
    what a way to spend a budget earns."""
    case = job["columns"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a budget that no set of crawls uses up is of interest
        if "way" in case:
            fleet, budget = CASES[case["case"]]
            reward, cost = earned(fleet, budget, case["way"])
            cell = "" if np.isnan(cost) else cost
            return {"reward": reward, "cost": cell, "bound": relaxed_bound(fleet, budget)}
        one, k = FLEETS[case["fleet"]], case["copies"]
        arguments = {"sources": one.copies(k), "budget": k * one.budget, **job["arguments"]}
        rewards = evaluate(job["agent"], arguments, **job["runs"]).reward / k
    return {"reward_per_copy": rewards.tolist(), "gap": (1.0 - rewards / one.bound).tolist()}


# ------------------------------------------------------------------------------------- mixed costs

MIXED_STEPS = 4200
GREEDY, KNAPSACK, AVERAGE, OPTIMUM = WAYS = (
    "greedy by index (whittle)",
    "knapsack by index",
    "whittle, budget on average",
    "exact optimum, budget in every step",
)
CASES: dict[str, tuple[Sources, float]] = {
    "N = 4, costs 3, 1, 3, 3, M = 3": (mixed_costs(), 3.0),
    "N = 4, costs 1, 3, 1, 3, M = 4": (
        Sources([5.0, 10, 10, 5], 1.0, [0.8, 0.8, 0.4, 0.8], [1.0, 3, 1, 3]),
        4.0,
    ),
    "N = 4, costs 2, 2, 1, 3, M = 4": (
        Sources([20.0, 20, 40, 40], 1.0, [0.4, 0.8, 0.2, 0.4], [2.0, 2, 1, 3]),
        4.0,
    ),
}


def earned(fleet: Sources, budget: float, way: str) -> tuple[float, float]:
    """Return the reward and the cost per step of a way to spend the budget; the cost of the optimum
    is NaN."""
    if way == OPTIMUM:
        return optimal_reward(fleet, budget, 1e-6), np.nan
    agent = "whittle-knapsack" if way == KNAPSACK else "whittle"
    arguments: dict[str, Any] = {"sources": fleet, "budget": budget}
    if way == AVERAGE:
        arguments["budget_rule"] = "average"
    run = evaluate(agent, arguments, steps=MIXED_STEPS, warmup=420, seeds=1)
    return float(run.reward[0]), float(run.cost[0])


# --------------------------------------------------------------------------------------- the report

NOTHING = 1e-9  # a gap below is rounding


def slope(gaps: Mapping[int, FloatArray], resamples: int = 2000) -> Estimate:
    """Return the least-squares slope of ln(mean gap) against ln k, with its 95 % interval.

    gaps: of each k ≥ 1, the signed gaps of its runs. Numbers of copies whose mean gap is not
    above 0 by two standard errors are left out; the slope is unknown where fewer than three remain.
    The interval is a bootstrap over runs, which has no width where all runs are alike.

    >>> round(slope({k: np.array([2.0 / k]) for k in (1, 10, 100)}).mean, 6)
    -1.0
    """
    clear = {k: gap for k, gap in gaps.items() if gap.mean() > max(NOTHING, 2 * _error(gap))}
    if len(clear) < 3:
        return UNKNOWN
    x = np.log(list(clear))
    x = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    rng = np.random.default_rng(0)
    means = [x[rng.integers(0, x.size, (resamples, x.size))].mean(axis=-1) for x in clear.values()]
    slopes = x @ np.log(np.maximum(means, NOTHING))
    low, high = np.percentile(slopes, [2.5, 97.5])
    middle = x @ np.log([gap.mean() for gap in clear.values()])
    return Estimate(float(middle), float(low), float(high))


def _error(gap: FloatArray) -> float:
    return float(gap.std(ddof=1) / np.sqrt(gap.size)) if gap.size > 1 else 0.0


def _gaps(data: Data, case: Case) -> dict[int, FloatArray]:
    """Return the gaps of the runs of a line, by the number of copies."""
    return {int(k): data.numbers("gap", **case, copies=k) for k in data.values("copies", **case)}


def _gap_text(estimate: Estimate) -> str:
    if abs(estimate.mean) < NOTHING:
        return "0"
    width = 0.5 * (estimate.high - estimate.low)
    return f"{estimate.mean:.1e}" + (f" ± {width:.0e}" if width > NOTHING else "")


def claim(data: Data) -> str:
    """Return how close whittle comes to the bound with the most copies."""
    copies = max(map(int, data.values("copies", policy="whittle")))
    last = {
        fleet: data.numbers("gap", fleet=fleet, policy="whittle", copies=copies).mean()
        for fleet in data.values("fleet", policy="whittle")
    }
    most = max(last, key=lambda fleet: last[fleet])
    return (
        f"With {copies:,} copies whittle is within a thousandth of the relaxed bound on "
        f"{sum(gap < 1e-3 for gap in last.values())} of {len(last)} fleets; the largest gap is "
        f"{last[most]:.2%} ({most})."
    )


def curves(report: Report, data: Data) -> None:
    """Add the figure of the gaps: filled where they are positive, hollow where negative."""
    styles = {
        "whittle, equal ages": (plots.BLUE, ":"),
        "whittle, budget on average": (plots.GREEN, "-"),
        UNOBSERVED: (plots.GREY, "--"),
    }
    figure, axes = plots.new(2, 3, width=13, height=4, sharex=True, sharey=True)
    for axis, fleet in zip(axes.flat, FLEETS, strict=False):
        for label in LINES:
            gaps = _gaps(data, {"fleet": fleet, "policy": label})
            k, gap = np.array(list(gaps)), np.array([values.mean() for values in gaps.values()])
            size = np.maximum(np.abs(gap), NOTHING)
            colour, dashes = styles.get(label, (plots.colour(label), "-"))
            axis.plot(k, size, dashes, color=colour, lw=1.2, label=label)
            above = gap > NOTHING
            axis.plot(k[above], size[above], "o", color=colour, ms=4, label=f"_{label}")
            axis.plot(k[~above], size[~above], "o", mfc="w", color=colour, ms=5, label=f"_{label}")
        axis.set(xscale="log", yscale="log", title=fleet, ylim=(0.4 * NOTHING, 0.6))
        axis.set_xlabel("k, copies of fleet and budget")
    for axis in axes[:, 0]:
        axis.set_ylabel("|gap|, fraction of the bound")
    axes.flat[-1].axis("off")
    axes.flat[-1].legend(*axes.flat[0].get_legend_handles_labels(), loc="upper left")
    report.figure(
        figure,
        "Gap to the relaxed bound, as a fraction of it; filled: below the bound, hollow: on it "
        f"(drawn at {NOTHING:g}) or above.",
    )


def _spent(data: Data, case: Case) -> str:
    cost = data.where(**case)[0]["cost"]
    return f"{float(cost):.3g} of {CASES[case['case']][1]:g}" if cost else ""


PART = Part(
    jobs=jobs,
    work=work,
    content=(
        curves,
        "k copies of a fleet under k times its budget have k times its relaxed bound. The gap "
        f"is 1 − reward/bound; it is negative where a run of {STEPS} steps collects content that "
        f"arrived before ({WARMUP} steps are left out). Arrivals are deterministic unless said "
        "otherwise, and ages random at the start: from equal ages all copies are crawled at the "
        "same times, as one fleet is, and copying changes nothing. Slope: of ln gap against ln k, "
        "where the gap differs significantly from 0; −1 means that ten times the fleet has a tenth "
        "of the gap, −1/2 about a third. Intervals are 95 % intervals (bootstrap over runs, of "
        "which there are only 2 from 3 000 copies on).",
        Table(
            "{fleet}: gap (fraction of the bound), by the number of copies k",
            {"policy": "policy"},
            (
                Across("copies", (mean("gap"),), _gap_text, COPIES),
                Column("slope", lambda data, case: slope(_gaps(data, case)), lambda x: plain(x, 2)),
            ),
            each=("fleet",),
            where={"case": ""},
        ),
        Table(
            "Mixed costs: reward, utility / step",
            {"case": "fleet", "way": "how the budget is spent"},
            (
                Column("reward", value("reward"), ".4f"),
                Column("of bound", mean("reward", "bound"), ".2%"),
                Column("spent", _spent, str),
            ),
            where={"fleet": ""},
        ),
    ),
    claim=claim,
)


@dataclass(kw_only=True)
class Asymptotic(PartsStudy, ParallelStudy):
    """How the gap to the relaxed bound closes as a fleet and its budget are copied k times, and
    what greedy filling loses under mixed costs. Takes some three minutes."""

    title: ClassVar[str] = "As the fleet grows: the gap to the relaxed bound"
    parts: ClassVar[Mapping[str, Part]] = single(PART)

    most: int = 10_000
    """The largest number of copies."""
    seed: int = 0
    """Seed of the random starts and arrivals."""

    def run(self) -> None:
        if self.most < 1:
            raise ValueError(f"--most is {self.most}; it must be at least 1 copy")
        super().run()
