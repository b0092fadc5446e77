"""A crawl in progress: select, collect, advance, observe, for B environments at once.

Everything the two Gymnasium faces share. It knows no spaces and no episodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crawl_env.content.world import NEVER, IntArray, World
from crawl_env.errors import unknown
from crawl_env.fleet.hosts import Hosts
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray
from crawl_env.simulation import selection
from crawl_env.simulation.observation import COUNTED, SUMMED, Harvest, Observer
from crawl_env.simulation.task import Task, start_ages

OPTIONS = ("value", "age")
_NOTHING = (np.empty(0, dtype=np.intp), np.empty(0), None, None)  # the fields of a `Harvest`


class Crawl:
    """B rows of one task.

    Arguments:
        task: what is posed.
        rows: B, or None for one environment whose actions have no batch axis.

    Attributes:
        world: what waits.
        balance: (B,) budget units that can be spent now.
    """

    def __init__(self, task: Task, rows: int | None = None) -> None:
        self.task = task
        self._alone = rows is None
        self._action_shape = (task.n,) if rows is None else (rows, task.n)
        self._on_average = task.budget_rule == "average"
        self.rows = rows = rows or 1
        hidden = "value" in task.features and not task.observed.all()
        fleet = Sources.stack([task.sources] * rows) if task.draw else task.sources
        self.world = World(
            fleet,
            task.arrivals,
            rows,
            count=not set(COUNTED).isdisjoint(task.features),
            believe=hidden,
            itemise=not set(SUMMED).isdisjoint(task.features),
        )
        self.balance = np.full(rows, task.budget)
        self._last: tuple[Any, ...] = _NOTHING
        self._observer = Observer(self.world, task.features, task.observed)
        self._fit()

    @property
    def harvest(self) -> Harvest:
        """What the last epoch's crawls brought."""
        fields: Any = (None if x is None else np.ravel(x).copy() for x in self._last)
        return Harvest(*fields)

    def reset(
        self,
        rng: np.random.Generator,
        rows: NDArray[np.bool_] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Start the given rows (default all) anew; `options` may set their value and age."""
        value, age = self._set_by(options or {})
        which = np.ones(self.rows, dtype=bool) if rows is None else rows
        numbers = np.flatnonzero(which)
        if self.task.draw is not None:
            self._draw_fleets(numbers, rng)
        if age is None:
            ages = start_ages(self.task, numbers.size, rng)
        else:
            ages = np.broadcast_to(age, self.world.shape)[which]
        values = None if value is None else np.broadcast_to(value, self.world.shape)[which]
        self.world.start(ages, rng, which, values)
        self.balance[which] = self.task.budget
        kept = ~which[self.harvest.picked // self.task.n]
        self._last = tuple(None if x is None else x[kept] for x in self.harvest)

    def step(self, action: ArrayLike, rng: np.random.Generator) -> FloatArray:
        """Crawl as the actions of all rows say, let an epoch pass, return the rewards, (B,).

        One environment without batch axis may return a plain number.
        """
        picked = self._select(action)
        items = None if self.world.items is None else self.world.items.take(picked)
        failed = None
        if self._fails:
            failed = self._failing(picked, rng)
            items = None if items is None else np.where(failed, 0.0, items)
        value = self.world.crawl(picked, failed)
        self._last = (picked, value, items, failed)
        if self._on_average:
            spent = self._by_row(picked, np.broadcast_to(self._cost, self.world.shape).take(picked))
            self.balance += self.task.budget - spent
        self.world.advance(rng)
        return self._by_row(picked, value)

    def _failing(self, picked: IntArray, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Draw which crawls fail; for all sources, so that arrivals do not depend on the picks."""
        drawn = rng.random(self.world.shape) < self.world.sources.failure_rate
        return np.asarray(drawn.take(picked))

    def observe(self) -> NDArray[np.float32]:
        """Return what the crawler sees now, (B, N, F)."""
        return self._observer(self._last, self.balance)

    def get_state(self) -> dict[str, Any]:
        """Return a copy of all that changes with time or was drawn at reset."""
        return {
            "world": self.world.get_state(),
            "balance": self.balance.copy(),
            "harvest": self.harvest,
            "sources": self.world.sources,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Return to a state of `get_state`."""
        if state["sources"] is not self.world.sources:
            self.world.set_sources(state["sources"])
            self._fit()
        self.world.set_state(state["world"])
        self.balance[...] = state["balance"]
        self._last = tuple(None if x is None else x.copy() for x in state["harvest"])

    def _draw_fleets(self, rows: IntArray, rng: np.random.Generator) -> None:
        assert self.task.draw is not None
        now = self.world.sources
        columns: Any = {name: getattr(now, name).copy() for name in PARAMETERS}
        for row in rows:
            fleet = self.task.check_drawn(self.task.draw(rng))
            for name in PARAMETERS:
                columns[name][row] = getattr(fleet, name)
        self.world.set_sources(Sources(**{**now.__getstate__(), **columns}))
        self._fit()

    def _fit(self) -> None:
        """Prepare what depends on the sources' parameters."""
        sources, task = self.world.sources, self.task
        self._cost = sources.cost
        self._whole = selection.whole_budget(self._cost, task.budget)
        self._fails = sources.fails
        self._hosts = Hosts.of(sources, task.per_host)
        self._polite = sources.is_delayed or self._hosts is not None

    def _select(self, action: ArrayLike) -> IntArray:
        priority = np.asarray(action)
        if priority.shape != self._action_shape or priority.dtype.kind != "f":
            priority = self._as_priority(priority)
        balance = self.balance if self._on_average else None
        polite = (self.world.available, self._hosts) if self._polite else ()
        return selection.select(
            priority.reshape(self.world.shape),
            self.world.crawled_at,
            self._cost,
            self.task.budget,
            self._whole,
            balance,
            *polite,
        )

    def _as_priority(self, action: NDArray[Any]) -> NDArray[np.floating]:
        if action.shape != self._action_shape:
            raise ValueError(
                f"action has shape {action.shape}; it must have shape {self._action_shape}, one "
                "priority for each source"
            )
        if action.dtype.kind not in "iub":
            raise ValueError(f"action has dtype {action.dtype}; priorities must be numbers")
        return action.astype(np.float64)

    def _by_row(self, picked: IntArray, amount: Any) -> FloatArray:
        """Sum amounts over each row's picks, (B,), one after the other in every layout."""
        if self.rows == 1:
            if amount.ndim == 0:
                return amount if self._alone else amount.reshape(1)
            return np.add.accumulate(amount)[-1:] if amount.size else np.zeros(1)
        if picked.ndim == 2:
            return amount[0].copy() if len(amount) == 1 else amount.sum(axis=0)
        sums: Any = np.bincount(picked // self.task.n, amount, minlength=self.rows)
        return sums

    def _set_by(self, options: dict[str, Any]) -> tuple[FloatArray | None, FloatArray | None]:
        for name in options:
            if name not in OPTIONS:
                raise unknown("reset option", name, OPTIONS)
        if "value" in options and self.world.keeps_items:
            raise ValueError(
                "options['value'] cannot be set where items are followed one by one (a trace, "
                "decay that is not exponential, capacities, features such as harvest_age); set "
                "options['age']"
            )
        value, age = (self._option(name, options.get(name)) for name in OPTIONS)
        if value is not None and age is None:
            age = np.ones(self.world.shape)
        return value, age

    def _option(self, name: str, given: ArrayLike | None) -> FloatArray | None:
        if given is None:
            return None
        try:
            array = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"options[{name!r}] is {given!r}; give one number a source") from None
        if array.shape not in ((self.task.n,), self.world.shape):
            raise ValueError(
                f"options[{name!r}] has shape {array.shape}; give ({self.task.n},), one a source"
            )
        if not np.all(np.isfinite(array) & (array >= 0)):
            raise ValueError(f"options[{name!r}] must be zero or positive and finite everywhere")
        if name == "age" and self.world.items is not None and array.max() >= NEVER:
            raise ValueError(
                f"options['age'] reaches {NEVER:g}, which means never crawled, where infinitely "
                "many items wait; leave out the features 'items' and 'changed', or give smaller "
                "ages"
            )
        return array
