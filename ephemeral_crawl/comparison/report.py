"""The report of a comparison: what each policy collects of the events that all met."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from agents.evaluation.statistics import Estimate, number
from crawl_env.errors import counted
from ephemeral_crawl.comparison import indexing, signals
from ephemeral_crawl.comparison import schedule as schedules
from ephemeral_crawl.comparison.events import (
    IN_TURN,
    NOTABLE,
    OF_LIMIT,
    OF_SCHEDULE,
    C,
    R,
    Results,
    StepEvents,
)
from ephemeral_crawl.comparison.present import Equal, Present
from ephemeral_crawl.comparison.schedule import Schedule
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.evaluation import REFERENCE, part_of, percent
from ephemeral_crawl.core.report import Report

# A description of the policies for the reports.
POLICIES = (
    "whittle crawls the sources of the largest Whittle index; whittle-exact uses the index of "
    "random content that is observed or announced by signals. myopic maximises the reward of the "
    "next step per unit of cost; oldest-first crawls the sources in turn; fixed always crawls the "
    "same sources, those of the largest expected utility per unit of cost; random selects them at "
    "random. lagrangian crawls the sources whose index exceeds the optimal Lagrange multiplier "
    "λ*; static crawls every source at its own optimal constant frequency. nutch and miniflux are "
    "scheduling rules of existing crawlers, based on the results of their own crawls only: the "
    "crawl interval of nutch shrinks by a fifth after a crawl that found new items and grows by "
    "two fifths otherwise; that of miniflux is a week divided by the number of items of the week, "
    "with a step in place of an hour. Policies whose names begin with adaptive- are not given the "
    "arrival rates and estimate them from their crawls: certainty uses the posterior means, "
    "optimism upper confidence bounds, thompson draws from the posterior; self-tuning estimates "
    "utilities and decay as well. clairvoyant, where listed, is whittle with observed content: a "
    "reference that cannot be used in practice. ping-first, which joins if sources send signals, "
    "fetches whatever pinged, and the other sources in turn. In a program, "
    "agents.index_at_age(age, sources) returns the index by which whittle ranks the sources."
)


class Plans(NamedTuple):
    """What the report of a comparison in steps says beside the policies, by budget."""

    schedules: dict[float, Schedule]  # of all sources
    measured: bool  # whether the sources of the schedules were played, and not a sample
    worth: dict[float, signals.SignalGains]  # of signals; empty without any
    costs: dict[float, indexing.Cost]  # of an indexing engine; empty without one
    notes: Sequence[str]


def write(
    report: Report, events: StepEvents[C], results: Results[C], plans: Plans
) -> list[dict[str, Any]]:
    """Write the report of a comparison in steps; return the rows of schedule.csv."""
    fleet = events.fleet
    report.answer(
        answer(results) + signals.answer(plans.worth, fleet) + indexing.answer(plans.costs)
    )
    for note in plans.notes:
        report.paragraph(note)
    overview(report, results)
    rows: list[dict[str, Any]] = []
    for m, plan in plans.schedules.items():
        report.heading(f"Budget {m:g}")
        rows += _schedule(report, events, results, plan, m, plans.measured)
        _advice(report, events, results, m)
        results.table(report, m)
        events.remarks(report, results, m)
        if plans.worth:
            signals.write(report, m, *plans.worth[m], fleet)
        if plans.costs:
            indexing.write(report, m, plans.costs[m])
    events.ending(report, results, any(np.isfinite(p.longest) for p in plans.schedules.values()))
    with report.details("How this was measured, and definitions"):
        events.setting(report)
        report.paragraph(POLICIES)
    return rows


# ---------------------------------------------------------------------------------------- answer


def answer(results: Results[R]) -> str:
    """Return a sentence on what the recommended policy collects under each budget."""
    events, rule = results.events, results.present
    texts: list[str] = []
    before = None
    for m in results.runs:
        peers = results.peers(m)
        best = events.recommended(peers)
        if not events.published > 0:
            return "No policy collected any utility: the sources publish nothing."
        if not results.reward(m, best) > 0:
            return "No policy collected any utility: too few steps."
        text = collects(best, results.reward(m, best), events.published, m, before)
        other = rule.name if rule else IN_TURN
        gain = None
        if other in peers and other != best and results.reward(m, other) > 0:
            gain = events.gain(peers[best], peers[other])
        text += against(gain, rule is not None, bool(texts))
        if rule is not None and m in results.equal:
            part = results.reward(m, rule.name) / events.published
            text += equals(rule, results.equal[m], best, part)
        texts.append(text)
        before = best
    return f"Of all utility {events.what}, {'; '.join(texts)}."


def collects(best: str, part: float, whole: float, budget: float, before: str | None) -> str:
    """Return the beginning of a sentence on what the best policy collects under a budget.

    Arguments:
        before: the best policy of the budget before, which the sentence is already about; None
            for the first.
    """
    fraction = f"{part / whole:.0%} with"
    if before is None:
        return f"{best} collects {fraction} a budget of {budget:g} per step"
    return f"{fraction} {budget:g}" if best == before else f"{best} {fraction} {budget:g}"


def against(gain: Estimate | None, present: bool, again: bool = False) -> str:
    """Return the part of a sentence that compares the best policy with another one, or "".

    Arguments:
        gain: of the best policy over the other one, as a fraction, under the same budget; None if
            there is none. Nothing is claimed if its interval contains 0.
        present: whether the other one is the present rule, or crawling all sources in turn.
        again: the sentence has already said what it is compared with.
    """
    if gain is None:
        return ""
    words = "your present rule" if present else "crawling all sources in turn"
    if not gain.excludes(0.0):
        return ", which does not differ significantly" + ("" if again else f" from {words}")
    text = f", {abs(gain.mean):.0%} {'more' if gain.mean > 0 else 'less'}"
    return text + ("" if again else f" than {words}")


def equals(rule: Present, same: Equal | None, best: str, part: float) -> str:
    """Return the end of a sentence on the budget with which whittle equals the present rule.

    Arguments:
        same: where it does, or None.
        best: the best policy, which the sentence is about.
        part: of all utility, that the present rule collects.
    """
    if same is None:
        now = "" if rule.rates is None else f"; your present rule collects {part:.0%}"
        return f"{now} (it is not certain that whittle collects as much under the same budget)"
    text = ""
    if rule.rates is not None:
        ahead = same.same.reward / same.present.reward - 1 if same.present.reward > 0 else 0.0
        text = (
            f"; your present rule costs {same.present.cost:.3g} per step, and with "
            f"{same.same.cost:.3g} whittle collects {ahead:.0%} more than that rule"
        )
    if same.fewer < 0.005:
        return text
    who = "" if best == REFERENCE else f"{REFERENCE} collects "
    return f"{text}, or {who}at least as much with {same.fewer:.0%} fewer fetches"


# --------------------------------------------------------------------------------------- figures


def overview(report: Report, results: Results[R]) -> None:
    """Add a figure of all policies, and for several budgets a table of it."""
    if not results.events.published > 0:
        return
    if len(results.runs) > 1:
        _curve(report, results)
    else:
        _bars(report, results, next(iter(results.runs)))


def _bars(report: Report, results: Results[R], budget: float) -> None:
    """Add a figure of the policies under the only budget."""
    events, peers, whole = results.events, results.peers(budget), results.events.published
    figure, axis = plots.new(width=8, height=0.6 + 0.28 * len(peers))
    for i, name in enumerate([*peers][::-1]):
        share = Estimate(*(100 * x / whole for x in events.reward(peers[name])))
        error = (
            None if np.isnan(share.low) else [[share.mean - share.low], [share.high - share.mean]]
        )
        axis.barh(name, share.mean, xerr=error, color=plots.colour(name, i), height=0.7)
    for name, most, line in _limits(results, [budget]):
        axis.axvline(100 * most[0] / whole, color=plots.INK, ls=line, lw=1, label=name)
    axis.set(xlabel="collected, % of all utility published", xlim=(0, None))
    axis.grid(axis="y", visible=False)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    report.figure(figure, f"Utility collected by each policy under budget {budget:g}.")


def _curve(report: Report, results: Results[R]) -> None:
    """Add what is collected, and the Lagrange multiplier λ*, as functions of the budget."""
    events, budgets, whole = results.events, [*results.runs], results.events.published
    names = [*results.peers(budgets[0])]
    curves = {name: [results.reward(m, name) for m in budgets] for name in names}
    bounds = _limits(results, budgets)
    report.heading("Collected utility by budget")
    prices = events.prices([results.own(m) for m in budgets])
    figure, axes = plots.new(1, 1 + bool(prices), width=10, height=3.6, squeeze=False)
    left, *right = axes[0]
    for i, (name, values) in enumerate(curves.items()):
        fraction = [100 * x / whole for x in values]
        left.plot(budgets, fraction, "o-", ms=4, color=plots.colour(name, i), label=name)
    for name, most, line in bounds:
        left.plot(budgets, [100 * x / whole for x in most], "k" + line, lw=1, label=name)
    left.set(xlabel="budget M", ylabel="fraction of all utility, %", ylim=(0, None))
    figure.legend(*left.get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    for axis, (name, price) in zip(right, prices.items(), strict=False):
        axis.plot(budgets, price, "ko-", ms=4)
        axis.set(xlabel="budget M", ylabel=f"Lagrange multiplier {name}", ylim=(0, None))
    report.figure(figure, "Fraction of the published utility that is collected, by budget.")
    parts = {**curves, **{name: most for name, most, _ in bounds}}
    rows = [
        [events.labels.get(name, name), *(part_of(x, whole) for x in values)]
        for name, values in parts.items()
    ]
    rows += [[name, *(f"{x:.4g}" for x in price)] for name, price in prices.items()]
    report.table(
        "Fraction of all published utility"
        + ", and the Lagrange multiplier λ* (marginal reward of the budget)" * bool(prices),
        ["policy", *(f"M = {m:g}" for m in budgets)],
        rows,
    )


def _limits(results: Results[R], budgets: Sequence[float]) -> list[tuple[str, list[float], str]]:
    """Return names, utilities under each budget and line styles of what no policy exceeds."""
    events = results.events
    limits = [
        (name, [results.reward(m, name) for m in budgets], ":")
        for name in results.references(budgets[0])
    ]
    limits.append((events.bound_name, [events.bound(results.own(m)) for m in budgets], "--"))
    return [limit for limit in limits if np.isfinite(limit[1]).all() and min(limit[1]) > 0]


# ---------------------------------------------------------------------------------------- tables


def _schedule(
    report: Report,
    events: StepEvents[C],
    results: Results[C],
    plan: Schedule,
    budget: float,
    measured: bool,
) -> list[dict[str, Any]]:
    """Add the schedule, what it collects if it is played, what the maximum interval costs, and the
    budget of equal utility; return the rows of the schedule."""
    run, same = results.runs[budget][REFERENCE], results.equal.get(budget)
    rows = plan.rows(events.when, events.frequency(run) if measured else None)
    delay = np.atleast_1d(run.delay)
    delay = delay[np.isfinite(delay)]
    mean = float(delay.mean()) if delay.size else float("nan")
    report.paragraph(schedules.counts(plan, mean, events.unit))
    schedules.write(report, plan, rows, events.unit)
    free, with_limit = (results.reward(budget, name) for name in (OF_SCHEDULE, OF_LIMIT))
    best = results.reward(budget, REFERENCE)
    if best > 0:
        report.paragraph(
            "The schedule is the optimal one under a budget that holds on average: a source is "
            "crawled when its Whittle index reaches the Lagrange multiplier λ* = "
            f"{number(plan.best.multiplier)}. Played at its fixed intervals, such a schedule"
            f"{events.basis} collects {free / best:.2%} of what whittle collects, which decides "
            "step by step. The next crawl of a source is when whittle would crawl it, "
            f"{plan.assumed}.{schedules.own_multiplier(events.task(budget))}"
        )
    if np.isfinite(plan.longest):
        report.paragraph(limit(plan, 1 - with_limit / free if free > 0 else None))
    if same is not None and results.present is not None:
        report.paragraph(equal_utility(results.present.name, same, events.same))
    return rows


def equal_utility(name: str, same: Equal, events: str) -> str:
    """Return sentences on the present rule, and on the budget at which whittle equals it."""
    return (
        f"Your present rule ({name}) collects {number(same.present.reward)} per step for a cost of "
        f"{same.present.cost:.4g} per step. With a budget of {same.same.budget:.4g} whittle "
        f"collects {number(same.same.reward)}. With a budget of {same.run.budget:.4g} it spends "
        f"{same.run.cost:.4g} ({abs(same.fewer):.1%} {'less' if same.fewer >= 0 else 'more'}) and "
        f"collects {number(same.run.reward)}: the "
        "smallest budget found with which it collects at least as much as your present rule, with "
        f"95 % confidence on the same {events}."
    )


def limit(plan: Schedule, measured: float | None) -> str:
    """Return a sentence on what the maximum interval costs.

    Arguments:
        measured: the fraction of the reward that was lost when both schedules were played.
    """
    period = plan.task.sources.period
    late = plan.free.interval > plan.longest
    never = plan.free.crawls == 0
    number_rarer = int((late & ~never).sum())
    text = (
        f"A maximum interval of {plan.longest * period:g} costs {plan.price:.2%} of the utility: "
        f"{counted(number_rarer, 'source')} would otherwise be crawled less often, and "
        f"{int(never.sum())} never."
    )
    if measured is not None:
        by = f"{abs(measured):.2%} {'less' if measured >= 0 else 'more'}"
        text += f" Played, the schedule with the limit collects {by} than without."
    return (
        f"{text} The policies in the table below have no maximum interval; without one, λ* of the "
        f"schedule is {number(plan.free.multiplier)}."
    )


# ---------------------------------------------------------------------------------------- advice


def _advice(report: Report, events: StepEvents[C], results: Results[C], budget: float) -> None:
    """Add the recommended policy, or state that the best policies do not differ significantly."""
    peers, fleet = results.peers(budget), events.fleet
    best, *others = peers
    scaled = results.own(budget)
    if scaled >= fleet.cost.sum():
        report.paragraph(
            "The budget covers all sources, so that every source can be crawled in every step."
        )
        return
    if not results.reward(budget, best) > 0:
        reason = "the sources publish nothing" if not events.published > 0 else "too few steps"
        report.paragraph(f"No policy collected any utility: {reason}.")
        return
    rivals = events.rivals(peers)
    if few := events.few():
        report.paragraph(
            f"{best} collected the largest utility; {few} to test whether the difference is "
            "significant."
        )
    elif rivals:
        report.paragraph(
            f"No significant difference between {', '.join([best, *rivals])} (95 % intervals of "
            f"the differences on the same {events.same}, with Bonferroni's correction for "
            f"{len(others)} comparisons, or differences below {NOTABLE:.1%})."
        )
    elif others:
        gain = events.gain(peers[best], peers[others[0]])
        report.paragraph(
            f"Recommended policy: {best}. On the same {events.same} it collects {percent(gain)} "
            f"more than the next best, {others[0]}."
        )
    unspent = scaled - float(np.mean(peers[best].cost))
    if events.arguments["budget_rule"] == "step" and unspent > 0.01 * scaled:
        report.paragraph(
            f"{best} leaves {unspent:.3g} of {scaled:g} unspent on average, since no remaining "
            "source is cheap enough; with --budget-rule average, unspent budget is carried over."
        )
    _never(report, events, best, peers[best])


def _never(report: Report, events: StepEvents[C], best: str, run: C) -> None:
    fleet = events.fleet
    never = np.flatnonzero(run.frequency == 0)
    if not never.size:
        return
    publishes = fleet.arrival_rate * fleet.mean_utility * fleet.period
    silent = int(np.count_nonzero(publishes[never] == 0))
    text = f"{best} never crawls {never.size} of {counted(len(fleet), 'source')}"
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
