"""The schedule that a scheduler arrives at, and what it gains, by its own estimates."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import groupby

from crawl_env.errors import counted
from ephemeral_crawl.live import Explanation, Scheduler
from ephemeral_crawl.live.causes import CAUSES
from ephemeral_crawl.live.explanation import duration

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
    status = scheduler.status()
    known = [scheduler.explain(name) for name in scheduler.sources()]
    running, now = [e for e in known if not e.paused], clock()
    alike = all(scheduler.settings(e.source)["cost"] == 1.0 for e in known)
    one, many = ("fetch", "fetches") if alike else ("budget unit", "budget units")
    lines = [
        f"{counted(status.sources, 'source')}, {status.budget:g} {many} an hour, "
        f"{status.balance:.3g} saved up; price of a {one}: {status.price:.3g}."
        + ("" if alike else f" {UNIT}"),
    ]
    new = [e.source for e in running if e.fetched_at is None and not e.failures]
    if new:
        missing = sum(scheduler.settings(name)["cost"] for name in new) - status.balance
        wait = duration(3600.0 * missing / status.budget) if missing > 0.0 else ""
        lines.append(
            f"{len(new):,} {'was' if len(new) == 1 else 'were'} not fetched yet. Each is fetched "
            "once at first, "
            + (f"for which the budget suffices in {wait}" if wait else "at once")
            + ", which tells how often it publishes. Until then its rate is a guess, with a "
            "question mark."
        )
    view = scheduler.overview(limit=1)
    total, planned = view.published, view.collected()
    if view.guessed > _GUESSED * total:
        lines.append("What the schedule gains is shown once more of the sources are known.")
    elif running:
        each = 3600.0 * len(running) / status.budget
        equal = sum(_collected(e, each) for e in running if not e.announces)
        lines.append(
            f"Expected worth: {planned:.3g} an hour, {_percent(planned, total)} of the {total:.3g} "
            f"that {view.publishers(status.sources)}. With equal intervals: {equal:.3g} "
            f"({_percent(equal, total)}). Gain: {_percent(planned - equal, equal)}."
        )
        if view.about_guess:
            lines.append(view.about_guess)
    if view.about_ceilings:
        lines.append(view.about_ceilings + (f" {UNIT}" if alike else ""))
    if running:
        frequency = sum(e.answering_soon * 3600.0 / e.interval for e in running if e.interval)
        if frequency > 1.1 * max(status.budget, view.ceilings):
            lines.append(
                f"At the present price the intervals below take {frequency:.3g} {many} an hour; "
                f"{status.balance:.3g} are saved up. The price rises when they are spent."
            )
    lines.append(f"{'items/h':>9}  {'worth':>7}  {'every':>9}  {'due in':>9}  source")
    order = sorted(running, key=lambda e: (e.failures > 0, e.interval or math.inf, e.source))
    for e in order[:limit]:
        due = "never"
        if e.due_at is not None:
            due = duration(e.due_at - now) if e.due_at > now else "now"
        every = "never" if e.interval is None else duration(e.interval)
        if e.failures:
            every = "fails"
        guess = "?" if e.guessed else " "
        lines.append(
            f"{e.rate:8.3g}{guess}  {e.worth:7.3g}  {every:>9}  {due:>9}  {e.source}"
            + (" (pings of other sources)" if e.announces else "")
        )
    lines += _left_out(len(order), limit)
    others = [e for e in known if e.failures or e.failure or e.paused]
    others.sort(key=lambda e: (_standing(e), -e.failures, e.source))
    for (_, heading), group in groupby(others[:limit], _standing):
        lines.append(f"{heading}:")
        for e in group:
            why = e.failure or ("the fetch failed" if e.failures else "")
            lines.append(f"  {e.source}{': ' if why else ''}{why}")
    return "\n".join(lines + _left_out(len(others), limit))


def _standing(e: Explanation) -> tuple[int, str]:
    """Return place and heading of the sources among which one is listed that is not fetched."""
    meaning, advice = CAUSES[e.cause] if e.cause else ("", "")
    if e.paused:
        gone = f", since {meaning}: {advice};" if e.cause == "gone" else ":"
        return 3, f"Paused{gone} --resume FEED ends the pause"
    if e.probably_dead:
        return 0, f"Probably dead, since {meaning}: {advice}"
    if e.failures:
        return 1, "Failed when last tried, and tried again"
    return 2, "Passed over when last due"


def _left_out(number: int, limit: int | None) -> list[str]:
    left = 0 if limit is None else max(number - limit, 0)
    return [f"and {left:,} more, which --all lists"] if left else []


def _collected(e: Explanation, interval: float) -> float:
    """Return the worth per hour that fetches at an interval are expected to collect: p Λξ̄(1 −
    e^−z)/z, z = μτ, with the probability p that they are answered."""
    z = math.log(2.0) * interval / e.half_life
    return e.answering_soon * e.rate * e.worth * (-math.expm1(-z) / z if z > 0.0 else 1.0)


def _percent(part: float, whole: float) -> str:
    return f"{round(100.0 * part / whole, 3) + 0.0:.3g} %" if whole > 0.0 else "–"
