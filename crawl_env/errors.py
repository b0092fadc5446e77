"""Messages for bad input: what happened, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown(kind: str, name: object, known: Iterable[str]) -> ValueError:
    """Return the error for a name that is not one of `known`, suggesting the nearest.

    >>> raise unknown("feature", "aeg", ["value", "age"])
    Traceback (most recent call last):
    ...
    ValueError: unknown feature 'aeg'; did you mean 'age'? Known: value, age
    """
    names = list(known)
    by_lower = {known_name.lower(): known_name for known_name in names}
    near = difflib.get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.6)
    hint = f"; did you mean {by_lower[near[0]]!r}?" if near else "."
    return ValueError(f"unknown {kind} {name!r}{hint} Known: {', '.join(names)}")
