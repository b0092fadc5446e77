"""The parts of arrival processes by name, with or without parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from crawl_env.errors import shown, unknown


def make_part(kind: str, given: str | Mapping[str, Any], known: Mapping[str, type[Any]]) -> Any:
    """Return a part by its name, or by a dictionary of its name and parameters.

    Raises:
        ValueError: the name or a parameter is unknown.

    >>> from crawl_env.content.utility import UTILITIES
    >>> make_part("utility", {"name": "lognormal", "sigma": 0.5}, UTILITIES)
    Lognormal(sigma=0.5)
    """
    name, parameters = (given, {}) if isinstance(given, str) else split_name(kind, given)
    if name not in known:
        raise unknown(kind, name, known)
    taken = [field.name for field in fields(known[name]) if field.init]
    for parameter in parameters:
        if parameter not in taken:
            raise unknown(f"parameter of {name!r}", parameter, taken or ["none"])
    return known[name](**parameters)


def is_known(part: Any) -> bool:
    """Return whether the class of a part belongs to this package, so that it needs no checks."""
    return type(part).__module__.startswith(__package__)


def split_name(kind: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the entry `name` of a dictionary, and its other entries."""
    if not isinstance(given.get("name"), str):
        raise ValueError(
            f"{kind} is {shown(given)}; a dictionary needs the entry 'name', a string, beside the "
            "parameters"
        )
    return given["name"], {name: value for name, value in given.items() if name != "name"}
