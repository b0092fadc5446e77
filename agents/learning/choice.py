"""Choosing the largest of perturbed scores: what each source's own choice is likely to be.

To every score a Gumbel variable is added. Given what the others drew, source i is crawled where its
perturbed score exceeds a threshold τ, which happens with probability 1 − exp(−exp(s_i − τ)).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agents.learning.practice import BoolArray
from crawl_env.numerics import FloatArray
from crawl_env.simulation.selection import TOLERANCE

_FAR = 1e9  # beyond every score
_FINITE = (-30.0, 10.0)  # where probabilities, and their derivatives, are numbers in float32


def log_crawled(score: Tensor, threshold: Tensor) -> Tensor:
    """Return ln P(s + Gumbel > τ) = ln(1 − exp(−exp(s − τ)))."""
    return torch.log(-torch.expm1(-torch.exp((score - threshold).clamp(*_FINITE))))


def log_probability(score: Tensor, active: Tensor, threshold: Tensor) -> Tensor:
    """Return the logarithm of the probability of each source's own choice, given the others'.

    >>> score, threshold = torch.zeros(2), torch.zeros(2)
    >>> log_probability(score, torch.tensor([True, False]), threshold).exp()  # 1 − 1/e, 1/e
    tensor([0.6321, 0.3679])
    """
    left = -torch.exp((score - threshold).clamp(*_FINITE))
    return torch.where(active, log_crawled(score, threshold), left)


def entropy(score: Tensor, threshold: Tensor) -> Tensor:
    """Return the entropy of each source's own choice, given the others', in nats.

    >>> entropy(torch.log(torch.log(torch.tensor([2.0]))), torch.zeros(1))  # p = 1/2: ln 2
    tensor([0.6931])
    """
    crawled, left = (
        log_probability(score, torch.full_like(score, a, dtype=torch.bool), threshold)
        for a in (True, False)
    )
    return -(torch.exp(crawled) * crawled + torch.exp(left) * left)


def threshold_of(
    drawn: NDArray[np.float32], active: BoolArray, cost: FloatArray
) -> NDArray[np.float32]:
    """Return what each perturbed score, (B, N), had to exceed to be crawled, the others given.

    At equal costs it is the best that was not crawled, or for that and those behind it the last
    that was. Else the others are taken in order as the crawl does, and it is the score of the one
    that leaves too little for this source.

    Arguments:
        drawn: perturbed scores, all of which may be crawled now.
        active: what was crawled.
        cost: of crawls, (B, N), in units of M/N, so that N are spent in an epoch.
    """
    if (cost == cost[:, :1]).all():
        best = np.max(drawn, axis=-1, keepdims=True, where=~active, initial=-_FAR)
        last = np.min(drawn, axis=-1, keepdims=True, where=active, initial=_FAR)
        return np.where(active, best, last).astype(np.float32)
    return _threshold_in_line(drawn, cost)


def _threshold_in_line(drawn: NDArray[np.float32], cost: FloatArray) -> NDArray[np.float32]:
    rows, n = np.arange(len(drawn)), drawn.shape[-1]
    slack = n * TOLERANCE
    left = np.full(drawn.shape, float(n))  # for the others, were each source left out
    threshold = np.where(cost <= left + slack, -_FAR, _FAR).astype(np.float32)
    for which in np.argsort(-drawn, axis=-1).T:
        price = cost[rows, which][:, None]
        spent = np.where(price <= left + slack, price, 0.0)
        spent[rows, which] = 0.0
        enough = left + slack >= cost
        left -= spent
        now_less = enough & (left + slack < cost)
        np.copyto(threshold, drawn[rows, which][:, None], where=now_less)
        if (left + slack < cost.min()).all():
            break
    return threshold


def perturbed(score: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Return scores with independent standard Gumbel variables added, all of them finite."""
    drawn = rng.standard_exponential(score.shape, dtype=np.float32)
    return score - np.log(np.maximum(drawn, np.finfo(np.float32).tiny))  # it can be 0 in float32


def priority_of(score: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return scores of any sign as priorities in (−1, 1), in the same order: s/(1 + |s|)."""
    return score / (1 + np.abs(score))
