"""The report of a fit: tests of the assumptions, their consequences, and estimates."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from agents.evaluation.statistics import number
from agents.inference.shrinkage import Estimates
from crawl_env.errors import counted
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.results import provenance
from ephemeral_crawl.fit import checks, figures, signals
from ephemeral_crawl.fit.figures import FitResults
from ephemeral_crawl.fit.lives import LEVEL, LONGER, NEEDED

SHOWN = 25  # sources in a table; all are in the CSV


class Assumption(NamedTuple):
    """An assumption of the model, its test statistic, and the consequence of a violation."""

    statement: str
    statistic: str
    expected: str  # value of the statistic under the assumption
    consequence: str


ASSUMPTIONS = {
    "bursts": Assumption(
        "Items are not published in bursts",
        "variance / mean of daily counts",
        "1",
        "the content has a larger variance than in the model: the index still uses the correct "
        "mean, but the errors of the rates are too small, and observing content before crawling "
        "increases the reward more",
    ),
    "gaps": Assumption(
        "Gaps between items are exponentially distributed",
        "distance of the gaps from the exponential distribution",
        "0",
        "the time since the last item is informative about the next one, which no policy uses",
    ),
    "drift": Assumption(
        "Rates are constant",
        "items in second half / first half",
        "1",
        "the estimated rate is an average over a change: fit to the recent part of the log "
        "(--from), or use a policy that estimates the rates while crawling",
    ),
    "daily cycle": Assumption(
        "Rates do not depend on the hour",
        "strength of the cycle, up to 1",
        "0",
        "with steps well below a day, the index crawls too much in quiet hours and too little in "
        "busy ones; with steps of a day or more the cycle does not matter",
    ),
    "decay": Assumption(
        "Decay is exponential",
        "distance of the curve from an exponential",
        "0",
        "the remaining utility of an item that the index assumes is wrong by about this fraction; "
        "below 0.03 this is less than the usual errors of the rates",
    ),
}


def write(report: Report, results: FitResults) -> None:
    """Add all sections to the report."""
    log = results.log
    since = f" (time 0 is {log.origin})" if log.origin else ""
    report.answer(_answer(results))
    report.paragraph(
        f"{counted(len(log), 'item')} of {counted(len(log.names), 'source')} from "
        f"{log.start:,.6g} to {log.end:,.6g} {log.unit}s{since}."
    )
    for note in log.notes:
        report.paragraph(note)
    if step := checks.resolution(log):
        interval = log.unit if f"{step:.2g}" == "1" else f"{step:.2g} {log.unit}s"
        report.paragraph(
            "Many items have the same time stamp: the sources seem to have been polled about "
            f"every {interval}. For the test of gaps, items are spread over that time."
        )
    report.heading("Estimates")
    report.figure(
        figures.estimates(results),
        "Estimates of single sources against the shrunk estimates of the fleet file."
        + plots.of_drawn(len(log.names)),
    )
    _estimates(report, results)
    _lives(report, results)
    if results.signals is not None:
        signals.write_section(report, log, results.signals)
    report.heading("Tests of the assumptions")
    for sentence in findings(results):
        report.paragraph(sentence)
    _assumptions(report, results)
    _failures(report, results)
    report.figure(
        figures.time_of_day(log), "Items of the whole fleet; error bars are two standard errors."
    )
    if results.decay is not None:
        report.figure(
            figures.decay(results.decay, log.unit),
            "Left: remaining fraction of the utility of all items. Right: decay rates of the "
            "sources, with standard errors." + plots.of_drawn(len(log.names)),
        )
    report.figure(
        figures.distributions(results),
        "Left: dispersion of daily counts; red: sources that violate the assumption. Middle: gaps "
        "of all sources, adjusted for the daily cycle, against the exponential distribution. "
        "Right: logarithms of utilities minus the mean of their source, against the normal "
        "distribution.",
    )
    drifting = figures.drift(results)
    if drifting is not None:
        report.figure(drifting, "Sources with the strongest drift; dashed: constant rate.")


def _lives(report: Report, results: FitResults) -> None:
    """Name the sources that fell silent, and those that appeared in the middle of the log."""
    log, alive, counts = results.log, results.lives, results.log.counts
    status = alive.status
    sources = np.flatnonzero(alive.new | alive.dead)
    if not sources.size:
        return
    report.heading("New and dead sources")
    report.paragraph(
        f"Of the sources, {alive.dead.sum():,} fell silent (dead) and "
        f"{(alive.new & ~alive.dead).sum():,} appeared in the middle of the log (new). Their "
        "rates, bursts and drift are those of the time from a new source's first item, and up to "
        "a dead source's last one. The fleet file has the rate that a dead source had, and its "
        "status."
    )
    if alive.dead.sum() > 0.5 * alive.dead.size:
        report.paragraph(
            "Most sources fell silent. It may be the log that ends early: give the end of what it "
            "covers with --until."
        )
    rows = [
        [
            log.names[i],
            status[i],
            int(counts[i]),
            log.date(alive.first[i]),
            log.date(alive.last[i]),
            number(results.rate.value[i]),
        ]
        for i in sorted(sources, key=lambda i: (not alive.dead[i], -counts[i]))[:SHOWN]
    ]
    note = f", {SHOWN} shown" if sources.size > SHOWN else ""
    report.table(
        f"New and dead sources ({sources.size:,}{note})",
        ["source", "status", "items", "first item", "last item", f"Λ, items/{log.unit}"],
        rows,
    )
    report.paragraph(
        f"Sources with at least {NEEDED} items are tested. Of the sources with a constant rate, at "
        f"most {LEVEL:.1%} are called new, and as many dead; the silence must also be "
        f"{LONGER:g} times as long as any gap between items of the source."
    )


def _answer(results: FitResults) -> str:
    """Return a sentence on what was fitted, and on the assumptions that do not hold."""
    violations = [name for name, check in results.checks.items() if checks.failing(check.p).any()]
    log = results.log
    text = (
        f"The model is fitted to {counted(len(log), 'item')} of {counted(len(log.names), 'source')}"
    )
    if not violations:
        return f"{text}; no assumption of it is rejected."
    return f"{text}; not all of its assumptions hold ({', '.join(violations)}), see below."


def findings(results: FitResults) -> list[str]:
    """Return sentences on violated assumptions and their consequences for a policy."""
    sentences, statements = [], []
    for name, check in results.checks.items():
        statement, statistic, _, consequence = ASSUMPTIONS[name]
        fails, number = checks.failing(check.p), int((~np.isnan(check.p)).sum())
        if not number:
            sentences.append(f"“{statement}” is not tested: no source has enough items.")
        elif not fails.any():
            statements.append(statement)
        else:
            sentences.append(
                f"“{statement}” is rejected for {fails.sum()} of {counted(number, 'source')} "
                f"({statistic}: {_strongest(results, name, fails)}). Where it is, {consequence}."
            )
    if statements:
        sentences.append(f"Not rejected for any source: {', '.join(f'“{x}”' for x in statements)}.")
    counts, hours, error = checks.busiest_over_quietest(results.log, 24)
    if counts.min() >= checks.NEEDED:
        sentences.append(
            f"The busiest hour of the day has {hours:.1f} ± {error:.1f} times the items of the "
            "quietest, over the whole fleet."
        )
    without_utility, logs = (results.log.utility == 0).mean(), figures.centred_logs(results.log)
    if logs.size and logs.std() > 0:
        sentences.append(
            f"{without_utility:.0%} of the items have no utility. The logarithms of the other "
            f"utilities have a standard deviation of σ = {logs.std():.2f} within sources (see the "
            "quantile plot below). The distribution of utilities does not affect the index of "
            "unobserved content."
        )
    if results.decay is not None:
        shapes = ", ".join(f"{name} {rms:.3f}" for name, (_, rms) in results.decay.shapes.items())
        beta, beta_error = results.decay.stretch
        sentences.append(
            f"Decay of the whole fleet: μ = {results.decay.fleet_rate:.4g} ± "
            f"{results.decay.fleet_error:.2g} per {results.log.unit}, half-life "
            f"{np.log(2) / results.decay.fleet_rate:.3g} {results.log.unit}s. Root mean square "
            f"distance from the recorded curve: {shapes}; the exponent of the stretched "
            f"exponential is {beta:.3f} ± {beta_error:.3f} (1 is exponential)."
        )
    return sentences


def _strongest(results: FitResults, name: str, fails: np.ndarray) -> str:
    check, order = results.checks[name], np.flatnonzero(fails)
    order = order[np.argsort(check.p[order], kind="stable")]
    names = ", ".join(
        f"{results.log.names[i]} {_shown(name, check.statistic[i])}" for i in order[:4]
    )
    return names + f" and {order.size - 4} more" * (order.size > 4)


def _shown(name: str, statistic: float) -> str:
    return f"{statistic:.3f}" if name == "decay" else f"{statistic:.2f}"


def _assumptions(report: Report, results: FitResults) -> None:
    rows = []
    for name, check in results.checks.items():
        tested = ~np.isnan(check.p)
        low, middle, high = (
            np.quantile(check.statistic[tested], (0.25, 0.5, 0.75))
            if tested.any()
            else [np.nan] * 3
        )
        rows.append(
            [
                ASSUMPTIONS[name].statement,
                ASSUMPTIONS[name].statistic,
                ASSUMPTIONS[name].expected,
                f"{middle:.3f}" if tested.any() else "n/a",
                f"{low:.3f} … {high:.3f}" if tested.any() else "n/a",
                int(tested.sum()),
                int((check.p[tested] < checks.LEVEL).sum()),
                int(checks.failing(check.p).sum()),
            ]
        )
    columns = ["assumption", "statistic", "expected", "median", "interquartile range", "tested"]
    report.table("Assumptions of the model", [*columns, "p < 0.05", "rejected"], rows)
    report.paragraph(
        "“p < 0.05”: sources for which a single test at the 5 % level rejects, which is expected "
        "for 5 % of them if the assumption holds. “Rejected”: sources for which the assumption "
        "is rejected at a false discovery rate of 5 % (Benjamini and Hochberg). With many items, "
        "a significant violation may be small: see the statistic. Sources with fewer than "
        f"{checks.NEEDED} items (or curves) are not tested."
    )


def _failures(report: Report, results: FitResults) -> None:
    fails = {name: checks.failing(check.p) for name, check in results.checks.items()}
    count = np.sum(list(fails.values()), axis=0)
    counts = results.log.counts
    order = [i for i in np.lexsort((-counts, -count)) if count[i]]
    if not order:
        return
    rows = [
        [
            results.log.names[i],
            int(counts[i]),
            *(
                _shown(name, results.checks[name].statistic[i]) if fails[name][i] else ""
                for name in fails
            ),
        ]
        for i in order[:SHOWN]
    ]
    report.table(
        f"Rejected assumptions by source ({counted(len(order), 'source')}"
        + (f", {SHOWN} shown)" if len(order) > SHOWN else ")"),
        ["source", "items", *fails],
        rows,
    )


def _estimates(report: Report, results: FitResults) -> None:
    log, unit = results.log, results.log.unit
    report.paragraph(
        "Estimates are shrunk towards the mean of the fleet, more strongly for sources with "
        "fewer items (rates: Gamma–Poisson; utilities: Bühlmann–Straub credibility; decay: "
        "normal on a logarithmic scale). The variance between sources is integrated over its "
        "posterior. ± is one standard error, which includes the uncertainty of this variance and "
        "of the mean of the fleet; that of a rate assumes independent items. “Own”: from the "
        "items of the source only."
    )
    counts = results.log.counts
    decay = results.decay.rate if results.decay is not None else None
    rows = []
    for i in np.argsort(-counts, kind="stable")[:SHOWN]:
        rows.append(
            [
                log.names[i],
                int(counts[i]),
                number(results.rate.raw[i]),
                _plus_minus(results.rate, i),
                number(results.utility.raw[i]),
                _plus_minus(results.utility, i),
                number(decay.raw[i]) if decay and np.isfinite(decay.raw_error[i]) else "",
                _plus_minus(decay, i) if decay else number(results.given_decay[i]),
            ]
        )
    fleet = [number(x.mean) if x else "given" for x in (results.rate, results.utility, decay)]
    rows.append(["mean of the fleet", len(log), "", fleet[0], "", fleet[1], "", fleet[2]])
    columns = [
        "source",
        "items",
        "Λ own",
        f"Λ, items/{unit}",
        "ξ̄ own",
        "ξ̄, utility",
        "μ own",
        f"μ, 1/{unit}",
    ]
    largest = f"the {SHOWN} largest of " * (len(log.names) > SHOWN)
    report.table(f"Estimates ({largest}{counted(len(log.names), 'source')})", columns, rows)


def _plus_minus(estimates: Estimates, i: int) -> str:
    error = estimates.error[i]
    return f"{estimates.value[i]:.4g} ± {f'{error:.2g}' if np.isfinite(error) else 'n/a'}"


def records(results: FitResults) -> list[dict[str, Any]]:
    """Return one row per source: estimates, errors, tests and rejected assumptions."""
    log, counts, status = results.log, results.log.counts, results.lives.status
    fails = {name: checks.failing(check.p) for name, check in results.checks.items()}
    parameters = {"arrival_rate": results.rate, "mean_utility": results.utility}
    if results.decay is not None:
        parameters["decay_rate"] = results.decay.rate
    rows = []
    for i, name in enumerate(log.names):
        row: dict[str, Any] = {"source": name, "items": int(counts[i]), "status": status[i]}
        for end, time in (("first", results.lives.first[i]), ("last", results.lives.last[i])):
            row[end] = log.date(time) if log.origin and counts[i] else _written(time)
        for parameter, estimates in parameters.items():
            row[parameter] = _written(estimates.value[i])
            row[f"{parameter}_error"] = _written(estimates.error[i])
            row[f"{parameter}_own"] = _written(estimates.raw[i], estimates.raw_error[i])
            row[f"{parameter}_own_error"] = _written(estimates.raw_error[i])
        if results.signals is not None:
            row |= signals.columns(results.signals, i)
        for test, check in results.checks.items():
            row[test.replace(" ", "_")] = _written(check.statistic[i])
            row[f"{test.replace(' ', '_')}_p"] = _written(check.p[i])
        row["fails"] = "; ".join(test for test in fails if fails[test][i])
        rows.append({**row, **provenance()})
    return rows


def _written(value: float, error: float = 0.0) -> str:
    """Return a number with all its digits, or "" if it is unknown."""
    return repr(float(value)) if np.isfinite(value) and np.isfinite(error) else ""
