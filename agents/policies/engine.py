"""The Whittle index policy of a crawler that feeds an indexing engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.policies.base import SLACK, Environment, ObservationView, State, needs
from agents.policies.index import Whittle
from agents.theory.arm import PerFleet, item_utility
from agents.theory.multiplier import payable
from crawl_env import Arrivals, CrawlVectorEnv, Engine, Sources, Trace
from crawl_env.content.utility import ExponentialDecay
from crawl_env.numerics import FloatArray

if TYPE_CHECKING:  # these need SciPy, which agents without an engine do not
    from agents.theory.engine.backlog import QueueIndex
    from agents.theory.engine.relaxation import EngineRelaxation
    from agents.theory.engine.tables import BacklogTable

_RUNS, _STEPS, _WARMUP = 8, 250, 50  # of the comparison with the plain index
_WORK, _FEWEST = 1e6, 60  # sources and items of it: some seconds; steps below which it is left out


class EngineIndex(NamedTuple):
    """The index of a fleet in front of an engine, and its multiplier."""

    indices: QueueIndex | BacklogTable
    multiplier: float  # λ*, 0 under a hard budget


class WhittleEngine(Whittle):
    """`Whittle` for a crawler whose items queue in front of an indexing engine.

    It finds its prices from the task alone when it is made. Where nothing is known of content
    before a crawl and the engine is first in, first out, it uses the index of
    `agents.theory.engine.backlog`, by age and backlog, or in fleets of up to six sources the policy
    of `agents.theory.engine.lookahead`, unless the plain Whittle index clearly earns more in
    simulation. Otherwise (another order, observed content, signals, failures, capacities, crawl
    delays, shared hosts, `budget_rule="average"`, or tables that would be too large) it uses
    x_k(κ*) of the relaxation for the content, discounted by the waiting time of the present
    backlog, unless the plain Whittle index earns more in a short simulation. Observed content
    counts as the age at which it is expected. Without an engine, or with one of infinite rate, it
    is `Whittle`.

    Making it takes a second or so, some seconds in large fleets or while kernels are compiled, for
    each fleet where fleets are drawn.

    Raises:
        ValueError: there is an engine, and `backlog` is not observed, or neither age nor value.
    """

    name = "whittle-engine"
    features = ("age", "backlog")

    def __init__(self, env: Environment, *, seed: int | None = None) -> None:
        self._table_of = PerFleet(self._make)
        super().__init__(env, seed=seed)
        if self._engine is None:
            return
        from agents.theory.engine.backlog import known_service

        self._service = known_service(self._engine)
        needs(self.task, self.name, "backlog")
        if not self.task.observed.all():
            needs(self.task, self.name, "age")
        if self.task.draw is None:
            self._table_of(self.task.sources)

    @property
    def _engine(self) -> Engine | None:
        """The engine, if it may ever be slower than the crawler."""
        engine = self.task.engine
        return None if engine is None or np.isinf(engine.rate) else engine

    def prices(self, sources: Sources | None = None) -> EngineRelaxation:
        """Return λ* and κ* of the relaxation, of the fleet of the task or of another."""
        from agents.theory.engine.relaxation import engine_relaxation

        task, fleet = self.task, self.task.sources if sources is None else sources
        rate = np.inf if task.engine is None else task.engine.rate
        live, budget = payable(fleet, task)
        return engine_relaxation(live, budget, rate, item_utility(task), task.arrivals.decay)

    def heeds(self, sources: Sources, env: int = 0) -> bool:
        """Return whether the index of a fleet, (N,), heeds the engine: not if there is none, or if
        the plain Whittle index earns as much. `env` numbers environments whose fleets are drawn."""
        return self._engine is not None and self._table_of(sources, env) is not None

    def begin(self, view: ObservationView) -> State:
        """The state is what a deterministic engine of fractional rate has left over, by number."""
        return () if self._engine is None else (np.full(view.batch, -1),)

    def decide(self, view: ObservationView, state: State) -> tuple[NDArray[Any], State]:
        if self._engine is None:
            return self.priority(view), state
        backlog, (phase,) = view["backlog"][:, 0], state
        # Where nothing waits now, the engine could index all there was, and nothing is left over.
        first = phase < 0
        onward = self._service.onward[:, 0]
        phase = np.where(first | (backlog == 0), 0, onward[phase])
        plain, out = None, np.empty((view.batch, self.task.n), dtype=np.float32)
        rows: list[int | None] = [None] if self.task.draw is None else [*range(view.batch)]
        for b in rows:
            fleet = view.sources if b is None else view.sources.fleet(b)
            index = self._table_of(fleet, b or 0)
            which = slice(None) if b is None else slice(b, b + 1)
            if index is None:
                plain = self.priority(view) if plain is None else plain
                out[which] = plain[which]
            else:
                out[which] = self._grade(view, index, phase, which)
        return out, (phase,)

    # ------------------------------------------------------------------------------- the index

    def _make(self, sources: Sources) -> EngineIndex | None:
        """Return the index and λ*; None for the plain Whittle index."""
        from agents.theory.engine.backlog import QueueIndex
        from agents.theory.engine.tables import priced_table

        task, engine = self.task, self._engine
        assert engine is not None
        fleet, budget = payable(sources, task)
        if self._is_queue(sources) and QueueIndex.fits(fleet, engine):
            queue = QueueIndex(fleet, budget, engine, item_utility(task))
            return None if queue.is_plain else EngineIndex(queue, 0.0)
        prices = self.prices(sources)
        multiplier = prices.multiplier if task.budget_rule == "average" else 0.0
        table = priced_table(fleet, engine, prices.price, item_utility(task), task.arrivals.decay)
        index = EngineIndex(table, multiplier)
        size = len(sources) + float(sources.arrival_rate.sum()) * sources.period
        steps = int(min(_STEPS, _WORK / (_RUNS * size)))
        if task.draw is not None or steps < _FEWEST:
            return index
        gain = self._simulate(index, steps) - self._simulate(None, steps)
        return index if gain.mean() > 2.0 * gain.std(ddof=1) / np.sqrt(_RUNS) else None

    def _is_queue(self, sources: Sources) -> bool:
        """Return whether the index by age and backlog is known."""
        task = self.task
        exponential = isinstance(task.arrivals.decay, ExponentialDecay)
        plain = not (sources.fails or sources.is_capped or sources.is_delayed or task.hosts)
        blind = not task.observed.any() and not sources.is_signalled
        assert task.engine is not None
        fifo = task.engine.discipline == "fifo" and task.budget_rule == "step"
        return exponential and plain and blind and fifo

    def _simulate(self, index: EngineIndex | None, steps: int) -> FloatArray:
        """Return the reward of an index in each of some runs with the same model arrivals."""
        task, model = self.task, self.task.arrivals
        arrivals = model if isinstance(model, Arrivals) else "poisson-items"
        arguments: Any = {
            **task.arguments,
            "arrivals": arrivals,
            "signals": None if isinstance(model, Trace) else task.signals,
            "features": ("value", "age", "backlog"),
            "flat": False,
            "scaled": False,
            "horizon": None,
        }
        env = CrawlVectorEnv(_RUNS, **arguments)
        observation, _ = env.reset(seed=0)
        total = np.zeros(_RUNS)
        for step in range(_WARMUP + steps):
            view = ObservationView(observation, env.task)
            first = np.zeros(_RUNS, dtype=np.intp)
            action = self.priority(view) if index is None else self._grade(view, index, first)
            observation, reward, *_ = env.step(action)
            total += reward * (step >= _WARMUP)
        return total

    # ----------------------------------------------------------------------------- its argument

    def _grade(
        self,
        view: ObservationView,
        engine_index: EngineIndex,
        phase: NDArray[np.intp],
        rows: slice = slice(None),
    ) -> NDArray[Any]:
        """Return priorities that increase with the index, negative below λ*."""
        age, above = self._ages(view)
        age, above, backlog, phase = age[rows], above[rows], view["backlog"][rows, 0], phase[rows]
        index = engine_index.indices.priority(age, phase, backlog)
        excess = index * above - engine_index.multiplier * (1.0 - SLACK)
        scale = np.abs(excess).max(axis=-1, keepdims=True)
        return (excess / (np.abs(excess) + np.where(scale > 0, scale, 1.0))).astype(np.float32)

    def _ages(self, view: ObservationView) -> tuple[FloatArray, FloatArray]:
        """Return the age of each source, or that at which what is observed is expected, and by
        which factor more is observed than ever is."""
        is_informed = self.task.observed | (self.task.sources.recall > 0)
        if not is_informed.any():
            return view["age"], np.ones((view.batch, self.task.n))
        sources, value = view.sources, view.value
        with np.errstate(divide="ignore", invalid="ignore"):
            level = np.nan_to_num(value / sources.ceiling)
            expected = -np.log1p(-np.minimum(level, 1.0)) / sources.decay_per_step
        age = np.where(is_informed, expected, view["age"] if view.shows("age") else 0.0)
        return age, np.where(is_informed, np.maximum(level, 1.0), 1.0)
