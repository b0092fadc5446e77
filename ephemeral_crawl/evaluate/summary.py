"""Tables, recommendation and figures for one fleet."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.rollout import Evaluation
from agents.evaluation.statistics import number
from agents.theory.task_bound import Bound, task_bound
from crawl_env import Sources, Task
from crawl_env.fleet.parameters import PARAMETERS
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.tables import (
    FLOOR,
    HOLDS_FOR,
    OBSERVES_ALL,
    best_first,
    fraction,
    percent,
    plain,
    scores,
    without_reference,
)
from ephemeral_crawl.evaluate.replay import Replay

# Differences below this fraction of the reward do not support a recommendation.
_NOTABLE = 1e-3

Runs = Mapping[str, Evaluation]

# A description of the policies for the reports.
POLICIES = (
    "whittle crawls the sources of the largest Whittle index; whittle-exact uses the index of "
    "random content that is observed. myopic maximises the reward of the next step per unit of "
    "cost; oldest-first crawls the sources in turn; fixed always crawls the same sources, those "
    "of the largest expected utility per unit of cost; random selects them at random. lagrangian "
    "crawls the sources whose index exceeds the optimal Lagrange multiplier λ*; static crawls "
    "every source at its own optimal constant frequency. nutch and miniflux are scheduling rules "
    "of existing crawlers, based on the results of their own crawls only: the crawl interval of "
    "nutch shrinks by a fifth after a crawl that found new items and grows by two fifths "
    "otherwise; that of miniflux is a week divided by the number of items of the week, with a "
    "step in place of an hour. Policies whose names begin with adaptive- are not given the "
    "arrival rates and estimate them from their crawls: certainty uses the posterior means, "
    "optimism upper confidence bounds, thompson draws from the posterior; self-tuning estimates "
    "utilities and decay as well. clairvoyant, where listed, is whittle with observed content: a "
    "reference that cannot be used in practice. In a program, agents.index_at_age(age, sources) "
    "returns the index by which whittle ranks the sources."
)


class View(NamedTuple):
    """The task to which the results belong."""

    task: Task  # under any of the budgets

    @property
    def fleet(self) -> Sources:
        return self.task.sources

    def relaxed(self, budget: float) -> Bound:
        """Return the bound under a budget, with the multiplier of a budget that can be saved."""
        with warnings.catch_warnings():  # the command has warned of too expensive sources
            warnings.simplefilter("ignore")
            task = self.task.replaced(budget=budget)
            multiplier = task_bound(task.replaced(budget_rule="average")).multiplier
            return task_bound(task)._replace(multiplier=multiplier)


def answer(view: View, runs: Mapping[float, Runs]) -> str:
    """Return a sentence on what the best policy collects under each budget."""
    parts = []
    for m, of_budget in runs.items():
        peers = without_reference(of_budget)[0]
        best = best_first(peers)[0]
        shares = [
            f"{name} {_mean_percent(peers[name], float(view.fleet.published))}"
            for name in dict.fromkeys((best, "oldest-first", FLOOR))
            if name in peers
        ]
        parts.append(f"under budget {m:g}, {', '.join(shares)}")
    return f"Of the utility that the sources publish, policies collect: {'; '.join(parts)}."


def table(
    report: Report, view: View, budget: float, runs: Runs, reference: Evaluation | None
) -> None:
    """Add the table of all policies, best first, and the crawl frequencies of the best policy."""
    relaxed = view.relaxed(budget)
    score = scores(runs)

    def row(name: str, run: Evaluation, *of_peers: str) -> list[Any]:
        return [
            name,
            statistics.mean(run.reward),
            *of_peers,
            _mean_percent(run, float(view.fleet.published)),
            _count(run.never.mean()),
            _mean(run.delay),
            number(run.cost.mean()),
        ]

    rows = [
        row(name, run, _mean_percent(run, float(relaxed.bound)), plain(score[name]))
        for name, run in ((name, runs[name]) for name in best_first(runs))
    ]
    if reference is not None:
        rows.append(row(OBSERVES_ALL, reference, "", ""))
    columns = [
        "policy",
        "reward / step",
        f"of bound ({relaxed.name})",
        "score",
        "of published",
        "never visited",
        "delay (time)",
        "cost / step",
    ]
    report.table(f"Policies under budget {budget:g}", columns, rows)
    if relaxed.name in HOLDS_FOR:
        report.paragraph(
            f"In the long run no {HOLDS_FOR[relaxed.name]} averages more than "
            f"{number(float(relaxed.bound))} per step. A measured fraction slightly above 100 % "
            "is due to chance or to content at the start. Under an average budget, one more unit "
            f"of budget per step increases the reward by λ* = {float(relaxed.multiplier):.4g} per "
            "step."
        )
    else:
        report.paragraph("No upper bound is known for these arrivals.")
    best = best_first(runs)[0]
    _plan(report, view.fleet, best, runs[best])


def advice(report: Report, view: View, budget: float, runs: Runs) -> None:
    """Add the recommended policy, or state that the best policies do not differ significantly."""
    order = best_first(runs)
    best = order[0]
    if budget >= view.fleet.cost.sum():
        report.paragraph(
            "The budget covers all sources, so that every source can be crawled in every step."
        )
        return
    if runs[best].reward.mean() <= 0:
        reason = "the sources publish nothing" if view.fleet.published == 0 else "too few steps"
        report.paragraph(f"No policy collected any utility: {reason}.")
        return
    rivals = [name for name in order[1:] if not _clearly_better(runs[best], runs[name])]
    if rivals:
        report.paragraph(
            f"No significant difference between {', '.join([best, *rivals])} (95 % intervals of "
            f"the differences on the same arrivals, or differences below {_NOTABLE:.1%})."
        )
    else:
        second = order[1]
        gain = statistics.gain(runs[best].reward, runs[second].reward)
        report.paragraph(
            f"Recommended policy: {best}. On the same arrivals it collects {percent(gain)} more "
            f"than the next best, {second}."
        )
    unspent = budget - runs[best].cost.mean()
    if view.task.budget_rule == "step" and unspent > 0.01 * budget:
        report.paragraph(
            f"{best} leaves {unspent:.3g} of {budget:g} unspent on average, since no remaining "
            "source is cheap enough; with --budget-rule average, unspent budget is carried over."
        )
    _never(report, view.fleet, best, runs[best])


def _never(report: Report, fleet: Sources, best: str, run: Evaluation) -> None:
    never = np.flatnonzero(run.frequency == 0)
    if not never.size:
        return
    publishes = fleet.arrival_rate * fleet.mean_utility * fleet.period
    silent = int(np.count_nonzero(publishes[never] == 0))
    text = f"{best} never crawls {never.size} of {len(fleet)} sources"
    if silent:
        text += f" ({silent} of them publish nothing)"
    if silent < never.size:
        richest = never[np.argsort(-publishes[never], kind="stable")][: min(5, never.size - silent)]
        names = ", ".join(f"{fleet.name(i)} ({number(publishes[i])})" for i in richest)
        text += (
            f"; together they publish {publishes[never].sum() / fleet.published:.1%} of all "
            f"utility. Those that publish most (utility per step): {names}"
        )
    report.paragraph(text + ".")


def _plan(report: Report, fleet: Sources, best: str, run: Evaluation) -> None:
    order = np.argsort(-run.frequency, kind="stable")[:20]
    rows = [
        [fleet.name(i), f"{run.frequency[i]:.3f}", _interval(run.frequency[i], fleet.period)]
        for i in order
        if run.frequency[i] > 0
    ]
    more = "" if len(fleet) <= 20 else " (the 20 most crawled; all of them are in sources.csv)"
    report.table(
        f"Crawl frequencies of {best}{more}",
        ["source", "crawls / step", "mean interval (time)"],
        rows,
    )


def curve(report: Report, view: View, runs: Mapping[float, Runs]) -> None:
    """Add the reward and the Lagrange multiplier λ* as functions of the budget."""
    budgets = np.array(list(runs))
    relaxed = [view.relaxed(m) for m in budgets]
    names = list(without_reference(runs[budgets[0]])[0])
    report.heading("Reward by budget")
    bound = f"bound ({relaxed[0].name})"
    rows = [
        [
            f"{m:g}",
            *(number(runs[m][name].reward.mean()) for name in names),
            number(float(r.bound)),
            f"{float(r.multiplier):.4g}",
        ]
        for m, r in zip(budgets, relaxed, strict=True)
    ]
    report.table(
        "Reward per step, and the Lagrange multiplier λ* (marginal reward of the budget)",
        ["budget", *names, bound, "λ*"],
        rows,
    )
    figure, (left, right) = plots.new(1, 2, width=10, height=3.6)
    for i, name in enumerate(names):
        reward = [statistics.mean(runs[m][name].reward) for m in budgets]
        style = {"color": plots.colour(name, i), "label": name}
        left.plot(budgets, [r.mean for r in reward], "o-", ms=4, **style)
        low, high = [r.low for r in reward], [r.high for r in reward]
        left.fill_between(budgets, low, high, alpha=0.2, color=style["color"])
    left.plot(budgets, [r.bound for r in relaxed], "k--", lw=1, label=bound)
    left.set(xlabel="budget M", ylabel="reward / step", ylim=(0, None))
    left.legend()
    right.plot(budgets, [r.multiplier for r in relaxed], "ko-", ms=4)
    right.set(xlabel="budget M", ylabel="Lagrange multiplier λ*", ylim=(0, None))
    report.figure(figure, "Reward per step and Lagrange multiplier by budget.")


def glossary(report: Report) -> None:
    """Add the definitions of the columns and of the policies."""
    report.heading("Definitions")
    report.paragraph(
        "Step: one decision period. Reward: utility at the time of collection. Of bound: "
        "fraction of the upper bound on the average reward of every policy with the same "
        "observations. Of published: fraction of the published utility, at the time of "
        "publication. Score: 0 is the random policy, 1 the Whittle index policy. Never visited: "
        "number of sources that were not crawled in a run, mean over runs. Delay: mean age of "
        "the items when they were collected."
    )
    report.paragraph(POLICIES)


def per_source(
    fleet: Sources, runs: Mapping[float, Mapping[str, Evaluation | Replay]]
) -> list[dict[str, Any]]:
    """Return the crawls per step of every source under each budget and policy."""
    return [
        {
            "budget": m,
            "source": fleet.name(i),
            **{name: float(getattr(fleet, name)[i]) for name in PARAMETERS},
            **{f"crawls_per_step_{name}": float(run.frequency[i]) for name, run in agents.items()},
        }
        for m, agents in runs.items()
        for i in range(len(fleet))
    ]


def _clearly_better(best: Evaluation, other: Evaluation) -> bool:
    gap = statistics.difference(best.reward, other.reward)
    return gap.low > 0 and gap.mean > _NOTABLE * best.reward.mean()


def _mean_percent(run: Evaluation, whole: float) -> str:
    ratio = fraction(run.reward, whole).mean
    return "n/a" if np.isnan(ratio) else f"{ratio:.1%}"


def _mean(x: Any) -> str:
    known = x[np.isfinite(x)]
    return f"{known.mean():.4g}" if known.size else "n/a"


def _count(x: float) -> str:
    return f"{x:.0f}" if x == round(x) else f"{x:.1f}"


def _interval(frequency: float, period: float) -> str:
    return f"{period / frequency:.4g}"
