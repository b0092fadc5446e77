"""Checks of arguments, one of each kind, and their messages: the value, the reason, the remedy.

Every check returns what it was given, as the type that is wanted, or raises ValueError; of arrays,
its subclass ElementError, whose position tells a reader of files the row.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from types import EllipsisType
from typing import Any

import numpy as np

from crawl_env.numerics import FloatArray

_INF = math.inf


class ElementError(ValueError):
    """One element of an array or sequence is wrong.

    Attributes:
        what: what is wrong, and what is wanted.
        position: of the element, from 0, along the last axis; None where there is but one.
        other: the position of an element with which it conflicts, or None.
    """

    def __init__(
        self, what: str, position: int | None = None, element: str = "", other: int | None = None
    ) -> None:
        super().__init__(f"{element}: {what}" if element else what)
        self.what, self.position, self.other = what, position, other


def unknown(kind: str, name: object, known: Iterable[str]) -> ValueError:
    """Return the error for a name that is not one of `known`, suggesting the nearest.

    >>> raise unknown("feature", "aeg", ["value", "age"])
    Traceback (most recent call last):
    ...
    ValueError: unknown feature 'aeg'; did you mean 'age'? Known: value, age
    """
    names = list(known)
    by_lower = {known_name.lower(): known_name for known_name in names}
    near = difflib.get_close_matches(str(name)[:120].lower(), by_lower, n=1, cutoff=0.6)
    hint = f"; did you mean {by_lower[near[0]]!r}?" if near else "."
    return ValueError(f"unknown {kind} {shown(name)}{hint} Known: {', '.join(names)}")


def check_choice(kind: str, value: object, choices: Iterable[str]) -> str:
    """Return one of `choices`.

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
    """Return a positive, finite number.

    >>> check_positive("budget", -1, "budget units")
    Traceback (most recent call last):
    ...
    ValueError: budget is -1; it must be positive and finite (budget units)
    """
    return check_within(name, value, 0.0, unit=unit, open_low=True)


def check_non_negative(name: str, value: object, unit: str = "") -> float:
    """Return a finite number that is zero or positive."""
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
    """Return a finite number between `low` and `high`, which are excluded where they are open.

    >>> check_within("discount", 1.5, 0, 1, open_low=True)
    Traceback (most recent call last):
    ...
    ValueError: discount is 1.5; it must be above 0 and at most 1
    """
    number = math.nan
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = _INF
    above = number > low if open_low else number >= low
    below = number < high if open_high else number <= high
    if not (math.isfinite(number) and above and below):
        wanted = _range(low, high, open_low, open_high, finite=True)
        raise ValueError(f"{name} is {shown(value)}; it must be {wanted}{_in(unit)}")
    return number


def check_whole(name: str, value: object, minimum: int = 1, what: str = "") -> int:
    """Return a whole number of at least `minimum` that fits 64 bits.

    >>> check_whole("horizon", 2.5, what="steps")
    Traceback (most recent call last):
    ...
    ValueError: horizon is 2.5; it must be a whole number of steps, at least 1
    """
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if number is None or not minimum <= number < 2**63:
        wanted = f" of {what}, at least {minimum}" if what else f" of at least {minimum}"
        if number is not None and number >= minimum:
            wanted += " and below 2**63"
        raise ValueError(f"{name} is {shown(value)}; it must be a whole number{wanted}")
    return number


def check_array(
    name: str,
    value: object,
    shape: Sequence[int | EllipsisType | None] | None = None,
    low: float = -_INF,
    high: float = _INF,
    *,
    open_low: bool = False,
    open_high: bool = False,
    finite: bool = True,
    whole: bool = False,
    unit: str = "",
    names: Sequence[object] = (),
    element: str = "source",
) -> FloatArray:
    """Return numbers as a new array of float64, all of them within a range.

    Raises:
        ElementError: a number is out of range.
        ValueError: these are no numbers, or of another shape.

    Arguments:
        shape: that it must have; None is any length of an axis, a leading `...` any axes.
        low, high: the range, whose ends are excluded where they are open.
        finite: whether infinity is refused; NaN always is.
        whole: whether the numbers must be whole.
        names: of the elements along the last axis, for the message; by default the position from 0.
        element: what there is one of at each position of the last axis, for the message.

    >>> check_array("cost", [1, -2], (2,), low=0, names=["a", "b"])
    Traceback (most recent call last):
    ...
    crawl_env.errors.ElementError: source 'b': cost is -2; it must be zero or positive and finite
    """
    array = as_array(name, value)
    if shape is not None and not _fits(array.shape, shape):
        wanted = ", ".join("…" if n is ... else "any" if n is None else str(n) for n in shape)
        comma = "," * (len(shape) == 1)
        raise ValueError(f"{name} has shape {array.shape}; it must have shape ({wanted}{comma})")
    check_range(name, array, low, high, open_low, open_high, finite, whole, unit, names, element)
    return array


def as_array(name: str, value: object) -> FloatArray:
    """Return numbers of any shape as a new array of float64."""
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be a number or an array of numbers: {error}") from None


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
    """Raise ElementError unless all numbers are within a range; see `check_array`."""
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
            label = repr(str(names[position]))
        wanted = _range(low, high, open_low, open_high, finite, whole)
        raise ElementError(
            f"{name} is {array[index]:g}; it must be {wanted}{_in(unit)}",
            position,
            f"{element} {label}" if index else "",
        )


def check_names(names: Sequence[str], element: str = "source") -> tuple[str, ...]:
    """Return names without surrounding blanks; none may be empty or appear twice.

    >>> check_names(["a", "b", "a "])
    Traceback (most recent call last):
    ...
    crawl_env.errors.ElementError: source 2: the name 'a' appears twice; names must be unique
    """
    labels = tuple(str(name).strip() for name in names)
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


def _fits(shape: tuple[int, ...], wanted: Sequence[int | EllipsisType | None]) -> bool:
    lengths = list(wanted)
    if lengths and lengths[0] is ...:
        lengths = lengths[1:]
        if len(shape) < len(lengths):
            return False
        shape = shape[len(shape) - len(lengths) :]
    return len(shape) == len(lengths) and all(
        length is None or n == length for n, length in zip(shape, lengths, strict=True)
    )


def _range(
    low: float, high: float, open_low: bool, open_high: bool, finite: bool, whole: bool = False
) -> str:
    """Return a range in words.

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
    """Return how a value is written, a number without its type and nothing at full length."""
    if isinstance(value, np.generic):
        value = value.item()
    try:
        text = repr(value)
    except ValueError:  # a whole number of more digits than Python writes
        return "too large a number"
    return text if len(text) <= 120 else f"{text[:117]}..."
