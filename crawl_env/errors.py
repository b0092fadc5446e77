"""Validation of arguments, with messages that give the value, the reason and the remedy.

Every check returns its argument, converted to the documented type, or raises ValueError. Checks of
arrays raise the subclass ElementError, whose position readers of files translate into a row.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from itertools import accumulate, islice, takewhile
from numbers import Integral, Real
from typing import Any, cast

import numpy as np

from crawl_env.numerics import FloatArray

_INF = math.inf
_LISTED = 600  # characters of names that a message lists
_COMPARED = 10_000  # names with which an unknown one is compared
NOTATION: ContextVar[Callable[[object], str]] = ContextVar("NOTATION", default=repr)
# The usual types first, since abstract classes take longer.
_REAL, _INTEGRAL = (float, int, Real), (int, Integral)


class ElementError(ValueError):
    """An invalid element of an array or sequence.

    Attributes:
        what: description of the error and of the valid range.
        position: index of the element along the last axis, from 0; None for a scalar.
        other: index of an element with which it conflicts, or None.
    """

    def __init__(
        self, what: str, position: int | None = None, element: str = "", other: int | None = None
    ) -> None:
        super().__init__(f"{element}: {what}" if element else what)
        self.what, self.position, self.other = what, position, other


def unknown(kind: str, name: object, known: Iterable[str]) -> ValueError:
    """Return the error for a name that is not one of `known`, suggesting the closest one.

    >>> raise unknown("feature", "aeg", ["value", "age"])
    Traceback (most recent call last):
    ...
    ValueError: unknown feature 'aeg'; did you mean 'age'? Known: value, age
    """
    names = list(known)
    by_lower = {known_name.lower(): known_name for known_name in names}
    few = islice(by_lower, _COMPARED)
    near = difflib.get_close_matches(str(name)[:120].lower(), few, n=1, cutoff=0.6)
    hint = f"; did you mean {shown(by_lower[near[0]])}?" if near else "."
    ends = accumulate(len(known_name) + 2 for known_name in names)
    fit = max(sum(1 for _ in takewhile(lambda end: end <= _LISTED, ends)), 1)
    listing = ", ".join(map(_shortened, names[:fit]))
    more = f" and {len(names) - fit:,} others" * (fit < len(names))
    return ValueError(f"unknown {kind} {shown(name)}{hint} Known: {listing}{more}")


def counted(number: float, one: str, many: str = "") -> str:
    """Return a number of things in words.

    >>> counted(1, "feed"), counted(2000, "feed"), counted(0, "fetch", "fetches")
    ('1 feed', '2,000 feeds', '0 fetches')
    """
    return f"{number:,.0f} {one if number == 1 else many or one + 's'}"


def check_choice(kind: str, value: object, choices: Iterable[str]) -> str:
    """Return `value`, which must be one of `choices`.

    >>> check_choice("engine", "loki", ["loky", "ray"])
    Traceback (most recent call last):
    ...
    ValueError: unknown engine 'loki'; did you mean 'loky'? Known: loky, ray
    """
    names = list(choices)
    if not isinstance(value, str) or value not in names:
        raise unknown(kind, value, names)
    return value


def check_positive(name: str, value: object, unit: str = "") -> float:
    """Return a positive and finite number as a float.

    >>> check_positive("budget", -1, "budget units")
    Traceback (most recent call last):
    ...
    ValueError: budget is -1; it must be positive and finite (budget units)
    """
    return check_within(name, value, 0.0, unit=unit, open_low=True)


def check_non_negative(name: str, value: object, unit: str = "") -> float:
    """Return a finite number that is zero or positive as a float."""
    return check_within(name, value, 0.0, unit=unit)


def check_within(
    name: str,
    value: object,
    low: float = -_INF,
    high: float = _INF,
    *,
    open_low: bool = False,
    open_high: bool = False,
    unit: str = "",
) -> float:
    """Return a finite number between `low` and `high`; `open_low`, `open_high` exclude the ends.

    >>> check_within("discount", 1.5, 0, 1, open_low=True)
    Traceback (most recent call last):
    ...
    ValueError: discount is 1.5; it must be above 0 and at most 1
    """
    number, kind = math.nan, "a number, "
    if isinstance(value, _REAL) and not isinstance(value, bool):
        kind = ""
        try:
            number = float(value)
        except OverflowError:
            number = _INF
    above = number > low if open_low else number >= low
    below = number < high if open_high else number <= high
    if not (math.isfinite(number) and above and below):
        bounds = _range(low, high, open_low, open_high, finite=True)
        raise ValueError(f"{name} is {shown(value)}; it must be {kind}{bounds}{_in(unit)}")
    return number


def check_whole(name: str, value: object, minimum: int = 1, what: str = "") -> int:
    """Return an integer of at least `minimum` that fits in 64 bits.

    >>> check_whole("horizon", 2.5, what="steps")
    Traceback (most recent call last):
    ...
    ValueError: horizon is 2.5; it must be a whole number of steps, at least 1
    """
    number = int(value) if isinstance(value, _INTEGRAL) and not isinstance(value, bool) else None
    if number is None or not minimum <= number < 2**63:
        condition = f" of {what}, at least {minimum}" if what else f" of at least {minimum}"
        if number is not None and number >= minimum:
            condition += " and below 2**63"
        kind = ", a float" * (isinstance(value, float | np.floating) and value.is_integer())
        raise ValueError(f"{name} is {shown(value)}{kind}; it must be a whole number{condition}")
    return number


def check_flag(name: str, value: object) -> bool:
    """Return a bool.

    >>> check_flag("flat", "no")
    Traceback (most recent call last):
    ...
    ValueError: flat is 'no'; it must be true or false
    """
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} is {shown(value)}; it must be true or false")
    return bool(value)


def check_array(
    name: str,
    value: object,
    shape: Sequence[int | None] | None = None,
    low: float = -_INF,
    high: float = _INF,
    *,
    open_low: bool = False,
    unit: str = "",
    element: str = "source",
) -> FloatArray:
    """Return a new array of float64, all of whose elements are finite and within a range.

    Raises:
        ElementError: an element is out of range.
        ValueError: the elements are not numbers, or the shape is wrong.

    Arguments:
        shape: required shape; None allows any length of an axis.
        low, high: the range; `open_low` excludes its lower end.
        element: what an index of the last axis stands for, for messages.

    >>> check_array("cost", [1, -2], (2,), low=0)
    Traceback (most recent call last):
    ...
    crawl_env.errors.ElementError: source 1: cost is -2; it must be zero or positive and finite
    """
    array = as_array(name, value)
    target = array.shape if shape is None else shape
    if len(target) != array.ndim or any(
        length not in (None, n) for length, n in zip(target, array.shape, strict=True)
    ):
        lengths = ", ".join("any" if n is None else str(n) for n in target)
        comma = "," * (len(target) == 1)
        raise ValueError(f"{name} has shape {array.shape}; it must have shape ({lengths}{comma})")
    check_range(name, array, low, high, open_low, unit=unit, element=element)
    return array


def as_array(name: str, value: object) -> FloatArray:
    """Return numbers of any shape as a new array of float64."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "Mmc":  # which numpy converts, times to their number of units
            return np.array(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be a number or an array of numbers: {error}") from None
    raise ValueError(
        f"{name} has dtype {array.dtype}; give real numbers, such as times in hours: "
        "(time - time.min()) / np.timedelta64(1, 'h')"
    )


def check_range(
    name: str,
    array: FloatArray,
    low: float = -_INF,
    high: float = _INF,
    open_low: bool = False,
    open_high: bool = False,
    finite: bool = True,
    whole: bool = False,
    unit: str = "",
    names: Sequence[object] = (),
    element: str = "source",
) -> None:
    """Raise ElementError unless all elements are within a range.

    Arguments:
        low, high: the range; `open_low` and `open_high` exclude its ends.
        finite: whether to refuse infinity; NaN is always refused.
        whole: whether the numbers must be integers.
        names: names of the elements along the last axis, for messages; default: the index from 0.
        element: what an index of the last axis stands for, for messages.
    """
    if array.size == 1:  # a number is compared faster in Python than in numpy
        number = array.item()
        above = number > low if open_low else number >= low
        below = number < high if open_high else number <= high
        regular = math.isfinite(number) and (not whole or number % 1 == 0)
        if above and below and regular:
            return
    fine = (array > low) if open_low else (array >= low)
    fine &= (array < high) if open_high else (array <= high)
    if finite:
        fine &= np.isfinite(array)
    if whole:
        fine &= np.floor(array) == array
    if not fine.all():
        index = tuple(int(i) for i in np.argwhere(~fine)[0])
        position, label = (index[-1], str(index[-1])) if index else (None, "")
        if position is not None and len(names):
            label = shown(str(names[position]))
        bounds = _range(low, high, open_low, open_high, finite, whole)
        raise ElementError(
            f"{name} is {array[index]:g}; it must be {bounds}{_in(unit)}",
            position,
            f"{element} {label}" if index else "",
        )


def check_names(names: Sequence[str], element: str = "source") -> tuple[str, ...]:
    """Return the names without surrounding whitespace; they must be non-empty and unique.

    >>> check_names(["a", "b", "a "])
    Traceback (most recent call last):
    ...
    crawl_env.errors.ElementError: source 2: the name 'a' appears twice; names must be unique
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValueError(f"names is {shown(names)}; give a sequence, one name per {element}")
    labels = tuple(map(label_of, names))
    if len(set(labels)) == len(labels) and all(labels):
        return labels
    first: dict[str, int] = {}
    for position, label in enumerate(labels):
        if not label:
            what = f"the {element} has no name; give it one"
            raise ElementError(what, position, f"{element} {position}")
        if label in first:
            what = f"the name {shown(label)} appears twice; names must be unique"
            raise ElementError(what, position, f"{element} {position}", first[label])
        first[label] = position
    raise AssertionError("unreachable")


def label_of(name: object) -> str:
    """Return a name as text without surrounding whitespace; "" for a missing one, such as the NaN
    of pandas."""
    if isinstance(name, str):
        return name.strip()
    missing = name is None or type(name).__name__ == "NAType"
    missing = missing or (np.ndim(cast(Any, name)) == 0 and name != name)
    return "" if missing else str(name).strip()


def _range(
    low: float, high: float, open_low: bool, open_high: bool, finite: bool, whole: bool = False
) -> str:
    """Return a description of a range.

    >>> _range(0, 1, False, False, True), _range(1, _INF, False, False, False)
    ('between 0 and 1', 'at least 1')
    >>> _range(1, _INF, False, False, False, True)
    'a whole number, at least 1, or inf'
    """
    if whole:
        return f"a whole number, {_range(low, high, open_low, open_high, True)}".replace(
            "finite and ", ""
        ) + ", or inf" * (high == _INF and not finite)
    if high == _INF and low == 0:
        words = "positive" if open_low else "zero or positive"
        return f"{words} and finite" if finite else words
    above = f"above {low:g}" if open_low else f"at least {low:g}"
    below = f"below {high:g}" if open_high else f"at most {high:g}"
    if low == -_INF and high == _INF:
        return "finite" if finite else "a number"
    if low == -_INF or high == _INF:
        words = above if high == _INF else below
        return f"finite and {words}" if finite else words
    if not (open_low or open_high):
        return f"between {low:g} and {high:g}"
    return f"{above} and {below}"


def _in(unit: str) -> str:
    return f" ({unit})" if unit else ""


def shown(value: Any) -> str:
    """Return a value as messages give it, its repr unless `NOTATION` is another, shortened to 120
    characters; numpy scalars appear as numbers."""
    if isinstance(value, np.generic):
        value = value.item()
    try:
        text = NOTATION.get()(value)
    except ValueError:  # an integer of more digits than Python converts to text
        return "too large a number"
    return _shortened(text)


def brief(text: object) -> str:
    """Return a text, such as the message of a library's error, on one line of 120 characters."""
    return _shortened(" ".join(str(text).split()))


def _shortened(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}..."
