"""What policies of web freshness lose on ephemeral content, with and without signals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from agents.evaluation.statistics import Estimate
from agents.theory.freshness import WEIGHTS
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job
from ephemeral_crawl.core.study import Rows
from ephemeral_crawl.core.tables import fraction, percent
from experiments.parts import Size
from experiments.signals.fleets import DESCRIPTION, tasks
from experiments.signals.quality import NONE, label
from experiments.signals.runs import Results, job, records, signals, work

__all__ = ["PART", "finding", "jobs", "records", "work", "write"]

PART = "freshness"
QUALITIES = ((0.5, 0.2), (0.5, 0.8), (0.8, 0.8), (1.0, 1.0))
EXACT = (1.0, 1.0)  # every change is told, which LambdaCrawl has a model of
STEPS = 1000  # at most
INDEX, STATIC, LAMBDA = "freshness", "freshness-static", "lambda-crawl"
REFERENCE, PLAIN = "whittle", {False: "oldest-first", True: "ping-first"}  # with signals or not
FEATURES = {
    "freshness": ("age", "pings"),
    "freshness-static": ("age",),
    "lambda-crawl": ("crawled", "pings"),
}
_KEY = ("fleet", "budget", "quality", "agent", "weight")


def jobs(size: Size) -> list[Job]:
    size = replace(size, steps=min(size.steps, STEPS))
    found = []
    for fleet, sources, budget in tasks(size):
        for quality, given in _qualities(size.quick):
            for agent, weight in _entrants(quality, size.quick):
                arguments = {"sources": sources, "budget": budget, **given}
                if weight:
                    arguments["features"] = FEATURES[agent]
                one = job(
                    PART,
                    f"{fleet}, M = {budget}",
                    agent,
                    arguments,
                    size,
                    fleet=fleet,
                    quality=quality,
                    weight=weight,
                    bound=agent == REFERENCE,
                )
                found.append(one | ({"options": {"weight": weight}} if weight else {}))
    return found


def _qualities(quick: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    yield NONE, {}
    for recall, precision in QUALITIES[1:2] if quick else QUALITIES:
        yield label(recall, precision), {"signals": signals(recall, precision)}


def _entrants(quality: str, quick: bool) -> Iterator[tuple[str, str]]:
    """Yield agent and weight, "" for none. Agents that ignore signals run without these only."""
    yield REFERENCE, ""
    yield PLAIN[quality != NONE], ""
    weighted = {NONE: (INDEX, STATIC, LAMBDA), label(*EXACT): (INDEX, LAMBDA)}
    for agent in weighted.get(quality, (INDEX,)):
        for weight in WEIGHTS[:2] if quick else WEIGHTS:
            yield agent, weight


def write(report: Report, rows: Rows) -> None:
    results = Results(rows, *_KEY)
    report.heading("Policies of web freshness")
    report.paragraph(
        f"{DESCRIPTION} The policies were made to keep copies of pages fresh, and know nothing of "
        "decay: `freshness` crawls by the index of Busa-Fekete et al. (2025), which without "
        "signals is that of Cho and Garcia-Molina (2003); `freshness-static` keeps the rates of "
        "Azar et al. (2018); `lambda-crawl` those of LambdaCrawl (Kolobov et al. 2019). They take "
        "the importance of a source as given. Each is run with four choices of it (flow Λξ̄, "
        "ceiling u*, utility ξ̄, equal), and the tables have the best for each task, chosen after "
        "the fact; the choice is in parentheses. Loss: reward relative to the Whittle policy with "
        "the same information on the same arrivals, with an interval of 95 %."
    )
    without = [
        [
            f"{fleet}, M = {budget}",
            *_reference(results, fleet, budget, NONE),
            *(_loss(results, fleet, budget, NONE, agent) for agent in (INDEX, STATIC, LAMBDA)),
            _loss(results, fleet, budget, NONE, PLAIN[False]),
        ]
        for fleet, budget in _tasks(results)
    ]
    columns = ["whittle: share of all", "of the bound"]
    report.table(
        "Without signals", ["task", *columns, INDEX, STATIC, LAMBDA, PLAIN[False]], without
    )
    for quality in [q for q in results.values(2) if q != NONE]:
        shown = [INDEX, LAMBDA] if quality == label(*EXACT) else [INDEX]
        table = [
            [
                f"{fleet}, M = {budget}",
                *_reference(results, fleet, budget, quality),
                *(_loss(results, fleet, budget, quality, a) for a in (*shown, PLAIN[True])),
            ]
            for fleet, budget in _tasks(results)
        ]
        report.table(f"Signals of {quality}", ["task", *columns, *shown, PLAIN[True]], table)
    with report.details("Every choice of the importance"):
        for quality in results.values(2):
            _weights(report, results, quality)


def _weights(report: Report, results: Results, quality: str) -> None:
    weights = [weight for weight in results.values(4) if weight]
    agents = list(dict.fromkeys(key[3] for key in results if key[2] == quality and key[4]))
    for agent in agents:
        table = [
            [
                f"{fleet}, M = {budget}",
                *(f"{_gain(results, fleet, budget, quality, agent, w).mean:+.1%}" for w in weights),
            ]
            for fleet, budget in _tasks(results)
        ]
        report.table(f"{agent}, {quality}: reward relative to whittle", ["task", *weights], table)


def _reference(results: Results, fleet: str, budget: str, quality: str) -> tuple[str, str]:
    key = fleet, budget, quality, REFERENCE, ""
    share = results.share(*key)
    return f"{share.mean():.1%}", percent(fraction(share, results.bound(*key)))


def _best(
    results: Results, fleet: str, budget: str, quality: str, agent: str
) -> tuple[str, Estimate]:
    """Return the weight with which an agent collects most, and its gain over the reference."""
    weights = [key[4] for key in results if key[:4] == (fleet, budget, quality, agent)]
    best = max(weights, key=lambda w: float(results.share(fleet, budget, quality, agent, w).mean()))
    return best, _gain(results, fleet, budget, quality, agent, best)


def _gain(
    results: Results, fleet: str, budget: str, quality: str, agent: str, weight: str
) -> Estimate:
    return results.gain(
        (fleet, budget, quality, agent, weight), (fleet, budget, quality, REFERENCE, "")
    )


def _loss(results: Results, fleet: str, budget: str, quality: str, agent: str) -> str:
    weight, gain = _best(results, fleet, budget, quality, agent)
    text = f"{gain.mean:+.1%} [{gain.low:+.1%}, {gain.high:+.1%}]"
    return f"{text} ({weight})" if weight else text


def finding(rows: Rows) -> str:
    results = Results(rows, *_KEY)

    def range_of(quality: str, agent: str) -> str:
        losses = [-_best(results, *task, quality, agent)[1].mean for task in _tasks(results)]
        return f"{min(losses):.0%} to {max(losses):.0%}"

    quality = next(q for q in (label(0.5, 0.8), *results.values(2)) if q in results.values(2))
    return (
        f"policies of web freshness lose {range_of(NONE, INDEX)} ({INDEX}), "
        f"{range_of(NONE, STATIC)} ({STATIC}) and {range_of(NONE, LAMBDA)} ({LAMBDA}) of what the "
        "Whittle policy collects, each with the best of four weights; with signals of "
        f"{quality}, {INDEX} loses {range_of(quality, INDEX)}, and crawling whatever pinged first "
        f"{range_of(quality, PLAIN[True])}"
    )


def _tasks(results: Results) -> list[tuple[str, str]]:
    return list(dict.fromkeys((key[0], key[1]) for key in results))
