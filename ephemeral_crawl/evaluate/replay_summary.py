"""The report of a replay: tables, recommendation and figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from agents.evaluation.statistics import Estimate, number
from agents.registry import CLAIRVOYANT
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.tables import OBSERVES_ALL, REFERENCE, percent
from ephemeral_crawl.evaluate.replay import REFITTED
from ephemeral_crawl.evaluate.replay_view import (
    FEWEST,
    NOTABLE,
    REFERENCES,
    Runs,
    View,
    busy_and_quiet,
    peers,
    rivals,
)
from ephemeral_crawl.evaluate.summary import POLICIES

HINDSIGHT = "hindsight bound (reference)"
LABELS = {
    CLAIRVOYANT: OBSERVES_ALL,
    REFITTED: "whittle refitted (reference)",
}


def write(report: Report, view: View, runs: Mapping[float, Runs]) -> None:
    """Add all sections to the report."""
    report.answer(_answer(view, runs))
    _setting(report, view)
    if len(runs) > 1:
        _curve(report, view, runs)
    for m, of_budget in runs.items():
        report.heading(f"Budget {m:g}")
        _advice(report, view, m, of_budget)
        _table(report, view, m, of_budget)
        _weeks(report, view, m, of_budget)
    _time_of_day(report, view, runs)
    _glossary(report, view)


def _answer(view: View, runs: Mapping[float, Runs]) -> str:
    """Return a sentence on what the best policy collects under each budget."""
    published = float(view.published.sum())
    parts = []
    for m, of_budget in runs.items():
        best = peers(of_budget)[0]
        shares = [
            f"{name} {_percent(of_budget[name].total, published)}"
            for name in dict.fromkeys((best, "nutch", "miniflux", "oldest-first"))
            if name in of_budget
        ]
        parts.append(f"under budget {m:g}, {', '.join(shares)}")
    return f"Of all utility of the replayed log, policies collect: {'; '.join(parts)}."


def _setting(report: Report, view: View) -> None:
    past, rest, fleet = view.split.past, view.split.rest, view.split.fleet
    unit, published = rest.unit, rest.utility.sum()
    since = f" (time 0 is {rest.origin})" if rest.origin else ""
    fitted = "" if view.split.refitted is None else " The fleet is fitted to the first part."
    if view.note:
        report.paragraph(view.note)
    report.paragraph(
        f"The log is split into two parts: {len(past):,} items from {past.start:,.6g} to "
        f"{past.end:,.6g} {unit}s{since}, and {len(rest):,} items up to {rest.end:,.6g} with a "
        f"total utility of {number(published)}.{fitted} The second part is replayed once, in "
        f"{view.steps:,} steps of {_count(fleet.period, unit)}, to {_count(len(fleet), 'source')} "
        f"that start without content: {view.conditions}. All policies meet the same items, which "
        "do not depend on the crawls."
    )
    unknown = view.split.unknown
    if unknown:
        names = ", ".join(
            f"{name} ({number(utility)})" for name, utility in list(unknown.items())[:5]
        )
        part = f"{sum(unknown.values()) / published:.1%} of all, " if published > 0 else ""
        report.paragraph(
            f"Not crawled, since they published nothing before the split: {names}"
            f"{', …' if len(unknown) > 5 else ''} ({_count(len(unknown), 'source')}). Their later "
            f"items, {part}count as published."
        )
    if published > 0:
        came = published - sum(unknown.values())
        report.paragraph(
            "According to the first part, the known sources publish "
            f"{number(float(fleet.published))} utility per step on average; in the second part "
            f"they published {number(came / view.steps)}. Crawling all of them in every step "
            f"would collect {view.most / published:.2%} of all utility: the rest decays before "
            "the next step, or is published by unknown sources."
        )
    runs = _count(view.runs, "run")
    report.paragraph(
        f"All values are means of {runs} of each policy, each starting one step after the previous "
        "one, since periodic schedules may be synchronised with the hours of the day by chance."
    )
    blocks = _count(view.blocks, view.block_name)
    if view.blocks < FEWEST:
        report.paragraph(
            f"The replay has {blocks}, which is too few for confidence intervals. Replay more "
            "steps, or use a shorter --block, such as "
            f"{view.steps * view.split.fleet.period / 20:.3g}."
        )
    else:
        report.paragraph(
            f"Intervals: 95 % confidence (Student's t over {blocks} and {runs}, paired between "
            "the policies of a difference). Blocks and runs are treated as independent samples "
            "from the same distribution, so that the intervals do not cover differences to other "
            "logs. They are not corrected for multiple comparisons: some differences exclude 0 "
            "by chance."
        )


def _count(n: float, what: str) -> str:
    return f"{n:,.6g} {what}" + "s" * (n != 1)


def _advice(report: Report, view: View, budget: float, runs: Runs) -> None:
    alike = rivals(view, runs)
    best, order = runs[alike[0]], peers(runs)
    if budget >= view.split.fleet.cost.sum():
        report.paragraph(
            "The budget covers all sources, so that every source can be crawled in every step."
        )
    elif not best.total > 0:
        report.paragraph("No policy collected any utility.")
        return
    elif view.blocks < FEWEST:
        report.paragraph(
            f"{order[0]} collected the largest utility; {_count(view.blocks, view.block_name)} "
            "are too few to test whether the difference is significant."
        )
    elif len(alike) > 1:
        report.paragraph(
            f"No significant difference between {', '.join(alike)} (95 % intervals of the "
            f"differences on the same items, or differences below {NOTABLE:.1%})."
        )
    elif len(order) > 1:
        gain = view.gain(best, runs[order[1]])
        report.paragraph(
            f"Recommended policy: {order[0]}. On the same items it collects {percent(gain)} more "
            f"than the next best, {order[1]}."
        )
    whittle = runs[REFERENCE]
    if whittle.total > 0:
        against = [
            f"over {name} {percent(view.gain(whittle, runs[name]))}"
            for name in ("nutch", "miniflux", "static", "fixed")
            if name in runs and runs[name].total > 0
        ]
        limits = [
            f"{whittle.total / most:.1%} of {what}"
            for what, most in (
                (
                    "the utility that whittle collects when fitted to the replayed part",
                    _sum(runs, REFITTED),
                ),
                ("the utility that the clairvoyant collects", _sum(runs, CLAIRVOYANT)),
                ("the hindsight bound", view.bounds[budget]),
            )
            if most
        ]
        gains = f"Whittle's gain {', '.join(against)}. " if against else ""
        report.paragraph(f"{gains}It collects {', '.join(limits)}.")


def _sum(runs: Runs, name: str) -> float:
    return runs[name].total if name in runs else 0.0


def _table(report: Report, view: View, budget: float, runs: Runs) -> None:
    published = float(view.published.sum())
    order = peers(runs) + [name for name in REFERENCES if name in runs]
    rows = []
    for name in order:
        run = runs[name]
        rows.append(
            [
                LABELS.get(name, name),
                _percent(run.total, published),
                "" if name == REFERENCE else points(view.lead(run, runs[REFERENCE])),
                number(run.total / view.steps),
                f"{run.fetched / max(len(view.split.rest), 1):.1%}",
                "n/a" if np.isnan(run.delay) else f"{run.delay:.4g}",
                f"{run.never:.4g}",
                number(run.cost),
            ]
        )
    bound = view.bounds[budget]
    most = [HINDSIGHT, _percent(bound, published), "", number(bound / view.steps), "", "", "", ""]
    report.table(
        f"Policies under budget {budget:g}",
        [
            "policy",
            "of all utility",
            "minus whittle, points",
            "reward / step",
            "items",
            f"delay ({view.split.rest.unit}s)",
            "never visited",
            "cost / step",
        ],
        [*rows, most],
    )


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.2%}" if whole > 0 else "n/a"


def points(estimate: Estimate) -> str:
    """Return a difference of fractions in percentage points, with its interval."""
    if np.isnan(estimate.mean):
        return "n/a"
    mean, low, high = (100 * x for x in estimate)
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"


def _weeks(report: Report, view: View, budget: float, runs: Runs) -> None:
    figure, axis = plots.new(width=9, height=3)
    published = view.by_block(view.published)
    start = np.arange(published.size) + 1
    shown = [*peers(runs)[:5], *(name for name in ("nutch", "miniflux") if name in runs)]
    for i, name in enumerate(dict.fromkeys([REFERENCE, *shown, CLAIRVOYANT])):
        if name not in runs:
            continue
        style: dict[str, Any] = {
            "color": plots.colour(name, i),
            "lw": 2 if name == REFERENCE else 1,
        }
        if name == CLAIRVOYANT:
            style = {"color": "black", "ls": ":", "lw": 1}
        part = np.divide(
            view.by_block(runs[name].reward.mean(axis=0)),
            published,
            where=published > 0,
            out=0 * published,
        )
        axis.plot(start, 100 * part, label=name, **style)
    axis.set(
        xlabel=f"{view.block_name} of the replay",
        ylabel="fraction of its utility, %",
        ylim=(0, None),
    )
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    report.figure(
        figure,
        f"Fraction of the utility collected in each {view.block_name}, budget {budget:g}: the best "
        "policies, nutch and miniflux.",
    )


def _curve(report: Report, view: View, runs: Mapping[float, Runs]) -> None:
    budgets = list(runs)
    names = peers(runs[budgets[0]])
    published = float(view.published.sum())
    shown = [*names, *(name for name in REFERENCES if name in runs[budgets[0]])]
    rows = [
        [
            LABELS.get(name, name),
            *(_percent(runs[m][name].total, published) for m in budgets),
        ]
        for name in shown
    ]
    rows.append([HINDSIGHT, *(_percent(view.bounds[m], published) for m in budgets)])
    report.heading("Collected utility by budget")
    columns = ["policy", *(f"M = {m:g}" for m in budgets)]
    report.table("Fraction of all published utility", columns, rows)
    figure, axis = plots.new(width=8, height=4)
    for i, name in enumerate(names):
        fraction = [100 * runs[m][name].total / published for m in budgets]
        axis.plot(budgets, fraction, "o-", ms=4, color=plots.colour(name, i), label=name)
    for style, label, fraction in (
        ("k:", CLAIRVOYANT, [100 * _sum(runs[m], CLAIRVOYANT) / published for m in budgets]),
        ("k--", "hindsight bound", [100 * view.bounds[m] / published for m in budgets]),
    ):
        if any(fraction):
            axis.plot(budgets, fraction, style, lw=1, label=label)
    axis.set(xlabel="budget M", xticks=budgets, ylabel="fraction of all utility, %", ylim=(0, None))
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    report.figure(figure, "Fraction of the published utility that is collected, by budget.")


def _time_of_day(report: Report, view: View, runs: Mapping[float, Runs]) -> None:
    """Add the rewards in busy and quiet hours, if the log has them and a day has several steps."""
    hours = busy_and_quiet(view)
    if hours is None:
        return
    published = view.published
    rows = []
    for m, of_budget in runs.items():
        for name in dict.fromkeys([REFERENCE, peers(of_budget)[0], CLAIRVOYANT]):
            if name in of_budget:
                reward = of_budget[name].reward.mean(axis=0)
                fractions = [_percent(reward[w].sum(), published[w].sum()) for w in hours]
                rows.append([f"{m:g}", LABELS.get(name, name), *fractions])
    ratio = published[hours[0]].sum() / published[hours[1]].sum()
    report.heading("Time of day")
    report.table(
        "Utility collected in a step as a fraction of the utility published in it",
        ["budget", "policy", "busiest quarter of the day", "quietest quarter of the day"],
        rows,
    )
    report.paragraph(
        "In the replayed part, the quarter of the day that was busiest before the split has "
        f"{ratio:.1f} times the utility of the quietest. The budget and the rates of the model "
        "are the same at all hours, so that busy hours publish more than can be collected, while "
        "crawls in quiet hours collect less, or items of earlier hours."
    )


def _glossary(report: Report, view: View) -> None:
    report.heading("Definitions")
    report.paragraph(
        "Of all utility: utility of the collected items at the time of collection, as a fraction "
        "of the utility of all items of the replayed part at the time of publication. The "
        "utility of an item decays along its recorded curve if it has one, else exponentially at "
        "the rate of its source. Items: fraction of all items that were collected; delay: their "
        "mean age at that time. Never visited: number of sources that were never crawled."
    )
    report.paragraph(
        "Hindsight bound: upper bound for every policy under this budget, even with knowledge of "
        "all future items. whittle refitted uses the rates and utilities fitted to the replayed "
        "part: the difference to whittle is due to drift and to errors of the fit. These two and "
        "the clairvoyant are references that cannot be used in practice."
    )
    report.paragraph(POLICIES)
