"""The parts of arrival processes by name, with or without parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from crawl_env.errors import check_choice, shown, unknown


def make_part(kind: str, part: str | Mapping[str, Any], classes: Mapping[str, type[Any]]) -> Any:
    """Return a part by its name, or by a dictionary of its name and parameters.

    Raises:
        ValueError: the name or a parameter is unknown, or a dictionary has no name.

    >>> from crawl_env.content.utility import UTILITIES
    >>> make_part("utility", {"name": "lognormal", "sigma": 0.5}, UTILITIES)
    Lognormal(sigma=0.5)
    """
    parameters = {"name": part} if isinstance(part, str) else dict(part)
    name = parameters.pop("name", None)
    if not isinstance(name, str):
        raise ValueError(
            f"{kind} is {shown(part)}; a dictionary needs the entry 'name', a string, beside the "
            "parameters"
        )
    check_choice(kind, name, classes)
    names = [field.name for field in fields(classes[name]) if field.init]
    for parameter in parameters:
        if parameter not in names:
            raise unknown(f"parameter of {name!r}", parameter, names or ["none"])
    try:
        inspect.signature(classes[name]).bind(**parameters)
    except TypeError as error:
        raise ValueError(f"{kind} is {shown(part)}: {error}; give it beside the name") from None
    return classes[name](**parameters)


def is_known(part: Any) -> bool:
    """Return whether the class of a part belongs to this package, so that it needs no checks."""
    return type(part).__module__.startswith(__package__)
