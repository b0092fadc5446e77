"""The parts of arrival processes by name, with or without parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from crawl_env.errors import check_choice, shown, unknown


def make_part(kind: str, given: str | Mapping[str, Any], known: Mapping[str, type[Any]]) -> Any:
    """Return a part by its name, or by a dictionary of its name and parameters.

    Raises:
        ValueError: the name or a parameter is unknown, or a dictionary has no name.

    >>> from crawl_env.content.utility import UTILITIES
    >>> make_part("utility", {"name": "lognormal", "sigma": 0.5}, UTILITIES)
    Lognormal(sigma=0.5)
    """
    parameters = {"name": given} if isinstance(given, str) else dict(given)
    name = parameters.pop("name", None)
    if not isinstance(name, str):
        raise ValueError(
            f"{kind} is {shown(given)}; a dictionary needs the entry 'name', a string, beside the "
            "parameters"
        )
    check_choice(kind, name, known)
    taken = [field.name for field in fields(known[name]) if field.init]
    for parameter in parameters:
        if parameter not in taken:
            raise unknown(f"parameter of {name!r}", parameter, taken or ["none"])
    return known[name](**parameters)


def is_known(part: Any) -> bool:
    """Return whether the class of a part belongs to this package, so that it needs no checks."""
    return type(part).__module__.startswith(__package__)
