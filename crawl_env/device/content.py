"""Content that arrives at the sources, as tensors: its mean, and exact random draws.

Random content is a compound Poisson process under exponential decay. Where ξ is exponential, the
content of any time is drawn in constant time as the innovation of a gamma Ornstein–Uhlenbeck
process; otherwise, or where items are counted, it is the sum of single items.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from crawl_env.content.arrivals import Arrivals
from crawl_env.content.process import ArrivalProcess, Cells
from crawl_env.content.totals import FADED
from crawl_env.content.utility import Distribution, EqualUtilities, Exponential, Gamma, Lognormal
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray

UTILITIES = (EqualUtilities, Exponential, Lognormal, Gamma)
# Time constants after which content is stationary to within e^−30 of itself.
_STATIONARY = 30.0
# Largest mean of the Poisson numbers of the gamma-OU sampler; a GPU draws them as 32-bit integers.
_MOST_BATCHES = 1e8
_AT_A_TIME = 2**24  # expected number of single items drawn at a time


class CellContent(NamedTuple):
    """Content of (b, N) cells."""

    value: Tensor  # (b, N) utility
    items: Tensor | None  # (b, N) number of items published, or None if they are not counted


class Content:
    """What arrives at the sources of B environments within a step, or before an episode.

    Arguments:
        sources: one fleet (N,), or a batch (B, N) of one fleet for each environment.
        arrivals: deterministic, or Poisson with a constant rate.
        count: whether to count items.
        like: a tensor of the dtype and on the device of all results.

    Attributes:
        retention: (N,) or (B, N), the fraction of utility that is left after one step.
        inflow: (N,) or (B, N), the mean utility that arrives in one step.
    """

    def __init__(
        self, sources: Sources, arrivals: ArrivalProcess, count: bool, like: Tensor
    ) -> None:
        def moved(array: FloatArray) -> Tensor:
            return torch.tensor(array, dtype=like.dtype, device=like.device)

        cells = Cells.of(sources, lambda parameter: parameter)
        self.retention, self.inflow = moved(cells.retention), moved(cells.mean_content(1.0))
        self._items, self._utility = moved(cells.items), moved(cells.mean_utility)
        self._decay = moved(cells.decay)
        self._count = count
        self._distribution = arrivals.utility if isinstance(arrivals, Arrivals) else None
        self._one = torch.ones_like(like)
        # Parameters of the gamma-OU sampler for one step, which are the same in every step.
        self._step = self._gamma_ou(self._one) if self._at_once else None

    @property
    def random(self) -> bool:
        return self._distribution is not None

    @property
    def _at_once(self) -> bool:
        return isinstance(self._distribution, Exponential) and not self._count

    def step(self, value: Tensor, items: Tensor | None, generator: Generator) -> None:
        """Advance contents (B, N) by one step, in place: they decay, then new content arrives."""
        if not self.random:
            torch.addcmul(self.inflow, value, self.retention, out=value)
            if items is not None:
                items += self._items
            return
        if self._step is None:
            new = self._singly(self._one, len(value), generator)
        else:
            new = CellContent(self._step.draw(len(value), generator), None)
        value.mul_(self.retention).add_(new.value)
        if items is not None and new.items is not None:
            items += new.items

    def mean_past(self, steps: Tensor, rows: Tensor) -> Tensor:
        """Return the mean content of the last `steps` (b, N) steps in the environments `rows`."""
        some = self._only(rows)
        return some._items * some._utility / some._decay * -torch.expm1(-some._decay * steps)

    def past(self, steps: Tensor, rows: Tensor, generator: Generator) -> CellContent:
        """Return the content of the last `steps` (b, N) steps in the environments `rows` (b,).

        `steps` may be infinite, which stands for the stationary distribution.
        """
        some = self._only(rows)
        if not self.random:
            items = some._items * torch.where(steps.isinf(), 0.0, steps)
            return CellContent(self.mean_past(steps, rows), items if self._count else None)
        if self._at_once:
            return CellContent(some._gamma_ou(steps).draw(len(rows), generator), None)
        window = torch.where(steps.isinf(), FADED / some._decay, steps)
        if not self._count:
            window = torch.minimum(window, FADED / some._decay)
        content = some._singly(window, len(rows), generator)
        if content.items is not None:  # the stationary distribution has infinitely many items
            content.items.masked_fill_(steps.isinf(), 0.0)
        return content

    def _only(self, rows: Tensor) -> Content:
        """Return the content of some of the environments."""
        if self._items.ndim == 1:
            return self
        some = object.__new__(Content)
        vars(some).update(vars(self))
        for name in ("retention", "inflow", "_items", "_utility", "_decay"):
            setattr(some, name, getattr(self, name)[rows])
        return some

    def _gamma_ou(self, steps: Tensor) -> _GammaOU:
        return _GammaOU(self._items, self._utility, self._decay, steps)

    def _singly(self, window: Tensor, b: int, generator: Generator) -> CellContent:
        """Draw the items of the last `window` (b, N) steps one by one, in (b, N) cells."""
        mean = (self._items * window).expand(b, -1)
        window, decay, utility = (
            part.expand_as(mean) for part in (window, self._decay, self._utility)
        )
        rows = max(1, int(b * _AT_A_TIME / max(float(mean.sum()), 1.0)))
        parts = [
            self._sums(generator, *(x[i : i + rows] for x in (mean, window, decay, utility)))
            for i in range(0, b, rows)
        ]
        values, numbers = (torch.cat(part) for part in zip(*parts, strict=True))
        return CellContent(values, numbers if self._count else None)

    def _sums(
        self, generator: Generator, mean: Tensor, window: Tensor, decay: Tensor, utility: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the content and the number of the items of (b, N) cells."""
        number = torch.poisson(mean, generator=generator)
        lengths = number.to(torch.int64).reshape(-1)
        cell = torch.repeat_interleave(lengths)
        z = (decay * window).reshape(-1)[cell]
        z *= torch.rand(cell.shape, generator=generator, device=cell.device, dtype=mean.dtype)
        worth = z.neg_().exp_().mul_(utility.reshape(-1)[cell])
        assert self._distribution is not None  # items are drawn for random arrivals only
        worth *= drawn_utility(self._distribution, worth, generator)
        value = torch.segment_reduce(worth, "sum", lengths=lengths, initial=0)
        return value.reshape(mean.shape), number


class _GammaOU:
    """Exact draws of U = Σ ξ_n exp(−m·age_n) over some steps, for exponential ξ.

    B ~ NegativeBinomial(Λ/μ, α), itself a Poisson mixture, then U | B ~ Gamma(B, αξ̄), where α is
    the fraction left after these steps. B is not the number of items.

    Arguments:
        items, utility, decay: ℓ = ΛT, ξ̄ and m = μT, (N,) or (b, N).
        steps: the time that is covered, of a shape that broadcasts with them.
    """

    def __init__(self, items: Tensor, utility: Tensor, decay: Tensor, steps: Tensor) -> None:
        z = decay * steps
        self._shape, self._utility = items / decay, utility
        stationary = z > _STATIONARY
        self._stationary = stationary if bool(stationary.any()) else None
        z = z.masked_fill(stationary, 0.0)
        # The time is divided into equal parts, in which no Poisson number is too large.
        most = torch.log1p(_MOST_BATCHES / self._shape.clamp_min(1e-30))
        self._parts = max(1, math.ceil(float((z / most).max())))
        part = z / self._parts
        self._odds, self._left = torch.expm1(part), torch.exp(-part)

    def draw(self, b: int, generator: Generator) -> Tensor:
        """Return (b, N) draws."""
        size = (b, self._odds.shape[-1])
        shape = self._shape.expand(size)
        total = torch.zeros(size, dtype=shape.dtype, device=shape.device)
        for _ in range(self._parts):
            mean = torch._standard_gamma(shape, generator=generator).mul_(self._odds)
            batches = torch.poisson(mean, generator=generator)
            amount = torch._standard_gamma(batches, generator=generator)
            amount.masked_fill_(batches == 0, 0.0)  # which torch draws as the least positive number
            total.add_(amount).mul_(self._left)
        if self._stationary is not None:
            old = torch._standard_gamma(shape, generator=generator)
            total = torch.where(self._stationary & (shape > 0), old, total)
        return total.mul_(self._utility)


def drawn_utility(distribution: Distribution, like: Tensor, generator: Generator) -> Tensor | float:
    """Return draws of ξ/ξ̄ in the shape of a tensor, or a number for all."""
    if isinstance(distribution, EqualUtilities):
        return 1.0
    if isinstance(distribution, Exponential):
        return torch.empty_like(like).exponential_(generator=generator)
    if isinstance(distribution, Lognormal):
        sigma = distribution.sigma
        normal = torch.empty_like(like).normal_(-0.5 * sigma**2, sigma, generator=generator)
        return normal.exp_()
    assert isinstance(distribution, Gamma)  # guaranteed by `check_task`
    shape = torch.full_like(like, distribution.shape)
    return torch._standard_gamma(shape, generator=generator).div_(distribution.shape)
