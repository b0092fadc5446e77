"""Selection of the k sources of largest priority in each environment, as tensors."""

from __future__ import annotations

import torch
from torch import Tensor


def select_top(priority: Tensor, k: int, crawled_at: Tensor) -> Tensor:
    """Return the numbers of the k sources of largest priority, (B, k), in any order.

    Ties go to the source crawled longer ago, then to the lower number, as in
    `crawl_env.simulation.selection.select_top`.

    Arguments:
        priority, crawled_at: (B, N).

    Raises:
        ValueError: a priority is NaN.

    >>> priority = torch.tensor([[0.5, 0.2, 0.5, 0.5]])
    >>> select_top(priority, 2, torch.tensor([[3, 0, 1, 3]])).sort().values
    tensor([[0, 2]])
    """
    num_envs, n = priority.shape
    if k >= n:
        _refuse_nan(priority)
        return torch.arange(n, device=priority.device).expand(num_envs, n)
    # A maximum is one pass over the priorities; topk takes several.
    values, picked = priority.max(-1, keepdim=True) if k == 1 else priority.topk(k, dim=-1)
    threshold = values[:, -1:]
    # One transfer from the device per step. NaN counts as the largest number, and is equal to none.
    clear = ((priority >= threshold).sum(-1) == k) & (values[:, 0] == values[:, 0])
    if bool(clear.all()):
        return picked
    _refuse_nan(priority)
    return _with_ties(priority, k, threshold, crawled_at)


def _with_ties(priority: Tensor, k: int, threshold: Tensor, crawled_at: Tensor) -> Tensor:
    above = priority > threshold
    tied = priority == threshold
    missing = k - above.sum(-1, keepdim=True)
    last = torch.iinfo(crawled_at.dtype).max
    order = crawled_at.masked_fill(~tied, last).argsort(dim=-1, stable=True)
    place = torch.empty_like(order)
    place.scatter_(-1, order, torch.arange(order.shape[-1], device=order.device).expand_as(order))
    selection = above | (tied & (place < missing))
    return selection.nonzero()[:, 1].reshape(len(priority), k)


def _refuse_nan(priority: Tensor) -> None:
    wrong = priority.isnan()
    if bool(wrong.any()):
        env, source = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"action has NaN as priority of source {source} (environment {env}); "
            "give every source a number"
        )
