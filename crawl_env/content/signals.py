"""`Signals`: the notifications with which sources announce items, as an argument of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crawl_env.errors import as_array, check_choice, shown
from crawl_env.files.table import SUFFIXES
from crawl_env.fleet.parameters import DESCRIBED
from crawl_env.fleet.sources import Sources
from crawl_env.log.ping_log import PingLog
from crawl_env.numerics import FloatArray

# Round figures for orientation, not measurements: `ephemeral-crawl fit` estimates those of a log.
SIGNAL_PRESETS: dict[str, dict[str, Any]] = {
    "perfect": {"recall": 1.0, "precision": 1.0},
    "websub": {"recall": 0.9, "precision": 0.95},
    "webhook": {"recall": 0.8, "precision": 0.8},
    "sitemap": {"recall": 0.5, "precision": 0.2},
}
_COLUMN = {"recall": "recall", "precision": "precision", "delay": "signal_delay"}


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Signals:
    """Pings that announce the items of sources, some of which are false or missing.

    Every item triggers a ping with probability r, the recall, after an exponential time of mean d,
    the delay. Other pings are false: they arrive at the rate ν = rΛ(1 − p)/p, so that a fraction p
    of all pings, the precision, has been triggered by an item. A ping says which source it is from
    and nothing else.

    Arguments:
        recall: r in [0, 1], a scalar or (N,). 0: the source sends no signals.
        precision: p in (0, 1], a scalar or (N,).
        delay: d ≥ 0 in units of time, a scalar or (N,).
        log: recorded pings, which are replayed with the recorded arrivals instead of simulated
            ones; recall, precision and delay are then what the crawler takes them to be.

    Where one of the first three is None, the fleet's own columns `recall`, `precision` and
    `signal_delay` hold. Names stand for round figures of recall and precision: "perfect" (1, 1),
    "websub" (.9, .95), "webhook" (.8, .8) and "sitemap" (.5, .2).

    Raises:
        ValueError: a number is out of range, or no argument is given.

    >>> Signals(recall=0.5, precision=0.8)
    Signals(recall=0.5, precision=0.8)
    >>> Signals(recall=[0.5, 1.2])
    Traceback (most recent call last):
    ...
    crawl_env.errors.ElementError: source 1: recall is 1.2; it must be between 0 and 1 (probability)
    """

    recall: FloatArray | None  # () or (N,) probability
    precision: FloatArray | None  # () or (N,) probability
    delay: FloatArray | None  # () or (N,) time
    log: PingLog | None

    def __init__(
        self,
        recall: ArrayLike | None = None,
        precision: ArrayLike | None = None,
        delay: ArrayLike | None = None,
        log: PingLog | None = None,
    ) -> None:
        arguments = {"recall": recall, "precision": precision, "delay": delay}
        if log is not None and not isinstance(log, PingLog):
            raise ValueError(
                f"log is {shown(log)}; give a crawl_env.PingLog, such as PingLog.from_csv(path)"
            )
        if log is None and all(value is None for value in arguments.values()):
            raise ValueError(
                "Signals() has no argument; give recall, or a log of pings, or leave out `signals` "
                "to use the columns recall, precision and signal_delay of the fleet"
            )
        for name, value in arguments.items():
            object.__setattr__(self, name, None if value is None else _checked(name, value))
        object.__setattr__(self, "log", log)

    def __repr__(self) -> str:
        words = []
        for name in _COLUMN:
            array = getattr(self, name)
            if array is not None:
                words.append(f"{name}={array:g}" if array.ndim == 0 else f"{name}={array.shape}")
        return f"Signals({', '.join(words + [f'log={self.log!r}'] * (self.log is not None))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Signals) and self.describe() == other.describe()

    __hash__ = None  # type: ignore[assignment]

    def describe(self) -> dict[str, Any]:
        """Return the arguments as JSON can hold them; `make_signals` makes equal signals of them.

        >>> Signals(recall=[0.5, 0.2], precision=0.8).describe()
        {'recall': [0.5, 0.2], 'precision': 0.8}
        """
        arrays = {name: getattr(self, name) for name in _COLUMN}
        arguments = {name: array.tolist() for name, array in arrays.items() if array is not None}
        if self.log is not None:
            log = {field.name: getattr(self.log, field.name) for field in fields(self.log)}
            arguments["log"] = {name: _plain(value) for name, value in log.items()}
        return arguments

    def of(self, sources: Sources) -> Sources:
        """Return a fleet (N,) with the columns replaced that are given.

        Raises:
            ValueError: there are not N numbers, or no source has any recall although a precision, a
                delay or pings are given.

        >>> Signals(recall=0.5).of(Sources.preset("table1")).ping_rate
        array([125., 125., 125., 125.])
        """
        n = len(sources)
        columns = {_COLUMN[name]: getattr(self, name) for name in _COLUMN}
        changes = {name: value for name, value in columns.items() if value is not None}
        for name, value in changes.items():
            if value.ndim and value.size != n:
                raise ValueError(
                    f"signals has {value.size} numbers of {name} for {n} sources; give one number, "
                    "or one for each source"
                )
        fleet = sources.replaced(**changes)
        if self.recall is None and not fleet.is_signalled:
            raise ValueError(
                f"signals is {self!r}, and no source has a recall above 0, so that none sends "
                "signals; give the recall too, in Signals(recall=…, …) or in a column of the "
                "fleet. `ephemeral-crawl fit` estimates it from a log of items and one of pings"
            )
        return fleet


def make_signals(signals: object) -> Signals | None:
    """Return signals by name, by the path of a log of pings or by a dictionary of arguments;
    objects and None are returned unchanged.

    Raises:
        FileNotFoundError: there is no such log.
        ValueError: the name or an argument is unknown, or the log cannot be read.

    >>> make_signals("sitemap")
    Signals(recall=0.5, precision=0.2)
    >>> make_signals({"recall": 0.5, "delay": 2})
    Signals(recall=0.5, delay=2)
    """
    if signals is None or isinstance(signals, Signals):
        return signals
    if isinstance(signals, Mapping):
        return _from_description(signals)
    if isinstance(signals, PathLike) or (
        isinstance(signals, str) and signals.lower().endswith(SUFFIXES)
    ):
        return Signals(log=PingLog.from_csv(signals))
    if isinstance(signals, PingLog):
        return Signals(log=signals)
    if isinstance(signals, str):
        return Signals(**SIGNAL_PRESETS[check_choice("signals", signals, SIGNAL_PRESETS)])
    raise ValueError(
        f"signals is {shown(signals)}; give crawl_env.Signals(recall=…, precision=…), a dictionary "
        f"of its arguments, a name ({', '.join(SIGNAL_PRESETS)}) or the path of a log of pings"
    )


def _from_description(description: Mapping[str, Any]) -> Signals:
    names = [field.name for field in fields(Signals)]
    for name in description:
        check_choice("argument of Signals", name, names)
    log = description.get("log")
    if isinstance(log, (str, PathLike)):
        log = PingLog.from_csv(log)
    elif isinstance(log, Mapping):
        log = PingLog(**log)
    return Signals(**{**description, "log": log})


def _checked(name: str, value: ArrayLike) -> FloatArray:
    array = as_array(name, value)
    if array.ndim > 1:
        raise ValueError(f"{name} has shape {array.shape}; give one number, or one for each source")
    DESCRIBED[_COLUMN[name]].check(name, array)
    array.flags.writeable = False
    return array


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
