"""The queue in front of an engine: how it is served, and what is left of an item that waits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from crawl_env import Engine
from crawl_env.numerics import FloatArray, IntArray

_UNLIKELY = 1e-13  # probability of more service than is counted
_ROUNDING = 1e-9  # as the environment's
_PHASES = 64


class Service(NamedTuple):
    """How an engine takes items from its queue, step by step.

    fractions: (F,), of an item, that a deterministic engine may have left over: its states.
    places: (F, S) how many items may be indexed in a step.
    odds: (S,) with which probability.
    onward: (F, S) the next state if there was more to index; else it is the first.
    """

    fractions: FloatArray
    places: IntArray
    odds: FloatArray
    onward: IntArray


def service_of(engine: Engine, most: int = _PHASES) -> Service:
    """Return the service of an engine of finite rate.

    Raises:
        ValueError: the multiples of a deterministic rate have too many different fractions.

    >>> service_of(Engine(rate=0.5, capacity=3)).places.ravel()
    array([0, 1])
    """
    rate = engine.rate
    if engine.service == "poisson":
        most = int(stats.poisson.isf(_UNLIKELY, rate)) + 1
        odds = stats.poisson.pmf(np.arange(most + 1), rate)
        odds[-1] += 1.0 - odds.sum()
        return Service(np.zeros(1), np.arange(most + 1)[None], odds, np.zeros((1, most + 1), int))
    fractions, places, onward = [0.0], [], []
    for fraction in fractions:
        whole = np.floor(fraction + rate + _ROUNDING)
        after = float(fraction + rate - whole)
        matches = np.flatnonzero(np.abs(np.array(fractions) - after) < _ROUNDING)
        if not matches.size:
            fractions.append(after)
        if len(fractions) > most:
            raise ValueError(
                f"the rate is {rate:g}, whose multiples have more than {most} different "
                "fractions; use a rate such as 1, 0.5 or 2.25"
            )
        places.append(int(whole))
        onward.append(int(matches[0]) if matches.size else len(fractions) - 1)
    return Service(
        np.array(fractions), np.array(places)[:, None], np.ones(1), np.array(onward)[:, None]
    )


def forgetful(engine: Engine) -> Service:
    """Return the service without its fractions: these are drawn anew in every step.

    >>> forgetful(Engine(rate=2.25)).places, forgetful(Engine(rate=2.25)).odds
    (array([[2, 3]]), array([0.75, 0.25]))
    """
    if engine.service == "poisson":
        return service_of(engine)
    whole = int(np.floor(engine.rate + _ROUNDING))
    part = max(engine.rate - whole, 0.0)
    places = np.array([[whole, whole + 1]] if part > _ROUNDING else [[whole]])
    odds = np.array([1.0 - part, part] if part > _ROUNDING else [1.0])
    return Service(np.zeros(1), places, odds, np.zeros(places.shape, dtype=int))


def served(service: Service, capacity: int, longest: int) -> FloatArray:
    """Return the probabilities of what waits after a step, (F, L + 1, F, K + 1): from a state and
    0 … L items before service to a state and 0 … K items."""
    phases = len(service.fractions)
    moves = np.zeros((phases, longest + 1, phases, capacity + 1))
    for f in range(phases):
        for places, odds, onward in zip(
            service.places[f], service.odds, service.onward[f], strict=True
        ):
            for before in range(longest + 1):
                after = min(max(before - places, 0), capacity)
                moves[f, before, onward if before > places else 0, after] += odds
    return moves


def kept_at_place(
    service: Service, capacity: int, longest: int, retention: ArrayLike
) -> FloatArray:
    """Return the expected fraction of its utility with which an item is indexed that joins the
    queue as number p = 1 … L, (..., F, L): 0 where it finds no place to wait.

    retention: α, (...), the fraction that is left after one step of waiting.

    >>> one = service_of(Engine(rate=1))
    >>> kept_at_place(one, 2, 4, 0.5)
    array([[1.  , 0.5 , 0.25, 0.  ]])
    """
    alpha = np.asarray(retention, dtype=np.float64)
    phases = len(service.fractions)
    waiting = np.zeros((*alpha.shape, phases, longest + 1))  # of an item that has its place
    steps = [
        list(zip(service.places[f], service.odds, service.onward[f], strict=True))
        for f in range(phases)
    ]
    for p in range(1, longest + 1):
        # Steps in which nothing is indexed lead from one state to another.
        matrix = np.zeros((*alpha.shape, phases, phases)) + np.eye(phases)
        constant = np.zeros((*alpha.shape, phases))
        for f in range(phases):
            for places, odds, onward in steps[f]:
                if p <= places:
                    constant[..., f] += odds
                elif places == 0:
                    matrix[..., f, onward] -= odds * alpha
                else:
                    constant[..., f] += odds * alpha * waiting[..., onward, p - places]
        waiting[..., p] = np.linalg.solve(matrix, constant[..., None])[..., 0]
    survival = np.zeros((*alpha.shape, phases, longest))
    number = np.arange(1, longest + 1)
    for f in range(phases):
        for places, odds, onward in steps[f]:
            behind = np.clip(number - places, 0, longest)
            later = np.where(behind <= capacity, waiting[..., onward, behind], 0.0)
            survival[..., f, :] += odds * np.where(behind == 0, 1.0, alpha[..., None] * later)
    return survival
