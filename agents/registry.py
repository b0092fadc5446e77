"""Agents by name, for any environment, however it is wrapped."""

from __future__ import annotations

from typing import Any

from agents.adaptive.policies import Certainty, Optimism, SelfTuning, Thompson
from agents.policies.base import Agent
from agents.policies.industry import Miniflux, Nutch
from agents.policies.lagrangian import Lagrangian
from agents.policies.simple import Fixed, Myopic, OldestFirst, Random
from agents.policies.static import Static
from agents.policies.whittle import Whittle
from agents.policies.whittle_exact import WhittleExact
from crawl_env import task_of
from crawl_env.errors import unknown

_KINDS: tuple[type[Agent], ...] = (
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

AGENTS = {kind.name: kind for kind in _KINDS}

CLAIRVOYANT = "clairvoyant"  # no agent: see `agents.evaluation.rollout.REFERENCES`


def make(name: str, env: Any, seed: int | None = None, **options: Any) -> Agent:
    """Return an agent for an environment.

    Arguments:
        name: one of `AGENTS`: whittle, whittle-exact, lagrangian, static, myopic, oldest-first,
            random, fixed, nutch, miniflux, adaptive-certainty, adaptive-optimism,
            adaptive-thompson, adaptive-self-tuning.
        env: an environment, a vector environment of Gymnasium, or a `VecEnv` of
            Stable-Baselines3, wrapped or not; or its `Task`.
        seed: for agents that draw at random.
        **options: of that agent, such as `estimator` of the `adaptive-` ones, by name
            (`agents.adaptive.ESTIMATORS`) or as an object.

    Raises:
        TypeError: the agent has no such option.
        ValueError: unknown name; wrappers that change observations or actions; a feature or
            parameter that the agent needs is not shown.

    >>> import crawl_env, gymnasium
    >>> env = gymnasium.make("EphemeralCrawl-v0")
    >>> agent = make("whittle", env)
    >>> observation, _ = env.reset(seed=0)
    >>> int(agent.predict(observation)[0].argmax())
    0
    """
    if name == CLAIRVOYANT:
        raise ValueError(
            f"{CLAIRVOYANT!r} sees what no crawler of this environment sees: it is a reference, "
            f"not an agent. evaluate({CLAIRVOYANT!r}, arguments) of agents.evaluation measures "
            "it; to act on what it sees, make an environment with observed=True and agent 'whittle'"
        )
    if name not in AGENTS:
        raise unknown("agent", name, AGENTS)
    return AGENTS[name](task_of(env), seed=seed, **options)
