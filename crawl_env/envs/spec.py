"""`CrawlSpec`: a specification that is true of its environment and can be written as JSON."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec

from crawl_env.content.engine import Engine
from crawl_env.content.names import describe_arrivals
from crawl_env.content.payoff import Payoff
from crawl_env.content.process import ArrivalProcess
from crawl_env.content.signals import Signals
from crawl_env.fleet.sources import Sources

_REMEDY = (
    "Register an id whose entry point, a function of a module of yours, makes the environment with "
    "it; the specification of that id can be written. Or keep the specification with pickle"
)


class CrawlSpec(EnvSpec):
    """Specification of an environment whose episodes end by themselves.

    `max_episode_steps` is the length of an episode: the environment's `horizon`, or a smaller limit
    that `gym.make` or `TimeLimit` sets. A larger one does not lengthen episodes; to make an
    environment of longer episodes from a specification, give both `horizon` and
    `max_episode_steps`.

    Attributes:
        horizon: steps after which the environment truncates an episode, or None.
    """

    horizon: int | None = None
    _limit: int | None = None

    @staticmethod
    def of(spec: EnvSpec, horizon: int | None) -> CrawlSpec:
        """Return the specification `spec` of an environment with that horizon."""
        crawl_spec = CrawlSpec(**{f.name: getattr(spec, f.name) for f in _fields(spec)})
        crawl_spec.horizon = horizon
        return crawl_spec

    @property
    def max_episode_steps(self) -> int | None:
        return min((x for x in (self._limit, self.horizon) if x is not None), default=None)

    @max_episode_steps.setter
    def max_episode_steps(self, limit: int | None) -> None:
        self._limit = limit

    def to_json(self) -> str:
        """Return the specification as JSON; `EnvSpec.from_json` reads it.

        Fleets, masks and arrivals are written in full: prefer paths for large fleets and logs.

        Raises:
            ValueError: an argument is a callable that draws fleets, or an arrival process with a
                class of one's own.
        """
        plain = EnvSpec(**{f.name: getattr(self, f.name) for f in _fields(self)})
        plain.kwargs = {name: _plain(name, value) for name, value in self.kwargs.items()}
        return plain.to_json()


class TruthfulSpec:
    """An environment whose `spec` is a `CrawlSpec`."""

    _spec: CrawlSpec | None = None
    _episode_length: int | None  # steps

    @property
    def spec(self) -> CrawlSpec | None:
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self._spec = None if spec is None else CrawlSpec.of(spec, self._episode_length)


def _fields(spec: EnvSpec) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(spec) if field.init]


def _plain(name: str, value: Any) -> Any:
    """Return an argument of an environment as JSON can hold it."""
    if isinstance(value, (Sources, Signals, Engine, Payoff)):
        return value.describe()
    if isinstance(value, ArrivalProcess):
        try:
            return describe_arrivals(value)
        except ValueError as error:
            raise ValueError(f"{error}. {_REMEDY}") from None
    if callable(value):
        raise ValueError(
            f"the argument {name} is a callable, {value!r}, which JSON cannot hold. {_REMEDY}"
        )
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _plain(key, entry) for key, entry in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(name, entry) for entry in value]
    return value
