"""`Simulation`: the step shared by all environments: select, collect, advance, observe.

It depends neither on action spaces nor on episodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crawl_env.content.payoff import reward_of
from crawl_env.content.stories import Stories
from crawl_env.content.trace import Trace
from crawl_env.content.world import NEVER, World
from crawl_env.errors import check_choice, check_whole, counted, shown
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.fleet.sources import Sources
from crawl_env.numerics import FloatArray, IntArray, Written
from crawl_env.rng import generator
from crawl_env.simulation.observation import COUNTED, HEARD, POWERS_OF_TIME, SUMMED, scaled
from crawl_env.simulation.selection import KERNEL_TYPES, Hosts, refuse_nan, select, whole_budget
from crawl_env.simulation.task import Task
from crawl_env.simulation.top import Priority, top_kernel

OPTIONS = ("value", "age")


class Harvest(NamedTuple):
    """The crawls of the last step and what they collected, (K,) each."""

    picked: IntArray  # cells: environment · N + source
    value: FloatArray  # utility collected
    items: FloatArray | None  # number of new items, or None if they are not counted
    failed: NDArray[np.bool_] | None = None  # whether each crawl failed; None if none can fail

    def copy(self) -> Harvest:
        """Return a copy of the arrays."""
        return self.only(slice(None))

    def only(self, which: Any) -> Harvest:
        """Return a copy of some of the crawls, by a mask or a slice."""
        fields: Any = (None if x is None else x[which].copy() for x in self)
        return Harvest(*fields)


# Faster than the types.
FLOAT32, BOOL, INTP = np.dtype(np.float32), np.dtype(np.bool_), np.dtype(np.intp)
_OF_WORLD = ("age", "seen", "rate", *HEARD)  # features that are attributes of the world
_NOWHERE, _NOTHING = np.zeros(0, dtype=bool), np.zeros(0)


class Simulation(Written):
    """State and dynamics of B environments of one task.

    Arguments:
        task: the task.
        num_envs: B, or None for one environment whose actions have no batch axis.

    Attributes:
        world: the state of the sources.
        balance: (B,) budget units that can be spent now, under `budget_rule="average"`.
        elapsed: (B,) steps since the start of the episode; counted only if there is a payoff.
    """

    def __init__(self, task: Task, num_envs: int | None = None) -> None:
        self.task = task
        self._alone = num_envs is None
        self._action_shape = (task.n,) if num_envs is None else (num_envs, task.n)
        self._shape_with_looks: tuple[int, ...] | None = None
        if task.look_cost is not None:
            self._shape_with_looks = (*self._action_shape[:-1], 2, task.n)
        self._on_average = task.budget_rule == "average"
        self.num_envs = num_envs = num_envs or 1
        hidden = "value" in task.features and not task.observed.all()
        fleet = Sources.stack([task.sources] * num_envs) if task.draw else task.sources
        self.world = World(
            fleet,
            task.arrivals,
            num_envs,
            count=not set(COUNTED).isdisjoint(task.features),
            track_belief=hidden,
            store_items=not set(SUMMED).isdisjoint(task.features),
            show_pings=not set(HEARD).isdisjoint(task.features),
            log=task.pings,
            engine=task.engine,
            looks=task.look_cost is not None,
        )
        self.balance = np.full(num_envs, task.budget)
        self.elapsed = np.zeros(num_envs)
        # Cells that were looked at in the last step, and what they showed.
        self._looks: IntArray = np.zeros(0, dtype=np.intp)
        self._look_values: FloatArray = _NOTHING
        self._cost_varies = task.look_cost is not None or task.unchanged_cost is not None
        self._spent = np.zeros(num_envs)  # in the last step, where costs vary
        # The fields of a `Harvest`.
        self._last: Any = np.zeros(0, dtype=np.intp), _NOTHING, None, None
        value_alone = task.features == ("value",) and self.world.belief is self.world.value
        self._value_alone = value_alone and not task.scaled
        shape = task.observation_space.shape
        self._shape = shape if self._alone else (num_envs, *shape)
        self._prepare()

    @property
    def harvest(self) -> Harvest:
        """The crawls of the last step and what they collected."""
        return Harvest(*self._last).copy()

    @property
    def looked(self) -> IntArray:
        """The cells that were looked at in the last step, environment · N + source, ascending."""
        return self._looks.copy()

    @property
    def spent(self) -> FloatArray:
        """Budget units spent in the last step, (B,)."""
        if self._cost_varies:
            return self._spent.copy()
        picked, cost = self._last[0], self._cost
        cells = picked if cost.shape == self.world.shape else picked % self.task.n
        return self._per_env(picked, cost.take(cells))

    def reset(
        self,
        rng: np.random.Generator,
        mask: NDArray[np.bool_] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Start the environments of the mask (B,), default all; `options` may set value and age."""
        value, age = self._set_by(reset_options(options))
        which = np.ones(self.num_envs, dtype=bool) if mask is None else mask
        numbers = np.flatnonzero(which)
        if self.task.draw is not None:
            fleets = self.task.drawn(self.world.sources, numbers, rng)
            self.world.set_sources(fleets)
            self._prepare()
        if age is None:
            ages = self.task.start_ages(numbers.size, rng)
        else:
            ages = np.broadcast_to(age, self.world.shape)[which]
        values = None if value is None else np.broadcast_to(value, self.world.shape)[which]
        self.world.start(ages, rng, which, values)
        self.balance[which] = self.task.budget
        self.elapsed[which] = self._spent[which] = 0.0
        last = Harvest(*self._last)
        self._last = last.only(~which[last.picked // self.task.n])
        others = ~which[self._looks // self.task.n]
        self._looks, self._look_values = self._looks[others], self._look_values[others]

    def step(
        self, action: ArrayLike, rng: np.random.Generator
    ) -> tuple[NDArray[np.float32], FloatArray, dict[str, Any]]:
        """Crawl the sources selected by the actions and advance by one step.

        Return the observations, see `observe`, the rewards, (B,), and the info, which is empty if
        actions have a batch axis. If they have none, the reward is valid until the next step.
        """
        priority = np.asarray(action)
        if priority.shape != self._action_shape or priority.dtype is not FLOAT32:
            priority = self._as_priority(priority)
        if self._number > 0:
            picked, flat, n = np.empty(self._selection_size, INTP), priority.ravel(), self.task.n
            if not self._top(flat, self.world.flat_crawled_at, n, self._number, picked):
                refuse_nan(flat, n)
            if self._plain:
                return self._step_plainly(picked)
        else:
            picked = self._select(priority.reshape(self.num_envs, -1))
        reward = self._collect(picked, rng)
        self.world.advance(rng)
        if self.task.look_cost is not None:
            self._look_values = self.world.look(self._looks)
        return self.observe(), reward, self.info() if self._alone else {}

    def _step_plainly(
        self, picked: IntArray
    ) -> tuple[NDArray[np.float32], FloatArray, dict[str, Any]]:
        """Do the same if neither limits nor random numbers nor other features have to be heeded."""
        world, n, utility = self.world, self.task.n, self._utility
        self._last = picked, utility, None, None
        values = np.empty(self.num_envs * n, FLOAT32)
        if not self._alone:
            reward = np.empty(self.num_envs)
            world.step(picked, utility, reward, values, _NOWHERE, _NOTHING)
            return values.reshape(self._shape), reward, {}
        reward, crawled, collected = self._reward, np.zeros(n, BOOL), np.zeros(n)
        world.step(picked, utility, reward, values, crawled, collected)
        info = {"crawled": crawled, "collected": collected, "cost": self._number_cost}
        return values.reshape(self._shape), reward, info

    def _select(self, priority: Priority) -> IntArray:
        """Select crawls, whose number or choice depends on more than priorities, flat (K,)."""
        world = self.world
        if self._cost_varies:
            return self._select_at_varying_cost(priority)
        constraints: tuple[Any, ...] = ()
        if self._constrained:
            available = world.available
            if available is not None:  # with −∞, `SubsetAction` marks what is not to be crawled
                available = available & ~np.isneginf(priority)
            constraints = (available, self.task.hosts)
        return select(
            priority,
            world.crawled_at,
            self._cost,
            self.task.budget,
            self._whole,
            self.balance if self._on_average else None,
            *constraints,
        )

    def _select_at_varying_cost(self, priority: Priority) -> IntArray:
        """Select crawls (B, N), or crawls and looks (B, 2N), and note the looks and the cost."""
        world, task, n = self.world, self.task, self.task.n
        hosts, allowed, at = task.hosts, world.available, world.crawled_at
        cost = np.broadcast_to(self._cost, world.shape)
        charge = (
            cost
            if task.unchanged_cost is None
            else np.where(world.value > 0, cost, task.unchanged_cost)
        )
        # With −∞, `SubsetAction` marks what is not to be crawled.
        excluded = np.isneginf(priority[:, :n])
        if excluded.any():
            allowed = ~excluded if allowed is None else allowed & ~excluded
        columns = priority.shape[1]
        if columns > n:
            looks = np.full(world.shape, task.look_cost)
            cost, charge = np.hstack([cost, looks]), np.hstack([charge, looks])
            at = np.hstack([at, np.maximum(at, world.seen_at)])
            # Looks are limited neither by crawl delays nor by hosts.
            allowed = None if allowed is None else np.hstack([allowed, looks > 0])
            if hosts is not None:
                own = hosts.host_of.max() + 1 + np.arange(n)
                hosts = Hosts(np.concatenate([hosts.host_of, own]), hosts.per_host)
        balance = self.balance if self._on_average else None
        cells = select(priority, at, cost, task.budget, None, balance, allowed, hosts, charge)
        env, column = np.divmod(cells, columns)
        self._spent = np.bincount(env, charge.take(cells), self.num_envs).astype(
            np.float64, copy=False
        )
        crawls = column < n
        self._looks = (env * n + column - n)[~crawls]
        picked: IntArray = (env * n + column)[crawls]
        return picked

    def _collect(self, picked: IntArray, rng: np.random.Generator) -> FloatArray:
        """Crawl the cells, deduct their cost from the balance, and return the rewards."""
        world = self.world
        items = None if world.items is None else world.items.take(picked)
        failed = None
        if self._fails:
            # Drawn for all sources, so that arrivals do not depend on the selection.
            failed = np.asarray((rng.random(world.shape) < world.sources.failure_rate).take(picked))
            items = None if items is None else np.where(failed, 0.0, items)
        value = world.crawl(picked, failed)
        self._last = (picked, value, items, failed)
        if self._on_average:
            self.balance += self.task.budget - self.spent
        if self.task.payoff is not None:
            reward = reward_of(self.task.payoff, world.sources, picked, value, self.elapsed)
            self.elapsed += 1.0
            return reward
        collected = self._per_env(picked, value)
        return collected if world.queue is None else world.index(collected)

    def observe(self) -> NDArray[np.float32]:
        """Return the observations as a new array: (B, N, F), or (B, N·F) if they are flat, without
        the first axis if actions have no batch axis."""
        if self._value_alone:
            return self.world.value.astype(np.float32).reshape(self._shape)
        features = self.task.features
        observation = np.empty((*self.world.shape, len(features)), dtype=np.float32)
        for channel, name in enumerate(features):
            self._write(name, observation[..., channel], *self._last)
        if self.task.scales is not None:
            observation = scaled(observation, self.task.scales)
        return observation.reshape(self._shape)

    def _write(
        self,
        name: str,
        out: NDArray[np.float32],
        picked: IntArray,
        utility: FloatArray,
        items: FloatArray | None,
        failed: NDArray[np.bool_] | None,
    ) -> None:
        """Write one feature of the observation."""
        world = self.world
        if name == "value":
            out[...] = world.belief
            if world.belief is not world.value:
                np.copyto(out, world.value, where=self.task.observed, casting="same_kind")
        elif name == "content":
            out[...] = np.where(self.task.observed, world.value, 0.0)
        elif name in _OF_WORLD:
            values = getattr(world, name)
            out[...] = 0.0 if values is None else values
        elif name == "shown":
            out[...] = 0.0
            out[np.divmod(self._looks, world.shape[1])] = self._look_values
        elif name == "available":
            out[...] = 1.0 if world.available is None else world.available
        elif name == "balance":
            out[...] = self.balance[:, None]
        elif name == "backlog":
            out[...] = 0.0 if world.queue is None else world.queue.backlog[:, None]
        elif name == "steps_left":
            payoff = self.task.payoff
            out[...] = 0.0 if payoff is None else payoff.steps_left(self.elapsed)[:, None]
        elif name in SUMMED:
            assert world.harvested is not None  # guaranteed by the task's features
            which = SUMMED.index(name)
            out[...] = world.harvested[which] * world.sources.period ** POWERS_OF_TIME[which]
        elif name in PARAMETERS:
            out[...] = getattr(world.sources, name)
        elif name == "topic":
            out[...] = world.sources.topic_of
        else:
            out[...] = 0.0
            env, source = np.divmod(picked, world.shape[1])
            failure: Any = 0.0 if failed is None else failed.astype(np.float32)
            outcomes: dict[str, Any] = {
                "crawled": 1.0 - failure,
                "failed": failure,
                "harvest": utility,
                "items": items,
                "changed": None if items is None else items > 0,
                "known": world.known.take(picked) * (1.0 - failure) if name == "known" else None,
            }
            out[env, source] = outcomes[name]

    def info(self) -> dict[str, Any]:
        """Return the info of the last step for one environment, see `CrawlEnv`; after a reset, that
        of a step without crawls."""
        picked, value, _, failed = self._last
        crawled, collected = np.zeros(self.task.n, BOOL), np.zeros(self.task.n)
        crawled[picked] = True
        collected[picked] = value
        cost = self._number_cost if picked.size else 0.0
        if not cost:
            cost = self._spent.item() if self._cost_varies else self._cost.take(picked).sum().item()
        info: dict[str, Any] = {"crawled": crawled, "collected": collected, "cost": cost}
        if self._fails:
            info["failed"] = np.zeros(self.task.n, BOOL)
            info["failed"][picked] = failed
            crawled &= ~info["failed"]
        if isinstance(self.task.arrivals, Stories):
            info["known"] = np.where(crawled, self.world.known[0], 0.0)
        if self.task.look_cost is not None:
            info["looked"] = np.zeros(self.task.n, BOOL)
            info["looked"][self._looks] = True
        if self._on_average:
            info["balance"] = self.balance.item()
        if self.world.queue is not None:
            info["engine"] = {
                name: entry[0] for name, entry in self.world.queue.ledger._asdict().items()
            }
        return info

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the time-dependent state and of what was drawn at reset."""
        return {
            "world": self.world.get_state(),
            "balance": self.balance.copy(),
            "in_episode": self.elapsed.copy(),
            "looked": (self._looks.copy(), self._look_values.copy()),
            "spent": self._spent.copy(),
            "harvest": self.harvest,
            "sources": self.world.sources,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state returned by `get_state`.

        Raises:
            ValueError: it is one of other sources, or lacks what this task needs.
        """
        self.world.check_state(state["world"])
        if state["sources"] is not self.world.sources:
            if self.task.draw is None and state["sources"] != self.task.sources:
                raise ValueError(
                    "the state is of an environment with other sources; restore it in one of the "
                    "same task, which gym.make(env.spec) makes"
                )
            self.world.set_sources(state["sources"])
            self._prepare()
        self.world.set_state(state["world"])
        self.balance[...] = state["balance"]
        self.elapsed[...] = state["in_episode"]
        cells, values = state["looked"]
        self._looks, self._look_values = (
            np.array(cells, dtype=np.intp),
            np.array(values, dtype=np.float64),
        )
        self._spent[...] = state["spent"]
        self._last = Harvest(*state["harvest"]).copy()

    def generator(self, seed: int) -> np.random.Generator:
        """Return a generator for a planner's simulation, which no `reset(seed=…)` uses.

        Raises:
            ValueError: arrivals are recorded, or the seed is not a whole number.
        """
        if isinstance(self.task.arrivals, Trace):
            raise ValueError(
                "a log cannot be reseeded: what it publishes next is the true future, whatever the "
                "seed. Simulate with random arrivals instead, in an environment of the same "
                "sources with arrivals='poisson-items'"
            )
        return generator(check_whole("seed", seed, 0), "planner")

    def _prepare(self) -> None:
        """Compute what depends on the sources' parameters."""
        sources, task = self.world.sources, self.task
        self._cost = sources.cost
        self._whole = whole_budget(self._cost, task.budget)
        self._fails = sources.fails
        self._constrained = sources.is_delayed or task.hosts is not None
        # Number of sources selected in every step, if it is constant, and their total cost.
        limited = self._constrained or self._on_average or self._fails or self._cost_varies
        self._number = 0 if limited else self._whole or 0
        self._number_cost = float(self._number * self._cost.flat[0])
        plain = self._number > 0 and self._value_alone and self.world.is_mean
        self._plain = plain and task.payoff is None
        # Written anew in every plain step, as arrays of a single number take long to allocate.
        self._selection_size = self.num_envs * self._number
        self._utility = np.empty(self._selection_size)
        self._reward = np.empty(self.num_envs)
        self._top = top_kernel(self.num_envs, task.n, self._number)

    def _as_priority(self, action: NDArray[Any]) -> Priority:
        if action.shape != self._action_shape and action.shape != self._shape_with_looks:
            shape: tuple[int, ...] = self._action_shape
            why = "one priority for each source"
            if self._shape_with_looks is not None:
                shape, why = self._shape_with_looks, "a priority for each crawl, then for each look"
            raise ValueError(f"action has shape {action.shape}; it must have shape {shape}, {why}")
        if action.dtype.kind not in "iubf":
            raise ValueError(f"action has dtype {action.dtype}; priorities must be numbers")
        return action if action.dtype in KERNEL_TYPES else action.astype(np.float64)

    def _per_env(self, picked: IntArray, amount: FloatArray) -> FloatArray:
        """Return the sum over the picks of each environment, (B,), summed in a fixed order."""
        sums = np.bincount(picked // self.task.n, amount, minlength=self.num_envs)
        return np.asarray(sums, dtype=np.float64)  # of nothing, bincount returns integers

    def _set_by(self, options: dict[str, Any]) -> tuple[FloatArray | None, FloatArray | None]:
        value, age = given_by(options, self.world.shape, self.world.items is not None)
        if "value" in options and self.world.keeps_items:
            raise ValueError(
                "options['value'] cannot be set if items are stored singly (a trace, "
                "non-exponential decay, capacities, an engine, features such as harvest_age); set "
                "options['age'] instead"
            )
        if "value" in options and self.task.sources.is_signalled:
            raise ValueError(
                "options['value'] cannot be set if sources send signals, since pings announce the "
                "items of which the content consists; set options['age'] instead"
            )
        if value is not None and age is None:
            age = np.ones(self.world.shape)
        return value, age


def reset_options(options: object) -> dict[str, Any]:
    """Return the options of a reset, none if None is given.

    Raises:
        ValueError: they are not a dictionary.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise ValueError(
            f"options is {shown(options)}; give a dictionary of what a reset sets, such as "
            "{'age': ages}, or None"
        )
    return dict(options)


def check_state(state: object, num_envs: int | None = None) -> None:
    """Raise ValueError unless it is a state of an environment, or of `num_envs` in parallel."""
    if not (isinstance(state, Mapping) and {"sources", "elapsed"} <= state.keys()):
        raise ValueError(f"state is {shown(state)}; give what get_state returned")
    theirs, mine = np.shape(state["elapsed"]), () if num_envs is None else (num_envs,)
    if theirs != mine:
        raise ValueError(
            f"the state is of {_described(theirs)}, and this is {_described(mine)}; restore it in "
            "an environment of the same class and number"
        )


def _described(batch: tuple[int, ...]) -> str:
    return f"a vector of {counted(batch[0], 'environment')}" if batch else "a single environment"


def given_by(
    options: dict[str, Any], shape: tuple[int, int], counts: bool
) -> tuple[FloatArray | None, FloatArray | None]:
    """Return the value and the age that options of a reset give, (N,) or (B, N); None for none.

    Arguments:
        shape: (B, N).
        counts: whether the items published since the last crawl are counted.
    """
    for name in options:
        check_choice("reset option", name, OPTIONS)
    value, age = (_option(name, options.get(name), shape) for name in OPTIONS)
    if counts and age is not None and age.max() >= NEVER:
        raise ValueError(
            f"options['age'] reaches {NEVER:g}, which means never crawled; such a source holds "
            "infinitely many items. Leave out the features 'items' and 'changed', or give "
            "smaller ages"
        )
    return value, age


def _option(name: str, value: ArrayLike | None, shape: tuple[int, int]) -> FloatArray | None:
    if value is None:
        return None
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"options[{name!r}] is {value!r}; give one number per source") from None
    n = shape[-1]
    if array.shape not in ((n,), shape):
        raise ValueError(f"options[{name!r}] has shape {array.shape}; give ({n},), one per source")
    if not np.all((array >= 0) & (array <= np.finfo(np.float32).max)):
        raise ValueError(
            f"options[{name!r}] must be zero or positive, and finite in float32, everywhere"
        )
    return array
