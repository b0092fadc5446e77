"""`TorchCrawlVectorEnv`: the vector environment on any torch device."""

from __future__ import annotations

from typing import Any, Unpack, cast

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike

from crawl_env.envs.vector_env import CrawlVectorEnv
from crawl_env.errors import check_choice, shown
from crawl_env.extras import missing
from crawl_env.numerics import BoolArray
from crawl_env.simulation.simulation import Simulation, reset_options
from crawl_env.simulation.task import Fleet, TaskOptions, suggest_arguments

try:
    import torch
    from torch import Tensor

    from crawl_env.device.simulation import TorchSimulation
except ImportError as error:  # pragma: no cover
    raise gym.error.DependencyNotInstalled(missing("torch", "crawl_env.envs.torch_env")) from error

__all__ = ["TorchCrawlVectorEnv"]

DTYPES = {"float32": torch.float32, "float64": torch.float64}


class TorchCrawlVectorEnv(CrawlVectorEnv):
    """`CrawlVectorEnv` whose state, observations and rewards are tensors on a device.

    Observations (B, N, F) are float32, rewards (B,) of the dtype of the state, `terminated` and
    `truncated` (B,) bool. Actions (B, N) are tensors, or arrays, which are copied to the device.
    Episodes, `reset` and its options, features and start modes are those of `CrawlVectorEnv`, and
    so are the numbers: deterministic content is the same to the rounding of the dtype, and random
    content has the same distribution, though not the same sample path. What arrives depends on the
    arrivals and the seed alone; a seed gives the same numbers again on the same kind of device.

    `get_state` returns arrays in host memory, so that a state saved on one device can be restored
    on another of the same kind. `harvest` and `world` have tensors.

    Not supported are costs that differ between sources, `budget_rule="average"`, crawl delays,
    capacities, failures, hosts with more sources than they admit crawls in a step, features that
    sum over items, and arrivals other than deterministic ones and those with a constant rate,
    exponential decay and a utility of this package. Ages that `reset` sets are whole numbers.

    Arguments:
        num_envs, sources, …, autoreset_mode: as in `CrawlVectorEnv`.
        device: a torch device, such as "cpu" or "cuda"; "auto" is a GPU where there is one.
        dtype: "float32" or "float64", of the state and the rewards.

    Raises:
        ValueError: an argument is out of range, or the task is not supported; the message says
            what is, and what to use instead.

    >>> env = TorchCrawlVectorEnv(3, budget=2, arrivals="poisson", device="cpu")
    >>> observation, _ = env.reset(seed=0)
    >>> observation, reward, *_ = env.step(observation[..., 0])  # crawls the largest values
    >>> observation.shape, reward.shape
    (torch.Size([3, 4, 1]), torch.Size([3]))
    """

    @suggest_arguments
    def __init__(
        self,
        num_envs: int = 1,
        sources: Fleet = "table1",
        budget: float = 1.0,
        *,
        device: str | torch.device = "cpu",
        dtype: str | torch.dtype = "float32",
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **options: Unpack[TaskOptions],
    ) -> None:
        self.device = usable_device(device)
        name = str(dtype).removeprefix("torch.")
        check_choice("dtype", name, tuple(DTYPES))
        self.dtype = DTYPES[name]
        super().__init__(
            num_envs,
            sources,
            budget,
            max_episode_steps=max_episode_steps,
            autoreset_mode=autoreset_mode,
            **options,
        )
        self.metadata = {**self.metadata, "render_modes": []}
        self._false = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)

    def _simulate(self) -> Simulation:
        simulation = TorchSimulation(self.task, self.num_envs, self.device, self.dtype)
        return cast(Simulation, simulation)  # which it stands in for

    def reset(  # type: ignore[override]
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Tensor, dict[str, Any]]:
        options = reset_options(options)
        if isinstance(mask := options.get("reset_mask"), Tensor):
            options["reset_mask"] = mask.cpu().numpy()
        if seed is not None:
            self._tensors.reseed()
        observation: Any
        observation, info = super().reset(seed=seed, options=options)
        return observation, info

    def step(  # type: ignore[override]
        self, actions: Tensor | ArrayLike
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        observation: Any
        reward: Any
        observation, reward, _, truncated, info = super().step(actions)
        return observation, reward, self._false.clone(), self._flags(truncated), info

    def set_state(  # type: ignore[override]
        self, state: dict[str, Any], *, seed: int | None = None
    ) -> Tensor:
        observation: Any = super().set_state(state, seed=seed)
        if seed is not None:
            self._tensors.reseed()
        return cast(Tensor, observation)

    def render(self) -> None:
        """Return nothing: there are no pictures of tensors; `CrawlVectorEnv` has them."""

    @property
    def _tensors(self) -> TorchSimulation:
        return cast(Any, self._simulation)

    def _flags(self, flags: BoolArray) -> Tensor:
        if not flags.any():
            return self._false.clone()
        return torch.as_tensor(np.array(flags), device=self.device)


def usable_device(device: object) -> torch.device:
    """Return a device, for "auto" a GPU where there is one; raise ValueError if this machine does
    not have it."""
    try:
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        torch_device = torch.device(device)  # type: ignore[call-overload]
        torch.empty(1, device=torch_device)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"device is {shown(device)}, which torch cannot use here ({reason}); give 'cpu', or "
            "install a build of torch for your device"
        ) from None
    return cast(torch.device, torch_device)
