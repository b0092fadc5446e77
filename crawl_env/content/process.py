"""`ArrivalProcess`, the base class of all arrivals, and the interfaces that a world uses.

A cell is one source of one environment. Time is measured in steps here: ℓ = ΛT items per step,
m = μT decay per step.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crawl_env.compiled import compiled
from crawl_env.content.parts import is_known
from crawl_env.content.utility import EXPONENTIAL, Decay
from crawl_env.errors import check_array
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray, IntArray

# Cells advanced at a time. The value, retention and inflow of one block fit in a core's cache, so
# that a large fleet is read from main memory only once per step.
BLOCK = 2**15
_ENOUGH = 50.0  # items of which some utility is certain to be left
_LEAST_DRAWS, _MOST_DRAWS = 100, 1000


class Published(NamedTuple):
    """n items, in any order."""

    cell: IntArray  # (n,) number of the cell: env·N + source, or the position in a block
    age: FloatArray  # (n,) steps
    utility: FloatArray  # (n,) when published
    number: IntArray  # (n,) number of the item in a log; 0 where there is no log

    def only(self, which: Any) -> Published:
        """Return the items selected by indices or a mask, in that order."""
        return Published(self.cell[which], self.age[which], self.utility[which], self.number[which])

    @staticmethod
    def empty(n: int) -> Published:
        """Return the columns of n items, to be written."""
        return Published(np.empty(n, np.intp), np.empty(n), np.empty(n), np.empty(n, np.intp))

    @staticmethod
    def copied(columns: Iterable[ArrayLike]) -> Published:
        """Return a copy of the items whose columns these are, which may be lists."""
        types: Any = np.intp, np.float64, np.float64, np.intp
        copies = (np.array(column, of) for column, of in zip(columns, types, strict=True))
        return Published(*copies)

    @staticmethod
    def concatenate(batches: Sequence[Published]) -> Published:
        """Return the items of all batches, concatenated in order."""
        columns = zip(Published.empty(0), *batches, strict=True)
        return Published(*map(np.concatenate, columns))


@dataclass(frozen=True)
class Cells:
    """Parameters of n cells."""

    items: FloatArray  # (n,) ℓ = ΛT, items / step
    mean_utility: FloatArray  # (n,) ξ̄, utility
    decay: FloatArray  # (n,) m = μT, 1 / step
    period: float = 1.0  # T, time
    capacity: FloatArray | None = None  # (n,) number of items that a source shows; None: all

    def __getitem__(self, which: Any) -> Cells:
        capacity = None if self.capacity is None else self.capacity[which]
        return Cells(
            self.items[which], self.mean_utility[which], self.decay[which], self.period, capacity
        )

    @staticmethod
    def of(sources: Sources, flat: Callable[[FloatArray], FloatArray]) -> Cells:
        """Return the parameters of the cells that `flat` selects from those of the sources."""
        return Cells(
            items=flat(sources.arrival_rate * sources.period),
            mean_utility=flat(sources.mean_utility),
            decay=flat(sources.decay_per_step),
            period=sources.period,
            capacity=flat(sources.capacity) if sources.is_capped else None,
        )

    @cached_property
    def retention(self) -> FloatArray:
        """α = exp(−m), the fraction of utility that is left after one step, (n,)."""
        return np.exp(-self.decay)

    def mean_content(self, steps: ArrayLike) -> FloatArray:
        """Return the mean utility left at the end of `steps` steps of arrivals, (n,)."""
        return (
            self.items
            * self.mean_utility
            / self.decay
            * -np.expm1(-self.decay * np.asarray(steps, dtype=np.float64))
        )

    def collect(self, items: Published, value: FloatArray, count: FloatArray | None) -> None:
        """Add the items' remaining utility to `value` and their number to `count`, (n,) each."""
        _collect(items.cell, items.age, items.utility, self.decay, value)
        if count is not None:
            np.add.at(count, items.cell, 1.0)


@compiled
def _collect(
    cell: IntArray, age: FloatArray, utility: FloatArray, decay: FloatArray, value: FloatArray
) -> None:
    for i in range(cell.size):
        value[cell[i]] += utility[i] * math.exp(-decay[cell[i]] * age[i])


def blocks_of(sources: Sources, num_envs: int) -> Iterator[tuple[slice, Cells]]:
    """Yield the blocks of the B·N cells of a world with their parameters.

    Small fleets are repeated to fill a block, so that many environments advance in one call; equal
    blocks share one `Cells` object.
    """
    n = len(sources)
    shared = sources.arrival_rate.ndim == 1
    repeat = max(1, min(num_envs, BLOCK // n)) if shared else 1
    cells = Cells.of(sources, lambda p: np.tile(p, repeat) if repeat > 1 else p.ravel())
    line = n if shared and n > BLOCK else num_envs * n
    width = -(-line // -(-line // BLOCK))  # equal work for each thread
    if shared and n <= BLOCK:
        width = cells.items.size
    parts: dict[tuple[int, int], Cells] = {}
    for start in range(0, num_envs * n, line):
        stop = min(start + line, num_envs * n)
        for first in range(start, stop, width):
            size = min(first + width, stop) - first
            offset = first % cells.items.size
            if (offset, size) not in parts:
                parts[offset, size] = cells[offset : offset + size]
            yield slice(first, first + size), parts[offset, size]


class Block:
    """Content that arrives at n cells within one step, or before an episode.

    A subclass implements `draw` if it draws single items, and `add` otherwise.

    Attributes:
        parallel: whether several blocks of a world may be drawn at the same time by different
            threads, each with a generator of its own.
    """

    parallel: bool = False

    def __init__(self, cells: Cells) -> None:
        self.cells = cells

    def add(self, value: FloatArray, count: FloatArray | None, rng: np.random.Generator) -> None:
        """Add, in place, the utility left at the end to `value` (n,), and the number of items to
        `count` (n,) unless this is None."""
        for items in self.draw(rng):
            self.cells.collect(items, value, count)

    def draw(self, rng: np.random.Generator) -> Iterator[Published]:
        """Yield the items in batches; their cells are numbered 0 … n − 1."""
        raise NotImplementedError(
            f"{type(self).__name__} draws totals only; implement `draw` to draw single items"
        )


class ArrivalProcess:
    """Base class of arrival processes: how items are published at the sources.

    `Arrivals` (random items), `Deterministic` (their mean) and `Trace` (a log) are the processes of
    this package. What arrives depends on the process, the sources and the random generator alone,
    neither on what is crawled nor on what is observed.

    A subclass overrides `block` and `past`, and those attributes that differ. In this example the
    content of a step is uniform on [0, 2u], where u is its mean:

    >>> from crawl_env import CrawlEnv
    >>> class Uniform(ArrivalProcess):
    ...     def block(self, cells, state):
    ...         return UniformContent(cells, 1.0)
    ...     def past(self, cells, steps):
    ...         return UniformContent(cells, steps)
    >>> class UniformContent(Block):
    ...     def __init__(self, cells, steps):
    ...         super().__init__(cells)
    ...         self._mean = cells.mean_content(steps)
    ...     def add(self, value, count, rng):
    ...         value += 2.0 * self._mean * rng.random(value.size)
    >>> env = CrawlEnv(sources="table1", budget=2, arrivals=Uniform())
    >>> observation, _ = env.reset(seed=0)
    >>> observation.ravel().round(1)
    array([229. ,  79.7,   2.9,   0.6], dtype=float32)

    A process that draws single items sets `items`, and its blocks implement `Block.draw` instead of
    `Block.add`. For a rate that changes with time, a `crawl_env.content.rates.RateModel` is
    sufficient.

    Attributes:
        random: whether the process is random.
        items: whether single items are drawn, so that they can be counted, have an age, and be
            displaced by later ones at sources of finite capacity.
        decay: decay function of the items' utility.
        exponential: whether all content decays exponentially, so that the uncollected utility
            obeys the recursion X ← αX + U.
        stateful: whether the process has a state, one number per cell.
    """

    random: bool = True
    items: bool = False
    decay: Decay = EXPONENTIAL
    exponential: bool = True
    stateful: bool = False

    def block(self, cells: Cells, state: FloatArray) -> Block:
        """Return the content of one step at some cells. `state` (n,) is to be changed in place
        whenever the content is drawn; it has shape (0,) if the process is not stateful."""
        raise NotImplementedError(f"{type(self).__name__} must implement block(cells, state)")

    def past(self, cells: Cells, steps: FloatArray) -> Block:
        """Return the content of the last `steps` (n,) steps at some cells; infinity stands for the
        stationary distribution."""
        raise NotImplementedError(f"{type(self).__name__} must implement past(cells, steps)")

    def start(self, shape: tuple[int, int], period: float, rng: np.random.Generator) -> FloatArray:
        """Return the state at the start of episodes, (b, N); called only if `stateful`."""
        raise NotImplementedError(
            f"{type(self).__name__} is stateful; it must implement start(shape, period, rng)"
        )

    def factor(self, state: FloatArray, period: float) -> FloatArray:
        """Return the rate of the next step relative to the mean rate Λ, in the shape of `state`;
        called only if `stateful`."""
        return np.ones_like(state)

    def model(self, items: bool) -> ArrivalProcess:
        """Return the process for a planner to simulate: of the same distribution, drawn as totals
        unless single `items` are needed."""
        return self

    def check(self, sources: Sources) -> None:
        """Raise ValueError, or warn, if the process does not fit the fleet, or if the content of a
        process of one's own is negative, not finite, or stays empty."""
        feed, env, rng = self.bind(sources, 1), np.zeros(1, dtype=np.intp), np.random.default_rng(0)
        feed.start(env, rng)
        if is_known(self):
            return
        size = sources.arrival_rate.size
        _check_content(self, "block", sources, feed.blocks, rng)
        past = (slice(0, size), feed.past(env, np.ones(size)))
        _check_content(self, "past", sources, [past], rng)

    def bind(self, sources: Sources, num_envs: int) -> Feed:
        """Return the arrivals at `num_envs` environments with these sources."""
        return Feed(self, sources, num_envs)


class Feed:
    """The arrivals at the B·N cells of one world, and their time-dependent state.

    Cells are independent here; subclasses have other arrivals.

    Attributes:
        advance: what advances the state that several cells share, after the content of a step was
            drawn; None if they share none.
    """

    advance: Callable[[np.random.Generator], None] | None = None
    _state: NDArray[Any]  # one number per cell if the process is stateful

    def __init__(self, arrivals: ArrivalProcess, sources: Sources, num_envs: int) -> None:
        self._arrivals, self._sources, self._num_envs = arrivals, sources, num_envs
        self._shape = (num_envs, len(sources))
        self._state = np.zeros(self._shape if arrivals.stateful else (num_envs, 0))

    @cached_property
    def blocks(self) -> list[tuple[slice, Block]]:
        """The content of one step, as pairs of consecutive cells and their block. Drawing it
        advances the state of these cells to the next step."""
        # Each block of a stateful process has a state of its own, so blocks cannot share an object.
        stateful, flat = self._arrivals.stateful, self._state.reshape(-1)
        cache: dict[tuple[int, int], Block] = {}
        blocks = []
        for here, cells in blocks_of(self._sources, self._num_envs):
            key = (id(cells), here.start if stateful else 0)
            if key not in cache:
                cache[key] = self._arrivals.block(cells, flat[here])
            blocks.append((here, cache[key]))
        return blocks

    @cached_property
    def decay(self) -> FloatArray:
        """Decay per step of the cells, (B·N,)."""
        return np.ravel(np.broadcast_to(self._sources.decay_per_step, self._shape))

    def start(self, envs: IntArray, rng: np.random.Generator) -> None:
        """Draw the state at the start of an episode, for the environments `envs` (b,)."""
        if self._arrivals.stateful:
            shape = (envs.size, self._shape[1])
            self._state[envs] = self._arrivals.start(shape, self._sources.period, rng)

    def past(self, envs: IntArray, steps: FloatArray) -> Block:
        """Return the content of the `steps` (b·N,) steps before the episode at all cells of the
        environments `envs` (b,); infinity stands for the stationary distribution."""

        def flat(parameter: FloatArray) -> FloatArray:
            return np.ravel(np.broadcast_to(parameter, self._shape)[envs])

        return self._arrivals.past(Cells.of(self._sources, flat), steps)

    def rate(self) -> FloatArray:
        """Return the arrival rate of the next step, (B, N) items / time."""
        rate = np.broadcast_to(self._sources.arrival_rate, self._shape)
        if not self._arrivals.stateful:
            return rate.copy()
        return rate * self._arrivals.factor(self._state, self._sources.period)

    def survival(self, items: Published) -> FloatArray:
        """Return the fraction of the items' utility that is left, (n,); it never rises from 0."""
        return self._arrivals.decay.survival(self.decay[items.cell] * items.age)

    def get_state(self) -> NDArray[Any]:
        """Return a copy of the state."""
        return self._state.copy()

    def set_state(self, state: NDArray[Any]) -> None:
        """Restore a state returned by `get_state`, possibly of a feed with other sources."""
        if self._state.size > 0:
            self._state[...] = state

    def __getstate__(self) -> tuple[Any, ...]:
        return self._arrivals, self._sources, self._num_envs, self._state

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        # The blocks refer to the feed or its state, which copying and pickling do not preserve.
        arrivals, sources, num_envs, values = state
        self.__init__(arrivals, sources, num_envs)  # type: ignore[misc]
        self.set_state(values)


def _check_content(
    arrivals: ArrivalProcess,
    method: str,
    sources: Sources,
    blocks: Sequence[tuple[slice, Block]],
    rng: np.random.Generator,
) -> None:
    """Warn if the blocks that a method returns add nothing where at least 50 items are published,
    and raise ValueError if they add what is negative or not finite.

    Fleets for which that would take too many draws are not checked.
    """
    useful = sources.arrival_rate[sources.mean_utility > 0] * sources.period
    expected, value = float(useful.sum()), np.zeros(sources.arrival_rate.size)
    if expected * _MOST_DRAWS < _ENOUGH:
        return
    draws = max(int(np.ceil(_ENOUGH / expected)), _LEAST_DRAWS)  # content may come in bursts
    for _ in range(draws):
        for here, block in blocks:
            block.add(value[here], None, rng)
        what = f"what {type(arrivals).__name__}.{method} returns added to `value`"
        check_array(what, value, low=0.0)
        if value.any():
            return
    warnings.warn(
        f"arrivals are {arrivals!r}, and what {type(arrivals).__name__}.{method} returns added "
        f"nothing to `value` in {draws} draws, in which sources publish about "
        f"{draws * expected:.3g} items: there is nothing to collect. Block.add must change `value` "
        "in place, as value += … does; value = value + … makes a new array instead",
        stacklevel=7,
    )


def require_items(arrivals: ArrivalProcess, what: str) -> None:
    """Raise ValueError unless the process draws single items, which the purpose `what` requires."""
    if not arrivals.items:
        reason = "draws only the total of each step" if arrivals.random else "has only their mean"
        raise ValueError(
            f"{what}: single items are needed, and {arrivals!r} {reason}. Use "
            "arrivals='poisson-items', another name that ends in '-items', or "
            "Arrivals(…, sampler='items')"
        )
