"""The times of a log: which numbers are Unix times, and which events lie far from all others."""

from __future__ import annotations

import numpy as np

from crawl_env.errors import check_choice, check_range
from crawl_env.files.table import Moments
from crawl_env.numerics import BoolArray, FloatArray

HOURS = {"second": 1 / 3600, "minute": 1 / 60, "hour": 1.0, "day": 24.0}  # hours per unit
UNIX = {"unix-s": 1.0, "unix-ms": 1e3, "unix-us": 1e6, "unix-ns": 1e9}  # ticks per second
TIME_UNITS = ("auto", *HOURS, *UNIX)

_EARLIEST, _LATEST = 631_152_000.0, 4_102_444_800.0  # seconds: the years 1990 to 2099
_LONGEST = 30.0  # years that a log of plain numbers may cover
_SHEETS = (32_874.0, 73_051.0)  # days from 1899-12-30, as spreadsheets count: the same years
_IN_YEARS = (-62_135_596_800.0, 253_402_300_799.0)  # seconds: the years 1 to 9999
_LEVEL = 1e-4  # chance that the first or the last items of a Poisson log count as far


def time_unit_of(
    times: FloatArray,
    unit: str,
    given: str = "auto",
    column: str = "published",
    element: str = "item",
) -> str:
    """Return the unit of times that are numbers: `given`, or what they must be.

    `column` and `element` are named in messages.

    Their median decides, so that a few wrong times do not. Numbers of the years 1990 to 2099 in
    Unix seconds, milliseconds, microseconds or nanoseconds are these: the four ranges are apart,
    and in a log of seconds they begin 20 years after time 0. Otherwise numbers are in `unit`s.

    Raises:
        ValueError: in `unit`s, the times would lie more than 130 years from time 0, or cover more
            than 30 years; Unix times are in two of these units; or what would be hours looks like
            the dates of a spreadsheet, which are days.

    >>> time_unit_of(np.array([1.7e9]), "hour"), time_unit_of(np.array([1700.0]), "hour")
    ('unix-s', 'hour')
    """
    if check_choice("time unit", given, TIME_UNITS) != "auto":
        return given
    quantiles = np.quantile(times, (0.01, 0.5, 0.99), method="nearest")
    low, middle, high = map(float, quantiles)
    if unix_unit := unix_unit_of(middle):
        for time in (float(times.min()), float(times.max())):
            if (other := unix_unit_of(time)) not in ("", unix_unit):
                raise ValueError(
                    f"{column} is {time:.15g} for one {element}, a Unix time in the unit {other}, "
                    f"and most are in the unit {unix_unit}, such as {middle:.15g}; write all in one"
                )
        return unix_unit
    if unit == "hour" and _SHEETS[0] <= low and high < _SHEETS[1]:
        raise ValueError(
            f"{column} is {low:.15g} to {high:.15g} for most {element}s, as spreadsheets write "
            "dates of these years, in days. Format the column as a date with the time, such as "
            "2024-05-01 13:30, and save the table again; or, if it counts hours, say so "
            "(--time-unit hour)"
        )
    away, long = _years(middle, unit), _years(high - low, unit)
    if abs(middle) * HOURS[unit] * 3600 > _LATEST or long > _LONGEST:
        raise ValueError(
            f"{column} is {low:.15g} to {high:.15g} for most {element}s: in {unit}s this is "
            f"{away:,.4g} years from time 0 and covers {long:,.4g} years, and as a "
            "Unix time it is not in the years 1990 to 2099; say what it is with "
            f"the time unit (--time-unit {'|'.join(TIME_UNITS[1:])}), or write dates as "
            "2024-05-01T13:30:00Z"
        )
    return unit


def unix_unit_of(time: float) -> str:
    """Return the unit in which a number is a Unix time of the years 1990 to 2099, or ""."""
    return next((name for name, x in UNIX.items() if _EARLIEST <= time / x < _LATEST), "")


def _years(time: float, unit: str) -> float:
    return abs(time) * HOURS[unit] / 8766


def unix_moments(
    times: FloatArray, time_unit: str, column: str = "published", element: str = "item"
) -> Moments:
    """Return Unix times as moments in UTC; `column` and `element` are named in messages.

    Raises:
        ElementError: a moment is outside the years 1 to 9999.
    """
    seconds = times / UNIX[time_unit]
    check_range(column, seconds, *_IN_YEARS, unit="Unix seconds", element=element)
    return np.rint(seconds * 1e6).astype("datetime64[us]")


def far_items(times: FloatArray) -> BoolArray:
    """Return which items lie so far before or after all others that their dates must be wrong.

    At most 1 % of the items (at least one) at either end are suspected. They are far if the gap
    between them and the rest exceeds the whole span of the rest, or the multiple of it that the
    first or the last items of a Poisson process exceed with probability 1/10,000, if that is more:
    for 10 items 2.7 times their span, for 20 or more once.

    >>> far_items(np.array([-475_000.0, *range(30), 31.0])).sum()
    np.int64(1)
    """
    order = np.argsort(times, kind="stable")
    sorted_times, n = times[order], times.size
    far = np.zeros(n, dtype=bool)
    suspects = max(1, n // 100)
    inner = n - 2 * suspects - 1  # gaps of the rest
    if inner < 1:
        return far
    with np.errstate(over="ignore"):
        span = sorted_times[n - suspects - 1] - sorted_times[suspects]
        # A gap exceeds c times the sum of m other gaps with probability (1 + c)^−m.
        gaps = np.diff(sorted_times) > span * max(1.0, _LEVEL ** (-1 / inner) - 1)
    if span > 0:
        before = np.flatnonzero(gaps[:suspects])
        after = np.flatnonzero(gaps[n - 1 - suspects :])
        if before.size:
            far[order[: before[-1] + 1]] = True
        if after.size:
            far[order[n - suspects + after[0] :]] = True
    return far
