"""Events of a recorded log, replayed in steps: every policy meets the same items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from agents.evaluation.statistics import Estimate, number
from agents.policies.index import WhittleExact
from agents.registry import CLAIRVOYANT
from crawl_env import Sources
from crawl_env.errors import counted
from crawl_env.numerics import FloatArray
from ephemeral_crawl.comparison.events import REFITTED, Column, Results, StepEvents
from ephemeral_crawl.comparison.sample import Sample
from ephemeral_crawl.comparison.schedule import clock
from ephemeral_crawl.comparison.study import features_of
from ephemeral_crawl.core import evaluation, plots
from ephemeral_crawl.core.evaluation import OBSERVES_ALL, REFERENCE, part_of, percent
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result, measured_of
from ephemeral_crawl.replay import play
from ephemeral_crawl.replay.hindsight import Hindsight
from ephemeral_crawl.replay.play import SCHEDULER, Replay
from ephemeral_crawl.replay.split import Split
from ephemeral_crawl.replay.view import FEWEST, Runs, View, busy_and_quiet, records

_LISTED = 5  # sources that are named


@dataclass(frozen=True, kw_only=True)
class Recording(StepEvents[Replay]):
    """Events of the second part of a log.

    Arguments:
        split: the log.
        block: time over which sums are compared.
        runs: of each policy, each of which starts one step after the previous one.
    """

    what: ClassVar[str] = "of the replayed log"
    same: ClassVar[str] = "items"
    bound_name: ClassVar[str] = "hindsight bound"
    basis: ClassVar[str] = ", made from what was known before the replay,"

    split: Split
    block: float
    runs: int

    @property
    def labels(self) -> Mapping[str, str]:
        return {
            CLAIRVOYANT: OBSERVES_ALL,
            REFITTED: "whittle refitted (reference)",
            SCHEDULER: "scheduler (live, starts from the fleet)",
        }

    @property
    def latest(self) -> Sources:
        return self.split.latest

    @property
    def length(self) -> str:
        return f"{counted(self.split.steps, 'step')} × {counted(self.runs, 'run')}"

    @property
    def unit(self) -> str:
        return f"{self.split.rest.unit}s"

    @property
    def notes(self) -> Sequence[str]:
        pings = self.split.pings
        return [*self.split.past.notes, *(() if pings is None else pings.notes)]

    @property
    def published(self) -> float:
        return float(self.split.published.sum()) / self.split.steps

    # ------------------------------------------------------------------------ what is run

    def entrants(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the policies and references to replay.

        The exact index is left out, since it needs a distribution of the arrivals; the scheduler is
        left out of fleets and observations that it does not meet in steps.
        """
        fleet, observed = self.fleet, self.arguments["observed"]
        limits = fleet.is_delayed or fleet.is_capped or fleet.fails or bool(fleet.hosts)
        left_out = {WhittleExact.name} | ({SCHEDULER} if observed or limits else set())
        peers = [name for name in names if name not in left_out]
        entrants = evaluation.entrants(peers, {"arrivals": "trace", "observed": observed})
        return entrants if self.split.refitted is None else (*entrants, REFITTED)

    def jobs(
        self,
        agent: str,
        budget: float,
        rates: FloatArray | None = None,
        budget_rule: str | None = None,
    ) -> list[Job]:
        refitted = self.split.refitted if agent == REFITTED else None
        rule = "average" if agent == SCHEDULER else budget_rule or self.arguments["budget_rule"]
        job: Job = {
            "agent": REFERENCE if refitted else agent,
            "arguments": {
                **self.arguments,
                "start": "empty",
                "sources": evaluation.fleet_as_json(refitted or self.fleet),
                "budget": budget,
                "budget_rule": rule,
                "features": list(features_of(agent)),
            },
            "steps": self.split.steps,
            "runs": self.runs,
            "seed": self.seed,
            "log": self.split.digest,
            "block": self._view.block,
        }
        if rates is not None:
            job["rates"] = np.asarray(rates).tolist()
        return [job]

    @property
    def work(self) -> Callable[[Job], Result]:
        return partial(play.work, self.split.trace, pings=self.split.announced)

    def run_of(self, results: Sequence[Result]) -> Replay:
        return measured_of(Replay, results[0])

    def modelled(self, job: Job) -> Job:
        return {**job, "arguments": {**job["arguments"], "arrivals": "poisson-items"}}

    def sampled(self, part: Sample) -> Recording:
        fleet = part.of(self.fleet)
        return replace(self, fleet=fleet, split=self.split.sampled(fleet))

    # ------------------------------------------------------------------------ what was measured

    @cached_property
    def _hindsight(self) -> Hindsight:
        return Hindsight(self.split.trace, self.fleet, self.split.steps)

    @cached_property
    def _view(self) -> View:
        block = max(1, round(self.block / self.fleet.period))
        return View(self.split, block, self.runs)

    @cached_property
    def _bounds(self) -> dict[float, float]:
        return {}

    def total_bound(self, budget: float) -> float:
        """Return the hindsight bound on the utility that all steps collect; a balance may be
        overdrawn by less than one crawl."""
        if budget not in self._bounds:
            average = self.arguments["budget_rule"] == "average"
            more = self.fleet.cost.max() / self.split.steps if average else 0.0
            self._bounds[budget] = self._hindsight.bound(budget + more)
        return self._bounds[budget]

    def bound(self, budget: float) -> float:
        return self.total_bound(budget) / self.split.steps

    def reward(self, run: Replay) -> Estimate:
        return Estimate(run.total / self.split.steps, float("nan"), float("nan"))

    def gain(self, run: Replay, other: Replay) -> Estimate:
        return self._view.gain(run, other)

    def lead(self, best: Replay, other: Replay, level: float = 0.95) -> Estimate:
        return self._view.gain(best, other, level)

    def few(self) -> str:
        view = self._view
        are = "is" if view.blocks == 1 else "are"
        return f"{counted(view.blocks, view.block_name)} {are} too few" * (view.blocks < FEWEST)

    def frequency(self, run: Replay) -> FloatArray:
        frequency_of = dict(zip(self.fleet.names, run.frequency.tolist(), strict=True))
        return np.array([frequency_of.get(name, 0.0) for name in self.latest.names])

    def records(self, results: Results[Replay], common: Mapping[str, Any]) -> list[dict[str, Any]]:
        bounds = {m: self.total_bound(results.own(m)) for m in results.runs}
        cells = {"observed": self.arguments["observed"], **common}
        return records(self._view, results.runs, cells, bounds)

    # ------------------------------------------------------------------------ what is said

    def when(self, after: float) -> str:
        return clock(self.split.rest, self.split.end)(after)

    def remarks(self, report: Report, results: Results[Replay], budget: float) -> None:
        runs, whittle = results.runs[budget], results.runs[budget][REFERENCE]
        _weeks(report, self._view, budget, runs, [*results.peers(budget)])
        if not whittle.total > 0:
            return
        against = [
            f"over {name} {percent(self.gain(whittle, runs[name]))}"
            for name in ("nutch", "miniflux", "static", "fixed")
            if name in runs and runs[name].total > 0
        ]
        reward = whittle.total / self.split.steps
        limits = [
            f"{reward / most:.1%} of {reference}"
            for reference, most in (
                (
                    "the utility that whittle collects when fitted to the replayed part",
                    results.reward(budget, REFITTED),
                ),
                ("the utility that the clairvoyant collects", results.reward(budget, CLAIRVOYANT)),
                ("the hindsight bound", self.bound(results.own(budget))),
            )
            if most
        ]
        gains = f"Whittle's gain {', '.join(against)}. " if against else ""
        report.paragraph(f"{gains}{'It' if gains else 'Whittle'} collects {', '.join(limits)}.")

    def columns(self, budget: float, runs: Runs) -> dict[str, Column[Replay]]:
        view, items, whittle = self._view, len(self.split.rest), runs[REFERENCE]
        published = float(self.split.published.sum())
        return {
            "of all utility": lambda _, run: part_of(run.total, published),
            "minus whittle, points": lambda name, run: (
                "" if name == REFERENCE else points(view.lead(run, whittle))
            ),
            "reward / step": lambda _, run: number(run.total / view.steps),
            "items": lambda _, run: f"{run.fetched / max(items, 1):.1%}",
            f"delay ({self.unit})": lambda _, run: (
                "n/a" if np.isnan(run.delay) else f"{run.delay:.4g}"
            ),
            "never visited": lambda _, run: f"{run.never:.4g}",
            "cost / step": lambda _, run: number(run.cost),
        }

    def bound_rows(self, budget: float) -> list[list[object]]:
        bound = self.bound(budget)
        most = [part_of(bound, self.published), "", number(bound), "", "", "", ""]
        return [["hindsight bound (reference)", *most]]

    def ending(self, report: Report, results: Results[Replay], has_limit: bool) -> None:
        _new_and_dead(report, self._view, has_limit)
        _time_of_day(report, self._view, results)

    def setting(self, report: Report) -> None:
        _setting(report, self._view, self.conditions, self._hindsight.best(multiplier=0.0).net)
        _glossary(report)


def _weeks(report: Report, view: View, budget: float, runs: Runs, best: Sequence[str]) -> None:
    figure, axis = plots.new(width=9, height=3)
    published = view.by_block(view.published)
    start = np.arange(published.size) + 1
    names = [*best[:5], *(name for name in ("nutch", "miniflux") if name in runs)]
    for i, name in enumerate(dict.fromkeys([REFERENCE, *names, CLAIRVOYANT])):
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


def _new_and_dead(report: Report, view: View, has_limit: bool) -> None:
    """Name the sources that are new in the second part of the log, and those that fell silent.

    Arguments:
        has_limit: whether a maximum interval was given.
    """
    split = view.split
    dead = [f"{name} (since {split.rest.date(last)})" for name, last in split.dead.items()]
    if not split.unknown and not dead and not split.silent:
        return
    report.heading("New and dead sources")
    published = split.rest.utility.sum()
    if split.unknown:
        part = f", {sum(split.unknown.values()) / published:.1%} of all" if published > 0 else ""
        names = ", ".join(
            f"{name} ({number(utility)})" for name, utility in list(split.unknown.items())[:_LISTED]
        )
        report.paragraph(
            f"New: {counted(len(split.unknown), 'source')} published nothing before the split and "
            f"{'were' if len(split.unknown) > 1 else 'was'} not crawled{part}: {names}"
            f"{', …' if len(split.unknown) > _LISTED else ''} (utility). The schedule contains "
            "them, with what the whole log says of them."
        )
    if dead:
        remedy = (
            "leaves them out; look at them by hand, or fetch them at a --max-interval"
            if not has_limit
            else "fetches them at the maximum interval only"
        )
        report.paragraph(
            f"Dead: {counted(len(dead), 'source')} fell silent, for longer than chance explains: "
            f"{', '.join(dead[:_LISTED])}{', …' if len(dead) > _LISTED else ''}. The schedule "
            f"{remedy}."
        )
    if silent := split.silent:
        again = split.rest.select([x for x in split.rest.names if x in silent]).utility.sum()
        report.paragraph(
            f"Silent at the split: {counted(len(silent), 'source')}. Policies that are given rates "
            f"are given 0 for {'them' if len(silent) > 1 else 'it'}, as was known then, and do not "
            "fetch there. In the second part "
            + (f"{again / published:.1%} of all utility is" if again else "nothing is")
            + " published there."
        )


def _setting(report: Report, view: View, conditions: str, most: float) -> None:
    past, rest, fleet = view.split.past, view.split.rest, view.split.fleet
    unit, published = rest.unit, rest.utility.sum()
    since = f" (time 0 is {rest.origin})" if rest.origin else ""
    note = "" if view.split.refitted is None else " The fleet is fitted to the first part."
    period = f"{fleet.period:,.6g} {unit}{'s' * (fleet.period != 1)}"
    report.paragraph(
        f"The log is split into two parts: {counted(len(past), 'item')} from {past.start:,.6g} to "
        f"{past.end:,.6g} {unit}s{since}, and {counted(len(rest), 'item')} up to {rest.end:,.6g} "
        f"with a total utility of {number(published)}.{note} The second part is replayed once, "
        f"in {counted(view.steps, 'step')} of {period}, to {counted(len(fleet), 'source')} without "
        f"content at the start: {conditions}. All policies meet the same items, which do not "
        "depend on the crawls."
    )
    unknown = view.split.unknown
    if published > 0:
        came = published - sum(unknown.values())
        report.paragraph(
            "According to the first part, the known sources publish "
            f"{number(float(fleet.published))} utility per step on average; in the second part "
            f"they published {number(came / view.steps)}. Crawling all of them in every step "
            f"would collect {most / published:.2%} of all utility: the rest decays before "
            "the next step, or is published by unknown sources."
        )
    runs = counted(view.runs, "run")
    report.paragraph(
        f"All values are means of {runs} of each policy, each starting one step after the previous "
        "one, since periodic schedules may be synchronised with the hours of the day by chance."
    )
    blocks = counted(view.blocks, view.block_name)
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


def _time_of_day(report: Report, view: View, results: Results[Replay]) -> None:
    """Add the rewards in busy and quiet hours, if the log has them and a day has several steps."""
    hours = busy_and_quiet(view)
    if hours is None:
        return
    published = view.published
    rows = []
    for m, of_budget in results.runs.items():
        best = next(iter(results.peers(m)))
        for name in dict.fromkeys([REFERENCE, best, CLAIRVOYANT]):
            if name in of_budget:
                reward = of_budget[name].reward.mean(axis=0)
                fractions = [part_of(reward[w].sum(), published[w].sum()) for w in hours]
                rows.append([f"{m:g}", results.events.labels.get(name, name), *fractions])
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


def _glossary(report: Report) -> None:
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


def points(estimate: Estimate) -> str:
    """Return a difference of fractions in percentage points, with its interval."""
    if np.isnan(estimate.mean):
        return "n/a"
    mean, low, high = (100 * x for x in estimate)
    return f"{mean:+.2f} " + ("[n/a]" if np.isnan(low) else f"[{low:+.2f}, {high:+.2f}]")
