"""The section on signals in the report of a fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from agents.inference.signals import IntervalEstimates
from crawl_env import ItemLog
from crawl_env.errors import counted
from crawl_env.log.clock import HOURS
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.fit.signals import SignalFit

SHOWN = 25  # sources in the table; all are in the CSV


def write(report: Report, log: ItemLog, found: SignalFit) -> None:
    """Add the fitted signals: sentences, a table and a figure."""
    unit = log.unit
    report.heading("Signals")
    for note in found.notes:
        report.paragraph(note)
    report.paragraph(
        f"{counted(found.pings.sum(), 'ping')} of {counted((found.pings > 0).sum(), 'source')}. "
        f"Over the fleet, recall is {_plus_minus(found.recall)} (the fraction of the items that "
        f"ping), precision {_plus_minus(found.precision)} (the fraction of the pings that announce "
        f"an item) and the mean delay {_plus_minus(found.delay)} {unit}s: mean ± standard "
        "deviation between sources."
    )
    if found.outside:
        report.paragraph(
            f"Left out: {counted(found.outside, 'ping')} outside the lives of the sources, over "
            "which these are fitted."
        )
    if found.skew:
        report.paragraph(
            f"Pings precede the recorded publication of what they announce by up "
            f"to {found.skew:.3g} {unit}s: clocks differ, or items are dated late. A ping is taken "
            "to announce an item up to that time ahead; delays count from the recorded "
            "publication, and are 0 for pings before it."
            + " Check the time zones."
            * (found.skew * HOURS[log.unit] >= 0.5)
        )
    silent = [log.names[i] for i in np.flatnonzero((found.pings == 0) & (found.items > 0))]
    if silent:
        report.paragraph(
            f"Without pings: {counted(len(silent), 'source')} ({', '.join(silent[:5])}"
            f"{', …' * (len(silent) > 5)}). There, precision and delay are those of the fleet, and "
            "recall is what the fleet's and so many unannounced items leave open. If you know that "
            "a source sends none, set its recall to 0 in the fleet."
        )
    order = np.argsort(-found.items, kind="stable")[:SHOWN]
    rows = [
        [
            log.names[i],
            int(found.items[i]),
            int(found.pings[i]),
            *(_interval(x, i) for x in (found.recall, found.precision, found.delay)),
        ]
        for i in order
    ]
    largest = f"the {SHOWN} largest of " * (len(log.names) > SHOWN)
    report.table(
        f"Signals ({largest}{counted(len(log.names), 'source')})",
        ["source", "items", "pings", "recall", "precision", f"mean delay, {unit}s"],
        rows,
    )
    report.paragraph(
        "Model: every item pings at most once, with the probability recall and after an "
        "exponential delay; false pings come at a constant rate. Which ping announced which item "
        "is integrated over. Estimates are posterior means with 95 % intervals, shrunk towards "
        "the fleet, more strongly for sources with few items or pings. In simulations 91 to 96 % "
        "of the intervals cover the true value. One ping that announces several items counts for "
        "one of them; a repeated ping counts as false."
    )
    report.figure(
        _figure(found),
        "Recall and precision of the sources, with standard errors."
        + plots.of_drawn(int((found.pings > 0).sum())),
    )


def columns(found: SignalFit, i: int) -> dict[str, Any]:
    """Return the columns of a source in estimates.csv."""
    row: dict[str, Any] = {"pings": int(found.pings[i])}
    for name, of in (
        ("recall", found.recall),
        ("precision", found.precision),
        ("signal_delay", found.delay),
    ):
        row[name] = repr(float(of.value[i]))
        row[f"{name}_error"] = repr(float(of.error[i]))
        row[f"{name}_low"] = repr(float(of.low[i]))
        row[f"{name}_high"] = repr(float(of.high[i]))
    return row


def _figure(found: SignalFit) -> Any:
    figure, axis = plots.new(width=5, height=4)
    some = np.flatnonzero(found.pings > 0)
    some = some[plots.drawn(found.pings[some])]
    recall, precision = found.recall, found.precision
    axis.errorbar(
        recall.value[some],
        precision.value[some],
        xerr=recall.error[some],
        yerr=precision.error[some],
        fmt="o",
        ms=3,
        lw=0.5,
    )
    axis.set(xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.02))
    return figure


def _plus_minus(of: IntervalEstimates) -> str:
    return f"{of.mean:.3g} ± {of.spread:.2g}"


def _interval(of: IntervalEstimates, i: int) -> str:
    return f"{of.value[i]:.3g} [{of.low[i]:.3g}, {of.high[i]:.3g}]"
