"""`Experienced`: an agent that learns while it crawls, and has crawled its sources before."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from agents.evaluation.rollout import AgentLike, EnvironmentLike, Rollout
from agents.policies.base import ObservationView, Policy, State, arrays_of, with_arrays
from crawl_env.errors import check_whole
from crawl_env.numerics import FloatArray

# Parts of a recurrent state that an episode begins with, whatever was learnt before it.
_PRESENT = ("age", "pings", "left", "topics")


class Experienced(Policy):
    """An agent with memory as a learner: `learn` lets it crawl, and later episodes begin with what
    it has inferred of the sources by then.

    Time goes on where it stopped: for agents that infer daily cycles, learn for whole days.

    Arguments:
        agent: an adaptive agent, `InContext` or a rule such as `Nutch`, as in `evaluate`.
        env: where it learns, as in `evaluate`, with the sources of later episodes.
        seed: of what arrives while it learns, and of the agent.

    Raises:
        ValueError: the agent keeps no estimates of the sources, or other sources are drawn at each
            reset.

    >>> from agents import compare
    >>> task = {"sources": "table1", "budget": 2, "arrivals": "poisson", "observed": False}
    >>> task["features"] = ("age", "crawled", "harvest")
    >>> agent = Experienced("in-context", task).learn(200)
    >>> found = compare({"new": "in-context", "experienced": agent}, task, steps=99, warmup=0)
    >>> bool(found["experienced"].reward.mean() > found["new"].reward.mean())
    True
    """

    def __init__(self, agent: AgentLike, env: EnvironmentLike, seed: int = 0) -> None:
        self.rollout = Rollout(agent, env, seed=seed)
        self.task = self.rollout.env.task
        self._agent: Any = self.rollout.predictor
        view = self._view(self.rollout.observation)
        began = self._agent.begin(view) if isinstance(self._agent, Policy) else ()
        if not hasattr(began, "age"):
            raise ValueError(
                "the agent keeps no estimates of its sources, with which an episode could begin; "
                "give one that does, such as 'adaptive-self-tuning' or 'in-context'"
            )
        if self.task.draws_anew:
            raise ValueError(
                "the agent learns of the sources that it crawls, and other ones are drawn at each "
                "reset; give an environment of one fleet"
            )

    def learn(self, total_steps: int) -> Self:
        """Crawl for `total_steps` more steps of one environment."""
        for _ in range(check_whole("total_steps", total_steps, 0)):
            self.rollout.step()
        return self

    def begin(self, view: ObservationView) -> State:
        fresh = self._agent.begin(view)
        if self.rollout.state is None:
            return fresh
        copies = (np.repeat(x, view.batch, axis=0) for x in arrays_of(self.rollout.state))
        memory: Any = with_arrays(self.rollout.state, copies)
        present = {name: getattr(fresh, name) for name in _PRESENT if hasattr(fresh, name)}
        if present.get("topics"):  # which of them are hot is new; the law of the regimes is learnt
            present["topics"] = fresh.topics._replace(evidence=memory.topics.evidence)
        return memory._replace(**present)

    def decide(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        return self._agent.decide(view, state)

    def sample(self, view: ObservationView, state: State) -> tuple[FloatArray, State]:
        return self._agent.sample(view, state)
