"""Whether sources answer: the probability that a crawl does not fail, learnt from crawls."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crawl_env.numerics import BoolArray, FloatArray

_FEW = 2.0  # sources of strength 1 that are added to the fleet
_STRENGTHS = (0.02, 50.0)  # range of a
_TINY = 1e-9


class Answers(NamedTuple):
    """Numbers of the crawls of each source so far."""

    answered: FloatArray  # (B, N)
    failed: FloatArray  # (B, N)

    @classmethod
    def none(cls, shape: tuple[int, int]) -> Answers:
        """Return the numbers before the first crawl."""
        return cls(np.zeros(shape), np.zeros(shape))

    def counting(self, crawled: BoolArray, failed: FloatArray) -> Answers:
        """Return the numbers after a step.

        Arguments:
            crawled: (B, N), whether a crawl succeeded.
            failed: (B, N), the feature of this name: above 0 if a crawl failed.
        """
        return Answers(self.answered + crawled, self.failed + (failed > 0))

    def probability(self) -> FloatArray:
        """Return the posterior mean q of the probability that a source answers, (B, N).

        The prior is a Beta distribution of mean m and strength a, in crawls, which are estimated
        from the fractions x of the crawls that succeeded, n each, by their moments:
        E(x − m)² = m(1 − m)(1 + a/n)/(1 + a). A source more, which answered, and a few of strength
        1 are added to the fleet. So where sources answer always or never, one failure tells
        nearly all, and where each fails now and then, hardly anything.

        >>> dead_or_alive = Answers(np.array([[9.0, 9, 0, 0]]), np.array([[0.0, 0, 9, 1]]))
        >>> dead_or_alive.probability().round(2)
        array([[0.98, 0.98, 0.03, 0.17]])
        >>> all_alike = Answers(np.array([[6.0, 7, 6, 0]]), np.array([[3.0, 3, 3, 1]]))
        >>> all_alike.probability().round(2)
        array([[0.66, 0.68, 0.66, 0.4 ]])
        """
        attempts = self.answered + self.failed
        is_tried = attempts > 0
        fraction = np.divide(self.answered, attempts, out=np.zeros_like(attempts), where=is_tried)
        mean = (1.0 + _total(fraction)) / (1.0 + _total(is_tried))
        chance = np.divide(1.0, attempts, out=np.zeros_like(attempts), where=is_tried)  # 1/n
        largest = mean * (1.0 - mean)  # variance of x if a is 0
        square = np.where(is_tried, (fraction - mean) ** 2, 0.0)
        offset = _FEW * largest + _TINY
        apart = np.maximum(_total(square) - largest * _total(chance), 0.0) + offset
        alike = np.maximum(largest * _total(is_tried) - _total(square), 0.0) + offset
        strength = np.clip(alike / apart, *_STRENGTHS)
        return np.asarray((self.answered + strength * mean) / (attempts + strength))


def _total(array: FloatArray | BoolArray) -> FloatArray:
    return np.asarray(array.sum(axis=1, keepdims=True, dtype=np.float64))
