"""Recall, precision and delay of each source's signals, from a log of items and a log of pings;
and the section on them in the report.

The model of pings is that of `assignment`, and the posterior is drawn by `posterior`. A ping may
come before the recorded publication of its item, as clocks differ and feeds date items late. One
clock skew of all pings is therefore found first: that of the largest likelihood, if recall,
precision and delay were the same for all sources.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from agents.inference.assignment import Events, log_likelihood
from agents.inference.signals import IntervalEstimates, sample
from crawl_env import ItemLog, PingLog, Signals, Sources
from crawl_env.errors import counted
from crawl_env.log.clock import HOURS
from crawl_env.numerics import FloatArray, IntArray
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.fit.lives import Lives

_POOL = 10_000  # events from which the start and the clock skew are found
_SECOND = 1 / 3600  # hours: shorter delays are those of the time stamps
_SKEWS = np.array([1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600, 7200]) / 3600  # hours
_EVIDENCE = 12.0  # log likelihood ratio from which clocks count as different
_SHOWN = 25  # sources in the table; all are in the CSV


class SignalFit(NamedTuple):
    """The signals of N sources as fitted to a log."""

    recall: IntervalEstimates
    precision: IntervalEstimates
    delay: IntervalEstimates  # time
    items: IntArray  # (N,) in the lives of the sources
    pings: IntArray  # (N,) in the lives of the sources
    outside: int  # pings outside the lives of their sources
    skew: float  # time by which pings may precede the recorded publication
    notes: tuple[str, ...]  # of the log of pings

    def of(self, fleet: Sources, places: IntArray) -> Sources:
        """Return a fleet with the signals of the sources `which`; those of −1 send none."""
        known = places >= 0
        recall, precision, delay = (
            np.where(known, of.value[places], otherwise)
            for of, otherwise in ((self.recall, 0.0), (self.precision, 1.0), (self.delay, 0.0))
        )
        return Signals(recall, precision, delay).of(fleet)


def measure(
    log: ItemLog,
    pings: PingLog,
    lives: Lives,
    skew: float | None = None,
    seed: int = 0,
) -> SignalFit:
    """Fit the signals of all sources.

    Errors and intervals are those of the posterior. In simulations of fleets like the prior, 95 %
    intervals cover the true recall, precision and delay of 91 to 96 % of the sources.

    Arguments:
        pings: on the clock of the log, see `PingLog.aligned_with`.
        lives: the time over which each source is fitted.
        skew: the time by which pings may precede the recorded publication of what they announce;
            None to find it. Pings are moved by it, and delays count from the publication all the
            same, so that they are at least 0.
        seed: of the draws.

    Raises:
        ValueError: there are no pings.
    """
    second = _SECOND / HOURS[log.unit]
    rng = np.random.default_rng(seed)
    if not _events(log, pings, lives, 0.0).pings.any():
        raise ValueError(
            "there is no ping within the lives of the sources, so that their signals cannot be "
            "fitted; fit without the log of pings"
        )
    pool = _pool(log, pings, lives, rng)
    if skew is None:
        skew, start = _skew(pool, second)
    else:
        start = _pooled(pool(skew), second)[1]
    events = _events(log, pings, lives, skew)
    of_recall, of_precision, of_delay = sample(events, start, second / 10, rng)
    outside = len(pings) - int(events.pings.sum())
    estimates = of_recall, of_precision, _from_publication(of_delay, skew, second)
    return SignalFit(*estimates, events.items, events.pings, outside, skew, pings.notes)


def _events(log: ItemLog, pings: PingLog, lives: Lives, skew: float) -> Events:
    # The last pings of the log stay in it.
    received = np.minimum(pings.time + skew, np.nextafter(log.end, -np.inf))
    return Events.of(lives.start, lives.end, log.source, log.published, pings.source, received)


# --------------------------------------------------------------------------------- start and skew


def _pool(
    log: ItemLog, pings: PingLog, lives: Lives, rng: np.random.Generator
) -> Callable[[float], Events]:
    """Return a function from a clock skew to the events of some sources, drawn at random, or to
    the first events of a long one."""
    everything = _events(log, pings, lives, 0.0)
    size = everything.items + everything.pings
    order = rng.permutation(np.flatnonzero(everything.pings))
    sources = np.sort(order[: 1 + np.searchsorted(np.cumsum(size[order]), _POOL)])
    part = np.minimum(1.0, _POOL / np.maximum(size, 1))
    shorter = lives._replace(end=lives.start + part * lives.span)

    def pooled(skew: float) -> Events:
        return _events(log, pings, shorter, skew).of_sources(sources)

    return pooled


def _pooled(
    events: Events, second: float, start: FloatArray | None = None
) -> tuple[float, FloatArray]:
    """Return the maximum of the log likelihood if recall, precision and delay are the same for
    all sources, and its place (logit r, logit p, ln d)."""
    span = events.span
    typical = span.sum() / max(events.items.sum(), 1)
    longest = np.log(max(span.max(), 10 * second))
    rate = events.pings / span

    def loss(x: FloatArray) -> float:
        r, p = expit(np.clip(x[:2], -12.0, 12.0))
        d = np.exp(np.clip(x[2], np.log(second / 10), longest))
        n = np.ones(span.size)
        value = log_likelihood(events, r * n, (1 - p) * rate + 1e-9 / span, d * n).sum()
        # A weak prior, so that the maximum is finite.
        return float(-value - np.log(r * (1 - r) * p * (1 - p)) / 2)

    delays = (60 * second, 0.02 * typical, 0.2 * typical) if start is None else (60 * second,)
    starts = [np.array([0.0, 0.0, np.log(d)]) for d in delays]
    starts += [] if start is None else [start]
    near = np.vstack((np.zeros(3), np.eye(3)))  # scipy begins within 0.00025 where x is 0
    best = min(
        (
            minimize(
                loss,
                x,
                method="Nelder-Mead",
                options={"maxfev": 150, "xatol": 0.01, "fatol": 0.01, "initial_simplex": x + near},
            )
            for x in starts
        ),
        key=lambda result: result.fun,
    )
    return -float(best.fun), np.asarray(best.x)


def _skew(pool: Callable[[float], Events], second: float) -> tuple[float, FloatArray]:
    """Return the clock skew of the largest likelihood, which is 0 unless another one is much
    larger, and the parameters common to all sources there."""
    least, start = _pooled(pool(0.0), second)
    best, skew, place = least + _EVIDENCE, 0.0, start
    for candidate in _SKEWS * (second / _SECOND):
        value, x = _pooled(pool(float(candidate)), second, start)
        if value > best:
            best, skew, place = value, float(candidate), x
    return skew, place


def _from_publication(delay: IntervalEstimates, skew: float, second: float) -> IntervalEstimates:
    """Return delays from the recorded publication on, at least 0; below a second, which is the
    resolution of time stamps, they are 0."""
    later = [np.maximum(x - skew, 0.0) for x in (delay.value, delay.low, delay.high)]
    value, low, high = (np.where(x < second, 0.0, x) for x in later)
    mean = max(delay.mean - skew, 0.0)
    of_fleet = mean if mean >= second else 0.0, delay.spread
    return IntervalEstimates(value, delay.error, low, np.maximum(high, second), *of_fleet)


def write_section(report: Report, log: ItemLog, fit: SignalFit) -> None:
    """Add the fitted signals: sentences, a table and a figure."""
    unit = log.unit
    report.heading("Signals")
    for note in fit.notes:
        report.paragraph(note)
    report.paragraph(
        f"{counted(fit.pings.sum(), 'ping')} of {counted((fit.pings > 0).sum(), 'source')}. "
        f"Over the fleet, recall is {_plus_minus(fit.recall)} (the fraction of the items that "
        f"ping), precision {_plus_minus(fit.precision)} (the fraction of the pings that announce "
        f"an item) and the mean delay {_plus_minus(fit.delay)} {unit}s: mean ± standard "
        "deviation between sources."
    )
    if fit.outside:
        report.paragraph(
            f"Left out: {counted(fit.outside, 'ping')} outside the lives of the sources, over "
            "which these are fitted."
        )
    if fit.skew:
        report.paragraph(
            f"Pings precede the recorded publication of what they announce by up "
            f"to {fit.skew:.3g} {unit}s: clocks differ, or items are dated late. A ping is taken "
            "to announce an item up to that time ahead; delays count from the recorded "
            "publication, and are 0 for pings before it."
            + " Check the time zones."
            * (fit.skew * HOURS[log.unit] >= 0.5)
        )
    silent = [log.names[i] for i in np.flatnonzero((fit.pings == 0) & (fit.items > 0))]
    if silent:
        report.paragraph(
            f"Without pings: {counted(len(silent), 'source')} ({', '.join(silent[:5])}"
            f"{', …' * (len(silent) > 5)}). There, precision and delay are those of the fleet, and "
            "recall is what the fleet's and so many unannounced items leave open. If you know that "
            "a source sends none, set its recall to 0 in the fleet."
        )
    order = np.argsort(-fit.items, kind="stable")[:_SHOWN]
    rows = [
        [
            log.names[i],
            int(fit.items[i]),
            int(fit.pings[i]),
            *(_interval(x, i) for x in (fit.recall, fit.precision, fit.delay)),
        ]
        for i in order
    ]
    largest = f"the {_SHOWN} largest of " * (len(log.names) > _SHOWN)
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
        _figure(fit),
        "Recall and precision of the sources, with standard errors."
        + plots.of_drawn(int((fit.pings > 0).sum())),
    )


def columns(fit: SignalFit, i: int) -> dict[str, Any]:
    """Return the columns of a source in estimates.csv."""
    row: dict[str, Any] = {"pings": int(fit.pings[i])}
    for name, of in (
        ("recall", fit.recall),
        ("precision", fit.precision),
        ("signal_delay", fit.delay),
    ):
        row[name] = repr(float(of.value[i]))
        row[f"{name}_error"] = repr(float(of.error[i]))
        row[f"{name}_low"] = repr(float(of.low[i]))
        row[f"{name}_high"] = repr(float(of.high[i]))
    return row


def _figure(fit: SignalFit) -> Any:
    figure, axis = plots.new(width=5, height=4)
    rows = np.flatnonzero(fit.pings > 0)
    rows = rows[plots.drawn(fit.pings[rows])]
    recall, precision = fit.recall, fit.precision
    axis.errorbar(
        recall.value[rows],
        precision.value[rows],
        xerr=recall.error[rows],
        yerr=precision.error[rows],
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
