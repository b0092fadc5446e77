"""The corrections to the printed paper, each shown by computing it."""

from __future__ import annotations

import numpy as np

from agents import relaxed_bound, whittle_index
from agents.evaluation import statistics
from agents.evaluation.rollout import evaluate
from agents.policies.base import ObservationView
from agents.policies.index import IndexAgent
from agents.theory.observed import ObservedArm
from crawl_env import Sources
from crawl_env.content.arrivals import Arrivals
from crawl_env.content.utility import Exponential, Lognormal
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core.report import Report
from experiments.paper.numbers import PRINTED, Records, note
from experiments.paper.runs import crawl, long_run


class LiteralWhittle(IndexAgent):
    """The index as printed: log⁺ is 0 above the ceiling, and the index with it.

    Sources of index 0 are then many; the lower number goes first.
    """

    name = "whittle as printed"

    def priority(self, view: ObservationView) -> FloatArray:
        priority = super().priority(view)
        return np.where(priority > 0, priority, -1e-6 * np.arange(self.task.n))

    def index(self, value: FloatArray, sources: Sources) -> FloatArray:
        return literal_index(value, sources)


def literal_index(value: FloatArray, sources: Sources) -> FloatArray:
    """Theorem 1 with the printed convention log⁺ z = log z · [z > 0], (..., N)."""
    retention, inflow = sources.retention, sources.inflow
    left = (inflow - (1 - retention) * value) / inflow
    positive = left > 0
    steps = np.where(positive, np.ceil(np.log(np.where(positive, left, 1)) / np.log(retention)), 0)
    content = (1 - retention**steps) / (1 - retention) * inflow
    gamma: FloatArray = (steps * ((1 - retention) * value - inflow) + content) / sources.cost
    return gamma


def above_the_ceiling(report: Report, records: Records, seeds: int, steps: int) -> None:
    report.paragraph(
        "1. Above the ceiling. Random arrivals can bring more than u*. With the printed log⁺ the "
        "index is then 0, and the sources with the largest values are never crawled. The dynamic "
        "program with λ ≥ u*/C gives x/C there, which joins Theorem 1 continuously. Fleet F (25 "
        "sources, exponential ξ, observed):"
    )
    fleet = Sources.preset("fleet-f")
    rows = []
    for m in (2, 5, 10):
        task = {"sources": fleet, "budget": m, "arrivals": "poisson"}
        runs = {"steps": steps, "warmup": 500, "seeds": seeds}
        printed = evaluate(lambda env: LiteralWhittle(env.task), task, **runs).reward  # type: ignore[arg-type]
        extended = evaluate("whittle", task, **runs).reward  # type: ignore[arg-type]
        loss = statistics.loss(printed, extended)
        rows.append([m, statistics.mean(printed), statistics.mean(extended), _percent(loss)])
        note(records, f"fleet F, M={m}, index as printed", printed.mean())
        note(records, f"fleet F, M={m}, index extended", extended.mean())
    report.table(
        "Reward of fleet F, utility / step",
        ["M", "index as printed", "extended by x/C", "loss of the printed one"],
        rows,
    )
    value = Sources.preset("table1").content_at(np.array([[60.0], [200.0]]))
    table1 = Sources.preset("table1")
    report.paragraph(
        "The deterministic case fails too, as soon as x rounds to u*. Index of Table 1's sources "
        f"after 200 steps without a crawl: as printed {_list(literal_index(value, table1)[1])}; "
        f"extended {_list(whittle_index(value, table1)[1])}."
    )


def short_average(report: Report, records: Records) -> None:
    run = crawl(61, start="empty")
    short, long = run.reward.mean(), long_run(crawl(2000))[0]
    note(records, "whittle, M=1, mean of 61 steps from X(0) = 0", short, PRINTED["whittle, M=1"])
    report.paragraph(
        f"2. {PRINTED['whittle, M=1']} is not a long-run average. It is the mean over the 61 "
        f"steps m = 0 … 60 from X(0) = 0: {short:.4f}. The long-run average of the same policy is "
        f"{long:.6f}."
    )


def observed_arrivals(report: Report, records: Records) -> None:
    report.paragraph(
        "3. “The conclusions of Theorem 1 continue to hold” for observed random arrivals is not "
        "exact: X is then not monotone between crawls, and the arm's index solves "
        "V(x) + β = max(Cλ + E V(αx+U), x + E V(U)). Its numerical solution (error below .003 u*) "
        "against the closed form, μT = .2, exponential ξ; `python -m experiments arm` has more:"
    )
    rows = []
    for items in (1.0, 5.0, 25.0, 250.0):
        fleet = Sources(items, 1.0, 0.2)
        ceiling = fleet.ceiling[0]
        x = np.linspace(0.05, 1.5, 30) * ceiling
        exact = ObservedArm(fleet, np.array([True]), Exponential()).index(x[:, None])[:, 0]
        gap = (whittle_index(x[:, None], fleet)[:, 0] - exact) / ceiling
        worst = int(np.abs(gap).argmax())
        rows.append([f"{items:g}", f"{gap[worst]:+.3f}", f"{x[worst] / ceiling:.2f}"])
        note(records, f"closed form minus arm's index, fraction of u*, ΛT={items:g}", gap[worst])
    report.table(
        "Largest difference, closed form minus the arm's index",
        ["ΛT", "difference / u*", "at x / u*"],
        rows,
    )
    fleet = Sources.preset("fleet-f")
    report.paragraph(
        "Observing the content raises the reward more than any index can: without observation, no "
        f"policy exceeds {relaxed_bound(fleet, 2):.3f} (M = 2) or {relaxed_bound(fleet, 10):.3f} "
        "(M = 10) on fleet F, and the rewards above, with observation, do."
    )


def missing_period(report: Report) -> None:
    fleet = Sources(250.0, 1.0, 0.7, period=2.0)
    middle = fleet.arrival_rate * -np.expm1(-fleet.decay_per_step) / fleet.decay_per_step
    report.paragraph(
        "4. Equation (1) omits the factor T in its middle expression, Λ E[ξ exp(−μτ)] with τ "
        f"uniform on a step. For source 1 at T = 2 it gives {middle[0]:.3f}; with the factor "
        f"{2 * middle[0]:.3f}, the right-hand side (Λξ̄/μ)(1 − exp(−μT)) = {fleet.inflow[0]:.3f}."
    )


def source_one(report: Report, records: Records, seeds: int, steps: int) -> None:
    rows = []
    for name, utility in (
        ("exponential", "exponential"),
        ("constant", "constant"),
        ("lognormal, σ = 1.2", Lognormal(1.2)),
    ):
        task = {"budget": 2, "arrivals": Arrivals(utility=utility)}
        fraction = evaluate("whittle", task, steps=steps, seeds=seeds).frequency[0]
        rows.append([name, f"{fraction:.5f}"])
        note(records, f"fraction of steps in which source 1 is crawled, ξ {name}", fraction)
    report.paragraph(
        "5. The remark that source 1 is crawled only “from time to time” in the stochastic example "
        "(M = 2) could not be reproduced."
    )
    report.table(
        "Fraction of steps in which source 1 is crawled",
        ["distribution of ξ", "fraction"],
        rows,
    )


def _percent(estimate: statistics.Estimate) -> str:
    return f"{estimate.mean:.1%} [{estimate.low:.1%}, {estimate.high:.1%}]"


def _list(numbers: FloatArray) -> str:
    return ", ".join(f"{x:.4g}" for x in numbers)
