"""`python -m experiments sb3-time`: profiles the learners of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from tqdm import tqdm

from ephemeral_crawl.core import plots
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.study import RecordedStudy, Rows, attributed
from experiments.sb3_time.spent import CASES, ONE_BY_ONE, Spent, spent

PARTS = ("environment", "collection", "gradient")


@dataclass(kw_only=True)
class SB3Time(RecordedStudy):
    """Measures the time per step that algorithms of Stable-Baselines3 spend in the environment, in
    collecting transitions, and in gradient steps: on Table 1, M = 2, in one thread."""

    title: ClassVar[str] = "Time of Stable-Baselines3"

    rounds: int = 20
    """Number of timed updates; the minimum of each part is reported."""
    num_envs: int = 16
    """Number of parallel environments."""

    def measure(self) -> dict[str, Rows]:
        import torch

        for name in ("rounds", "num_envs"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} is {getattr(self, name)}; it must be at least 1")
        torch.set_num_threads(1)
        all_spent = [
            spent(algorithm, env, self.num_envs, self.rounds)
            for algorithm, env in tqdm(CASES, unit="case")
        ]
        return {"records.csv": attributed([{**s._asdict(), "total": s.total} for s in all_spent])}

    def write(self, report: Report, tables: Mapping[str, Rows]) -> None:
        all_spent = [
            Spent(
                row["algorithm"],
                row["env"],
                int(row["num_envs"]),
                int(row["steps"]),
                *(float(row[part]) for part in PARTS),
            )
            for row in tables["records.csv"]
        ]
        report.answer(_answer(all_spent))
        report.figure(_figure(all_spent), "Time per step of one environment.")
        report.table(
            "Time per step of one environment",
            ["algorithm", "environment", "µs", *(f"{part}, µs" for part in PARTS), *PARTS],
            [_row(s) for s in all_spent],
        )
        report.paragraph(_reading(all_spent))
        with report.details("How this is measured"):
            report.paragraph(
                f"Table 1, M = 2, {all_spent[0].num_envs} environments, each learner's default "
                "settings with SB3's own perceptron, processor time of one thread; each part at "
                "its fastest of several updates. Native: all environments as one array program; "
                "DummyVecEnv: one after the other, for DQN and MaskablePPO in SequentialSelection, "
                "two picks a step. Gradient: SB3's train. Collection: forward passes of the "
                "policy, buffers, infos, scaling of rewards."
            )


def _row(s: Spent) -> list[str]:
    times = [getattr(s, part) for part in PARTS]
    return [
        s.algorithm,
        s.env,
        f"{s.total:.1f}",
        *(f"{time:.1f}" for time in times),
        *(f"{time / s.total:.0%}" for time in times),
    ]


def _answer(all_spent: list[Spent]) -> str:
    native = [s for s in all_spent if s.env != ONE_BY_ONE]
    shares = [s.environment / s.total for s in native]
    return (
        f"In training with SB3 the native environment takes {min(shares):.0%} to "
        f"{max(shares):.0%} of the time; the rest is SB3's own, in collecting transitions and in "
        "gradient steps."
    )


def _reading(all_spent: list[Spent]) -> str:
    """Return a sentence on the speed-up by the native environment, from the values of this run."""
    parts = []
    for native, other in pairwise(all_spent):
        if native.algorithm == other.algorithm and other.env == ONE_BY_ONE:
            saved = (native.total - native.environment + other.environment) / native.total
            parts.append(
                f"{native.algorithm}: {other.environment / native.environment:.0f} times for the "
                f"environment, {saved:.2f} times in total with equal collection and gradient"
            )
    return "Speed-up by the native environment. " + "; ".join(parts) + "."


def _figure(all_spent: list[Spent]) -> object:
    figure, axis = plots.new(1, 1, width=8, height=4)
    names = [f"{s.algorithm}, {s.env}" for s in all_spent]
    left = [0.0] * len(all_spent)
    for j, part in enumerate(PARTS):
        times = [getattr(s, part) for s in all_spent]
        axis.barh(names, times, left=left, color=plots.PALETTE[j], label=part)
        left = [a + b for a, b in zip(left, times, strict=True)]
    axis.invert_yaxis()
    axis.set_xlabel("µs per step of one environment")
    axis.legend()
    return figure
