"""The user's present rule, and the budget at which another policy collects as much."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agents import AGENTS
from agents.theory.price import first_where
from crawl_env import Sources
from crawl_env.errors import check_names, unknown
from crawl_env.files import table
from crawl_env.files.table import Column
from crawl_env.numerics import FloatArray
from ephemeral_crawl.comparison.sample import Sample

PLAYED = "present intervals"  # name of a rule that is given by its intervals

_NEAR = 0.002  # fraction of the reward at which two policies count as equal
_TINY = 1e-300  # of what is divided by
_TRIES = 7  # budgets that are run in search of the one of equal reward


class Present(NamedTuple):
    """The present rule: a policy by name, or the interval of every source."""

    name: str
    rates: FloatArray | None  # (N,) crawls per step; None for a policy

    @staticmethod
    def of(text: str, fleet: Sources) -> Present:
        """Return the rule that an option names.

        Raises:
            ValueError: there is neither such a policy nor such a file; or the file has an interval
                that is shorter than a step, or does not name each source once.
        """
        if text in AGENTS:
            return Present(text, None)
        if not Path(text).suffix:
            raise unknown("rule (or CSV of intervals)", text, AGENTS)
        interval = intervals(text, fleet)
        short = np.flatnonzero(interval < fleet.period)
        if short.size:
            raise ValueError(
                f"{text}: the interval of {fleet.names[short[0]]} is {interval[short[0]]:g}; it "
                f"must be at least one step, which is {fleet.period:g}: set a shorter --period"
            )
        return Present(PLAYED, fleet.period / interval)

    def sampled(self, part: Sample) -> Present:
        """Return the rule on a sample of the sources."""
        return self if self.rates is None else self._replace(rates=part.crawls(self.rates))

    def budget(self, fleet: Sources, budget: float) -> float:
        """Return the budget per step under which the rule is run: that of the others, or what its
        intervals cost."""
        return budget if self.rates is None else float((self.rates * fleet.cost).sum())


def intervals(text: str, fleet: Sources) -> FloatArray:
    """Return the time between two crawls of each source, (N,); infinite if it is never crawled.

    Raises:
        ValueError: the file has an interval that is not positive, has none at all, or does not name
            each source once.
    """
    interval = _of_sources(text, "interval", fleet)
    wrong = np.flatnonzero(~(interval > 0))
    if wrong.size:
        raise ValueError(
            f"{text}: the interval of {fleet.names[wrong[0]]} is {interval[wrong[0]]:g}; give a "
            "positive time, or leave the cell empty if it is never crawled"
        )
    if not np.isfinite(interval).any():
        raise ValueError(f"{text}: no source has an interval; nothing is crawled")
    return interval


def since_last_crawl(text: str, fleet: Sources) -> FloatArray:
    """Return the time since the last crawl of each source, (N,); infinite if it was never crawled.

    Raises:
        ValueError: the file has a negative time, or does not name each source once.
    """
    since = _of_sources(text, "since", fleet)
    wrong = np.flatnonzero(~(since >= 0))
    if wrong.size:
        raise ValueError(
            f"{text}: since of {fleet.names[wrong[0]]} is {since[wrong[0]]:g}; give the time that "
            "has passed since its last crawl, or leave the cell empty if it was never crawled"
        )
    return since


def _of_sources(text: str, column: str, fleet: Sources) -> FloatArray:
    """Return a column of a table with a row per source, in the order of the fleet, (N,); infinite
    where a cell is empty."""
    columns = (Column("source", "text"), Column(column, default=np.inf))
    rows = table.read(text, columns, "source")
    with rows.located():
        names = check_names(rows.text["source"])
    value_of = dict(zip(names, rows.number[column].tolist(), strict=True))
    lacking = [name for name in fleet.names if name not in value_of]
    if lacking:
        raise ValueError(
            f"{text} lacks {len(lacking)} of the sources ({', '.join(lacking[:5])}"
            f"{', …' * (len(lacking) > 5)}); add them, with an empty {column} if they are never "
            "crawled"
        )
    return np.array([value_of[name] for name in fleet.names])


class Measurement(NamedTuple):
    """A policy under one budget."""

    budget: float
    reward: float  # utility per step
    cost: float  # budget units per step
    least: float  # utility per step that the present rule must not exceed, for this policy to
    # collect at least as much with 95 % confidence (paired); −∞ if that is unknown


class Equal(NamedTuple):
    """Where a policy collects at least as much as the present rule."""

    present: Measurement
    same: Measurement  # a run with the budget of the present rule
    run: Measurement  # the run with the smallest budget found that collects at least as much

    @property
    def fewer(self) -> float:
        """Return the fraction of the fetches that the run saves."""
        return 1.0 - self.run.cost / self.present.cost


def equal(
    present: Measurement,
    measure: Callable[[float], Measurement],
    guess: Callable[[float], float],
    least: float,
    whole: bool,
) -> Equal | None:
    """Return where a policy collects at least as much as the present rule, with 95 % confidence;
    None if it does not with the budget of that rule.

    Arguments:
        present: the present rule.
        measure: runs the policy under a budget.
        guess: the expected reward under a budget, up to a factor.
        least: the smallest budget.
        whole: whether budgets are multiples of `least`.
    """
    most = max(present.budget, least)
    same = measure(math.ceil(most / least - 1e-9) * least if whole else most)
    if not same.least >= present.reward:
        return None
    low, high = 0.0, same
    scale = same.least / max(guess(same.budget), _TINY)
    for _ in range(_TRIES):
        if high.least <= present.reward * (1 + _NEAR) or high.budget <= least:
            break
        budget = _budget_at(present.reward / scale, guess, max(low, least), high.budget)
        if whole:
            first, last = round(low / least) + 1, round(high.budget / least) - 1
            if first > last:
                break
            budget = float(np.clip(round(budget / least), first, last) * least)
        run = measure(budget)
        if run.least > 0:
            scale = run.least / max(guess(budget), _TINY)
        if run.least >= present.reward:
            high = run
        else:
            low = budget
    return Equal(present, same, high)


def _budget_at(reward: float, guess: Callable[[float], float], low: float, high: float) -> float:
    """Return the budget between two others whose expected reward is closest to this one."""
    pair = first_where(lambda x: np.asarray(guess(float(x)) >= reward), np.array(high), low, 1e-9)
    return float(0.5 * (pair[0] + pair[1]))
