"""Agents that learn from interaction alone: the closed-form index is no part of them."""

from __future__ import annotations

from os import PathLike

from agents.learning import storage
from agents.learning.arms import Arms
from agents.learning.base import Learner
from agents.learning.fleet.index import EquivariantIndex
from agents.learning.fleet.ppo import EquivariantPPO
from agents.learning.neural.deeptop import DeepTOP
from agents.learning.neural.neurwin import NeurWIN
from agents.learning.neural.qwinn import QWINN
from agents.learning.sb3.learners import STABLE
from agents.learning.tabular.lagrange_q import LagrangeQ
from agents.learning.tabular.lspe import LSPE
from agents.learning.tabular.whittle_q import WhittleQ
from agents.learning.tabular.wiql import WIQL
from crawl_env import CrawlVectorEnv
from crawl_env.errors import unknown

LEARNERS: dict[str, type[Learner]] = {
    learner.name: learner
    for learner in (
        WhittleQ,
        LagrangeQ,
        LSPE,
        WIQL,
        NeurWIN,
        DeepTOP,
        QWINN,
        EquivariantPPO,
        EquivariantIndex,
    )
} | {learner.name: learner for learner in STABLE}


def load(path: str | PathLike[str], arms: CrawlVectorEnv | Arms, device: str = "cpu") -> Learner:
    """Return the agent that was saved in a file, whichever learner it is; see `Learner.load`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file is none of this project's, or does not go with the environment.

    >>> import tempfile
    >>> env = CrawlVectorEnv(features=("age", "crawled", "harvest"))
    >>> path = tempfile.mkdtemp() + "/agent.safetensors"
    >>> WhittleQ(env).learn(100).save(path)
    >>> load(path, env).epochs
    100
    """
    name = storage.load(path)["agent"]
    if name not in LEARNERS:
        raise unknown(f"agent in {path} (one of your own has its own `load`),", name, LEARNERS)
    return LEARNERS[name].load(path, arms, device)


__all__ = ["LEARNERS", "Learner", "load"]
