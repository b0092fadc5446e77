"""CrawlEnv: timely crawling as a Gymnasium environment."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Unpack

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from crawl_env.content.world import World
from crawl_env.envs.spec import TruthfulSpec
from crawl_env.errors import check_choice
from crawl_env.fleet.sources import Sources
from crawl_env.rng import check_seed
from crawl_env.simulation.simulation import Simulation, check_state
from crawl_env.simulation.task import Fleet, Task, TaskOptions, suggest_arguments

_NOT_RESET = np.inf


class CrawlEnv(  # type: ignore[misc]  # `spec` is a property
    TruthfulSpec, gym.Env[NDArray[np.float32], NDArray[np.float32]]
):
    """Restless bandit of N ephemeral sources, some of which are crawled in every step.

    ## Description
    N sources publish items, and the utility of an item decays as exp(−μ·age). In every step the
    crawler observes the sources, selects some of them within a budget, and collects all of their
    uncollected utility X. The reward is Σ_{i∈S} X_i(t), and the state evolves as
    X_i(t+1) = α_i X_i(t)·[i∉S] + U_i(t+1). This is the restless bandit of Avrachenkov & Borkar
    (2015), for which Whittle's index policy and upper bounds are known.

    ## Action Space
    `Box` (−1, 1, (N,)), float32: a priority for each source. Sources are crawled in decreasing
    priority; ties go to the source crawled longer ago, then to the lower number. A source is
    skipped if its cost exceeds the remaining budget, if its crawl delay has not passed since the
    last attempt, or if its host has reached its limit of crawls per step. Under
    `budget_rule="average"` only sources of priority ≥ 0 are crawled. The wrappers
    `SequentialSelection` and `SubsetAction` (crawl_env.envs.wrappers) have discrete actions.

    With `look_cost` the space is `Box` (−1, 1, (2, N)): the first row has the priorities of crawls,
    the second those of looks, and both are ranked together. An action of shape (N,) takes no looks.

    ## Observation Space
    `Box` (N, F), float32: a row for each source and a column for each of `features`, in order.
    `flat=True` joins the rows, to (N·F,).

    | feature | meaning | min | max | scale s |
    | --- | --- | --- | --- | --- |
    | `value` | uncollected utility; if unobserved, the belief (its posterior mean) | 0 | ∞ | u |
    | `age` | steps since the last crawl; 1e9: never crawled | 0 | ∞ | ΣC/M |
    | `available` | 0 if the crawl delay does not allow a crawl yet, else 1 | 0 | 1 | – |
    | `balance` | budget units that can be spent now, the same in every row | −∞ | ∞ | M |
    | `crawled` | 1 if the last step crawled the source successfully | 0 | 1 | – |
    | `failed` | 1 if the last step's crawl failed, in which case the age is not reset | 0 | 1 | – |
    | `harvest` | utility collected in the last step | 0 | ∞ | u |
    | `items` | new items collected in the last step | 0 | ∞ | 1 |
    | `changed` | 1 if the last step collected a new item | 0 | 1 | – |
    | `arrival_rate` | Λ, items / time | 0 | ∞ | median |
    | `mean_utility` | ξ̄, utility / item | 0 | ∞ | median |
    | `decay_rate` | μ, 1 / time | 0 | ∞ | median |
    | `cost` | C, budget units | 0 | ∞ | median |
    | `harvest_number` | n, items collected in the last step that still have utility | 0 | ∞ | 1 |
    | `harvest_age` | Σ a over these items, a: age when collected, in time | 0 | ∞ | ΣC/M·T |
    | `harvest_age_squared` | Σ a² | 0 | ∞ | (ΣC/M·T)² |
    | `harvest_log` | Σ ln w, w: utility when collected | −∞ | ∞ | 1 |
    | `harvest_age_log` | Σ a ln w | −∞ | ∞ | ΣC/M·T |
    | `pings` | number of pings in the last step | 0 | ∞ | 1 |
    | `pings_aged` | Σ e^{−μ·age} over the pings since the last crawl; with a delay see Signals | 0 | ∞ | 1 |
    | `backlog` | items that wait to be indexed, the same in every row | 0 | ∞ | s or 1 |
    | `topic` | number of the source's topic, see `Sources`; the source's own number without labels | 0 | ∞ | 1 |
    | `rate` | arrival rate of the next step, items / time; for references, since no crawler knows it | 0 | ∞ | median of Λ |
    | `steps_left` | steps of the batch after this one, the same in every row; 0 without a deadline | 0 | ∞ | ΣC/M |
    | `seen` | steps since the last crawl or look; 0: a look shows the content in this observation | 0 | ∞ | ΣC/M |
    | `shown` | uncollected utility that a look in the last step shows; 0 where there was none | 0 | ∞ | u |
    | `known` | number of items collected in the last step whose story had been paid before; 0 without `Stories` | 0 | ∞ | 1 |
    | `content` | uncollected utility of the sources that are observed; 0 for the others, whatever they have | 0 | ∞ | u |

    `scaled=True` maps every feature x that has a scale s to sign(x)·z/(1 + z), z = ln(1 + |x|/s).
    The map is strictly increasing, within (−1, 1), or [0, 1) if x ≥ 0: s becomes .41, 10 s
    .71 and 100 s .82, and the age 10⁹ becomes .95 at s = 4. `Task.natural` inverts the map. Agents
    apply this inverse, so that they select the same sources with and without `scaled`, up to the
    rounding to float32 that is described there.

    The scales are defined as follows. ΣC/M is the number of steps, at least 1, in which every
    source can be crawled once. T is the period. The scale of `backlog` is the rate of the engine if
    it is finite, else 1. Medians are over the sources whose parameter is positive; if fleets are
    drawn at reset, they are those of an example. u is the median ceiling (mean utility of a source
    never crawled) if the features include `value`, `rate` or a parameter other than `cost`.
    Otherwise u is 1, so that scales do not reveal parameters which the crawler does not know.

    The features from `harvest_number` to `harvest_age_log` are the sufficient statistics of a
    regression of ln w on a, whose slope is −μ. They, `items` and `changed` require a log, or arrivals
    that draw single items, such as "poisson-items". Under deterministic arrivals `items` is the mean
    number.

    ## Rewards
    The reward is the utility collected in this step or, with an indexing engine, indexed in it. A
    payoff changes it:

    - With `payoff=Deadline(steps=D)` items pay the utility that is left of them at the end of a
      batch of D steps: the reward is Σ_{i∈S} e^{−μ_iTl}·X_i(t), where l is `steps_left`, the number
      of steps of the batch after this one. The first batch begins with the episode.
    - With `payoff=DiminishingReturns(limit=B)` the reward is Σ_g B(1 − e^{−Y_g/B}), where Y_g is the
      utility collected in this step from the sources of topic g (`Sources.topics`).

    ## Starting State
    | `start` | state |
    | --- | --- |
    | `"fresh"` | all sources were crawled one step ago |
    | `"empty"` | X = 0 |
    | `"full"` | no source was ever crawled |
    | `"random"` | ages are uniform on 1 … ⌈N/M⌉ |

    `reset(options={"value": …, "age": …})` sets the state instead; both are of shape (N,). If only
    `value` is given, the age is 1. The belief starts at the given value.

    ## Episode End
    Episodes never terminate. They are truncated after `horizon` steps, or earlier if `gym.make` is
    given a smaller `max_episode_steps`; `env.spec.max_episode_steps` is the smaller of both. A log
    is repeated from its start when it ends.

    ## Info
    `step` returns a dictionary with these keys; `reset` returns that of a step without crawls:

    | key | meaning | only with |
    | --- | --- | --- |
    | `crawled` | (N,), whether the source was crawled successfully | |
    | `collected` | (N,), the utility collected | |
    | `cost` | budget units spent in this step | |
    | `balance` | budget units that can be spent in the next step | `budget_rule="average"` |
    | `failed` | (N,), whether the crawl failed | failure rates |
    | `looked` | (N,), whether the source was looked at | `look_cost` |
    | `known` | (N,), number of items collected whose stories had been paid before | `Stories` |
    | `engine` | dictionary of what happened to the items, see below | an indexing engine |

    ## Arguments
    `EphemeralCrawl-v0` has the defaults below. `EphemeralCrawlFlat-v0` is the environment with
    `flat=True, scaled=True`, and `EphemeralCrawlDiscrete-v0` is the same with the actions of
    `SubsetAction`.

    | argument | type | default | meaning |
    | --- | --- | --- | --- |
    | `sources` | `Sources`, str, path, dict or callable | `"table1"` | the fleet: an object, or a dictionary of its arguments; a preset ("table1", "fleet-f", "recovering-<n>", "hacker-news"; see `Sources.preset`); a CSV; or `rng → Sources`, drawn at each reset (N, period and limits fixed) |
    | `budget` | float | `1.0` | M > 0, budget units per step |
    | `budget_rule` | `"step"`, `"average"` | `"step"` | "step": Σ cost ≤ M in every step; "average": a token bucket, whose balance grows by M per step; sources are selected while it is positive, so that the last selection may leave it negative |
    | `arrivals` | str, path, dict or object | `None` | the arrival process, see below; None: "poisson-items" if some source sends signals or there is an engine, else "poisson" with `look_cost` or `unchanged_cost`, else "deterministic" |
    | `observed` | bool or (N,) bool | `None` | whether the value of each source is observed; None: it is observed of the sources without signals, and of none with `look_cost` |
    | `signals` | `Signals`, str, path or dict | `None` | pings that announce items, see below; None: those of the fleet's columns `recall`, `precision` and `signal_delay`, if it has them |
    | `engine` | `Engine` or dict | `None` | the indexing engine, see below; None: items are indexed when they are collected |
    | `payoff` | `Deadline`, `DiminishingReturns` or dict | `None` | how the collected utility is rewarded, see Rewards; None: the reward is the utility |
    | `features` | sequence of str | `("value",)` | columns of the observation |
    | `flat` | bool | `False` | whether the observation has the shape (N·F,), for libraries that need vectors |
    | `scaled` | bool | `False` | whether unbounded features are mapped to (−1, 1), see Observation Space |
    | `horizon` | int or None | `500` | steps per episode; None: no truncation |
    | `start` | `"fresh"`, `"empty"`, `"full"`, `"random"` | `"fresh"` | starting state |
    | `per_host` | int | `1` | maximum number of crawls per step, failed ones included, of the sources that share a host |
    | `look_cost` | float or None | `None` | budget units of a look, see below; None: there are no looks |
    | `unchanged_cost` | float or None | `None` | budget units of a crawl that finds nothing, see below; None: it costs as much as any crawl |
    | `render_mode` | `"rgb_array"`, `"human"`, `"ansi"`, None | `None` | pictures, a window, or text |

    Arrivals are "deterministic", random, recorded (the path of a log, .csv, .csv.gz or .parquet, or
    a `Trace(log)`), or a custom `ArrivalProcess`. Random arrivals are
    `Arrivals(rate=…, utility=…, decay=…, sampler=…)`. They have short names of the form
    "poisson[-rate][-utility][-decay][-items]", for example "poisson", "poisson-items" or
    "poisson-drift-lognormal-lomax":

    | part | name | object |
    | --- | --- | --- |
    | rate, with mean `arrival_rate` | – | constant |
    | | drift | `Drift(sigma=0.1, reversion=0.01)`: ln Λ is a mean-reverting random walk |
    | | jumps | `Jumps(rate=0.01, distribution="gamma")`: redrawn at random times |
    | | cycle | `DailyCycle(amplitude=0.5, day=24, phase=0)`: periodic |
    | | hawkes | `Hawkes(branching=0.5, kernel_rate=1)`: items excite further ones |
    | | regimes | `Regimes(ratio=9, switch=0.01)`: every topic is hot or cold, see `Sources.topics` |
    | utility | exponential (default), constant, lognormal, gamma | `crawl_env.content.utility` |
    | decay | – (exponential), stretched, lomax | `crawl_env.content.utility` |
    | sampler | – | "total": one number per source and step |
    | | items | "items": each item is drawn |

    The features `items`, `changed` and `harvest_…`, and finite capacities, require single items,
    which Hawkes rates, non-exponential decay and logs always draw. With `Stories(overlap=…, lag=…)`
    the sources of a topic report the same stories, each of which pays once. A dictionary of a name
    and parameters stands for an object, for example `{"name": "poisson", "rate": {"name": "drift",
    "sigma": 0.2}}`, or `{"name": "trace", "log": "items.csv", "random_start": False}`.

    Arrivals depend on the process and the seed alone, neither on actions nor on what is observed:
    with the same seed every policy faces the same content. Agents and beliefs use `arrival_rate`
    only. For evaluation, `env.unwrapped.world.rate`, (1, N), and the feature `rate` have the current
    rate.

    Crawl delays, capacities, failure rates, hosts and topics are parameters of the fleet, see
    `Sources`. A failed crawl costs as much as a successful one and leaves the content in place.
    Under deterministic arrivals the content of a source with a capacity is the mean under Poisson
    arrivals.

    ## Signals
    Sources may announce items by pings (WebSub, sitemaps, webhooks), some of which are false or
    missing. An item triggers a ping with probability r, the recall, after an exponential time of
    mean d, the delay; false pings arrive at such a rate that a fraction p of all pings, the
    precision, is true. A ping says which source it is from and nothing else. `signals` takes
    `Signals(recall, precision, delay)` of numbers or one per source, a dictionary of these, a name
    ("perfect", "websub", "webhook", "sitemap"; see `Signals`), or the path of a log of pings, which
    is replayed with the log of items that it belongs to.

    A fleet may mix observed sources, sources with signals and sources without; an unobserved source
    without signals is the case r = 0. The belief of a source with signals is its mean value given
    the times of the crawls and the pings. Without delay it is
    (1 − r)Λξ̄(1 − e^{−μτ})/μ + pξ̄ Σ e^{−μa} = (1 − r)Λξ̄(1 − e^{−μτ})/μ + pξ̄·`pings_aged`, where
    τ is the time since the crawl and a the age of a ping. With a delay, let k = μ + 1/d. The belief
    is larger by rΛξ̄(1 − e^{−kτ})/k, the mean of the items whose pings are on the way, and the terms
    of `pings_aged` have the factor (1 − e^{−k(τ − a)})/(1 + μd). At sources of finite capacity only
    the part without pings is limited.

    Pings have a random stream of their own. Arrivals are therefore the same with and without
    signals, and pings do not depend on what is crawled or observed. Signals need arrivals that draw
    single items, and exclude setting the value by `reset(options=…)`.

    ## Indexing engine
    With `engine=Engine(rate, capacity, discipline, service, threshold)` the items that crawls
    collect join a queue, and their utility is the reward of the step in which they are indexed. In
    a step, in this order:

    1. The crawls collect the items that have utility left.
    2. Those worth less than the threshold κ are refused.
    3. The others join the queue. Under "fifo" they stand behind those that wait, in the order of
       their sources' numbers, and the newest item of a source first. Under "value" the queue is
       ordered by present utility.
    4. The engine indexes up to s items from the front of the queue, new ones included.
    5. Of the remaining items the first K stay; the others are lost.
    6. Time passes: waiting items decay like uncollected ones, and leave the queue when they have no
       utility left.

    An engine that is fast enough therefore gives exactly the rewards without one, whatever K is.
    The feature `backlog` is the number of items that wait before step 1. `info["engine"]` has arrays
    of shape (2,), the number and the utility of the items that were `collected`, `refused`,
    `indexed` or `lost`, that `decayed` while they waited (the number is of those without any utility
    left), and that are in the `backlog` after step 6. They balance: collected + the backlog before =
    refused + indexed + lost + decayed + backlog.

    Engines need arrivals that draw single items, and exclude setting the value by
    `reset(options=…)`. "poisson" service has a random stream of its own: what arrives, which pings
    are sent and what the engine can do depend neither on each other nor on what is crawled.

    ## Looks and cheap crawls
    With `look_cost=c` a source can be looked at for c budget units, for example by a HEAD request. A
    look collects nothing, and shows the content in the next observation, as if the source were
    observed then: the belief `value` and the feature `shown` are the content, and `seen` is 0.
    Crawls and looks are selected together, in decreasing priority, under one budget. Crawl delays
    and hosts do not limit looks. Looks do not change what arrives.

    With `unchanged_cost=c` a crawl of a source that has nothing costs c instead of C, like a
    conditional GET that is answered by "304 Not Modified". Since this is not known in advance, a
    source is skipped if its full cost C exceeds the remaining budget. Otherwise it is crawled, c or
    C is deducted, and the next source is tried. The number of crawls in a step is therefore random,
    and what is left of the budget at its end, less than C, is lost under `budget_rule="step"` and
    kept under "average".

    Both need random arrivals. Looks also need exponential decay, which logs without decay curves
    have, and sources without capacities and signals.

    ## Registration
    Importing `crawl_env` registers the ids. Gymnasium 1 loads no plugins. Where the package has not
    been imported, as in spawned processes (`AsyncVectorEnv(…, context="spawn")`, remote workers)
    and configuration files, prefix the id with it: `gym.make("crawl_env:EphemeralCrawl-v0")`.

    `env.spec` can be written as JSON: `gym.make(EnvSpec.from_json(env.spec.to_json()))` makes the
    same environment. `to_json` refuses callables, and arrivals of a class of your own.

    Raises:
        TypeError: an argument is unknown.
        ValueError: an argument is out of range, or arguments are incompatible.

    ## References
    K. E. Avrachenkov, V. S. Borkar: Whittle index policy for crawling ephemeral content,
    Inria RR-8702, 2015; arXiv 1503.08558.

    >>> env = gym.make("EphemeralCrawl-v0", budget=2)
    >>> observation, info = env.reset(seed=0)
    >>> observation, reward, *_, info = env.step(np.array([1, 0.5, 0, 0], dtype=np.float32))
    >>> round(reward, 3), info["crawled"].tolist(), info["cost"]
    (327.447, [True, True, False, False], 2.0)
    """  # noqa: E501

    metadata: dict[str, Any] = {  # noqa: RUF012 (declared by Gymnasium)
        "render_modes": ["rgb_array", "human", "ansi"],
        "render_fps": 4,
    }
    observation_space: spaces.Box[np.float32]
    action_space: spaces.Box[np.float32]

    @suggest_arguments
    def __init__(
        self,
        sources: Fleet = "table1",
        budget: float = 1.0,
        *,
        render_mode: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        if render_mode is not None:
            check_choice("render_mode", render_mode, self.metadata["render_modes"])
        self.task = Task(sources, budget, **options)
        self.observation_space = self.task.observation_space
        self.action_space = self.task.action_space
        self._episode_length = self.task.horizon
        self.render_mode = render_mode
        self._simulation = Simulation(self.task)
        self._elapsed: float = _NOT_RESET  # steps
        self._horizon = np.inf if self.task.horizon is None else self.task.horizon
        self._rewards: list[float] = []  # recorded only if a render mode is set
        self._viewer: Any = None

    @property
    def unwrapped(self) -> CrawlEnv:
        return self

    @property
    def sources(self) -> Sources:
        """The fleet of this episode, whether its parameters are observed or not."""
        now = self._simulation.world.sources
        return now if self.task.draw is None else now.fleet(0)

    @property
    def world(self) -> World:
        """The true state, not a copy; for evaluation and planning, not for agents."""
        return self._simulation.world

    @property
    def portable_task(self) -> Task:
        """The task in a form that can be sent to another process; see `Task.portable`."""
        return self.task.portable()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=check_seed(seed))
        self._simulation.reset(self.np_random, options=options)
        self._elapsed = 0
        self._rewards = []
        if self.render_mode == "human":
            self.render()
        return self._simulation.observe(), self._simulation.info()

    def step(
        self, action: ArrayLike
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        if self._elapsed == _NOT_RESET:
            raise gym.error.ResetNeeded("call env.reset() before the first env.step()")
        rng: Any = self._np_random
        observation, rewards, info = self._simulation.step(action, rng)
        reward: float = rewards.item()
        self._elapsed += 1
        if self.render_mode is not None:
            self._rewards.append(reward)
            if self.render_mode == "human":
                self.render()
        truncated = self._elapsed >= self._horizon
        return observation, reward, False, truncated, info

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the whole state, including that of the random generator."""
        generator = deepcopy(self.np_random.bit_generator.state)
        return {**self._simulation.get_state(), "elapsed": self._elapsed, "generator": generator}

    def set_state(self, state: dict[str, Any], *, seed: int | None = None) -> NDArray[np.float32]:
        """Restore a state returned by `get_state`; return its observation.

        Arguments:
            state: a state of this environment, or of another one of the same task.
            seed: of what is random from here on (content, rates, failures, fleets drawn at reset).
                None continues the generator in the state, so that the same actions meet the same
                content; a planner must give a seed, or it sees the true future. The seed differs
                from an equal one of `reset`. The present is restored as it is, including content
                and rates that are not observed.

        Raises:
            ValueError: `seed` is given and arrivals are a log, whose future no seed changes; or it
                is no state, or one of other sources or of parallel environments, or lacks what this
                task needs, such as the state of changing rates.

        >>> env = gym.make("EphemeralCrawl-v0", arrivals="poisson").unwrapped
        >>> _ = env.reset(seed=0)
        >>> state = env.get_state()
        >>> rewards = []
        >>> for seed in (None, None, 1, 2):
        ...     _ = env.set_state(state, seed=seed), env.step(np.array([-1, 1, -1, -1]))
        ...     rewards.append(round(env.step(np.array([-1, 1, -1, -1]))[1]))
        >>> rewards[0] == rewards[1], len(set(rewards))
        (True, 3)
        """
        check_state(state)
        future = None if seed is None else self._simulation.generator(seed)
        # The state has the streams beside it, which a reset without a seed continues.
        self.world.seed_beside(self.np_random)
        self._simulation.set_state(state)
        self._elapsed, self._rewards = state["elapsed"], []
        if future is None:
            self.np_random.bit_generator.state = deepcopy(state["generator"])
        else:
            self.np_random = future
            self.world.seed_beside(future)
        return self._simulation.observe()

    def render(self) -> Any:
        """Return a picture (H, W, 3) uint8, show it in a window, or return text with one line per
        source (a summary for large fleets)."""
        from crawl_env import rendering

        if self.render_mode is None:
            gym.logger.warn("render() needs a render_mode; pass one to gym.make")
            return None
        frame = rendering.Frame.of(self._simulation, self._elapsed, self._rewards)
        if self.render_mode == "ansi":
            return rendering.text(frame)
        if self._viewer is None:
            self._viewer = rendering.Viewer(self.render_mode, self.metadata["render_fps"])
        return self._viewer.show(frame)

    def close(self) -> None:
        if self._viewer is not None:
            self._viewer.close()
            self._viewer = None
