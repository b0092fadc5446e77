"""CrawlEnv: a crawl as a Gymnasium environment."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike, NDArray

from crawl_env.content.world import World
from crawl_env.errors import unknown
from crawl_env.fleet.sources import Sources
from crawl_env.simulation.simulation import Crawl
from crawl_env.simulation.task import Task


class CrawlEnv(gym.Env[NDArray[np.float32], Any]):
    """Which M of N sources of ephemeral content should be fetched in this epoch?

    ## Description
    N sources publish items; interest in an item falls as exp(−μ·age). At every epoch the crawler
    sees what it may see, chooses which sources to crawl, and collects all that waits there:
    reward Σ_{i∈S} X_i(t), then X_i(t+1) = α_i X_i(t)·[i∉S] + U_i(t+1). This is the restless
    bandit of Avrachenkov & Borkar (2015), whose best policies and bounds are known.

    ## Observation
    `Box` (N, F), float32: one row a source, one column for each of `features`, in their order:
    `value` what waits, or its belief where not observed; `age` epochs since the last crawl (1e9:
    never); `crawled`, `harvest`, `items` whether it was crawled in the last epoch, the utility
    and the number of new items this brought; `arrival_rate`, `mean_utility`, `decay_rate`,
    `cost` the true parameters; `balance` the budget units that can be spent now, in every row;
    `available` 0 where a crawl delay does not yet allow a crawl, else 1; `failed` whether its crawl
    failed in the last epoch (`crawled` is then 0, and the age goes on);
    `changed` whether a crawl in the last epoch found a new item; and of the items found that were
    still worth something `harvest_number` n, `harvest_age` Σa, `harvest_age_squared` Σa²,
    `harvest_log` Σ ln w and `harvest_age_log` Σ a ln w, where a is an item's age when collected, in
    units of time, and w its worth then: what a regression of ln w on a needs, whose slope is −μ.
    All six are 0 where nothing was found. They take longer where much is published, since items
    are then drawn one by one; the sums are refused under deterministic arrivals.

    ## Action
    `Box` (−1, 1, (N,)), float32: a priority for each source. Sources are crawled in decreasing
    priority; ties go to the source crawled longer ago, then to the lower number. A source that
    does not fit the budget is skipped, and so is one that may not be crawled now: its crawl delay
    has not passed since the last attempt, or its host has had its crawls of this step. Under
    `budget_rule="average"` only sources of priority ≥ 0 are crawled. The wrappers
    `SequentialSelection` and `SubsetAction` (crawl_env.envs.wrappers) have discrete actions.

    ## Reward
    The utility collected.

    ## Start
    `start="fresh"`: all sources crawled one epoch ago; `"empty"`: X = 0; `"full"`: never crawled;
    `"random"`: ages uniform on 1 … ⌈N/M⌉. `reset(options={"value": …, "age": …})` sets them
    (age 1 where only value is given); the crawler is told, so the belief starts there too.

    ## Episode end
    Never terminated; truncated after `horizon` epochs, or never if it is None. A log that is played
    back goes on from its beginning when it ends.

    ## Arguments
    - `sources`: a `Sources`, the name of a preset ("table1", "fleet-f", "recovering-<n>",
      "hacker-news"; see `Sources.preset`), the path of a CSV, or a callable
      `rng → Sources` drawn anew at each reset (N and period fixed; also called once when the
      environment is made, to learn N). Default "table1".
    - `budget`: M > 0, the cost that one epoch's crawls may have. Default 1.
    - `budget_rule`: "step" (Σ cost ≤ M in every epoch) or "average": a balance starts at 0 and
      gains M every epoch; sources are taken while it is positive, the last may overdraw it.
    - `arrivals`: "deterministic" (default), "poisson" or "poisson-exponential" (exponential ξ),
      "poisson-constant", "poisson-lognormal" (σ = 1.2), "poisson-gamma" (shape 2); interest falls
      exponentially, or as in "poisson-stretched", "poisson-lomax", "poisson-gamma-lomax", …; the
      path of a log to play back (.csv, .csv.gz, .parquet; see
      `crawl_env.content.arrivals.make_arrivals`); or an object such as `Trace(items)` or
      `Poisson(Lognormal(0.5), LomaxDecay(3))`; see `crawl_env.content` and
      `crawl_env.Arrivals`. Rates change with time under

      | name | object | law of the rate, whose mean is `arrival_rate` |
      | --- | --- | --- |
      | "poisson-drift" | `Drift(sigma=0.1, reversion=0.01)` | ln Λ a walk with reversion |
      | "poisson-jumps" | `Jumps(rate=0.01, law="gamma")` | drawn anew at random times |
      | "poisson-cycle" | `DailyCycle(amplitude=0.5, day=24, phase=0)` | the same every day |
      | "poisson-bursts" | `Bursts(branching=0.5, decay=1)` | Hawkes: every item brings more |

      each with `poisson=Poisson(…)` for other laws of utility and decay. Agents and beliefs
      know `arrival_rate` alone; `env.unwrapped.world.rate`, (1, N), tells those who
      evaluate the rate of the moment.
    - `observed`: True (default), False, or a mask (N,): which sources show their value.
    - `features`: names of the channels above. Default ("value",).
    - `per_host`: crawls that sources with the same host may have in an epoch, failed ones too.
      Default 1; without `hosts` in the fleet it means nothing.
    - `horizon`: epochs or None; default 500.
    - `start`: see above.
    - `render_mode`: "rgb_array", "human", "ansi" or None.

    Crawl delays, capacities, failure rates and hosts belong to the fleet; see `Sources`. A crawl
    that fails costs its budget, brings nothing and leaves what waits. Under deterministic arrivals
    a source with a capacity holds the mean of Poisson arrivals.

    Arrivals do not depend on actions: the same seed brings the same content to every policy.

    ## References
    K. E. Avrachenkov, V. S. Borkar: Whittle index policy for crawling ephemeral content,
    Inria RR-8702, 2015; arXiv 1503.08558.

    >>> env = gym.make("EphemeralCrawl-v0", budget=2)
    >>> observation, info = env.reset(seed=0)
    >>> observation, reward, *_ = env.step(np.array([1, 0.5, 0, 0], dtype=np.float32))
    >>> round(reward, 3)
    327.447
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (declared by Gymnasium)
        "render_modes": ["rgb_array", "human", "ansi"],
        "render_fps": 4,
    }

    def __init__(self, render_mode: str | None = None, **arguments: Any) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise unknown("render_mode", render_mode, self.metadata["render_modes"])
        self.task = Task.from_arguments(arguments)
        self.observation_space = self.task.observation_space
        self.action_space = self.task.action_space
        self.render_mode = render_mode
        self._crawl = Crawl(self.task)
        self._elapsed: float = np.inf  # epochs; infinite before the first reset
        self._horizon = np.inf if self.task.horizon is None else self.task.horizon
        self._rewards: list[float] = []  # kept only where something is rendered
        self._viewer: Any = None

    @property
    def sources(self) -> Sources:
        """The fleet of this episode, whether the crawler knows it or not."""
        now = self._crawl.world.sources
        return now if self.task.draw is None else now.row(0)

    @property
    def world(self) -> World:
        """What really waits at the sources, live: for evaluation and planning, not for agents."""
        return self._crawl.world

    @property
    def portable_task(self) -> Task:
        """The task as it can be sent to another process; see `Task.portable`."""
        return self.task.portable()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._crawl.reset(self.np_random, options=options)
        self._elapsed = 0
        self._rewards = []
        if self.render_mode == "human":
            self.render()
        return self._crawl.observe()[0], {}

    def step(
        self, action: ArrayLike
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        if self._elapsed == np.inf:
            raise gym.error.ResetNeeded("call env.reset() before the first env.step()")
        reward: float = self._crawl.step(action, self._np_random).item()  # type: ignore[arg-type]
        self._elapsed += 1
        if self.render_mode is not None:
            self._rewards.append(reward)
            if self.render_mode == "human":
                self.render()
        return self._crawl.observe()[0], reward, False, self._elapsed >= self._horizon, {}

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the whole state, its random generator included."""
        generator = deepcopy(self.np_random.bit_generator.state)
        return {**self._crawl.get_state(), "elapsed": self._elapsed, "generator": generator}

    def set_state(self, state: dict[str, Any]) -> NDArray[np.float32]:
        """Return to a state of `get_state`, as if never left; return the observation there."""
        self._crawl.set_state(state)
        self._elapsed, self._rewards = state["elapsed"], []
        self.np_random.bit_generator.state = deepcopy(state["generator"])
        return self._crawl.observe()[0]

    def render(self) -> Any:
        """Return a picture (H, W, 3) uint8, show it in a window, or return a text (a line
        a source, or a summary of many)."""
        from crawl_env import rendering

        if self.render_mode is None:
            gym.logger.warn("render() needs a render_mode; give one to gym.make")
            return None
        frame = rendering.Frame.of(self._crawl, self._elapsed, self._rewards)
        if self.render_mode == "ansi":
            return rendering.text(frame)
        if self._viewer is None:
            self._viewer = rendering.Viewer(self.render_mode, self.metadata["render_fps"])
        return self._viewer.show(frame)

    def close(self) -> None:
        if self._viewer is not None:
            self._viewer.close()
            self._viewer = None
