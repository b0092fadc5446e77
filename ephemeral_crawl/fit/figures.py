"""The results of a fit, from which the report is made, and figures of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from scipy.stats import expon, norm

from agents.inference.shrinkage import Estimates
from crawl_env import ItemLog
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.plots import BLUE, GREEN, GREY, ORANGE, RED
from ephemeral_crawl.fit import checks
from ephemeral_crawl.fit.checks import Check
from ephemeral_crawl.fit.decay import Decay
from ephemeral_crawl.fit.lives import Lives
from ephemeral_crawl.fit.signals import SignalFit


class FitResults(NamedTuple):
    """Estimates and tests of a log."""

    log: ItemLog
    lives: Lives  # over which rates, bursts and drift are found
    rate: Estimates
    utility: Estimates
    decay: Decay | None
    given_decay: FloatArray  # (N,) used where there are no curves
    checks: dict[str, Check]
    signals: SignalFit | None = None


_POINTS = 500  # of a quantile plot


def estimates(results: FitResults) -> Any:
    """Plot the own estimate of every source against its shrunk estimate."""
    figure, axes = plots.new(1, 2, width=11, height=3.8)
    names = (("Λ", f"items / {results.log.unit}", results.rate), ("ξ̄", "utility", results.utility))
    for axis, (symbol, unit, values) in zip(axes, names, strict=True):
        positive = values.raw > 0
        if not positive.any():
            axis.set_axis_off()
            continue
        error = np.where(np.isfinite(values.error), values.error, np.nan)
        few = np.flatnonzero(positive)[plots.drawn(values.raw[positive])]
        axis.errorbar(
            values.raw[few],
            values.value[few],
            2 * error[few],
            fmt="o",
            ms=3,
            lw=0.6,
            color=BLUE,
        )
        limits = [values.raw[positive].min() / 1.3, values.raw[positive].max() * 1.3]
        axis.plot(limits, limits, "k--", lw=1, label="own estimate")
        axis.axhline(values.mean, color=GREY, lw=1, label="mean of the fleet")
        axis.set(xscale="log", yscale="log", xlabel=f"{symbol} from the source alone, {unit}")
        for side in (axis.xaxis, axis.yaxis):
            side.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            side.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
            side.set_minor_formatter(NullFormatter())
        axis.set(ylabel=f"{symbol}, shrunk", title=f"{symbol} with 2 standard errors")
        axis.legend()
    return figure


def time_of_day(log: ItemLog) -> Any:
    """Plot the items by hour of the day and by day of the week."""
    figure, axes = plots.new(1, 2, width=11, height=3.2)
    zone = " (UTC)" if log.origin else ""
    for axis, bins, days, label in (
        (axes[0], 24, 1, f"hour of the day{zone}"),
        (axes[1], 7, 7, "day of a week, from time 0"),
    ):
        counts, ratio, error = checks.busiest_over_quietest(log, bins, days)
        axis.bar(np.arange(bins) + 0.5, counts, 0.85, color=BLUE, yerr=2 * np.sqrt(counts))
        axis.axhline(counts.mean(), color="k", ls="--", lw=1)
        axis.set(xlabel=label, ylabel="items", xlim=(0, bins))
        axis.set_title(f"busiest / quietest: {ratio:.2f} ± {error:.2f}")
    return figure


def decay(fit: Decay, unit: str) -> Any:
    """Plot the recorded decay curve of the fleet with fitted functions, and the sources' rates."""
    figure, (left, right) = plots.new(1, 2, width=11, height=3.8)
    with_curves = np.flatnonzero(fit.counts > 0)
    for curve in fit.curves[with_curves[plots.drawn(fit.counts[with_curves])]]:
        left.plot(fit.ages, curve, color=GREY, lw=0.4, alpha=0.4)
    left.plot(fit.ages, fit.fleet, color="k", lw=2.5, label="recorded, all items")
    for (name, (curve, rms)), colour in zip(fit.shapes.items(), (ORANGE, BLUE, GREEN), strict=True):
        left.plot(fit.ages, curve, "--", color=colour, label=f"{name}, rms {rms:.3f}")
    left.set(xlabel=f"age, {unit}s", ylabel="remaining fraction of utility", ylim=(0, 1))
    left.legend()
    order = plots.drawn(fit.rate.value)
    is_own = np.isfinite(fit.rate.raw_error[order])
    place = np.arange(order.size)
    right.plot(
        place[is_own], fit.rate.raw[order][is_own], ".", color=GREY, label="from the source alone"
    )
    right.errorbar(
        place,
        fit.rate.value[order],
        fit.rate.error[order],
        fmt="o",
        ms=3,
        lw=0.6,
        color=BLUE,
        label="shrunk",
    )
    right.axhline(fit.fleet_rate, color="k", ls="--", lw=1, label="all items together")
    right.set(xlabel="sources, slowest decay first", ylabel=f"μ, 1 / {unit}")
    right.set_ylim(0, 1.3 * (fit.rate.value + fit.rate.error).max())
    right.legend()
    return figure


def distributions(results: FitResults) -> Any:
    """Plot dispersion, gaps and utilities against the assumed distributions."""
    figure, (left, middle, right) = plots.new(1, 3, width=12, height=3.6)
    fano = results.checks["bursts"]
    tested, fails = ~np.isnan(fano.p), checks.failing(fano.p)
    if tested.any():
        bins = np.histogram_bin_edges(fano.statistic[tested], 30)
        left.hist(fano.statistic[tested & ~fails], bins, color=BLUE, label="not rejected")
        left.hist(fano.statistic[fails], bins, color=RED, label="rejected")
        left.margins(y=0.35)  # room for the legend
        left.legend(loc="upper right", ncols=2, fontsize=8)
    left.axvline(1, color="k", ls="--", lw=1)
    left.set(xlabel="variance / mean of daily counts", ylabel="sources", title="bursts")
    times = checks.operational_times(results.log)
    items = (rows for rows in results.log.by_source() if rows.size >= checks.NEEDED)
    gaps = [checks.scaled_gaps(times[rows]) for rows in items]
    _quantiles(middle, np.concatenate(gaps or [np.zeros(0)]), expon.ppf, 1.0)
    middle.set(xlabel="exponential quantile", ylabel="gap / mean gap", title="gaps")
    logs = centred_logs(results.log)
    _quantiles(right, logs, norm.ppf, float(logs.std()) if logs.size else 0.0)
    right.set(xlabel="normal quantile", ylabel="ln ξ, centred by source", title="utilities")
    return figure


def drift(results: FitResults) -> Any:
    """Plot the cumulative items of the sources with the strongest drift; None if there are none."""
    check = results.checks["drift"]
    rows = np.flatnonzero(checks.failing(check.p))
    if not rows.size:
        return None
    rows = rows[np.argsort(check.p[rows])][:4]
    figure, axes = plots.new(1, 4, width=12, height=2.8)
    log = results.log
    for axis in axes[rows.size :]:
        axis.set_axis_off()
    for axis, i in zip(axes, rows, strict=False):
        times = log.published[log.source == i]
        axis.step([log.start, *times], np.arange(times.size + 1), where="post", color=BLUE)
        axis.plot([log.start, log.end], [0, times.size], "k--", lw=1)
        axis.set(title=log.names[i], xlabel=f"time, {log.unit}s")
    axes[0].set_ylabel("items so far")
    return figure


def _quantiles(axis: Any, sample: FloatArray, quantile: Any, scale: float) -> None:
    """Plot the sample quantiles against those of a distribution, and the line of slope `scale`."""
    if sample.size < 2:
        return
    levels = (np.arange(min(sample.size, _POINTS)) + 0.5) / min(sample.size, _POINTS)
    expected = quantile(levels)
    axis.plot(expected, np.quantile(sample, levels), ".", ms=3, color=BLUE)
    axis.plot(expected, scale * expected, "k--", lw=1)


def centred_logs(log: ItemLog) -> FloatArray:
    """Return ln ξ minus the mean of its source, for ξ > 0 and sources with enough items."""
    source = log.source[log.utility > 0]
    logs, counts = np.log(log.utility[log.utility > 0]), np.bincount(source)
    deviations = logs - (np.bincount(source, logs) / np.maximum(counts, 1))[source]
    return deviations[counts[source] >= checks.NEEDED]
