"""Arguments of the live scheduler: durations, rates, names and times, checked as they come in.

Inside, times are float seconds since 1970 and durations float seconds.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from crawl_env.errors import check_whole, check_within, shown

_UNITS = {
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "d": 86_400.0,
    "day": 86_400.0,
    "w": 604_800.0,
    "week": 604_800.0,
}
_NUMBER = r"\s*(\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})"
_DURATION = re.compile(_NUMBER + r"\s*([a-z]{1,7})\s*", re.ASCII)
_RATE = re.compile(_NUMBER + r"\s*(?:/|per)\s*(?:(\d{1,9})\s*)?([a-z]{1,7})\s*", re.ASCII)
# Control characters, separators of lines, surrogates, and what changes the direction of text.
_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\ufeff\u202a-\u202e\u2066-\u2069]"
)
_YEAR = 31_536_000.0  # seconds
LONGEST = 3.2e9  # seconds in a duration, a hundred years
EARLIEST, LATEST = -62_135_596_800.0, 253_402_300_799.0  # times: the years 1 to 9999
MOST_WORTH = 1e12  # of an item
LEAST_COST, MOST_COST = 1e-6, 1e6  # of a fetch; less would be nothing in single precision
LONGEST_NAME = 2048  # characters
_MOST_WHOLE = 2**63

Duration = str | float | timedelta
Time = float | datetime | str
Item = tuple[Time | None, float]


def whole(name: str, value: object) -> int:
    """Return a whole number that is at least 1."""
    if type(value) is int and 1 <= value < _MOST_WHOLE:  # usually
        return value
    return check_whole(name, value)


def seconds(name: str, value: object, least: float = 0.0) -> float:
    """Return a duration in seconds: "5min", "1.5h", a number of seconds, or a `timedelta`.

    >>> seconds("timeout", "5min"), seconds("timeout", 90), seconds("timeout", "1.5 days")
    (300.0, 90.0, 129600.0)
    >>> seconds("timeout", "soon")
    Traceback (most recent call last):
    ...
    ValueError: timeout is 'soon'; give a duration such as '5min', '24h' or '90s'
    >>> seconds("half_life", "3")  # as options of commands are given: hours may be meant
    Traceback (most recent call last):
    ...
    ValueError: half_life is '3', without a unit; write 3s, 3min, 3h or 3d
    >>> seconds("wait", "500ms")
    Traceback (most recent call last):
    ...
    ValueError: wait is '500ms'; give a duration such as '5min', '24h' or '90s'
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        unit = _unit(match[2]) if match else None
        if not match or unit is None:
            if re.fullmatch(_NUMBER + r"\s*", value):
                n = value.strip()
                raise ValueError(
                    f"{name} is {shown(value)}, without a unit; write {n}s, {n}min, {n}h or {n}d"
                )
            raise ValueError(
                f"{name} is {shown(value)}; give a duration such as '5min', '24h' or '90s'"
            )
        value = float(match[1]) * unit
    if type(value) is float and least <= value <= LONGEST:  # usually
        return value
    return check_within(name, value, least, LONGEST, unit="seconds")


def retry_after(text: str, now: float) -> float | None:
    """Return the seconds for which a server asks to be left alone, at most a year: its header
    Retry-After holds them, or a date; None if it is absent or unreadable.

    Arguments:
        now: seconds since 1970.

    >>> retry_after("120", 0.0), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 0.0)
    (120.0, 60.0)
    >>> retry_after("", 0.0)
    """
    from email.utils import parsedate_to_datetime  # which takes a while to import

    text = text.strip()
    if text.isascii() and text.isdecimal():
        return min(float(text[:10]), _YEAR)
    try:
        moment = parsedate_to_datetime(text)  # without a zone it is UTC (RFC 9110, asctime)
        wait = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now
    except (TypeError, ValueError, OverflowError, IndexError):
        return None
    return min(max(wait, 0.0), _YEAR) if math.isfinite(wait) else None


def per_second(name: str, value: object) -> float:
    """Return a rate per second: "20/h", "3 per minute", "1/10s".

    >>> per_second("budget", "36/h"), per_second("budget", "1 / 10s")
    (0.01, 0.1)
    >>> per_second("budget", 20)
    Traceback (most recent call last):
    ...
    ValueError: budget is 20; give a rate such as '20/h', '3/min' or '1/10s'
    """
    match = _RATE.fullmatch(value) if isinstance(value, str) else None
    unit = _unit(match[3]) if match else None
    if not match or unit is None or match[2] == "0":
        raise ValueError(
            f"{name} is {shown(value)}; give a rate such as '20/h', '3/min' or '1/10s'"
        )
    rate = float(match[1]) / (int(match[2] or 1) * unit)
    if not 1e-9 <= rate <= 1e9:
        raise ValueError(
            f"{name} is {shown(value)}; it must be positive, and between 1e-9 and 1e9 per second"
        )
    return rate


def rate_text(rate: float) -> str:
    """Return a rate per second as `per_second` takes it.

    >>> rate_text(0.01), rate_text(2e-9), per_second("budget", rate_text(5e8))
    ('36/h', '0.0000072/h', 500000000.0)
    """
    hourly = 3600.0 * rate
    text = f"{hourly:.12g}"
    return f"{text if 'e' not in text else f'{hourly:.15f}'.rstrip('0').rstrip('.')}/h"


def _unit(word: str) -> float | None:
    plural = len(word) > 2  # "ms" is not "m" in plural
    return _UNITS.get(word.removesuffix("s") if plural else word)


def name_of(kind: str, value: object) -> str:
    """Return a name: of 1 to 2048 characters, none of which is a control character, and without
    surrounding whitespace.

    >>> name_of("source", "https://example.org/a b\\n")
    Traceback (most recent call last):
    ...
    ValueError: source is 'https://example.org/a b\\n'; a name has no control characters
    """
    if not isinstance(value, str):
        raise ValueError(f"{kind} is {shown(value)}; give its name, a string")
    if not value or len(value) > LONGEST_NAME:
        raise ValueError(
            f"{kind} is {shown(value)}, of {len(value)} characters; a name has 1 to {LONGEST_NAME}"
        )
    if _CONTROL.search(value):
        raise ValueError(f"{kind} is {shown(value)}; a name has no control characters")
    if value != value.strip():
        raise ValueError(f"{kind} is {shown(value)}; remove the surrounding whitespace")
    return value


def time_of(name: str, value: object) -> float:
    """Return a time in seconds since 1970, given so, as a `datetime`, or in ISO 8601; the latter
    two with a time zone.

    >>> time_of("at", "2026-11-23T10:00:00Z"), time_of("at", 1.5)
    (1795428000.0, 1.5)
    >>> time_of("at", "yesterday")
    Traceback (most recent call last):
    ...
    ValueError: at is 'yesterday'; give a time such as '2026-11-23T10:00:00Z', or seconds since 1970
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value[:64])
        except ValueError:
            raise ValueError(
                f"{name} is {shown(value)}; give a time such as '2026-11-23T10:00:00Z', or seconds "
                "since 1970"
            ) from None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(
                f"{name} is {value.isoformat()}, without a time zone; give one, such as UTC, "
                "which is a Z at the end"
            )
        value = value.timestamp()
    return check_within(name, value, EARLIEST, LATEST, unit="seconds since 1970")
