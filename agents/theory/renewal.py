"""The arm of a source that is not observed: it is renewed by every successful crawl.

A crawl that fails is repeated as soon as crawl_delay allows. With p the failure rate, q = 1 − p, d
the delay and x_k the mean content at age k, a source first tried at age k brings
G_k = Σ_j q p^j x_{k+jd} in L_k = k + d p/q steps and 1/q crawls. Without failures these are x_k, k
and 1. x is concave in k, so the multiplier λ at which trying at age k or k + 1 are equally good,
which is the Whittle index at age k, increases with k: λC = q [G_k − L_k (G_{k+1} − G_k)]. All this
holds for every decay function, since interest never grows.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from agents.theory.capacity_table import IndexTable
from agents.theory.closed_form import ClosedForm
from crawl_env.content.utility import EXPONENTIAL, Decay, ExponentialDecay
from crawl_env.fleet.capacity import poisson_upper_bound
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import BoolArray, FloatArray, IntArray

# Beyond 45 time constants the content is at its ceiling to within rounding.
_FULL = 45.0
_MOST_CELLS = 1e7  # of a table of indices
_HUGE = 2.0**40  # steps beyond which intervals are searched for by their logarithm
_ROUNDING = 2.0**-51
_LEAST = 1e-17  # probability of failing so often in a row that no more need be counted
_CELLS = 2**16  # summed over at a time


class RenewalArm:
    """The arm of every source of a fleet (N,), or of a batch of fleets (B, N); a `SingleArm`.

    It takes failures, crawl delays, capacities and any decay function. `ClosedFormArm` is the same
    arm for exponential decay without capacities.

    Arguments:
        sources: the fleet or batch.
        decay: the decay function of interest, in `sources.decay_rate` × age.

    Raises:
        ValueError: some source has a capacity, and decay is not exponential.
    """

    def __init__(self, sources: Sources, decay: Decay = EXPONENTIAL) -> None:
        self.sources, self._decay = sources, decay
        self._exponential = isinstance(decay, ExponentialDecay)
        if sources.is_capped and not self._exponential:
            raise ValueError(
                f"the fleet has capacities and its interest decays as {decay!r}; the mean "
                "content of a capped source is known for exponential decay only"
            )
        self.success = 1.0 - sources.failure_rate  # q
        self._retries = sources.delay * sources.failure_rate / self.success  # d p / q, steps

    def select(self, which: IntArray) -> RenewalArm:
        """Return the arm of some of the sources."""
        return renewal_arm(self.sources.select(which), self._decay)

    # ------------------------------------------------------------------------------ cycles

    def cycle_length(self, age: FloatArray) -> FloatArray:
        """Return L, steps, the shape of `age`."""
        return age + self._retries if self.sources.fails else age

    def crawl_rate(self, age: FloatArray) -> FloatArray:
        """Return how many crawls are tried per step, 1/(qL); infinite at L = 0."""
        with np.errstate(divide="ignore"):
            return 1.0 / (self.success * self.cycle_length(age))

    def mean_content(self, age: FloatArray) -> FloatArray:
        """Return x, utility, the shape of `age`: u*∫_0^{μT·age} R where no capacity holds."""
        if self._exponential:
            return self.sources.content_at(age)
        integral = self._decay.integrated_survival(self.sources.decay_per_step * age)
        return self.sources.ceiling * integral

    def cycle_reward(self, age: FloatArray) -> FloatArray:
        """Return G, utility, the shape of `age`."""
        if not self.sources.fails:
            return self.mean_content(age)
        return self._summed(age)

    def _summed(self, age: FloatArray) -> FloatArray:
        """Return G as the sum that defines it."""
        sources = self.sources
        shape = np.broadcast_shapes(np.shape(age), self.success.shape)
        total = np.zeros(shape)
        most = int(np.ceil(np.log(_LEAST) / np.log(sources.failure_rate.max())))
        # Where so many retries have filled the source to its ceiling, the rest is one number.
        enough = (max(_FULL, self._decay.end) / (sources.decay_per_step * sources.delay)).max()
        most = int(min(most, np.ceil(min(enough, 1e9)))) + 1
        some = max(1, _CELLS // total.size)
        for first in range(0, most, some):
            attempt = np.arange(first, min(first + some, most)).reshape(-1, *(1,) * total.ndim)
            odds = self.success * sources.failure_rate**attempt
            total += (odds * self.mean_content(age + attempt * sources.delay)).sum(axis=0)
        return total + sources.failure_rate**most * self.mean_content(np.full(shape, np.inf))

    # --------------------------------------------------------------------------- the index

    def index_at_age(self, age: FloatArray) -> FloatArray:
        """Return the Whittle index at `age` ≥ 1, utility / budget unit, the shape of `age`."""
        content = self.cycle_reward(age)
        gain = self.cycle_reward(age + 1.0) - content
        index = self.success * (content - self.cycle_length(age) * gain) / self.sources.cost
        index = np.clip(index, 0.0, self.success * content / self.sources.cost)
        if not self.sources.is_capped or self._uncapped is None:
            return index
        # `gain` is known to some digits of `content` only: too few where little decays in a step.
        return np.where(np.isinf(self.sources.capacity), self._uncapped.index_at_age(age), index)

    def index(self, value: FloatArray) -> FloatArray:
        """Return the Whittle index, (..., N) utility / budget unit.

        It is the index at the age at which the mean content is `value`, linear in the value
        between two ages, and qx/C from the mean content of a source never crawled on.
        """
        at_once = value / self.sources.cost
        if self.sources.fails:
            at_once = at_once * self.success
        index = np.array(at_once)
        if self._uncapped is not None:
            uncapped = self._uncapped.index(value)
            index = np.where(np.isinf(self.sources.capacity), uncapped, at_once)
        some = self._tabulated
        if some.size:
            x, most = (np.broadcast_to(v, index.shape)[..., some] for v in (value, at_once))
            by_content = np.clip(self._by_content(x), 0.0, most)
            inside = (x < self._most_content[..., some]) & self._is_tabulated[..., some]
            index[..., some] = np.where(inside, by_content, index[..., some])
        return index

    @cached_property
    def _by_content(self) -> IndexTable:
        some = self._tabulated
        return IndexTable(self if some.size == len(self.sources) else self.select(some))

    @cached_property
    def _is_tabulated(self) -> BoolArray:
        """Where the index is looked up: not without a capacity, nor where nothing ever comes."""
        has_formula = np.isinf(self.sources.capacity) & self._exponential
        return np.asarray(~has_formula & (self._most_content > 0))

    @cached_property
    def _tabulated(self) -> IntArray:
        """The sources whose index is looked up, in some fleet of a batch at least."""
        return np.flatnonzero(self._is_tabulated.reshape(-1, len(self.sources)).any(axis=0))

    @cached_property
    def _most_content(self) -> FloatArray:
        return self.mean_content(np.asarray(np.inf))

    @cached_property
    def _uncapped(self) -> ClosedFormArm | None:
        """The closed form, for those sources of a fleet with capacities that have none."""
        if not self._exponential or np.isfinite(self.sources.capacity).all():
            return None
        return ClosedFormArm(self.sources.replaced(capacity=np.inf))

    # ----------------------------------------------------------------- under a multiplier

    def net_reward(self, multiplier: FloatArray) -> FloatArray:
        """Return max_k max(0, (G_k − λC/q)/L_k), (..., N) utility / step: the largest net
        reward of each source at the Lagrange multiplier λ = `multiplier`, (..., 1)."""
        interval = self.interval(multiplier)
        return np.maximum(self.reward_rate(interval, multiplier * self.sources.cost), 0.0)

    def reward_rate(self, interval: FloatArray, cost: FloatArray) -> FloatArray:
        """Return (G − cost/q)/L, (..., N) utility / step, at an interval, (..., N) steps, where a
        crawl costs so much in the Lagrangian: λC, plus ν of its host."""
        net = self.cycle_reward(interval) - cost / self.success
        return net / self.cycle_length(interval)

    def max_multiplier(self) -> FloatArray:
        """Return the multiplier from which on nothing is crawled, (..., 1)."""
        return self.break_even.max(axis=-1, keepdims=True)

    @cached_property
    def break_even(self) -> FloatArray:
        """The multiplier from which on a source is never crawled, qx_∞/C, (..., N)."""
        return self.success * self.sources.content_at(np.inf) / self.sources.cost

    @cached_property
    def shortest(self) -> FloatArray:
        """One step less than the shortest interval that the delay allows, (..., N)."""
        return np.broadcast_to(self.sources.delay - 1.0, self.longest.shape)

    @cached_property
    def longest(self) -> FloatArray:
        """An interval beyond which nothing grows any more, (..., N)."""
        sources = self.sources
        most = np.ceil(max(_FULL, self._decay.end) / sources.decay_per_step) + 1
        if sources.is_capped:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                turnover = poisson_upper_bound(sources.capacity) / (
                    sources.arrival_rate * sources.period
                )
            most = np.fmin(most, np.ceil(turnover) + 1)
        # A source without arrivals is never crawled: its interval need not be searched for.
        return np.where(self.break_even > 0, np.maximum(most, sources.delay), sources.delay)

    def interval(
        self,
        multiplier: FloatArray,
        shortest: FloatArray | None = None,
        longest: FloatArray | None = None,
    ) -> FloatArray:
        """Return the steps between crawls that are best under a multiplier, (..., N): the smallest
        k in (shortest, longest] whose index reaches it."""
        low = (self.shortest if shortest is None else shortest).ravel()
        interval = (self.longest if longest is None else longest).copy()
        high = interval.reshape(-1)
        cells = np.flatnonzero(_apart(low, high))
        start, end = low[cells], high[cells]
        least = np.broadcast_to(multiplier, interval.shape).reshape(-1)[cells]
        while cells.size:
            middle = np.floor(0.5 * (start + end))
            if end.max() > _HUGE:  # by halves, that would take a thousand steps
                wide = (end > _HUGE) & (end > 4.0 * start)
                middle = np.where(wide, np.floor(np.sqrt(start + 1.0) * np.sqrt(end)), middle)
            is_reached = self._index_of(cells, middle) >= least
            start, end = np.where(is_reached, start, middle), np.where(is_reached, middle, end)
            high[cells] = end
            apart = _apart(start, end)
            cells, start, end, least = cells[apart], start[apart], end[apart], least[apart]
        return interval

    def _index_of(self, cells: IntArray, age: FloatArray) -> FloatArray:
        """Return the index of some cells, (K,) flat, at `age`, (K,)."""
        if self._table is not None:
            row = np.maximum(age - 1.0, 0.0).astype(np.intp)
            return self._table.reshape(len(self._table), -1)[row, cells]
        ages = np.ones_like(self.longest)
        ages.reshape(-1)[cells] = age
        return self.index_at_age(ages).reshape(-1)[cells]

    @cached_property
    def _table(self) -> FloatArray | None:
        """The index at ages 1, 2, …, (ages, ..., N), or None where that is too much."""
        if not self.sources.is_capped:
            return None
        if self.longest.max() * self.longest.size > _MOST_CELLS:
            return None
        ages = np.arange(1.0, self.longest.max() + 1)
        return self.index_at_age(ages.reshape(-1, *(1,) * self.longest.ndim))


class ClosedFormArm(RenewalArm):
    """The arm under exponential decay without capacities: Theorem 1, and its like with failures.

    Raises:
        ValueError: some source has a capacity.
    """

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        if sources.is_capped:
            raise ValueError("the fleet has capacities, for which no closed form is known")

    def cycle_reward(self, age: FloatArray) -> FloatArray:
        sources = self.sources
        if not sources.fails:
            return self.mean_content(age)
        # 1 − a α^k, a = q/(1 − pα^d), without its cancellation where little decays.
        loss = self.success * -np.expm1(-sources.decay_per_step * age)
        retry_loss = sources.failure_rate * -np.expm1(-sources.decay_per_step * sources.delay)
        return sources.ceiling * (loss + retry_loss) / (self.success + retry_loss)

    def index_at_age(self, age: FloatArray) -> FloatArray:
        return self._closed_form.index_at_age(age)

    def index(self, value: FloatArray, discount: float = 1.0) -> FloatArray:
        """Return the Whittle index, (..., N) utility / budget unit.

        `discount` below 1 gives the discounted index, which is known without failures only.
        """
        return self._closed_form.index(value, discount)

    @cached_property
    def _closed_form(self) -> ClosedForm:
        sources = self.sources
        failures = (sources.failure_rate, sources.delay) if sources.fails else ()
        return ClosedForm(sources.ceiling, sources.cost, sources.decay_per_step, *failures)

    def interval(
        self,
        multiplier: FloatArray,
        shortest: FloatArray | None = None,
        longest: FloatArray | None = None,
    ) -> FloatArray:
        return self._closed_form.age_reaching(
            multiplier,
            self.shortest if shortest is None else shortest,
            self.longest if longest is None else longest,
        )


def _apart(low: FloatArray, high: FloatArray) -> BoolArray:
    """Return where more than one interval is left in (low, high]."""
    return high - low > np.maximum(1.0, _ROUNDING * high)


def renewal_arm(sources: Sources, decay: Decay = EXPONENTIAL) -> RenewalArm:
    """Return the arm of sources that are not observed, in closed form where there is one."""
    if isinstance(decay, ExponentialDecay) and not sources.is_capped:
        return ClosedFormArm(sources)
    return RenewalArm(sources, decay)


def simplified(sources: Sources) -> Sources:
    """Return sources without failures and capacities that approximate the given ones.

    A crawl costs as much as one that succeeds does on average, C/q, and content grows with the
    same initial slope Λξ̄ to the same ceiling. This is exact where no source has a capacity, but for
    the steps that retries take.
    """
    if not (sources.fails or sources.is_capped):
        return sources
    slope, ceiling = sources.arrival_rate * sources.mean_utility, sources.content_at(np.inf)
    return sources.replaced(
        decay_rate=np.where(ceiling > 0, slope / np.where(ceiling > 0, ceiling, 1.0), 1.0),
        cost=sources.cost / (1.0 - sources.failure_rate),
        capacity=np.inf,
        failure_rate=0.0,
    )
