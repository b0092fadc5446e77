"""The report of a fit: estimates, what the log says against the model, and what follows from it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from agents.evaluation.statistics import number
from experiments.core.report import Report
from experiments.core.results import provenance
from experiments.fit import checks, figures
from experiments.fit.estimate import Estimates
from experiments.fit.results import FitResults

SHOWN = 25  # sources in a table; all are in the CSV


class Assumption(NamedTuple):
    """What the model assumes, how it is looked at, and what its failure means."""

    says: str
    statistic: str
    holding: str  # its value where the assumption holds
    meaning: str


ASSUMPTIONS = {
    "bursts": Assumption(
        "Items do not come in bursts",
        "variance / mean of daily counts",
        "1",
        "content varies more than the model assumes: the index still uses the right mean, but "
        "the errors of the rates are too small, and seeing content before crawling is worth more",
    ),
    "gaps": Assumption(
        "The next item does not depend on the last",
        "distance of gaps from an exponential law",
        "0",
        "the time since the last item says something about the next one, which no policy here uses",
    ),
    "drift": Assumption(
        "Rates stay as they are",
        "items in second half / first half",
        "1",
        "the rate is an average over a change. Fit to the recent part of the log (--from), or let "
        "the crawler go on learning",
    ),
    "daily cycle": Assumption(
        "All hours are alike",
        "strength of the cycle, up to 1",
        "0",
        "with steps well below a day, the index crawls too much in quiet hours and too little in "
        "busy ones; with steps of a day or more the cycle does not matter",
    ),
    "decay": Assumption(
        "Interest falls exponentially",
        "distance of the curve from an exponential",
        "0",
        "the index misjudges by about this share how much of an item is left; below .03 that is "
        "less than rates are usually known to",
    ),
}


def write(report: Report, found: FitResults, left_out: str) -> None:
    """Fill the report."""
    log = found.log
    since = f" (time 0 is {log.origin})" if log.origin else ""
    report.paragraph(
        f"{len(log):,} items of {len(log.names):,} sources from {log.start:,.6g} to "
        f"{log.end:,.6g} {log.unit}s{since}. {left_out}".strip()
    )
    if step := checks.resolution(log):
        report.paragraph(
            f"Many items share their moment with others: the log seems to be made by looking about "
            f"every {step:.2g} {log.unit}s. For the test of gaps, items are spread over that time."
        )
    report.heading("Does the model hold?")
    for sentence in verdict(found):
        report.paragraph(sentence)
    _assumptions(report, found)
    _failures(report, found)
    report.heading("Estimates")
    _estimates(report, found)
    report.figure(figures.estimates(found), "Own estimates against those of the fleet file.")
    report.heading("Pictures of the assumptions")
    report.figure(
        figures.time_of_day(log), "Items of the whole fleet; bars are twice the standard error."
    )
    if found.decay is not None:
        report.figure(
            figures.decay(found.decay, log.unit),
            "Left: how much of the utility is still to come, all items together. Right: decay "
            "rates of sources with their standard errors.",
        )
    report.figure(
        figures.laws(found),
        "Left: daily counts, sources that fail in colour. Middle: gaps of all sources, the daily "
        "cycle taken out, against an exponential law. Right: logarithms of utilities, less "
        "their source's mean, against a lognormal law.",
    )
    drifting = figures.drift(found)
    if drifting is not None:
        report.figure(drifting, "Sources that drift most; dashed: a constant rate.")


def verdict(found: FitResults) -> list[str]:
    """Say in words which assumption fails for whom, and what that means for a policy."""
    sentences, kept = [], []
    for name, check in found.checks.items():
        says, statistic, _, meaning = ASSUMPTIONS[name]
        fails, tested = checks.failing(check.p), int((~np.isnan(check.p)).sum())
        if not tested:
            sentences.append(f"“{says}” is not tested: no source has enough items.")
        elif not fails.any():
            kept.append(says)
        else:
            sentences.append(
                f"“{says}” fails for {fails.sum()} of {tested} sources "
                f"({statistic}: {_strongest(found, name, fails)}). There {meaning}."
            )
    if kept:
        sentences.append(f"No source speaks against {', '.join(f'“{says}”' for says in kept)}.")
    counts, hours, error = checks.busiest_over_quietest(found.log, 24)
    if counts.min() >= checks.NEEDED:
        sentences.append(
            f"The busiest hour of the day has {hours:.1f} ± {error:.1f} times the items of the "
            "quietest, over the whole fleet."
        )
    worthless, logs = (found.log.utility == 0).mean(), figures.centred_logs(found.log)
    if logs.size and logs.std() > 0:
        sentences.append(
            f"{worthless:.0%} of the items were worth nothing. The others spread around what is "
            f"usual at their source with σ = {logs.std():.2f} on a logarithmic scale (a "
            "lognormal law would lie on the line of the picture below); their law does not matter "
            "to the index of sources that are not seen before crawling."
        )
    if found.decay is not None:
        shapes = ", ".join(f"{name} {rms:.3f}" for name, (_, rms) in found.decay.shapes.items())
        beta, beta_error = found.decay.stretch
        sentences.append(
            f"Decay of the whole fleet: μ = {found.decay.fleet_rate:.4g} ± "
            f"{found.decay.fleet_error:.2g} per {found.log.unit}, half-life "
            f"{np.log(2) / found.decay.fleet_rate:.3g} {found.log.unit}s. Root mean square "
            f"distance from the recorded curve: {shapes}; the exponent of the stretched one is "
            f"{beta:.3f} ± {beta_error:.3f} (1 is exponential)."
        )
    return sentences


def _strongest(found: FitResults, name: str, fails: np.ndarray) -> str:
    check, which = found.checks[name], np.flatnonzero(fails)
    which = which[np.argsort(check.p[which], kind="stable")]
    named = ", ".join(f"{found.log.names[i]} {_shown(name, check.statistic[i])}" for i in which[:4])
    return named + f" and {which.size - 4} more" * (which.size > 4)


def _shown(name: str, statistic: float) -> str:
    return f"{statistic:.3f}" if name == "decay" else f"{statistic:.2f}"


def _assumptions(report: Report, found: FitResults) -> None:
    rows = []
    for name, check in found.checks.items():
        tested = ~np.isnan(check.p)
        low, middle, high = (
            np.quantile(check.statistic[tested], (0.25, 0.5, 0.75))
            if tested.any()
            else [np.nan] * 3
        )
        rows.append(
            [
                ASSUMPTIONS[name].says,
                ASSUMPTIONS[name].statistic,
                ASSUMPTIONS[name].holding,
                f"{middle:.3f}" if tested.any() else "n/a",
                f"{low:.3f} … {high:.3f}" if tested.any() else "n/a",
                int(tested.sum()),
                int((check.p[tested] < checks.LEVEL).sum()),
                int(checks.failing(check.p).sum()),
            ]
        )
    columns = ["assumption", "looked at", "if it holds", "median", "middle half", "tested"]
    report.table("What the model assumes", [*columns, "p < .05", "fail"], rows)
    report.paragraph(
        "“p < .05” counts sources that one test at 5 % would name: a twentieth of them even where "
        "the assumption holds. “Fail” counts those left when of all sources named at most 5 % are "
        "expected to be false alarms (Benjamini and Hochberg). A failure that many items make "
        "certain may still be small: look at the size of the statistic. Sources with fewer than "
        f"{checks.NEEDED} items (or curves) are not tested."
    )


def _failures(report: Report, found: FitResults) -> None:
    fails = {name: checks.failing(check.p) for name, check in found.checks.items()}
    count = np.sum(list(fails.values()), axis=0)
    counts = np.bincount(found.log.source, minlength=len(found.log.names))
    order = [i for i in np.lexsort((-counts, -count)) if count[i]]
    if not order:
        return
    rows = [
        [
            found.log.names[i],
            int(counts[i]),
            *(
                _shown(name, found.checks[name].statistic[i]) if fails[name][i] else ""
                for name in fails
            ),
        ]
        for i in order[:SHOWN]
    ]
    report.table(
        f"Which assumption fails for which source ({len(order)} with a failure"
        + (f", {SHOWN} shown)" if len(order) > SHOWN else ")"),
        ["source", "items", *fails],
        rows,
    )


def _estimates(report: Report, found: FitResults) -> None:
    log, unit = found.log, found.log.unit
    report.paragraph(
        "Estimates are shrunk towards the fleet's mean, more strongly for sources with fewer items "
        "(rates: Gamma–Poisson; utilities: Bühlmann–Straub credibility; decay: normal on a "
        "logarithmic scale). The spread between sources is unknown and integrated over. ± is one "
        "standard error, which includes the uncertainty of that spread and of the fleet's mean; "
        "that of a rate takes items as independent. “Own” is from the source's items alone."
    )
    counts = np.bincount(log.source, minlength=len(log.names))
    decay = found.decay.rate if found.decay is not None else None
    rows = []
    for i in np.argsort(-counts, kind="stable")[:SHOWN]:
        rows.append(
            [
                log.names[i],
                int(counts[i]),
                number(found.rate.raw[i]),
                _plus_minus(found.rate, i),
                number(found.utility.raw[i]),
                _plus_minus(found.utility, i),
                number(decay.raw[i]) if decay and np.isfinite(decay.raw_error[i]) else "",
                _plus_minus(decay, i) if decay else number(found.given_decay[i]),
            ]
        )
    fleet = [number(x.mean) if x else "given" for x in (found.rate, found.utility, decay)]
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
    largest = f"the {SHOWN} largest of {len(log.names):,} sources"
    report.table(f"Estimates ({largest})", columns, rows)


def _plus_minus(estimates: Estimates, i: int) -> str:
    return f"{estimates.value[i]:.4g} ± {estimates.error[i]:.2g}"


def records(found: FitResults) -> list[dict[str, Any]]:
    """Return one row a source: estimates, errors, tests and which of them fail."""
    log = found.log
    counts = np.bincount(log.source, minlength=len(log.names))
    fails = {name: checks.failing(check.p) for name, check in found.checks.items()}
    parameters = {"arrival_rate": found.rate, "mean_utility": found.utility}
    if found.decay is not None:
        parameters["decay_rate"] = found.decay.rate
    rows = []
    for i, name in enumerate(log.names):
        row: dict[str, Any] = {"source": name, "items": int(counts[i])}
        for parameter, estimates in parameters.items():
            row[parameter] = _written(estimates.value[i])
            row[f"{parameter}_error"] = _written(estimates.error[i])
            row[f"{parameter}_own"] = _written(estimates.raw[i], estimates.raw_error[i])
            row[f"{parameter}_own_error"] = _written(estimates.raw_error[i])
        for test, check in found.checks.items():
            row[test.replace(" ", "_")] = _written(check.statistic[i])
            row[f"{test.replace(' ', '_')}_p"] = _written(check.p[i])
        row["fails"] = "; ".join(test for test in fails if fails[test][i])
        rows.append({**row, **provenance()})
    return rows


def _written(value: float, error: float = 0.0) -> str:
    """Return a number with all its digits, nothing where it is not known."""
    return repr(float(value)) if np.isfinite(value) and np.isfinite(error) else ""
