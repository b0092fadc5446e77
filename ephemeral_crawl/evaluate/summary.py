"""The report on one fleet: the answer, the schedule, tables, recommendation and figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.rollout import Evaluation
from agents.evaluation.statistics import number
from agents.registry import CLAIRVOYANT
from agents.theory.task_bound import Bound, EngineBound
from crawl_env import Sources, Task
from crawl_env.numerics import IntArray
from ephemeral_crawl.comparison import indexing, signals
from ephemeral_crawl.comparison import schedule as schedules
from ephemeral_crawl.comparison.answer import (
    POLICIES,
    against,
    collects,
    equal_utility,
    limit,
)
from ephemeral_crawl.comparison.present import Equal, Present
from ephemeral_crawl.comparison.schedule import Schedule
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.tables import (
    HOLDS_FOR,
    OBSERVES_ALL,
    REFERENCE,
    best_first,
    fraction,
    percent,
    plain,
    scores,
    without_reference,
)

# Differences below this fraction of the reward do not support a recommendation.
_NOTABLE = 1e-3
_IN_TURN = "oldest-first"

Runs = Mapping[str, Evaluation]


class View(NamedTuple):
    """The task to which the results belong."""

    task: Task  # under any of the budgets

    @property
    def fleet(self) -> Sources:
        return self.task.sources

    def relaxed(self, budget: float) -> Bound:
        """Return the bound under a budget, with the multiplier of a budget that can be saved."""
        return indexing.bound_of(self.task, budget)


class Found(NamedTuple):
    """All that was found, by budget as it was given; a sample has runs under scaled budgets."""

    tasks: Mapping[float, Task]  # as simulated
    runs: Mapping[float, Mapping[str, Evaluation]]
    plans: Mapping[float, Schedule]  # of all sources
    present: Present | None
    equal: Mapping[float, Equal | None]
    checks: tuple[str, ...]  # names in `runs` of what is played to check the schedule: not ranked
    of_all: IntArray | None  # None if the runs are of a sample
    note: str  # on the sample
    setting: str
    costs: Mapping[float, indexing.Cost]  # of an indexing engine; empty without one

    def peers(self, budget: float) -> dict[str, Evaluation]:
        """Return the policies, without the clairvoyant and without the checks."""
        peers = without_reference(self.runs[budget])[0]
        return {name: run for name, run in peers.items() if name not in self.checks}


def write(
    report: Report, found: Found, worth: Mapping[float, signals.Found] | None = None
) -> list[dict[str, Any]]:
    """Write the report; return the rows of schedule.csv.

    Arguments:
        worth: what signals are worth, by budget; empty or None without signals.
    """
    fleet = next(iter(found.tasks.values())).sources
    more = signals.answer(worth or {}, fleet) + indexing.answer(found.costs)
    report.answer(_answer(found) + more)
    if found.note:
        report.paragraph(found.note)
    views = {m: View(task) for m, task in found.tasks.items()}
    if len(views) > 1:
        curve(report, views, {m: found.peers(m) for m in views})
    else:
        _bars(report, found, *views.items())
    rows = []
    for m, plan in found.plans.items():
        report.heading(f"Budget {m:g}")
        peers = found.peers(m)
        measured = found.runs[m][REFERENCE].frequency if found.of_all is not None else None
        delay = found.runs[m][REFERENCE].delay
        known = delay[np.isfinite(delay)]
        mean = float(known.mean()) if known.size else float("nan")
        report.paragraph(schedules.counts(plan, mean))
        now = plan.rows(lambda time: f"{time:.6g}", measured)
        schedules.write(report, plan, now, "time")
        rows += now
        _checked(report, found, m)
        advice(report, views[m], peers)
        table(report, views[m], m, peers, found.runs[m].get(CLAIRVOYANT))
        if worth:
            signals.write(report, m, *worth[m], fleet)
        if found.costs:
            indexing.write(report, m, found.costs[m])
    with report.details("How this was measured, and definitions"):
        report.paragraph(found.setting)
        glossary(report)
    return rows


def _answer(found: Found) -> str:
    """Return the answer in one sentence, of the first budget if there are several."""
    texts: list[str] = []
    before = None
    for m, task in found.tasks.items():
        peers = found.peers(m)
        best = recommended(peers)
        whole = float(task.sources.published)
        if not whole > 0 or not peers[best].reward.mean() > 0:
            return "No policy collected any utility" + (
                ": the sources publish nothing." if not whole > 0 else ": too few steps."
            )
        text = collects(best, peers[best].reward.mean(), whole, m, before)
        other = peers.get(found.present.name if found.present else _IN_TURN)
        gain = None
        if other is not None and other.reward.mean() > 0:
            gain = statistics.gain(peers[best].reward, other.reward)
        texts.append(text + against(gain, found.present, found.equal[m], best, bool(texts)))
        before = best
    sentence = "; ".join(texts) + "."
    return f"Of all utility that the sources publish, {sentence}"


def _checked(report: Report, found: Found, budget: float) -> None:
    """Add what the schedule collects if it is played, what the maximum interval costs, and the
    budget of equal utility."""
    runs, plan = found.runs[budget], found.plans[budget]
    free, limited = (runs.get(name) for name in found.checks[:2])
    best = runs[REFERENCE].reward.mean()
    if free is not None and best > 0:
        report.paragraph(
            "Intervals are those of the optimal schedule under a budget that holds on average: a "
            "source is crawled when its Whittle index reaches the Lagrange multiplier λ* = "
            f"{number(plan.best.multiplier)}. Crawled at fixed intervals, as in schedule.csv, the "
            f"sources give {free.reward.mean() / best:.2%} of what whittle collects, which decides "
            f"step by step. The next crawl is the time from now {plan.assumed}."
            + schedules.WITHOUT_SIGNALS
            * next(iter(found.tasks.values())).sources.is_signalled
        )
    if np.isfinite(plan.longest):
        ratio = None
        if free is not None and limited is not None and free.reward.mean() > 0:
            ratio = 1 - limited.reward.mean() / free.reward.mean()
        report.paragraph(limit(plan, ratio))
    same = found.equal[budget]
    if same is not None and found.present is not None:
        report.paragraph(equal_utility(found.present.name, same))


def _bars(report: Report, found: Found, only: tuple[float, View]) -> None:
    """Add a figure of the policies under the only budget."""
    budget, view = only
    peers, whole = found.peers(budget), float(view.fleet.published)
    if not whole > 0:
        return
    order = best_first(peers)[::-1]
    figure, axis = plots.new(width=8, height=0.6 + 0.28 * len(order))
    for i, name in enumerate(order):
        got = statistics.mean(100 * peers[name].reward / whole)
        error = np.maximum([[got.mean - got.low], [got.high - got.mean]], 0.0)
        axis.barh(name, got.mean, xerr=error, color=plots.colour(name, i), height=0.7)
    bound = 100 * float(view.relaxed(view.task.budget).bound) / whole
    if np.isfinite(bound):
        axis.axvline(bound, color=plots.INK, ls="--", lw=1, label="upper bound")
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axis.set(xlabel="collected, % of all utility published", xlim=(0, None))
    axis.grid(axis="y", visible=False)
    report.figure(figure, f"Utility collected by each policy under budget {budget:g}.")


def recommended(peers: Runs) -> str:
    """Return the best policy, or whittle where it does not differ significantly from it."""
    best = best_first(peers)[0]
    better = _clearly_better(peers[best], peers[REFERENCE], len(peers) - 1)
    return best if better else REFERENCE


def table(
    report: Report, view: View, budget: float, runs: Runs, reference: Evaluation | None
) -> None:
    """Add the table of all policies, best first."""
    relaxed = view.relaxed(view.task.budget)
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
            f"is due to chance or to content at the start. {indexing.multipliers(relaxed)}"
        )
    else:
        report.paragraph("No upper bound is known for these arrivals.")


def advice(report: Report, view: View, runs: Runs) -> None:
    """Add the recommended policy, or state that the best policies do not differ significantly."""
    order, budget = best_first(runs), view.task.budget
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
    others = order[1:]
    rivals = [name for name in others if not _clearly_better(runs[best], runs[name], len(others))]
    if rivals:
        report.paragraph(
            f"No significant difference between {', '.join([best, *rivals])} (95 % intervals of "
            "the differences on the same arrivals, with Bonferroni's correction for "
            f"{len(others)} comparisons, or differences below {_NOTABLE:.1%})."
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


def curve(report: Report, views: Mapping[float, View], runs: Mapping[float, Runs]) -> None:
    """Add the reward and the Lagrange multiplier λ* as functions of the budget."""
    budgets = np.array(list(runs))
    relaxed = [view.relaxed(view.task.budget) for view in views.values()]
    names = list(runs[budgets[0]])
    report.heading("Reward by budget")
    bound = f"bound ({relaxed[0].name})"
    figure, (left, right) = plots.new(1, 2, width=10, height=3.6)
    for i, name in enumerate(names):
        reward = [statistics.mean(runs[m][name].reward) for m in budgets]
        style = {"color": plots.colour(name, i), "label": name}
        left.plot(budgets, [r.mean for r in reward], "o-", ms=4, **style)
    left.plot(budgets, [r.bound for r in relaxed], "k--", lw=1, label=bound)
    left.set(xlabel="budget M", ylabel="reward / step", ylim=(0, None))
    figure.legend(*left.get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    right.plot(budgets, [r.multiplier for r in relaxed], "ko-", ms=4)
    right.set(xlabel="budget M", ylabel="Lagrange multiplier λ*", ylim=(0, None))
    report.figure(figure, "Reward per step and Lagrange multiplier by budget; means of all runs.")
    rows = [
        *([name, *(number(runs[m][name].reward.mean()) for m in budgets)] for name in names),
        [bound, *(number(float(r.bound)) for r in relaxed)],
        ["λ*", *(f"{float(r.multiplier):.4g}" for r in relaxed)],
    ]
    prices = [float(r.price) for r in relaxed if isinstance(r, EngineBound)]
    if prices:
        rows.append(["κ*", *(f"{price:.4g}" for price in prices)])
    report.table(
        "Reward per step, and the Lagrange multiplier λ* (marginal reward of the budget)",
        ["policy", *(f"M = {m:g}" for m in budgets)],
        rows,
    )


def glossary(report: Report) -> None:
    """Add the definitions of the columns and of the policies."""
    report.paragraph(
        "Step: one decision period. Reward: utility at the time of collection, or, in front of an "
        "indexing engine, when an item is indexed. Of bound: "
        "fraction of the upper bound on the average reward of every policy with the same "
        "observations. Of published: fraction of the published utility, at the time of "
        "publication. Score: 0 is the random policy, 1 the Whittle index policy. Never visited: "
        "number of sources that were not crawled in a run, mean over runs. Delay: mean age of "
        "the items when they were collected."
    )
    report.paragraph(POLICIES)


def _clearly_better(best: Evaluation, other: Evaluation, comparisons: int) -> bool:
    """Return whether one policy is significantly better than another, where so many are compared
    (Bonferroni): the best of many is often ahead by chance."""
    gap = statistics.difference(best.reward, other.reward, level=1 - 0.05 / max(comparisons, 1))
    return gap.low > 0 and gap.mean > _NOTABLE * best.reward.mean()


def _mean_percent(run: Evaluation, whole: float) -> str:
    ratio = fraction(run.reward, whole).mean
    return "n/a" if np.isnan(ratio) else f"{ratio:.1%}"


def _mean(x: Any) -> str:
    known = x[np.isfinite(x)]
    return f"{known.mean():.4g}" if known.size else "n/a"


def _count(x: float) -> str:
    return f"{x:.0f}" if x == round(x) else f"{x:.1f}"
