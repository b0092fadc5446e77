"""What a replay found: tables, words and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from agents.evaluation.statistics import Estimate, number
from agents.registry import CLAIRVOYANT
from experiments.core import plots
from experiments.core.report import Report
from experiments.core.tables import OBSERVES_ALL, REFERENCE, percent
from experiments.evaluate.replay import REFITTED
from experiments.evaluate.replay_view import (
    FEWEST,
    NOTABLE,
    REFERENCES,
    Runs,
    View,
    busy_and_quiet,
    peers,
    rivals,
)
from experiments.evaluate.summary import POLICIES

HINDSIGHT = "hindsight bound (reference)"
LABELS = {
    CLAIRVOYANT: OBSERVES_ALL,
    REFITTED: "whittle refitted (reference)",
}


def write(report: Report, view: View, runs: Mapping[float, Runs]) -> None:
    """Fill the report."""
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


def _setting(report: Report, view: View) -> None:
    past, rest, fleet = view.split.past, view.split.rest, view.split.fleet
    unit, published = rest.unit, rest.utility.sum()
    since = f" (time 0 is {rest.origin})" if rest.origin else ""
    fitted = "" if view.split.refitted is None else " The fleet is fitted to the first."
    if view.note:
        report.paragraph(view.note)
    report.paragraph(
        f"The log in two parts: {len(past):,} items from {past.start:,.6g} to {past.end:,.6g} "
        f"{unit}s{since}, and {len(rest):,} items up to {rest.end:,.6g}, worth {number(published)} "
        f"in all.{fitted} The second is played back once, in {view.steps:,} steps of "
        f"{_count(fleet.period, unit)}, to {_count(len(fleet), 'source')} that have no "
        f"content at first: {view.conditions}. All policies meet the same items, which "
        "do not depend on what is crawled."
    )
    unknown = view.split.unknown
    if unknown:
        names = ", ".join(f"{name} ({number(worth)})" for name, worth in list(unknown.items())[:5])
        part = f"{sum(unknown.values()) / published:.1%} of all, " if published > 0 else ""
        report.paragraph(
            f"Not crawled, since nothing of theirs was published before the split: {names}"
            f"{', …' if len(unknown) > 5 else ''} ({_count(len(unknown), 'source')}). What they "
            f"published later, {part}counts as published."
        )
    if published > 0:
        came = published - sum(unknown.values())
        report.paragraph(
            f"From the first part, {number(float(fleet.published))} utility a step was to be "
            f"expected of the sources known; {number(came / view.steps)} came. Crawling all of "
            f"them in every step would collect {view.most / published:.2%} of everything: the "
            "rest is gone before the next step, or not from sources known."
        )
    runs = _count(view.runs, "run")
    report.paragraph(
        f"Means of {runs} of each policy, one step after the other: schedules may lock to the "
        "hours of the day, and at which is luck."
    )
    blocks = _count(view.blocks, view.block_name)
    if view.blocks < FEWEST:
        report.paragraph(
            f"The replay holds {blocks}: too few to say what is chance. Replay more, or compare "
            f"over a shorter --block, such as {view.steps * view.split.fleet.period / 20:.3g}."
        )
    else:
        report.paragraph(
            f"Intervals hold 95 % (bootstrap over {blocks} and {runs}, the same ones for both "
            "policies of a difference). They take these as drawn independently from more of the "
            "same: they say how far the result hangs on single ones, not what another log would "
            "give. One in twenty misses: of many differences, some leave 0 out by chance."
        )


def _count(n: float, what: str) -> str:
    return f"{n:,.6g} {what}" + "s" * (n != 1)


def _advice(report: Report, view: View, budget: float, runs: Runs) -> None:
    alike = rivals(view, runs)
    best, order = runs[alike[0]], peers(runs)
    if budget >= view.split.fleet.cost.sum():
        report.paragraph("The budget covers all sources: crawl everything, there is no choice.")
    elif not best.total > 0:
        report.paragraph("Nothing was collected by any policy.")
        return
    elif view.blocks < FEWEST:
        report.paragraph(
            f"{order[0]} collected most of these items; that it would do so again cannot be told "
            f"from {_count(view.blocks, view.block_name)}."
        )
    elif len(alike) > 1:
        report.paragraph(
            f"No clear winner: {', '.join(alike)} cannot be told apart (95 % intervals of the "
            f"differences on the same items, or differences below {NOTABLE:.1%})."
        )
    elif len(order) > 1:
        gain = view.gain(best, runs[order[1]])
        report.paragraph(
            f"Use {order[0]}: of the same items it collects {percent(gain)} more than the next "
            f"best, {order[1]}."
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
                    "what whittle collects if fitted to the replayed part itself",
                    _sum(runs, REFITTED),
                ),
                ("what the clairvoyant collects", _sum(runs, CLAIRVOYANT)),
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
    """Return a difference of shares in percentage points, with its interval."""
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
        xlabel=f"{view.block_name} of the replay", ylabel="share of its utility, %", ylim=(0, None)
    )
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    report.figure(
        figure,
        f"Share collected in each {view.block_name}, budget {budget:g}: the best policies, and the "
        "rules in use.",
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
    report.heading("What more budget buys")
    columns = ["policy", *(f"M = {m:g}" for m in budgets)]
    report.table("Share of all utility published", columns, rows)
    figure, axis = plots.new(width=8, height=4)
    for i, name in enumerate(names):
        share = [100 * runs[m][name].total / published for m in budgets]
        axis.plot(budgets, share, "o-", ms=4, color=plots.colour(name, i), label=name)
    for style, label, share in (
        ("k:", CLAIRVOYANT, [100 * _sum(runs[m], CLAIRVOYANT) / published for m in budgets]),
        ("k--", "hindsight bound", [100 * view.bounds[m] / published for m in budgets]),
    ):
        if any(share):
            axis.plot(budgets, share, style, lw=1, label=label)
    axis.set(xlabel="budget M", xticks=budgets, ylabel="share of all utility, %", ylim=(0, None))
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    report.figure(figure, "What more budget buys.")


def _time_of_day(report: Report, view: View, runs: Mapping[float, Runs]) -> None:
    """Add how busy and quiet hours of the day fare, where there are such and steps part a day."""
    hours = busy_and_quiet(view)
    if hours is None:
        return
    published = view.published
    rows = []
    for m, of_budget in runs.items():
        for name in dict.fromkeys([REFERENCE, peers(of_budget)[0], CLAIRVOYANT]):
            if name in of_budget:
                reward = of_budget[name].reward.mean(axis=0)
                shares = [_percent(reward[w].sum(), published[w].sum()) for w in hours]
                rows.append([f"{m:g}", LABELS.get(name, name), *shares])
    ratio = published[hours[0]].sum() / published[hours[1]].sum()
    report.heading("The time of the day")
    report.table(
        "Collected in a step as a share of what is published in it",
        ["budget", "policy", "busiest quarter of the day", "quietest quarter of the day"],
        rows,
    )
    report.paragraph(
        f"The quarter of the day that was busiest before the split brings {ratio:.1f} times the "
        "utility of the quietest. The budget and the model's rates are the same at all hours: in "
        "busy ones there is more than can be fetched, in quiet ones crawls come back with less, "
        "or with what is left of before."
    )


def _glossary(report: Report, view: View) -> None:
    report.heading("Words")
    report.paragraph(
        "Of all utility: what was collected, as it was worth when collected, of all that was "
        "published in the replayed part, as it was worth when published, by all sources of the "
        "log. An item loses worth along its recorded curve where it has one, else exponentially at "
        "its source's rate. Items: share of all items that was fetched, however little they were "
        "still worth; delay: their mean age when fetched. Never visited: sources not crawled once."
    )
    report.paragraph(
        "Hindsight bound: what nobody can exceed under this budget, even knowing all items to "
        "come. whittle refitted knows the rates and utilities of the very time it is judged "
        "by: the distance to it is what drift and errors of the fit cost. These two and the "
        "clairvoyant are references, not policies that could be used."
    )
    report.paragraph(POLICIES)
