"""`python -m experiments sb3-time`: what Stable-Baselines3 spends its time on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tqdm import tqdm

from experiments.core import plots
from experiments.core.report import Report
from experiments.core.study import Study, attributed
from experiments.sb3_time.spent import CASES, ONE_BY_ONE, Spent, spent

PARTS = ("environment", "collection", "gradient")


@dataclass(kw_only=True)
class SB3Time(Study):
    """Time per step that Stable-Baselines3's algorithms spend in the environment, in collecting
    its transitions, and in gradients: on Table 1, M = 2, in one thread."""

    rounds: int = 20
    """Updates timed; of each part the fastest counts."""
    num_envs: int = 16
    """Environments side by side."""

    def run(self) -> None:
        import torch

        self.check()
        for name in ("rounds", "num_envs"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} is {getattr(self, name)}; it must be at least 1")
        torch.set_num_threads(1)
        all_spent = [
            spent(algorithm, env, self.num_envs, self.rounds)
            for algorithm, env in tqdm(CASES, unit="case")
        ]
        report = Report("Where the time of Stable-Baselines3 goes")
        report.paragraph(
            f"Table 1, M = 2, {self.num_envs} environments, each learner's default settings with "
            "SB3's own perceptron, processor time of one thread; each part at its fastest in "
            f"{self.rounds} updates. Native: all "
            "environments as one array program; DummyVecEnv: one after the other, for DQN and "
            "MaskablePPO in SequentialSelection, two picks a step. Gradient: SB3's train. "
            "Collection: forward passes of the policy, buffers, infos, scaling of rewards."
        )
        report.table(
            "Time per step of one environment",
            ["algorithm", "environment", "µs", *(f"{part}, µs" for part in PARTS), *PARTS],
            [_row(s) for s in all_spent],
        )
        report.paragraph(_reading(all_spent))
        report.figure(_picture(all_spent), "Time per step of one environment.")
        records = attributed([{**s._asdict(), "total": s.total} for s in all_spent])
        self.publish(report, {"records.csv": records})


def _row(s: Spent) -> list[str]:
    times = [getattr(s, part) for part in PARTS]
    return [
        s.algorithm,
        s.env,
        f"{s.total:.1f}",
        *(f"{time:.1f}" for time in times),
        *(f"{time / s.total:.0%}" for time in times),
    ]


def _reading(all_spent: list[Spent]) -> str:
    """Say what the native environment saves, from the figures of this run."""
    parts = []
    for native, other in pairwise(all_spent):
        if native.algorithm == other.algorithm and other.env == ONE_BY_ONE:
            saved = (native.total - native.environment + other.environment) / native.total
            parts.append(
                f"{native.algorithm}: a step costs {other.environment / native.environment:.0f} "
                f"times less, all together {saved:.2f} times, the rest being equal"
            )
    return "What the native environment saves. " + "; ".join(parts) + "."


def _picture(all_spent: list[Spent]) -> object:
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
