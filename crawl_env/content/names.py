"""Arrival processes by name, by the path of a log, or by a dictionary that JSON can hold."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Mapping
from dataclasses import fields
from os import PathLike
from typing import Any

import numpy as np

from crawl_env.content.arrivals import RATES, Arrivals, Deterministic
from crawl_env.content.parts import make_part
from crawl_env.content.process import ArrivalProcess
from crawl_env.content.rates import RateModel
from crawl_env.content.stories import Stories
from crawl_env.content.trace import Trace
from crawl_env.content.utility import DECAYS, UTILITIES
from crawl_env.files.table import SUFFIXES
from crawl_env.log.decay_curves import DecayCurves
from crawl_env.log.item_log import ItemLog

# The arguments of `Arrivals`, and the words that stand for their values in a name.
_WORDS = {
    "rate": [name for name in RATES if name != "constant"],
    "utility": list(UTILITIES),
    "decay": [name for name in DECAYS if name not in UTILITIES],
    "sampler": ["items"],
}


def _names() -> dict[str, dict[str, str]]:
    """Return the arguments of `Arrivals` for every name."""
    names: dict[str, dict[str, str]] = {}
    for words in itertools.product(*([None, *options] for options in _WORDS.values())):
        arguments = {name: word for name, word in zip(_WORDS, words, strict=True) if word}
        names["-".join(("poisson", *arguments.values()))] = arguments
    return names


_NAMES = _names()
# All names, without those whose "-items" is redundant because items are drawn anyway.
ARRIVALS = (
    "deterministic",
    *(
        name
        for name, given in _NAMES.items()
        if "sampler" not in given or not ("decay" in given or given.get("rate") == "hawkes")
    ),
)
GRAMMAR = "deterministic, poisson" + "".join(f"[-{'|-'.join(w)}]" for w in _WORDS.values())


def make_arrivals(
    arrivals: str | PathLike[str] | Mapping[str, Any] | ArrivalProcess,
) -> ArrivalProcess:
    """Return an arrival process by name; objects are returned unchanged.

    `"deterministic"` is the mean of the random processes. `"poisson"` has a constant rate,
    exponential ξ and exponential decay. It may be extended, in this order, by another rate model
    (`drift`, `jumps`, `cycle`, `hawkes`, `regimes`), a distribution of ξ (`constant`,
    `exponential`, `lognormal`, `gamma`), a decay function (`stretched`, `lomax`) and by
    `items` if items are to be drawn singly: `"poisson-drift-lognormal-lomax"`, `"poisson-items"`.
    Parameters have their default values; use `Arrivals(rate=Drift(0.1), utility=Lognormal(0.5))`
    to set them.

    Recorded arrivals are a `Trace`. The path of a log (.csv, .csv.gz or .parquet) is short for
    `Trace(ItemLog.from_csv(path))`: times are numbers in the unit of the fleet's rates, or time
    stamps, which are converted to hours; there are no decay curves; the span is from the first
    item to the last.

    A dictionary of a name and parameters stands for an object, see `describe_arrivals`.

    Raises:
        FileNotFoundError: there is no such log.
        ValueError: the name is unknown, or the log cannot be read.

    >>> make_arrivals("poisson-jumps-gamma-items").rate
    Jumps(rate=0.01, distribution=Gamma(shape=2.0))
    """
    if isinstance(arrivals, ArrivalProcess):
        return arrivals
    if isinstance(arrivals, Mapping):
        return _from_description(arrivals)
    if isinstance(arrivals, PathLike) or (
        isinstance(arrivals, str) and arrivals.lower().endswith(SUFFIXES)
    ):
        return Trace(ItemLog.from_csv(arrivals))
    if isinstance(arrivals, RateModel):
        raise ValueError(
            f"arrivals is {arrivals!r}, a rate model; give Arrivals(rate={arrivals!r})"
        )
    if not isinstance(arrivals, str):
        raise ValueError(
            f"arrivals is {arrivals!r}; give a name ({GRAMMAR}), the path of a log, "
            "crawl_env.Trace(items) of a log in memory, or an object such as crawl_env.Arrivals()"
        )
    if arrivals == "deterministic":
        return Deterministic()
    if arrivals == "trace":
        raise ValueError(
            "arrivals='trace' needs a log to replay; give its path (.csv, .csv.gz or .parquet), "
            "or crawl_env.Trace(crawl_env.ItemLog.from_csv(path))"
        )
    if arrivals not in _NAMES:
        near = difflib.get_close_matches(arrivals.lower(), ARRIVALS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(
            f"unknown arrivals {arrivals!r}{hint} Known: {GRAMMAR}, or the path of a log"
        )
    return Arrivals(**_NAMES[arrivals])  # type: ignore[arg-type]


# The tables of names of the parts of a process.
_PARTS: dict[str, Mapping[str, type[Any]]] = {
    "rate": RATES,
    "utility": UTILITIES,
    "distribution": UTILITIES,
    "decay": DECAYS,
}


def describe_arrivals(arrivals: ArrivalProcess) -> dict[str, Any]:
    """Return a dictionary that JSON can hold and from which `make_arrivals` makes an equal process.

    Raises:
        ValueError: the process, or a part of it, is of a class that this package does not know.

    >>> describe_arrivals(Deterministic())
    {'name': 'deterministic'}
    >>> describe_arrivals(make_arrivals("poisson-drift"))["rate"]
    {'name': 'drift', 'sigma': 0.1, 'reversion': 0.01}
    """
    for name, kind in _PROCESSES.items():
        if type(arrivals) is kind:
            return {"name": name, **_described(arrivals)}
    raise _of_ones_own(arrivals)


def _described(part: Any) -> dict[str, Any]:
    """Return the parameters of a dataclass as JSON can hold them."""
    return {
        field.name: _entry(field.name, getattr(part, field.name))
        for field in fields(part)
        if field.init
    }


def _entry(name: str, value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if value is None or isinstance(value, (str, int, float, tuple, list)):
        return value
    if isinstance(value, (ItemLog, DecayCurves)):
        return _described(value)
    for short, kind in _PARTS.get(name, {}).items():
        if type(value) is kind:
            return {"name": short, **_described(value)}
    raise _of_ones_own(value)


def _of_ones_own(part: object) -> ValueError:
    return ValueError(
        f"arrivals contain {part!r}, of the class {type(part).__qualname__}, which is not one of "
        "this package and which JSON cannot hold"
    )


def _from_description(description: Mapping[str, Any]) -> ArrivalProcess:
    parameters = dict(description)
    if parameters.get("name") == "trace":
        parameters["log"] = _log(parameters.get("log"))
    process: ArrivalProcess = make_part("arrivals", parameters, _PROCESSES)
    return process


def _log(log: object) -> Any:
    """Return the log that a path or a description stands for; `Trace` refuses anything else."""
    if isinstance(log, (str, PathLike)):
        return ItemLog.from_csv(log)
    if not isinstance(log, Mapping):
        return log
    curves = log.get("curves")
    return ItemLog(**{**log, "curves": None if curves is None else DecayCurves(**curves)})


_PROCESSES: dict[str, type[ArrivalProcess]] = {
    "deterministic": Deterministic,
    "poisson": Arrivals,
    "stories": Stories,
    "trace": Trace,
}
