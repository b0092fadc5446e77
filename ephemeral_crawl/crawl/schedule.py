"""The schedule that a scheduler arrives at, and what it gains, by its own estimates."""

from __future__ import annotations

import math
from collections.abc import Callable

from ephemeral_crawl.live import Explanation, Scheduler
from ephemeral_crawl.live.explanation import duration
from ephemeral_crawl.live.overview import BUDGETS

UNIT = "A budget unit pays for one fetch of a source of cost 1."
_SHOWN = 40
_GUESSED = 0.5  # part of the worth published that is guessed, above which a gain is a mere guess


def describe(scheduler: Scheduler, clock: Callable[[], float], limit: int = _SHOWN) -> str:
    """Return the schedule as a table: for each source, what it publishes, how often it is fetched
    and when it is due, the most fetched first; and what the budget collects in all.

    Intervals are those at the present price, which is low while saved budget is spent; what is
    collected is that of the budget in the long run.

    Arguments:
        clock: the scheduler's, which returns the time.
        limit: number of sources that are listed.
    """
    status = scheduler.status()
    known = [scheduler.explain(name) for name in scheduler.sources()]
    running, now = [e for e in known if not e.paused], clock()
    alike = all(scheduler.settings(e.source)["cost"] == 1.0 for e in known)
    one, many = ("fetch", "fetches") if alike else ("budget unit", "budget units")
    lines = [
        f"{status.sources:,} sources, {status.budget:g} {many} an hour; price of a {one}: "
        f"{status.price:.3g}." + ("" if alike else f" {UNIT}"),
    ]
    new = sum(e.fetched_at is None and not e.failures for e in running)
    if new:
        lines.append(
            f"{new:,} were not fetched yet. Each is fetched once at first, which takes "
            f"{duration(3600.0 * new / status.budget)}, and tells how often it publishes; until "
            "then a rate with a question mark is a guess."
        )
    view = scheduler.overview(limit=1)
    total, planned = view.published, view.collects[BUDGETS.index(1.0)]
    if view.guessed > _GUESSED * total:
        lines.append("What the schedule gains is told when more of them are known.")
    elif running:
        equal = sum(_collected(e, 3600.0 * len(running) / status.budget) for e in running)
        lines.append(
            f"Expected: {planned:.3g} of the worth {total:.3g} that is published an hour "
            f"({_percent(planned, total)}); with equal intervals: {equal:.3g} "
            f"({_percent(equal, total)}). Gain: {_percent(planned - equal, equal)}."
            + (
                f" Of what is published {_percent(view.guessed, total)} is a guess."
                if view.guessed > 0.0
                else ""
            )
        )
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
        lines.append(f"{e.rate:8.3g}{guess}  {e.worth:7.3g}  {every:>9}  {due:>9}  {e.source}")
    if len(order) > limit:
        lines.append(f"and {len(order) - limit:,} more")
    failing = [e for e in known if e.failures or e.failure]
    if failing:
        lines.append("Not fetched when it was last tried:")
        failing.sort(key=lambda e: (-e.failures, e.source))
        lines += [
            f"  {e.source}: {e.failure or 'the fetch failed'}"
            + (", probably dead" if e.probably_dead else "")
            for e in failing[:limit]
        ]
    if len(failing) > limit:
        lines.append(f"  and {len(failing) - limit:,} more")
    return "\n".join(lines)


def _collected(e: Explanation, interval: float) -> float:
    """Return the worth per hour that fetches at an interval are expected to collect: p Λξ̄(1 −
    e^−z)/z, z = μτ, with the probability p that they are answered."""
    z = math.log(2.0) * interval / e.half_life
    return e.answering_soon * e.rate * e.worth * (-math.expm1(-z) / z if z > 0.0 else 1.0)


def _percent(part: float, whole: float) -> str:
    return f"{round(100.0 * part / whole, 3) + 0.0:.3g} %" if whole > 0.0 else "–"
