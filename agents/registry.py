"""Agents by name: the single list used by command lines, comparisons and reports."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypedDict, Unpack

from agents.adaptive.estimators import Estimator
from agents.adaptive.policies import Certainty, Optimism, SelfTuning, Thompson
from agents.policies.base import Agent, Environment
from agents.policies.index import Myopic, Whittle, WhittleExact
from agents.policies.industry import Miniflux, Nutch
from agents.policies.lagrangian import Lagrangian
from agents.policies.simple import Fixed, OldestFirst, Random
from agents.policies.static import Static
from crawl_env.errors import unknown

_AGENTS: tuple[type[Agent], ...] = (
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

AGENTS: dict[str, type[Agent]] = {agent.name: agent for agent in _AGENTS}

CLAIRVOYANT = "clairvoyant"  # not an agent; see `agents.evaluation.rollout.REFERENCES`


class AgentOptions(TypedDict, total=False):
    """Options of some agents, by keyword; each agent's class documents its own."""

    estimator: Estimator | str | None  # of the adaptive agents, see `agents.adaptive.ESTIMATORS`
    confidence: float  # of adaptive-optimism


def make(
    name: str, env: Environment, *, seed: int | None = None, **options: Unpack[AgentOptions]
) -> Agent:
    """Return an agent by name, for command lines; `Whittle(env)` makes one by class.

    Arguments:
        name: one of `AGENTS`.
        env: an environment, a vector environment of Gymnasium, or a `VecEnv` of
            Stable-Baselines3, wrapped or not; or its `Task`.
        seed: seed of agents that draw at random.
        **options: options of that agent, such as `estimator` of the adaptive agents, by name
            (`agents.adaptive.ESTIMATORS`) or as an object.

    Raises:
        TypeError: the agent has no such option.
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
    if name not in AGENTS:
        raise unknown("agent", name, AGENTS)
    kind: Callable[..., Agent] = AGENTS[name]
    taken = [
        option for option in inspect.signature(kind).parameters if option not in ("env", "seed")
    ]
    for option in options:
        if option not in taken:
            remedy = f"it takes {', '.join(taken)}" if taken else "it takes none but seed"
            raise TypeError(f"agent {name!r} has no option {option!r}; {remedy}")
    return kind(env, seed=seed, **options)
