"""A budget that follows the clock: a table of hours."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from crawl_env.errors import shown
from ephemeral_crawl.live.arguments import per_second, rate_text

_HOUR = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\s+(\S.*)", re.ASCII)
_MOST = 96  # hours in a table

Hours = tuple[tuple[float, float], ...]


def hours_of(budget: object) -> Hours:
    """Return the times of a day, seconds from midnight on, from which on there is each budget, per
    second; none of a budget that is no table of hours.

    >>> hours_of("08:00 36/h, 22:00 18/h"), hours_of("36/h")
    (((28800.0, 0.01), (79200.0, 0.005)), ())
    >>> hours_of("8 40/h, 22:00 10/h")
    Traceback (most recent call last):
    ...
    ValueError: budget is '8 40/h, 22:00 10/h': '8 40/h' is not a time of day and a rate, such as \
'08:00 40/h'
    """
    if not (isinstance(budget, str) and ":" in budget):
        return ()
    found: dict[float, float] = {}
    for part in budget.split(","):
        match = _HOUR.fullmatch(part.strip())
        if not match:
            raise ValueError(
                f"budget is {shown(budget)}: {shown(part.strip())} is not a time of day and a "
                "rate, such as '08:00 40/h'"
            )
        start = 3600.0 * int(match[1]) + 60.0 * int(match[2])
        if start in found:
            raise ValueError(f"budget is {shown(budget)}: {match[1]}:{match[2]} appears twice")
        found[start] = per_second("budget", match[3])
    if len(found) > _MOST:
        raise ValueError(f"budget has {len(found)} times of day; give at most {_MOST}")
    return tuple(sorted(found.items()))


def text_of(hours: Hours) -> str:
    """Return a table as it is given.

    >>> text_of(hours_of("22:00 10/h, 08:00 40/h"))
    '08:00 40/h, 22:00 10/h'
    >>> text_of(((0.0, 2e-9),))
    '00:00 0.0000072/h'
    """
    return ", ".join(
        f"{start // 3600:02.0f}:{start % 3600 // 60:02.0f} {rate_text(rate)}"
        for start, rate in hours
    )


def zone_of(name: object) -> tzinfo:
    """Return a time zone.

    >>> zone_of("Middle/Earth")
    Traceback (most recent call last):
    ...
    ValueError: zone is 'Middle/Earth'; give a time zone such as 'UTC' or 'Europe/Paris' (on \
machines without a list of them, install tzdata)
    """
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(str(name))
    except (ValueError, OSError, LookupError):
        raise ValueError(
            f"zone is {shown(name)}; give a time zone such as 'UTC' or 'Europe/Paris' (on machines "
            "without a list of them, install tzdata)"
        ) from None


def at(hours: Hours, zone: str, clock: float) -> tuple[float, float]:
    """Return the budget per second at a time, and when the next one begins, seconds since 1970.

    >>> at(hours_of("08:00 36/h, 22:00 18/h"), "UTC", 0.0)
    (0.005, 28800.0)
    >>> at(hours_of("08:00 36/h, 22:00 18/h"), "Europe/Paris", 82_800.0)  # midnight there
    (0.005, 111600.0)
    >>> at(hours_of("02:00 36/h, 03:00 18/h"), "Europe/Paris", 1_774_782_000.0)[0]  # no 2:00 then
    0.005
    """
    here = zone_of(zone)
    now = datetime.fromtimestamp(clock, here)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    # The same moments of three days, as clocks in that zone show them. They are not sorted: in an
    # hour that is left out when clocks are set forward, an earlier one can come at the same time.
    changes = [
        ((midnight + timedelta(days=day, seconds=start)).replace(tzinfo=here).timestamp(), rate)
        for day in (-1, 0, 1)
        for start, rate in hours
    ]
    rate = next(rate for start, rate in reversed(changes) if start <= clock)
    return rate, min(start for start, _ in changes if start > clock)
