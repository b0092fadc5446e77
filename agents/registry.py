"""Agents by name: the single list used by command lines, comparisons and reports.

Agents of one's own are added by `register`, or by an entry point of an installed package in the
group "ephemeral_crawl.agents", which also the command line and other processes find:

    [project.entry-points."ephemeral_crawl.agents"]
    half-whittle = "my_package.agents:HalfWhittle"
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from os import PathLike
from typing import TypedDict, Unpack

from agents.adaptive.engine import AdaptiveEngine
from agents.adaptive.in_context import InContext
from agents.adaptive.policies import Certainty, Optimism, SelfTuning, Thompson
from agents.adaptive.stories import AdaptiveStories
from agents.inference import Estimator
from agents.policies.base import Agent, Environment
from agents.policies.checks import WhittleConditional, WhittleLooks
from agents.policies.deadline import DeadlineAssignment, WhittleDeadline
from agents.policies.engine import WhittleEngine
from agents.policies.freshness import Freshness, FreshnessStatic, LambdaCrawl
from agents.policies.index import Myopic, Whittle, WhittleExact
from agents.policies.industry import Miniflux, Nutch
from agents.policies.knapsack import WhittleKnapsack
from agents.policies.lagrangian import Lagrangian
from agents.policies.periodic import LagrangianPeriodic, WhittlePeriodic
from agents.policies.planner import Planner
from agents.policies.regimes import WhittleCurrent, WhittleRegimes
from agents.policies.simple import Fixed, OldestFirst, PingFirst, Random
from agents.policies.static import Static
from agents.policies.stories import WhittleStories
from agents.policies.topics import GreedyTopics
from crawl_env.errors import shown, unknown

_USUAL: tuple[type[Agent], ...] = (
    Whittle,
    WhittleExact,
    Lagrangian,
    Static,
    Myopic,
    OldestFirst,
    Random,
    Fixed,
    Nutch,
    Miniflux,
    Certainty,
    Optimism,
    Thompson,
    SelfTuning,
)
# Agents that the commands compare only if they are named: they were trained, or made for
# signals, an indexing engine, looks, topics, daily cycles, other payoffs and costs or another
# objective, or see what no crawler does.
_SPECIAL: tuple[type[Agent], ...] = (
    InContext,
    PingFirst,
    Freshness,
    FreshnessStatic,
    LambdaCrawl,
    WhittleEngine,
    AdaptiveEngine,
    WhittleKnapsack,
    WhittlePeriodic,
    LagrangianPeriodic,
    WhittleDeadline,
    DeadlineAssignment,
    WhittleConditional,
    WhittleLooks,
    WhittleCurrent,
    WhittleRegimes,
    GreedyTopics,
    WhittleStories,
    AdaptiveStories,
)
_AGENTS = (*_USUAL, *_SPECIAL)
ON_REQUEST = tuple(agent.name for agent in _SPECIAL)

# The agent classes by name, and what `register` added.
AGENTS: dict[str, Callable[..., Agent]] = {agent.name: agent for agent in _AGENTS}

# References, which are found by name, and are not listed among the agents: they take long.
_REFERENCES: dict[str, Callable[..., Agent]] = {Planner.name: Planner}

GROUP = "ephemeral_crawl.agents"  # of entry points

CLAIRVOYANT = "clairvoyant"  # not an agent: `whittle` with all content observed


class AgentOptions(TypedDict, total=False):
    """Options of some agents, by keyword; each agent's class documents its own."""

    estimator: Estimator | str | None  # of the adaptive agents, see `agents.inference.ESTIMATORS`
    confidence: float  # of adaptive-optimism
    weights: str | PathLike[str] | None  # of in-context, a file
    weight: str  # of the freshness agents, see `agents.theory.freshness.importance`


def register(name: str, factory: Callable[..., Agent]) -> None:
    """Make an agent of one's own known by name to `make`, `evaluate` and `compare`.

    The name is known in this process. The command line and worker processes find agents of
    installed packages by entry points, see the module.

    Arguments:
        name: a name that no other agent has.
        factory: a subclass of `Agent`, such as an `IndexAgent`, or another function called as
            `factory(env, seed=seed, **options)`. If it has `features`, as agents do, `evaluate`
            and `compare` add them to what the environment shows.

    Raises:
        TypeError: the factory cannot be called with an environment and a seed.
        ValueError: the name is taken, unless by a class of the same module and name, as when the
            cell of a notebook is run again.

    >>> from agents import IndexAgent
    >>> class Recent(IndexAgent):
    ...     "Crawls what decays fastest."
    ...     def index(self, value, sources):
    ...         return value * sources.decay_rate
    >>> register("recent", Recent)
    >>> from agents import evaluate
    >>> evaluate("recent", {"budget": 2}, steps=100, seeds=3).reward.round(1)
    array([327.4, 327.4, 327.4])
    >>> _ = AGENTS.pop("recent")
    """
    if not isinstance(name, str) or not name or name != "".join(name.split()):
        raise ValueError(f"name is {shown(name)}; give a word without spaces")
    try:
        inspect.signature(factory).bind(None, seed=None)
    except (TypeError, ValueError) as error:  # some built-in functions have no signature
        raise TypeError(
            f"the factory of agent {name!r} is {factory!r}, which cannot be called as "
            f"factory(env, seed=seed): {error}. Give a subclass of agents.Agent, or such a function"
        ) from None
    owner = AGENTS.get(name) or _REFERENCES.get(name)
    ours = (*_AGENTS, *_REFERENCES.values())
    again = owner is not None and _origin(owner) == _origin(factory) and owner not in ours
    if name == CLAIRVOYANT or not (owner is None or again):
        by = "a reference of agents.evaluate" if owner is None else ".".join(_origin(owner))
        raise ValueError(f"the name {name!r} is taken by {by}; register under another name")
    AGENTS[name] = factory


def find(name: str) -> Callable[..., Agent]:
    """Return the class or factory of an agent, of this package, registered or installed.

    Raises:
        ImportError: an installed agent cannot be loaded.
        ValueError: the name is unknown, or several installed packages have it.
    """
    if factory := AGENTS.get(name) or _REFERENCES.get(name):
        return factory
    from importlib.metadata import entry_points  # takes longer to import than all the agents

    installed = entry_points(group=GROUP)
    points = [point for point in installed if point.name == name]
    if not points:
        names = [*AGENTS, *_REFERENCES, *sorted(point.name for point in installed)]
        refusal = unknown("agent", name, names)
        raise ValueError(
            f"{refusal}. Learners have to be trained: agents.learning.LEARNERS[{shown(name)}] is "
            "the class, if it is one. agents.register adds an agent of one's own, for this "
            "process; an entry point in the group "
            f"{GROUP!r} of an installed package, for all"
        )
    if len(points) > 1:
        packages = ", ".join(str(point.dist.name if point.dist else point) for point in points)
        raise ValueError(
            f"several installed packages have an agent {name!r}: {packages}; uninstall all but one"
        )
    try:
        factory = points[0].load()
    except Exception as error:
        raise ImportError(
            f"the agent {name!r}, installed as {points[0].value!r}, cannot be loaded: {error}"
        ) from error
    register(name, factory)
    return AGENTS[name]


def _origin(factory: Callable[..., Agent]) -> tuple[str, str]:
    name = getattr(factory, "__qualname__", repr(factory))
    return getattr(factory, "__module__", ""), name


def make(
    name: str, env: Environment, *, seed: int | None = None, **options: Unpack[AgentOptions]
) -> Agent:
    """Return an agent by name, for command lines; `Whittle(env)` makes one by class.

    Arguments:
        name: one of `AGENTS`, of an installed package (see `find`), or the reference "planner".
        env: an environment, a vector environment of Gymnasium, or a `VecEnv` of
            Stable-Baselines3, wrapped or not; or its `Task`.
        seed: seed of agents that draw at random.
        **options: options of that agent, such as `estimator` of the adaptive agents, by name
            (`agents.inference.ESTIMATORS`) or as an object.

    Raises:
        TypeError: the agent has no such option, or what is registered makes no agents.
        ValueError: the name is unknown; wrappers change observations or actions; a feature or
            parameter that the agent needs is not observed.

    >>> import crawl_env, gymnasium
    >>> env = gymnasium.make("EphemeralCrawl-v0")
    >>> agent = make("whittle", env)
    >>> observation, _ = env.reset(seed=0)
    >>> int(agent.predict(observation)[0].argmax())
    0
    """
    if name == CLAIRVOYANT:
        raise ValueError(
            f"{CLAIRVOYANT!r} observes what no crawler of this environment can: it is a reference, "
            f"not an agent. agents.evaluate({CLAIRVOYANT!r}, env) measures it; to act on the same "
            "observations, make an environment with observed=True and the agent 'whittle'"
        )
    kind = find(name)
    accepted = [
        option for option in inspect.signature(kind).parameters if option not in ("env", "seed")
    ]
    for option in options:
        if option not in accepted:
            remedy = f"it takes {', '.join(accepted)}" if accepted else "it takes none but seed"
            raise TypeError(f"agent {name!r} has no option {option!r}; {remedy}")
    agent = kind(env, seed=seed, **options)
    if not hasattr(agent, "predict"):
        raise TypeError(
            f"the factory of agent {name!r} returned {shown(agent)}; it must return an agent, an "
            "object with `predict`"
        )
    return agent
