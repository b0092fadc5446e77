"""The report of a replay: tables, recommendation and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from agents.evaluation.statistics import Estimate, number
from agents.registry import CLAIRVOYANT
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
from ephemeral_crawl.core.tables import OBSERVES_ALL, REFERENCE, percent
from ephemeral_crawl.replay.play import REFITTED, SCHEDULER
from ephemeral_crawl.replay.view import (
    FEWEST,
    NOTABLE,
    REFERENCES,
    Runs,
    View,
    busy_and_quiet,
    peers,
    rivals,
)

_IN_TURN = "oldest-first"
_LISTED = 5  # sources that are named

HINDSIGHT = "hindsight bound (reference)"
LABELS = {
    CLAIRVOYANT: OBSERVES_ALL,
    REFITTED: "whittle refitted (reference)",
    SCHEDULER: "scheduler (live, starts from the fleet)",
}


class Found(NamedTuple):
    """All that was found, by budget as it was given."""

    view: View
    runs: Mapping[float, Runs]
    own: Mapping[float, float]  # the budgets that were replayed: smaller ones for a sample
    plans: Mapping[float, Schedule]  # of the fleet that is known at the end of the log
    present: Present | None
    equal: Mapping[float, Equal | None]
    checks: tuple[str, ...]  # names in `runs` of what is played to check the schedule: not ranked
    when: Callable[[float], str]  # from the time after the end of the log to a time stamp
    sampled: bool
    costs: Mapping[float, indexing.Cost]  # of an indexing engine; empty without one

    def ranked(self, budget: float) -> Runs:
        """Return the policies and the references, without the checks."""
        runs = self.runs[budget]
        return {name: run for name, run in runs.items() if name not in self.checks}


def write(
    report: Report, found: Found, worth: Mapping[float, signals.Found] | None = None
) -> list[dict[str, Any]]:
    """Write the report; return the rows of schedule.csv.

    Arguments:
        worth: what signals are worth, by budget; empty or None without signals.
    """
    view, runs = found.view, {m: found.ranked(m) for m in found.runs}
    fleet, pings = view.split.fleet, view.split.pings
    more = signals.answer(worth or {}, fleet) + indexing.answer(found.costs)
    report.answer(_answer(found, runs) + more)
    of_pings = () if pings is None else pings.notes
    for note in filter(None, (view.note, *view.split.past.notes, *of_pings)):
        report.paragraph(note)
    if len(runs) > 1:
        _curve(report, view, runs)
    else:
        _bars(report, view, *runs.items())
    rows = []
    for m, of_budget in runs.items():
        report.heading(f"Budget {m:g}")
        rows += _schedule(report, found, m)
        _advice(report, view, m, found.own[m], of_budget)
        _table(report, view, m, of_budget)
        _weeks(report, view, m, of_budget)
        if worth:
            signals.write(report, m, *worth[m], fleet)
        if found.costs:
            indexing.write(report, m, found.costs[m])
    _changed(report, view, any(np.isfinite(plan.longest) for plan in found.plans.values()))
    _time_of_day(report, view, runs)
    with report.details("How this was measured, and definitions"):
        _setting(report, view)
        _glossary(report, view)
    return rows


def _answer(found: Found, runs: Mapping[float, Runs]) -> str:
    """Return a sentence on what the recommended policy collects under each budget."""
    published = float(found.view.published.sum())
    parts: list[str] = []
    before = None
    for m, of_budget in runs.items():
        best = _recommended(found.view, of_budget)
        if not published > 0 or not of_budget[best].total > 0:
            return "No policy collected any utility."
        text = collects(best, of_budget[best].total, published, m, before)
        other = of_budget.get(found.present.name if found.present else _IN_TURN)
        gain = None
        if other is not None and other.total > 0:
            gain = found.view.gain(of_budget[best], other)
        parts.append(text + against(gain, found.present, found.equal[m], best, bool(parts)))
        before = best
    return f"Of all utility of the replayed log, {'; '.join(parts)}."


def _recommended(view: View, runs: Runs) -> str:
    """Return the best policy, or whittle where it does not differ significantly from it."""
    alike = rivals(view, runs)
    return REFERENCE if REFERENCE in alike or view.blocks < FEWEST else alike[0]


def _schedule(report: Report, found: Found, budget: float) -> list[dict[str, Any]]:
    """Add the schedule, and how it was checked; return its rows."""
    view, plan, runs = found.view, found.plans[budget], found.runs[budget]
    measured, unit = None, f"{view.split.rest.unit}s"
    if not found.sampled:
        frequency = dict(
            zip(view.split.fleet.names, runs[REFERENCE].frequency.tolist(), strict=True)
        )
        measured = np.array([frequency.get(name, 0.0) for name in plan.task.sources.names])
    rows = plan.rows(found.when, measured)
    report.paragraph(schedules.counts(plan, runs[REFERENCE].delay, unit))
    schedules.write(report, plan, rows, unit)
    free, limited = (runs.get(name) for name in found.checks[:2])
    fitted = "fitted to the whole log, " if view.split.refitted is not None else ""
    if free is not None and runs[REFERENCE].total > 0:
        report.paragraph(
            f"The schedule is that of the fleet {fitted}under a budget that holds on average: a "
            "source is crawled when its Whittle index reaches the Lagrange multiplier λ* = "
            f"{number(plan.best.multiplier)}. The schedule made in the same way from what was "
            "known before the replay, played with its fixed intervals, collects "
            f"{free.total / runs[REFERENCE].total:.2%} of what whittle collects, which decides "
            "step by step. The next crawl is the time at which whittle would crawl a source, if it "
            f"began at the end of the log, {plan.assumed}."
            + schedules.WITHOUT_SIGNALS
            * view.split.fleet.is_signalled
        )
    if np.isfinite(plan.longest):
        lost = None
        if free is not None and limited is not None and free.total > 0:
            lost = 1 - limited.total / free.total
        report.paragraph(limit(plan, lost))
    same = found.equal[budget]
    if same is not None and found.present is not None:
        report.paragraph(equal_utility(found.present.name, same))
    return rows


def _bars(report: Report, view: View, only: tuple[float, Runs]) -> None:
    """Add a figure of the policies under the only budget."""
    budget, runs = only
    published = float(view.published.sum())
    if not published > 0:
        return
    order = peers(runs)[::-1]
    figure, axis = plots.new(width=8, height=0.6 + 0.28 * len(order))
    for i, name in enumerate(order):
        axis.barh(name, 100 * runs[name].total / published, color=plots.colour(name, i), height=0.7)
    for style, label, most in (
        (":", CLAIRVOYANT, _sum(runs, CLAIRVOYANT)),
        ("--", "hindsight bound", view.bounds[budget]),
    ):
        if most > 0:
            axis.axvline(100 * most / published, color=plots.INK, ls=style, lw=1, label=label)
    axis.set(xlabel="collected, % of all utility published", xlim=(0, None))
    axis.grid(axis="y", visible=False)
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    report.figure(figure, f"Utility of the log that each policy collects under budget {budget:g}.")


def _changed(report: Report, view: View, limited: bool) -> None:
    """Name the sources that are new in the second part of the log, and those that fell silent.

    Arguments:
        limited: whether a maximum interval was given.
    """
    split = view.split
    dead = [f"{name} (since {split.rest.date(last)})" for name, last in split.dead.items()]
    if not split.unknown and not dead:
        return
    report.heading("New and dead sources")
    published = split.rest.utility.sum()
    if split.unknown:
        part = f", {sum(split.unknown.values()) / published:.1%} of all" if published > 0 else ""
        listed = ", ".join(
            f"{name} ({number(utility)})" for name, utility in list(split.unknown.items())[:_LISTED]
        )
        report.paragraph(
            f"New: {_count(len(split.unknown), 'source')} published nothing before the split and "
            f"{'were' if len(split.unknown) > 1 else 'was'} not crawled{part}: {listed}"
            f"{', …' if len(split.unknown) > _LISTED else ''} (utility). The schedule contains "
            "them, with what the whole log says of them."
        )
    if dead:
        remedy = (
            "leaves them out; look at them by hand, or fetch them at a --max-interval"
            if not limited
            else "fetches them at the maximum interval only"
        )
        report.paragraph(
            f"Dead: {_count(len(dead), 'source')} fell silent, for longer than chance explains: "
            f"{', '.join(dead[:_LISTED])}{', …' if len(dead) > _LISTED else ''}. The schedule "
            f"{remedy}."
        )


def _setting(report: Report, view: View) -> None:
    past, rest, fleet = view.split.past, view.split.rest, view.split.fleet
    unit, published = rest.unit, rest.utility.sum()
    since = f" (time 0 is {rest.origin})" if rest.origin else ""
    fitted = "" if view.split.refitted is None else " The fleet is fitted to the first part."
    report.paragraph(
        f"The log is split into two parts: {len(past):,} items from {past.start:,.6g} to "
        f"{past.end:,.6g} {unit}s{since}, and {len(rest):,} items up to {rest.end:,.6g} with a "
        f"total utility of {number(published)}.{fitted} The second part is replayed once, in "
        f"{view.steps:,} steps of {_count(fleet.period, unit)}, to {_count(len(fleet), 'source')} "
        f"that start without content: {view.conditions}. All policies meet the same items, which "
        "do not depend on the crawls."
    )
    unknown = view.split.unknown
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
            "logs. In the tables they are not corrected for multiple comparisons: some differences "
            "exclude 0 by chance."
        )


def _count(n: float, what: str) -> str:
    return f"{n:,.6g} {what}" + "s" * (n != 1)


def _advice(report: Report, view: View, budget: float, own: float, runs: Runs) -> None:
    alike = rivals(view, runs)
    best, order = runs[alike[0]], peers(runs)
    if own >= view.split.fleet.cost.sum():
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
            "differences on the same items, with Bonferroni's correction for "
            f"{len(order) - 1} comparisons, or differences below {NOTABLE:.1%})."
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
        report.paragraph(f"{gains}{'It' if gains else 'Whittle'} collects {', '.join(limits)}.")


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
