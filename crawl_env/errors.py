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
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return ValueError(f"unknown {kind} {name!r}{hint} Known: {', '.join(names)}")
