"""What one epoch's crawls told, and what is believed of a rate: the two ends of an estimator."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crawl_env.numerics import FloatArray

State = tuple[NDArray[Any], ...]

MOST = 1e9  # items that one crawl can count, and units of time that a gap can last
LEAST = 1e-9  # time that a gap lasts; below, a crawl had none
LEAST_SHAPE = 0.5  # of a law that an estimate and its error are made into
_LEAST_RATE = 1e-12


class Evidence(NamedTuple):
    """What is learnt in one epoch, arrays of one shape (..., N). Make it with `Evidence.of`."""

    crawled: NDArray[np.bool_]  # whether a crawl told something
    gap: FloatArray  # time since the crawl before; 0 where nothing was told
    items: FloatArray  # new items that the crawl brought; 0 where nothing was told
    changed: NDArray[np.bool_]  # whether it brought any
    elapsed: float  # time since the evidence before, for what is forgotten

    @staticmethod
    def of(
        gap: ArrayLike,
        items: ArrayLike | None = None,
        crawled: ArrayLike = True,
        changed: ArrayLike | None = None,
        elapsed: float = 1.0,
    ) -> Evidence:
        """Return the evidence without what cannot be: a crawl whose gap or items are no numbers,
        negative, or beyond `MOST`, or that had no time, told nothing.

        >>> Evidence.of([2, 0, np.nan, 5], [3, 1, 1, 0]).crawled
        array([ True, False, False,  True])
        """
        time = np.asarray(gap, dtype=np.float64)
        count = np.asarray(np.zeros(()) if items is None else items, dtype=np.float64)
        new = np.asarray(count > 0 if changed is None else changed, dtype=bool)
        with np.errstate(invalid="ignore"):
            told = (time > LEAST) & (time < MOST) & (count >= 0) & (count < MOST)
        told = told & np.asarray(crawled, dtype=bool) & np.ones(new.shape, dtype=bool)
        return Evidence(
            crawled=told,
            gap=np.where(told, time, 0.0),
            items=np.where(told, count, 0.0),
            changed=told & new,
            elapsed=elapsed,
        )


class Posterior(NamedTuple):
    """A Gamma law of a rate, (..., N): exact for counts, else matched to estimate and error.

    >>> law = Posterior(np.array(4.0), np.array(2.0))
    >>> float(law.mean), float(law.deviation)
    (2.0, 1.0)
    """

    shape: FloatArray
    rate: FloatArray  # time

    @property
    def mean(self) -> FloatArray:
        """The estimate, items / time."""
        return self.shape / self.rate

    @property
    def deviation(self) -> FloatArray:
        """Its standard error, items / time."""
        return np.sqrt(self.shape) / self.rate

    def quantile(self, level: ArrayLike) -> FloatArray:
        """Return the value that the rate does not exceed with probability `level` in (0, 1).

        Wilson & Hilferty (1931): s(1 − 1/(9s) + z/(3√s))³ for the shape s. From s = ½ on upper
        quantiles from .6 to .999 are right to 3.1 %, from s = 4 on to .8 %.
        """
        probability = np.asarray(level, dtype=np.float64)
        normal = [NormalDist().inv_cdf(p) for p in probability.ravel()]
        z = np.reshape(normal, probability.shape)
        root = np.sqrt(self.shape)
        cube = 1.0 - 1.0 / (9.0 * self.shape) + z / (3.0 * root)
        return self.mean * np.maximum(cube, 0.0) ** 3

    def draw(self, rng: np.random.Generator) -> FloatArray:
        """Return a draw, (..., N) items / time."""
        return rng.standard_gamma(self.shape) / self.rate

    @staticmethod
    def matched(estimate: FloatArray, error: FloatArray) -> Posterior:
        """Return the Gamma law of this mean and standard deviation, both positive.

        Its shape is at least ½: one known even less well would be near 0 with all but certainty.
        """
        shape = np.maximum((estimate / error) ** 2, LEAST_SHAPE)
        return Posterior(shape, np.maximum(shape / estimate, _LEAST_RATE))


def weak_prior(period: float = 1.0) -> Posterior:
    """Return the Gamma law of half an item in a hundredth of an epoch, which one crawl outweighs.

    Its mean, 50 items an epoch, is above the rates of most fleets: all sources seem worth a crawl
    until they had one. A prior below a source's rate is what keeps it from being crawled at all.
    """
    return Posterior(np.array(0.5), np.array(0.01 * period))


WEAK = weak_prior()


class Estimator(Protocol):
    """A way to learn rates. Its state is a tuple of arrays, whose leading axes are the batch's."""

    @property
    def counts(self) -> bool:
        """Whether it learns from the number of items, rather than from there being any."""
        ...

    def begin(self, shape: tuple[int, ...]) -> State:
        """Return what is known before any crawl of sources (..., N)."""
        ...

    def update(self, state: State, evidence: Evidence) -> State:
        """Return new arrays: what is known after an epoch."""
        ...

    def posterior(self, state: State) -> Posterior:
        """Return what is believed of the rates, (..., N)."""
        ...
