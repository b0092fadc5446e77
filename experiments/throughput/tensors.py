"""The environment on tensors, on the CPU and on a GPU: source updates, bandwidth and training."""

from __future__ import annotations

from collections.abc import Iterator
from math import nan
from typing import Any

import numpy as np
import torch

from agents.learning.fleet.ppo import EquivariantPPO, EquivariantPPOSettings
from crawl_env import CrawlVectorEnv, Sources
from crawl_env.envs.torch_env import TorchCrawlVectorEnv
from experiments.core.clock import Call, Figure, Sense, compared, interleaved

GROUP = "Tensors"
BYTES = {"float32": 32, "float64": 64}  # that a source update moves at least, all features counted
CPU, GPU = (10_000, 100), (100_000, 100)  # environments and sources of the updates
TRAINING_CPU, TRAINING_GPU = (64, 100), (4096, 100)
_SHARE = "of the rate of copying"
_HALF = 0.5  # of the bandwidth, wanted of a GPU
_FEATURES = ("value", "arrival_rate", "mean_utility", "decay_rate")


def figures(rounds: int) -> Iterator[Figure]:
    """Yield the measurements on the CPU and, if torch sees one, on a GPU."""
    yield from _updates("cpu", *CPU, rounds)
    yield from _training("cpu", *TRAINING_CPU, rounds)
    if torch.cuda.is_available():
        yield from _updates("cuda", *GPU, rounds)
        yield from _training("cuda", *TRAINING_GPU, rounds)


def _updates(device: str, num_envs: int, n: int, rounds: int) -> Iterator[Figure]:
    """Yield updates of sources per second by steps of the environment, and the bandwidth used."""
    name, has_limit = _device_name(device), device == "cuda"
    rounds = max(3, rounds // 3)
    for dtype, num_bytes in BYTES.items():
        for arrivals in ("deterministic", "poisson"):
            what = f"{device}, {dtype}, {arrivals}, {num_envs:,} envs × {n} sources"
            candidates = {
                "step": _stepping(device, num_envs, n, arrivals, dtype),
                "copy": _copying(device, num_envs * n * num_bytes),
            }
            if device == "cpu":
                candidates["arrays"] = _on_arrays(num_envs, n, arrivals)
            times = interleaved(candidates, rounds)
            ours, copy = times["step"], times["copy"]
            rates = [1e-6 * num_envs * n / seconds for seconds in (ours.median, *ours.rounds)]
            note = name
            if "arrays" in times:
                note += f"; {ours.ratio_to(times['arrays'])[0]:.2f} × the time of CrawlVectorEnv"
            spread = min(rates), max(rates)
            unit = "10⁶ updates / s"
            yield Figure(GROUP, what, rates[0], unit, "", nan, *spread, note=note)
            if arrivals == "deterministic":
                share = copy.ratio_to(ours)
                title = f"{what}: share of bandwidth"
                sense: Sense = "≥" if has_limit else ""
                limit = _HALF if has_limit else nan
                yield Figure(GROUP, title, share[0], _SHARE, sense, limit, *share[1:], ours.median,
                             copy.median, f"{num_bytes} B an update")  # fmt: skip


def _on_arrays(num_envs: int, n: int, arrivals: str) -> Call:
    env = CrawlVectorEnv(num_envs, arrivals=arrivals, **_task(n))
    env.reset(seed=0)
    action = np.random.default_rng(0).random((num_envs, n), dtype=np.float32)
    return lambda: env.step(action)


def _task(n: int) -> dict[str, Any]:
    return {"sources": Sources.random(n, seed=0), "budget": max(1, n // 100), "horizon": None}


def _training(device: str, num_envs: int, n: int, rounds: int) -> Iterator[Figure]:
    """Yield the training throughput, against the same learner in the environment on arrays."""
    task: Any = {"sources": Sources.random(n, seed=0), "budget": n // 10, "features": _FEATURES}
    task |= {"arrivals": "poisson", "horizon": None}
    settings = EquivariantPPOSettings(n_steps=8)
    ours = EquivariantPPO(TorchCrawlVectorEnv(num_envs, device=device, **task), settings, 0, device)
    other = EquivariantPPO(CrawlVectorEnv(num_envs, **task), settings)

    def learn() -> None:
        ours.learn(8)
        _wait(device)

    times = interleaved({"ours": learn, "other": lambda: other.learn(8)}, max(3, rounds // 3))
    what = (
        f"equivariant-ppo on {device}, {num_envs:,} envs × {n} sources, against training in "
        "CrawlVectorEnv on the CPU"
    )
    figure = compared(GROUP, what, "≥", 1.0, times["ours"], times["other"])
    note = (
        f"{num_envs * n * 8 / times['ours'].median:,.0f} source steps / s; {_device_name(device)}"
    )
    if device == "cpu":  # no limit: nothing is gained there
        figure = figure._replace(sense="", limit=nan)
    yield figure._replace(note=note)


def _stepping(device: str, num_envs: int, n: int, arrivals: str, dtype: str) -> Call:
    env = TorchCrawlVectorEnv(num_envs, arrivals=arrivals, device=device, dtype=dtype, **_task(n))
    env.reset(seed=0)
    action = torch.rand(num_envs, n, generator=torch.Generator().manual_seed(0)).to(device)

    def step() -> None:
        env.step(action)
        _wait(device)

    return step


def _copying(device: str, num_bytes: int) -> Call:
    """Return a call that moves as many bytes as the updates do: each is read and written."""
    origin = torch.ones(num_bytes // 2 // 8, dtype=torch.float64, device=device)
    target = torch.empty_like(origin)

    def copy() -> None:
        target.copy_(origin)
        _wait(device)

    return copy


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def _device_name(device: str) -> str:
    version = f"torch {torch.__version__}"
    if device == "cpu":
        return f"{version}, {torch.get_num_threads()} threads"
    return f"{version}, {torch.cuda.get_device_name()}"
