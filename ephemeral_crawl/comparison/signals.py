"""What signals are worth: to each policy, and of each source.

Every policy is run with the signals and without, on the same arrivals. The signals of one source
are worth the difference of its net rewards: of its utility collected less the cost of its crawls,
at the Lagrange multiplier λ* of the fleet without signals. This is what they would add if no other
source sent any. Where all do, crawls are worth more elsewhere too, and measured gains differ.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.rollout import Rollout
from agents.evaluation.statistics import Estimate, number
from agents.policies.industry import Miniflux, Nutch
from agents.policies.simple import OldestFirst
from agents.policies.static import Static
from agents.registry import CLAIRVOYANT
from agents.theory.arm import Information, arm_of, information
from agents.theory.multiplier import spendable
from agents.theory.task_bound import task_bound
from crawl_env import Signals, Sources, Task
from crawl_env.errors import counted
from crawl_env.numerics import FloatArray, IntArray
from ephemeral_crawl.comparison.events import C, StepEvents
from ephemeral_crawl.core import evaluation, plots
from ephemeral_crawl.core.evaluation import FLOOR, REFERENCE, percent
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import Job, Result

SHOWN = 25  # sources in a table; all are in the CSV
_NAMED = 3  # sources in the answer

# Policies that use no signals: with the same arrivals they collect the same.
_IGNORE = (CLAIRVOYANT, FLOOR, Static.name, OldestFirst.name, Nutch.name, Miniflux.name)


def without_signals(fleet: Sources) -> Sources:
    """Return the fleet of sources that send no signals."""
    return Signals(recall=0.0, precision=1.0, delay=0.0).of(fleet)


def silenced(job: Job) -> Job:
    """Return a job with the same arrivals and no signals."""
    arguments = dict(job["arguments"])
    arguments.pop("signals", None)
    fleet = without_signals(evaluation.arguments_of(job)["sources"])
    arguments["sources"] = evaluation.fleet_as_json(fleet)
    return {**job, "arguments": arguments}


class NetWorth(NamedTuple):
    """What the signals of each source are worth by the model."""

    of_source: FloatArray | None  # (N,) utility / step at the multiplier; None if unknown
    multiplier: float  # λ* without signals


class Worth(NamedTuple):
    """What the signals of each source are worth under a budget."""

    net: FloatArray | None  # (N,) see `NetWorth`
    multiplier: float
    gain: FloatArray  # (S, N) utility / step that whittle collects more with all signals

    @staticmethod
    def of(net: NetWorth, now: Sequence[Result], before: Sequence[Result]) -> Worth:
        """Return the worth, given what whittle collects with signals and without."""
        collected = [np.concatenate([run["collected"] for run in runs]) for runs in (now, before)]
        return Worth(*net, collected[0] - collected[1])

    @property
    def order(self) -> IntArray:
        """The sources, those with the most valuable signals first."""
        by = self.gain.mean(axis=0) if self.net is None else self.net
        return np.argsort(-by, kind="stable")

    def measured(self, i: int) -> Estimate:
        """Return the measured gain of a source."""
        return statistics.mean(self.gain[:, i])


class Gain(NamedTuple):
    """What a policy collects without and with signals, utility / step."""

    without: float
    with_signals: float
    gain: Estimate  # as a fraction of `without`


SignalGains = tuple[Mapping[str, Gain], Worth]  # under one budget


def gain_of(events: StepEvents[C], with_signals: C, without: C) -> Gain:
    """Return the gain of a policy, from its runs on the same events."""
    means = events.reward(without).mean, events.reward(with_signals).mean
    return Gain(*means, events.gain(with_signals, without))


def may_use(agent: str) -> bool:
    """Return whether an agent may use signals: whether it need be run without them, too."""
    return agent not in _IGNORE


def net_worth_of(job: Job) -> NetWorth:
    """Return what the signals of a job's task are worth; see `net_worth`."""
    tasks = (Task(**evaluation.arguments_of(x)) for x in (job, silenced(job)))
    return net_worth(*tasks)


def net_worth(task: Task, quiet: Task) -> NetWorth:
    """Return what each source's signals are worth at λ* without signals. This is not known where
    no exact arm is, as of arrivals that are not Poisson.

    Arguments:
        task: with signals.
        quiet: the same task without them.
    """
    with warnings.catch_warnings():  # the command has warned of too expensive sources
        warnings.simplefilter("ignore")
        fleet, budget = spendable(quiet.sources, quiet)
        spent = quiet.replaced(sources=fleet, budget=budget, budget_rule="average")
        multiplier = float(task_bound(spent).multiplier)
        if information(task) is Information.UNKNOWN:
            return NetWorth(None, multiplier)
        at = np.array([multiplier])
        with_signals, without = (
            arm_of(posed, spendable(posed.sources, posed)[0]).net_reward(at)
            for posed in (task, quiet)
        )
        net = with_signals - without
        return NetWorth(np.maximum(net, 0.0), multiplier)


def collected(job: Job) -> Result:
    """Return the utility per step that a job's agent collects from each source, (S, N)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = job["runs"]
        rollout = Rollout(
            evaluation.agent_of(job), evaluation.arguments_of(job), runs["seeds"], runs["seed"]
        )
        total = np.zeros(rollout.env.world.shape)
        for step in range(runs["warmup"] + runs["steps"]):
            rollout.step()
            if step >= runs["warmup"]:
                harvest = rollout.env.harvest
                np.add.at(total.reshape(-1), harvest.picked, harvest.value)
    return {"collected": (total / runs["steps"]).tolist()}


def ranked(gains: Mapping[str, Gain]) -> list[str]:
    """Return the policies, those that gain most utility first."""
    return sorted(gains, key=lambda name: gains[name].without - gains[name].with_signals)


def answer(by_budget: Mapping[float, SignalGains], fleet: Sources) -> str:
    """Return sentences on what the signals are worth, of the first budget if there are several; ""
    without signals."""
    if not by_budget:
        return ""
    (gains, worth), *more = by_budget.values()
    if not gains[REFERENCE].without > 0:
        return ""
    best = [i for i in worth.order[:_NAMED] if _value(worth, i) > 0]
    most = ", ".join(f"{fleet.name(i)} ({number(_value(worth, i))} per step)" for i in best)
    under = f" (under budget {next(iter(by_budget)):g})" * bool(more)
    gain = gains[REFERENCE].gain
    if gain.mean < 0:
        return (
            f" With signals, whittle collects less than without: a gain of {percent(gain)}{under}."
        )
    return (
        f" With signals, whittle collects {percent(gain)} more than without{under}"
        + f"; those of {most} are worth most" * bool(most)
        + "."
    )


def write(
    report: Report, budget: float, gains: Mapping[str, Gain], worth: Worth, fleet: Sources
) -> None:
    """Add what the signals are worth under a budget: to the policies, and of the sources."""
    report.heading(f"What the signals are worth under budget {budget:g}")
    rows = [
        [
            name,
            number(gains[name].without),
            number(gains[name].with_signals),
            percent(gains[name].gain),
        ]
        for name in ranked(gains)
    ]
    report.table(
        "Policies without and with signals, on the same arrivals",
        ["policy", "reward / step without", "with signals", "gain"],
        rows,
    )
    report.paragraph("Policies that gain nothing do not use signals. " + _explanation(worth, fleet))
    lines = [
        [
            fleet.name(i),
            f"{fleet.recall[i]:.3g}",
            f"{fleet.precision[i]:.3g}",
            f"{fleet.signal_delay[i]:.3g}",
            "n/a" if worth.net is None else number(float(worth.net[i])),
            worth.measured(i),
        ]
        for i in worth.order[:SHOWN]
    ]
    n = len(fleet)
    scope = f"the {SHOWN} most valuable of {n:,}" if n > SHOWN else counted(n, "source")
    report.table(
        f"Worth of each source's signals ({scope}; also in signals.csv)",
        ["source", "recall", "precision", "delay", "worth / step at λ*", "measured gain / step"],
        lines,
    )
    _figure(report, worth, fleet)


def files(gains: Mapping[float, SignalGains], fleet: Sources) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of signals.csv by its name; nothing without signals."""
    rows = [
        {
            "budget": f"{budget:g}",
            "source": fleet.name(i),
            "recall": repr(float(fleet.recall[i])),
            "precision": repr(float(fleet.precision[i])),
            "signal_delay": repr(float(fleet.signal_delay[i])),
            "worth": "" if worth.net is None else repr(float(worth.net[i])),
            "multiplier": repr(worth.multiplier),
            "gain": repr((gain := worth.measured(i)).mean),
            "gain_low": _bound_text(gain.low),
            "gain_high": _bound_text(gain.high),
        }
        for budget, (_, worth) in gains.items()
        for i in range(len(fleet))
    ]
    return {"signals.csv": rows} if rows else {}


def _explanation(worth: Worth, fleet: Sources) -> str:
    if worth.net is None:
        return (
            "Measured gain: what whittle collects more from a source when all send their signals; "
            "negative where it crawls others instead. The net reward of a source with signals is "
            "known for Poisson arrivals without capacities only."
        )
    note = (
        " Delays are ignored in the worth, but not in the measured gain."
        if fleet.signal_delay.any()
        else ""
    )
    return (
        "Worth: what the signals of a source would add if it alone sent any; the difference of its "
        "net rewards (utility collected less λ* per unit of cost) with and without its signals, "
        f"at λ* = {number(worth.multiplier)} without signals.{note} Measured gain: what whittle "
        "collects more from the source when all send their signals; negative where it crawls "
        f"others instead. Together, the signals are worth at most {number(float(worth.net.sum()))} "
        "per step; measured, "
        f"{statistics.mean(worth.gain.sum(axis=1))}."
    )


def _figure(report: Report, worth: Worth, fleet: Sources) -> None:
    if worth.net is None or not (worth.net > 0).any():
        return
    order = [i for i in worth.order[:SHOWN] if worth.net[i] > 0][::-1]
    figure, axis = plots.new(width=8, height=0.6 + 0.25 * len(order))
    axis.barh([fleet.name(i) for i in order], worth.net[order], color=plots.colour(REFERENCE, 0))
    axis.plot(worth.gain.mean(axis=0)[order], range(len(order)), "ko", ms=3, label="measured gain")
    axis.set(xlabel="utility / step")
    axis.legend(loc="lower right")
    axis.grid(axis="y", visible=False)
    report.figure(figure, "Worth of each source's signals (bars), and the measured gain (points).")


def _value(worth: Worth, i: int) -> float:
    return float(worth.gain[:, i].mean() if worth.net is None else worth.net[i])


def _bound_text(x: float) -> str:
    return repr(float(x)) if np.isfinite(x) else ""
