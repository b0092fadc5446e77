"""What settings may be, whatever the learner."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

_SHARES = ("discount", "explore", "follow", "gae_lambda", "gamma", "tau", "trace")
_OF_ANY_SIGN = ("log_std_init",)


def check(settings: Any, agent: str) -> None:
    """Raise ValueError unless whole numbers are at least 1, shares from 0 to 1, and other numbers
    finite and not negative; what they are is told by annotation and name."""
    for field in fields(settings):
        value, wrong = getattr(settings, field.name), ""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if field.type == "int":
            if not (number and isinstance(value, int) and value >= 1):
                wrong = "give a whole number of at least 1"
        elif field.type == "float":
            if not (number and math.isfinite(value)):
                wrong = "give a finite number"
            elif field.name in _SHARES and not 0 <= value <= 1:
                wrong = "it is a share, from 0 to 1"
            elif value < 0 and field.name not in _OF_ANY_SIGN:
                wrong = "it must not be negative"
        if wrong:
            raise ValueError(f"{agent}: {field.name} is {value!r}; {wrong}")
