"""`TorchSimulation`: the step of `Simulation` on tensors: select, collect, advance, observe."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Generator, Tensor

from crawl_env.content.arrivals import Arrivals, Deterministic
from crawl_env.content.world import NEVER
from crawl_env.device.content import UTILITIES
from crawl_env.device.selection import select_top
from crawl_env.device.world import TorchWorld, host
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.fleet.sources import Sources
from crawl_env.rng import beside, generator
from crawl_env.simulation.observation import COUNTED, SUMMED
from crawl_env.simulation.selection import whole_budget
from crawl_env.simulation.simulation import Harvest, given_by
from crawl_env.simulation.task import Task

_ELSEWHERE = "CrawlVectorEnv, on the CPU, has"


def check_task(task: Task) -> None:
    """Raise ValueError if a task has what is not implemented on tensors."""
    arrivals, fleet = task.arrivals, task.sources
    if isinstance(arrivals, Arrivals):
        is_supported = arrivals.rate.constant and type(arrivals.utility) in UTILITIES
        is_supported = is_supported and arrivals.exponential
    else:
        is_supported = type(arrivals) is Deterministic
    sums = [name for name in SUMMED if name in task.features]
    checks = {
        f"arrivals are {arrivals!r}; here they are deterministic, or Poisson with a constant "
        "rate, exponential decay and a utility of crawl_env.content.utility": not is_supported,
        "budget_rule is 'average'; here the budget is per step": task.budget_rule != "step",
        "some sources have a crawl_delay, which is not supported here": fleet.is_delayed,
        "some sources have a finite capacity, which is not supported here": fleet.is_capped,
        "some sources have a failure_rate, which is not supported here": fleet.fails,
        "some sources send signals, which are not supported here": fleet.is_signalled,
        f"engine is {task.engine!r}, and engines are not supported here": task.engine is not None,
        "look_cost is given, and looks are not supported here": task.look_cost is not None,
        "unchanged_cost is given; here crawls cost the same whatever they find": task.unchanged_cost
        is not None,
        f"payoff is {task.payoff!r}; here the reward is what is collected": task.payoff is not None,
        "a host has more sources than per_host allows crawls of in a step, which is not supported "
        "here": task.hosts is not None,
        f"features has {', '.join(sums)}; here no sums over items are observed": bool(sums),
    }
    for fact, wrong in checks.items():
        if wrong:
            raise ValueError(f"{fact}. {_ELSEWHERE} it")


class TorchSimulation:
    """State and dynamics of B environments of one task, on a device.

    It does what `Simulation` does. Content is drawn by a generator on the device, in a stream of
    the seed of the generator that is given to `reset`; that one draws fleets and random ages.

    Arguments:
        task: the task.
        num_envs: B.
        device, dtype: of the state and the rewards; observations are float32.

    Raises:
        ValueError: the task is not supported on tensors.
    """

    def __init__(self, task: Task, num_envs: int, device: torch.device, dtype: torch.dtype) -> None:
        check_task(task)
        self.task, self.num_envs, self.device, self.dtype = task, num_envs, device, dtype
        hidden = "value" in task.features and not task.observed.all()
        fleet = Sources.stack([task.sources] * num_envs) if task.draw else task.sources
        count = not set(COUNTED).isdisjoint(task.features)
        self.world = TorchWorld(fleet, task.arrivals, num_envs, count, hidden, device, dtype)
        self._observed = torch.tensor(task.observed, device=device)
        self._scales = None if task.scales is None else torch.tensor(task.scales, device=device)
        self._generator: Generator | None = None
        self._picked = torch.empty((num_envs, 0), dtype=torch.int64, device=device)
        self._fresh = torch.ones(num_envs, dtype=torch.bool, device=device)  # no step since reset
        self._value = torch.empty((num_envs, 0), dtype=dtype, device=device)
        self._items: Tensor | None = None
        self._prepare()

    @property
    def harvest(self) -> Harvest:
        """The crawls of the last step and what they collected, as tensors (K,) on the device."""
        first = torch.arange(self.num_envs, device=self.device)[:, None] * self.task.n
        stepped = ~self._fresh
        parts = (first + self._picked, self._value, self._items)
        fields: Any = (None if x is None else x[stepped].reshape(-1) for x in parts)
        return Harvest(*fields)

    def reseed(self) -> None:
        """Seed the generator again at the next step or reset."""
        self._generator = None

    def reset(
        self,
        rng: np.random.Generator,
        mask: NDArray[np.bool_] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Start the environments of the mask (B,), default all; `options` may set value and age."""
        value, age = self._set_by(options or {})
        generator = self._random(rng)
        which = np.ones(self.num_envs, dtype=bool) if mask is None else mask
        numbers = np.flatnonzero(which)
        rows = torch.as_tensor(numbers, device=self.device)
        if self.task.draw is not None:
            fleets = self.task.drawn(self.world.sources, numbers, rng)
            self.world.set_sources(fleets)
            self._prepare()
        if age is None:
            several = numbers.size if self.task.start == "random" else 1
            age = self._steps(self.task.start_ages(several, rng)).expand(numbers.size, -1)
        else:
            age = age.expand(self.world.shape)[rows]
        self.world.start(
            age, rows, generator, None if value is None else value.expand(self.world.shape)[rows]
        )
        self._fresh[rows] = True

    def step(
        self, action: ArrayLike | Tensor, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Crawl the sources selected by the actions and advance by one step; return the
        observations, the rewards (B,) and an empty info.

        Raises:
            ValueError: the actions have another shape, are no numbers, or hold NaN.
        """
        picked = select_top(self._priority(action), self._number, self.world.crawled_at)
        items = self.world.items
        self._items = None if items is None else items.gather(-1, picked)
        self._picked, self._value = picked, self.world.crawl(picked)
        self._fresh.zero_()
        self.world.advance(self._random(rng))
        return self.observe(), self._value.sum(-1), {}

    def observe(self) -> Tensor:
        """Return the observations, (B, N, F), or (B, N·F) if they are flat, float32."""
        features = self.task.features
        columns = [
            self._feature(name).to(torch.float32).expand(self.world.shape) for name in features
        ]
        observation = torch.stack(columns, dim=-1)
        if self._scales is not None:
            observation = _scaled(observation, self._scales)
        return observation.reshape(self.num_envs, -1) if self.task.flat else observation

    def _feature(self, name: str) -> Tensor:
        """Return one feature, of a shape that broadcasts to (B, N)."""
        world = self.world
        if name == "value":
            if world.belief is world.value:
                return world.value
            return torch.where(self._observed, world.value, world.belief)
        if name == "content":
            return torch.where(self._observed, world.value, 0.0)
        if name == "age":
            return world.age
        if name in PARAMETERS:
            return self._parameters[name]
        if name == "rate":  # constant, see `check_task`
            return self._tensor(world.sources.arrival_rate)
        if name == "topic":
            return torch.as_tensor(world.sources.topic_of, device=self.device)
        if name == "available":
            return torch.ones((), device=self.device)
        if name == "balance":
            return torch.full((), self.task.budget, device=self.device)
        out = torch.zeros(world.shape, device=self.device)
        if name in ("failed", "known") or self._picked.shape[1] == 0:
            return out
        outcomes: dict[str, Tensor | None] = {
            "crawled": torch.ones_like(self._value),
            "harvest": self._value,
            "items": self._items,
            "changed": None if self._items is None else self._items > 0,
        }
        values = outcomes[name]
        assert values is not None  # items are counted if a feature needs them
        values = values.to(torch.float32).masked_fill(self._fresh[:, None], 0.0)
        return out.scatter_(-1, self._picked, values)

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the time-dependent state in host memory, as arrays."""
        harvest = self.harvest
        state = None if self._generator is None else host(self._generator.get_state())
        return {
            "world": self.world.get_state(),
            "harvest": Harvest(*(None if x is None else host(x) for x in harvest)),  # type: ignore[arg-type]
            "sources": self.world.sources,
            "device_generator": state,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state returned by `get_state`."""
        if state["sources"] is not self.world.sources:
            self.world.set_sources(state["sources"])
            self._prepare()
        self.world.set_state(state["world"])
        picked, value, items, *_ = state["harvest"]
        which, source = np.divmod(np.asarray(picked, dtype=np.int64), self.task.n)
        stepped = np.bincount(which, minlength=self.num_envs) > 0
        self._fresh = ~torch.as_tensor(stepped, device=self.device)
        k = self._number if stepped.any() else 0
        self._picked = torch.zeros((self.num_envs, k), dtype=torch.int64, device=self.device)
        self._value = torch.zeros((self.num_envs, k), dtype=self.dtype, device=self.device)
        self._items = None if items is None else torch.zeros_like(self._value)
        some = ~self._fresh
        for part, its in ((self._picked, source), (self._value, value), (self._items, items)):
            if part is not None and k:
                part[some] = torch.as_tensor(its).to(part).reshape(-1, k)
        generator_state = state["device_generator"]
        self._generator = None
        if generator_state is not None:
            self._generator = Generator(self.device)
            self._generator.set_state(torch.as_tensor(np.array(generator_state)))

    def generator(self, seed: int) -> np.random.Generator:
        """Return a generator for another future, see `Simulation.generator`."""
        return generator(seed, "planner")

    def _random(self, rng: np.random.Generator) -> Generator:
        if self._generator is None:
            stream: Any = beside(rng, "device").bit_generator.seed_seq
            (seed,) = stream.generate_state(1, np.uint64)
            self._generator = Generator(self.device).manual_seed(int(seed))
        return self._generator

    def _tensor(self, array: ArrayLike) -> Tensor:
        return torch.tensor(np.asarray(array), dtype=self.dtype, device=self.device)

    def _steps(self, age: NDArray[Any]) -> Tensor:
        """Return ages in steps; `NEVER` stands for all that are larger."""
        whole = np.minimum(age, NEVER).astype(np.int32)
        return torch.tensor(whole, device=self.device)

    def _priority(self, action: ArrayLike | Tensor) -> Tensor:
        priority = action if isinstance(action, Tensor) else torch.as_tensor(np.asarray(action))
        if priority.shape != self.world.shape:
            raise ValueError(
                f"action has shape {tuple(priority.shape)}; it must have shape "
                f"{self.world.shape}, one priority for each source"
            )
        if priority.is_complex():
            raise ValueError(f"action has dtype {priority.dtype}; priorities must be numbers")
        if not priority.is_floating_point():
            priority = priority.to(self.dtype)
        return priority.detach().to(self.device)

    def _prepare(self) -> None:
        """Compute what depends on the sources' parameters."""
        sources, task = self.world.sources, self.task
        number = whole_budget(sources.cost, task.budget)
        if number is None:
            raise ValueError(
                f"costs range from {sources.cost.min():g} to {sources.cost.max():g}; here all "
                f"sources cost the same. {_ELSEWHERE} other costs"
            )
        self._number = number
        names = [name for name in PARAMETERS if name in task.features]
        self._parameters = {name: self._tensor(getattr(sources, name)) for name in names}

    def _set_by(self, options: dict[str, Any]) -> tuple[Tensor | None, Tensor | None]:
        arrays = {name: host(x) if isinstance(x, Tensor) else x for name, x in options.items()}
        value, age = given_by(arrays, self.world.shape, self.world.items is not None)
        if age is not None and (np.floor(age) != age).any():
            raise ValueError("options['age'] must be a whole number of steps everywhere")
        if value is not None and age is None:
            age = np.ones(())
        return (
            None if value is None else self._tensor(value),
            None if age is None else self._steps(age),
        )


def _scaled(observation: Tensor, scales: Tensor) -> Tensor:
    """Return the observation scaled as by `crawl_env.simulation.observation.scaled`."""
    bounded = scales.isnan()
    x = observation.to(scales.dtype)
    z = torch.log1p(x.abs() / torch.where(bounded, 1.0, scales))
    mapped = torch.copysign(z / (1 + z), x).to(torch.float32)
    return torch.where(bounded, observation, mapped)
