"""The schedule that a scheduler arrives at, and what it gains, by its own estimates."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import groupby

import numpy as np

from crawl_env.errors import counted
from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.live.explanation import PROBABLY, duration
from ephemeral_crawl.live.reasons import CAUSES
from ephemeral_crawl.live.status import Outline

UNIT = "A budget unit pays for one fetch of a source of cost 1."
SHOWN = 40  # sources that are listed
_GUESSED = 0.5  # part of the worth published that is guessed, above which a gain is a mere guess


def describe(scheduler: Scheduler, clock: Callable[[], float], limit: int | None = SHOWN) -> str:
    """Return the schedule as a table: for each source, what it publishes, how often it is fetched
    and when it is due, the most fetched first; and what the budget collects in all.

    Intervals are those at the present price, which is low while saved budget is spent; what is
    collected is that of the budget in the long run.

    Arguments:
        clock: the scheduler's, which returns the time.
        limit: largest number of sources that are listed, and of those that fail; None: all.
    """
    status, outline = scheduler.status(), scheduler.outline()
    running = ~outline.paused
    alike = bool((outline.cost == 1.0).all())
    one, many = ("fetch", "fetches") if alike else ("budget unit", "budget units")
    lines = [
        f"{counted(status.sources, 'source')}, {status.budget:g} {many} an hour, "
        f"{status.balance:.3g} saved up; price of a {one}: {status.price:.3g}."
        + ("" if alike else f" {UNIT}"),
    ]
    new = running & ~outline.fetched & (outline.failures == 0)
    if number := int(new.sum()):
        missing = float(outline.cost[new].sum()) - status.balance
        wait = duration(3600.0 * missing / status.budget) if missing > 0.0 else ""
        lines.append(
            f"{number:,} {'has' if number == 1 else 'have'} not been fetched yet. Each is fetched "
            "once at first, which tells how often it publishes; the budget suffices for this "
            f"{f'in {wait}' if wait else 'at once'}."
        )
    view = scheduler.overview(limit=1)
    total, worth = view.published, view.collected()
    if view.guessed > _GUESSED * total:
        lines.append("What the schedule gains is shown once more of the sources are known.")
    elif running.any():
        equal = _worth_at(outline, 3600.0 * float(outline.cost[running].sum()) / status.budget)
        lines.append(
            f"Expected worth: {worth:.3g} an hour, {_percent(worth, total)} of the {total:.3g} "
            f"that {view.publishers(status.sources)}. With equal intervals: {equal:.3g} "
            f"({_percent(equal, total)}). Gain: {_percent(worth - equal, equal)}."
        )
        if view.about_guess:
            lines.append(view.about_guess)
    if view.about_ceilings:
        lines.append(view.about_ceilings + (f" {UNIT}" if alike else ""))
    if running.any():
        rates = 3600.0 * outline.answering_soon / np.maximum(outline.interval, 1.0)
        spending = float((outline.cost * rates)[running].sum())
        if spending > 1.1 * max(status.budget, view.ceilings):
            lines.append(
                f"At the present price the intervals below take {spending:.3g} {many} an hour; "
                f"{status.balance:.3g} are saved up. The price rises when they are spent."
            )
    names, intervals = outline.source, outline.interval.tolist()
    failures = outline.failures.tolist()
    order = sorted(
        np.flatnonzero(running).tolist(), key=lambda i: (failures[i] > 0, intervals[i], names[i])
    )
    listed = [scheduler.explain(names[i]) for i in order[:limit]]
    if any(e.guessed for e in listed):
        lines.append("Rates with a question mark are guesses.")
    lines.append(f"{'items/h':>9}  {'worth':>7}  {'every':>9}  {'due in':>9}  source")
    for e in listed:
        due = "never"
        if e.due_at is not None:  # the time has gone on since the estimates were read
            seconds = e.due_at - clock()
            due = duration(seconds) if seconds > 0.0 else "now"
        every = "never" if e.interval is None else duration(e.interval)
        if e.failures:
            every = "fails"
        guess = "?" if e.guessed else " "
        lines.append(
            f"{e.rate:8.3g}{guess}  {e.worth:7.3g}  {every:>9}  {due:>9}  {e.source}"
            + (" (pings of other sources)" if e.announces else "")
        )
    lines += _left_out(len(order), limit)
    idle = np.flatnonzero((outline.failures > 0) | outline.passed_over | outline.paused).tolist()
    standing = {i: _standing(outline, i) for i in idle}
    idle.sort(key=lambda i: (standing[i], -failures[i], names[i]))
    for (_, heading), group in groupby(idle[:limit], standing.__getitem__):
        lines.append(f"{heading}:")
        for i in group:
            why = scheduler.explain(names[i]).failure or ("the fetch failed" if failures[i] else "")
            lines.append(f"  {names[i]}{': ' if why else ''}{why}")
    return "\n".join(lines + _left_out(len(idle), limit))


def _standing(outline: Outline, i: int) -> tuple[int, str]:
    """Return position and heading of the group in which a source that is not fetched is listed."""
    cause = outline.cause[i]
    meaning, advice = CAUSES[cause] if cause else ("", "")
    if outline.paused[i]:
        reason = f", since {meaning}: {advice};" if cause == "gone" else ":"
        return 3, f"Paused{reason} --resume FEED ends the pause"
    if outline.dead[i] >= PROBABLY:
        return 0, f"Probably dead, since {meaning}: {advice}"
    if outline.failures[i]:
        return 1, "Failed when last tried, and tried again"
    return 2, "Passed over when last due"


def _left_out(number: int, limit: int | None) -> list[str]:
    number_left = 0 if limit is None else max(number - limit, 0)
    return [f"and {number_left:,} more, which --all lists"] if number_left else []


def _worth_at(outline: Outline, interval: float) -> float:
    """Return the worth per hour that fetches of all sources that are not paused are expected to
    collect at an interval: for each p Λξ̄(1 − e^−z)/z, z = μτ, with the probability p that they are
    answered."""
    z = math.log(2.0) * interval / outline.half_life
    worth = outline.answering_soon * outline.rate * outline.worth * (-np.expm1(-z) / z)
    return float(worth[~outline.paused & ~outline.announces].sum())


def _percent(part: float, whole: float) -> str:
    return f"{round(100.0 * part / whole, 3) + 0.0:.3g} %" if whole > 0.0 else "–"
