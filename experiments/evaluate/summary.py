"""Tables, advice and pictures for one fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from agents import statistics
from agents.evaluation import Evaluation
from crawl_env import Sources, relaxation
from experiments import plots
from experiments.report import Report
from experiments.tables import percent, plain, reachable, scores, share

# Differences below this share of the reward are not worth a recommendation.
_NOTABLE = 1e-3


def table(
    report: Report,
    fleet: Sources,
    budget: float,
    runs: Mapping[str, Evaluation],
    holds: bool,
    rule: str,
) -> None:
    """Add the policies side by side, best first."""
    relaxed = relaxation(reachable(fleet, budget, rule), budget)
    score = scores({name: run.reward for name, run in runs.items()})
    order = sorted(runs, key=lambda name: -runs[name].reward.mean())
    rows = [
        [
            name,
            statistics.mean(runs[name].reward),
            percent(share(runs[name].reward, relaxed.bound)),
            plain(score[name]),
            percent(share(runs[name].reward, fleet.published)),
            f"{runs[name].never.mean():g}",
            _number(
                np.nanmean(runs[name].delay) if np.isfinite(runs[name].delay).any() else np.nan
            ),
            f"{runs[name].cost.mean():.4g}",
        ]
        for name in order
    ]
    columns = [
        "policy",
        "reward / epoch",
        "share of bound" if holds else "of unseen bound*",
        "score",
        "share of published",
        "never visited",
        "delay (time)",
        "cost / epoch",
    ]
    report.heading(f"Budget {budget:g}")
    report.table(f"Policies under budget {budget:g}", columns, rows)
    unseen = "" if holds else " without seeing"
    star = "" if holds else " *The bound is for a crawler that cannot see; this one can pass it."
    report.paragraph(
        f"No policy earns more than {relaxed.bound:.5g} per epoch{unseen}; one more unit of budget "
        f"is worth λ* = {relaxed.price:.4g} per epoch. Score: 0 is a random choice, 1 is the "
        f"Whittle index. Delay: mean age of the items when collected.{star}"
    )


def advice(report: Report, fleet: Sources, budget: float, runs: Mapping[str, Evaluation]) -> None:
    """Add the sentence that says which policy to use, or that there is no clear winner."""
    order = sorted(runs, key=lambda name: -runs[name].reward.mean())
    best = order[0]
    if runs[best].reward.mean() <= 0:
        report.paragraph("Nothing was collected by any policy: the sources publish nothing.")
        return
    rivals = [name for name in order[1:] if not _clearly_better(runs[best], runs[name])]
    if rivals:
        report.paragraph(
            f"No clear winner: {', '.join([best, *rivals])} cannot be told apart (95 % intervals "
            f"of the differences on the same arrivals, or differences below {_NOTABLE:.1%})."
        )
    else:
        second = order[1]
        gain = statistics.bootstrap(
            lambda a, b: a.mean(-1) / b.mean(-1) - 1, runs[best].reward, runs[second].reward
        )
        report.paragraph(
            f"Use {best}: on the same arrivals it collects {percent(gain)} more than the next "
            f"best, {second}."
        )
    never = np.flatnonzero(runs[best].frequency == 0)
    if never.size:
        richest = never[np.argsort(-fleet.ceiling[never])][:5]
        names = ", ".join(fleet.name(i) for i in richest) + " and others" * (never.size > 5)
        report.paragraph(f"{best} never crawls {never.size} of {len(fleet)} sources: {names}.")


def curve(
    report: Report,
    fleet: Sources,
    runs: Mapping[float, Mapping[str, Evaluation]],
    holds: bool,
    rule: str,
) -> None:
    """Add reward against budget, and what one more unit of budget is worth."""
    budgets = np.array(list(runs))
    relaxed = [relaxation(reachable(fleet, m, rule), m) for m in budgets]
    names = list(runs[budgets[0]])
    report.heading("Reward against budget")
    rows = [
        [
            f"{m:g}",
            *(f"{runs[m][name].reward.mean():.5g}" for name in names),
            f"{r.bound:.5g}",
            f"{r.price:.4g}",
        ]
        for m, r in zip(budgets, relaxed, strict=True)
    ]
    bound = "bound" if holds else "unseen bound"
    report.table(
        "Reward per epoch, and the value λ* of one more unit of budget",
        ["budget", *names, bound, "λ*"],
        rows,
    )
    figure, (left, right) = plots.new(1, 2, width=10, height=3.6)
    for i, name in enumerate(names):
        reward = [statistics.mean(runs[m][name].reward) for m in budgets]
        style = {"color": plots.colour(name, i), "label": name}
        left.plot(budgets, [r.mean for r in reward], "o-", ms=4, **style)
        left.fill_between(
            budgets,
            [r.low for r in reward],
            [r.high for r in reward],
            alpha=0.2,
            color=style["color"],
        )
    left.plot(budgets, [r.bound for r in relaxed], "k--", lw=1, label=bound)
    left.set(xlabel="budget M", ylabel="reward / epoch", ylim=(0, None))
    left.legend()
    right.plot(budgets, [r.price for r in relaxed], "ko-", ms=4)
    right.set(xlabel="budget M", ylabel="λ*: value of one more unit of budget", ylim=(0, None))
    report.figure(figure, "What more budget buys.")


def per_source(
    fleet: Sources, runs: Mapping[float, Mapping[str, Evaluation]]
) -> list[dict[str, Any]]:
    """Return, for every source and budget, the crawls per epoch that each policy gives it."""
    return [
        {
            "budget": m,
            "source": fleet.name(i),
            **{f"crawls_{name}": float(run.frequency[i]) for name, run in agents.items()},
        }
        for m, agents in runs.items()
        for i in range(len(fleet))
    ]


def _clearly_better(best: Evaluation, other: Evaluation) -> bool:
    gap = statistics.difference(best.reward, other.reward)
    return gap.low > 0 and gap.mean > _NOTABLE * best.reward.mean()


def _number(x: float | np.floating) -> str:
    return "n/a" if np.isnan(x) else f"{x:.4g}"
