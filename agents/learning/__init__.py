"""Learning agents, which are trained by interaction and do not use the closed-form index."""

from __future__ import annotations

from importlib.util import find_spec
from os import PathLike
from typing import Any

from crawl_env.extras import missing

for _name in ("torch", "safetensors", "stable_baselines3", "sb3_contrib"):
    if find_spec(_name) is None:
        raise ImportError(missing(_name, "agents.learning"), name=_name)

# ruff: noqa: E402
from agents.learning import storage
from agents.learning.arms import Arms
from agents.learning.base import Learner
from agents.learning.fleet.index import EquivariantIndex
from agents.learning.fleet.ppo import EquivariantPPO
from agents.learning.fleet.residual import ResidualEvolution
from agents.learning.neural.deeptop import DeepTOP
from agents.learning.neural.neurwin import NeurWIN
from agents.learning.neural.qwinn import QWINN
from agents.learning.sb3.learners import ALGORITHMS, StableBaselines
from agents.learning.tabular.lagrange_q import LagrangeQ
from agents.learning.tabular.lspe import LSPE
from agents.learning.tabular.plug_in import PlugIn, UCWhittle
from agents.learning.tabular.whittle_q import WhittleQ
from agents.learning.tabular.wiql import WIQL, WIQLUCB
from crawl_env import CrawlVectorEnv
from crawl_env.errors import unknown


class _Learners(dict[str, type[Learner[Any]]]):
    """Learners by name; an unknown name raises an error that suggests the nearest one."""

    def __missing__(self, name: object) -> type[Learner[Any]]:
        raise UnknownLearner(str(unknown("learner", name, self)))


class UnknownLearner(KeyError, ValueError):
    """Raised for an unknown name of a learner."""

    def __str__(self) -> str:
        return str(self.args[0])


LEARNERS: dict[str, type[Learner[Any]]] = _Learners(
    {
        **{
            learner.name: learner
            for learner in (
                *(WhittleQ, LagrangeQ, LSPE, WIQL, WIQLUCB, PlugIn, UCWhittle),
                *(NeurWIN, DeepTOP, QWINN),
                *(EquivariantPPO, EquivariantIndex, ResidualEvolution),
            )
        },
        **{name: StableBaselines.of(name) for name in ALGORITHMS},
    }
)


def load(
    path: str | PathLike[str], arms: CrawlVectorEnv | Arms, device: str = "cpu"
) -> Learner[Any]:
    """Return a saved agent of any of the learners; see `Learner.load`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, is not of this project, or does not fit the environment.

    >>> import tempfile
    >>> env = CrawlVectorEnv(features=("age", "crawled", "harvest"))
    >>> path = tempfile.mkdtemp() + "/agent.safetensors"
    >>> WhittleQ(env).learn(100).save(path)
    >>> load(path, env).steps
    100
    """
    name = storage.load(path)["agent"]
    if name not in LEARNERS:
        raise unknown(
            f"agent in {path} (agents of your own have their own `load`),", name, LEARNERS
        )
    return LEARNERS[name].load(path, arms, device)


__all__ = [
    "LEARNERS",
    "LSPE",
    "QWINN",
    "WIQL",
    "WIQLUCB",
    "DeepTOP",
    "EquivariantIndex",
    "EquivariantPPO",
    "LagrangeQ",
    "Learner",
    "NeurWIN",
    "PlugIn",
    "ResidualEvolution",
    "StableBaselines",
    "UCWhittle",
    "WhittleQ",
    "load",
]
