"""`python -m experiments references`: the rewards of the reference policies on all tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.benchmark import reference_run, run_score
from agents.evaluation.statistics import Estimate
from agents.theory.episode import discounted_bound, told_rates_bound
from crawl_env import Arrivals, BenchmarkTask, CrawlVectorEnv, Drift, Jumps, Stories, Trace, tasks
from crawl_env.benchmark import CORE, TASK_SETS, TASKS, TIERS, named
from crawl_env.benchmark.recordings import Recording
from crawl_env.benchmark.task import REFERENCES, Reference
from crawl_env.errors import check_choice
from crawl_env.files.atomic import write_text
from ephemeral_crawl.core import plots
from ephemeral_crawl.core.evaluation import bound_of, markdown, plain
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.results import provenance
from ephemeral_crawl.core.runner import Job, Result
from ephemeral_crawl.core.study import ParallelStudy
from ephemeral_crawl.replay.hindsight import Hindsight

_RIGHT = 1.6  # limit of the picture of all tasks; bounds beyond, of hindsight, are written
BOUND, UNLEARNT, _STRONGER = "bound", "best without learning", "more knowledge"
# Policies that do not learn, by whether they need the parameters.
_IGNORANT, _MODELLED = ("random", "oldest-first"), ("fixed", "myopic")
_TIERS = {
    "checks": "Checks: the optimum is known, nothing is ranked",
    "learning": "Learning: parameters are unknown",
    "open": "Open: no known policy is optimal",
    "general": "General: one policy for fleets that it has not met",
    "recorded": "Recorded: protocols for recordings of one's own",
}


@dataclass(kw_only=True)
class ReferencesStudy(ParallelStudy):
    """Measures the reference policies and bounds on the tasks of the benchmark.

    The rewards are written to the package (`crawl_env/benchmark/references.json`), where scores are
    computed from them, and the page of the tasks to the folder of the results.
    """

    outputs: ClassVar[tuple[str, ...]] = ("records.csv", "tasks.md", "*.png", "report.html")

    tasks: tuple[str, ...] = ()
    """Ids, names or tiers of the tasks to measure, by default those without recorded references."""
    only: tuple[str, ...] = ()
    """References to measure, such as bound or planner; the recorded ones of the tasks are kept."""
    only_report: bool = False
    """Write the page from the recorded references; nothing is run."""

    def run(self) -> None:
        self.check()
        record = json.loads(REFERENCES.read_text()) if REFERENCES.exists() else {}
        record = {key: record[key] for key in tasks() if key in record}
        for task in [] if self.only_report else self._stale_tasks(record):
            if self.only and record.get(task.id, {}).get("hash") == task.hash:
                record[task.id] = self._renewed(task, record[task.id])
            else:
                record[task.id] = self._measured(task)
            in_order = {key: record[key] for key in tasks() if key in record}
            text = json.dumps(in_order, indent=1)
            write_text(REFERENCES, re.sub(r"\[[^\]]*\]", _one_line, text) + "\n")
        report = Report("The tasks of the benchmark", quiet=True)
        references = {key: _references(entry) for key, entry in record.items()}
        room = headroom(references)
        report.figure(_picture(references), "The room in the ranked tasks.")
        columns = ("random, reward", f"{UNLEARNT}, score", "whittle, reward", "bound, score")
        report.table("Headroom", ["task", *columns], room)
        least = min(room, key=lambda row: float(row[2]), default=None)
        if least is not None:
            report.answer(f"{least[0]} has most room: what learns nothing scores {least[2]} there.")
        self.publish(
            report,
            {
                "records.csv": [
                    {"task": key, "reference": name, **_row(one), **_made_by(entry, name)}
                    for key, entry in record.items()
                    for name, one in entry["references"].items()
                ],
                "tasks.md": page(references),
                "headroom.png": lambda path: _picture(references).savefig(
                    path, dpi=120, bbox_inches="tight"
                ),
                **{
                    f"{named(key).name}.png": partial(_draw, named(key), entry)
                    for key, entry in references.items()
                },
            },
        )

    @staticmethod
    def _repeats(policy: str, task: BenchmarkTask) -> bool:
        """Return whether all runs of a policy are the same, since nothing is random."""
        still = task.is_deterministic and policy != "random"
        return still and not str(task.arguments["sources"]).startswith("drawn-")

    def _stale_tasks(self, record: dict[str, Any]) -> Iterator[BenchmarkTask]:
        for name in self.tasks or tasks():
            if name in TASK_SETS:
                yield from filter(_is_same_everywhere, tasks(name).values())
            elif not _is_same_everywhere(named(name)):
                continue
            elif self.tasks or record.get(name, {}).get("hash") != TASKS[named(name).name].hash:
                yield named(name)

    def _measured(self, task: BenchmarkTask) -> dict[str, Any]:
        more = (task.best, *task.stronger)
        policies = dict.fromkeys((*_IGNORANT, *_MODELLED * task.is_known, "whittle", *more))
        rewards = self._rewards(task, [*policies, BOUND])
        unlearnt = max(set(policies) - {"whittle", *more}, key=lambda p: np.mean(rewards[p]))
        names = {"random": "random", UNLEARNT: unlearnt, "whittle": "whittle"}
        names |= {name: name for name in more}
        if np.isfinite(rewards[BOUND]).all():
            names[BOUND] = BOUND
        rows = {name: Reference(policy, tuple(rewards[policy])) for name, policy in names.items()}
        return {
            "hash": task.hash,
            "made_by": provenance(),
            "ref_min_score": rows["random"].mean,
            "ref_max_score": rows[task.best].mean,
            "references": _checked(task, rows),
        }

    def _renewed(self, task: BenchmarkTask, before: dict[str, Any]) -> dict[str, Any]:
        """Return the record of a task with some of its references measured again."""
        order = ("random", UNLEARNT, "whittle", task.best, *task.stronger, BOUND)
        choices = (*task.stronger, BOUND)  # those by which scores are not computed
        for name in self.only:
            check_choice(f"reference of {task.id}", name, choices)
        rows = {k: one for k, one in _references(before).items() if k not in self.only}
        rewards = self._rewards(task, self.only)
        rows |= {k: Reference(k, tuple(x)) for k, x in rewards.items() if np.isfinite(x).all()}
        rows = {name: rows[name] for name in dict.fromkeys(order) if name in rows}
        origins = {f"{name}_made_by": provenance() for name in self.only}
        return {**before, **origins, "references": _checked(task, rows)}

    def _rewards(self, task: BenchmarkTask, names: Sequence[str]) -> dict[str, list[float]]:
        """Return the rewards of policies, or the bounds, in all runs."""
        jobs: list[Job] = [
            {"task": task.id, "hash": task.hash, "policy": name, "run": run}
            for name in names
            for run in range(1 if self._repeats(name, task) else task.seeds)
        ]
        print(f"{task.id}: {len(jobs)} parts")
        rewards: dict[str, list[float]] = {}
        for job, result in zip(jobs, self.runner.run(jobs, work), strict=True):
            rewards.setdefault(job["policy"], []).append(result["reward"])
        return {name: values * (task.seeds // len(values)) for name, values in rewards.items()}


def _checked(task: BenchmarkTask, rows: Mapping[str, Reference]) -> dict[str, dict[str, Any]]:
    """Return references as they are recorded.

    Raises:
        ValueError: in some run there is nothing to learn.
    """
    without = runs_without_room(task, rows)
    if without:
        raise ValueError(
            f"the bound of run {without[0]} of {task.id} is not above what the random policy "
            "is expected to collect: nothing can be learnt from this fleet"
        )
    return {
        name: {
            "policy": one.policy,
            "mean": one.mean,
            "standard_error": None if one.runs == 1 else one.standard_error,
            "runs": one.runs,
            "rewards": one.rewards,
        }
        for name, one in rows.items()
    }


def _made_by(entry: dict[str, Any], reference: str) -> dict[str, Any]:
    """Return the provenance of a recorded reference."""
    return dict(entry.get(f"{reference}_made_by", entry["made_by"]))


def _is_same_everywhere(task: BenchmarkTask) -> bool:
    """Return whether a task has the same rewards on every machine, so that they are recorded."""
    return task.recording is None or task.recording.digest != ""


def work(job: Job) -> Result:
    """Return the reward of a policy, or the bound, of a run; NaN if no bound is known."""
    task = named(job["task"])
    if job["policy"] != BOUND:
        return {"reward": reference_run(job["policy"], task, job["run"])}
    return {"reward": _bound(task, job["run"])}


def _bound(task: BenchmarkTask, run: int) -> float:
    """Return the bound of a run; where rates drift or jump, for who is told them in its steps, and
    of a recording, for who knows the whole log."""
    arguments, seed = task.informed_arguments("test", run), task.seed("test", run)
    env = CrawlVectorEnv(1, **{**arguments, "horizon": task.warmup + task.steps})
    env.reset(seed=seed)
    world, budget, arrivals = env.world, env.task.budget, env.task.arrivals
    fleet = world.sources if world.sources.cost.ndim == 1 else world.sources.fleet(0)
    if task.discount < 1.0:
        problem = world.value[0], budget, task.steps, task.discount
        return float(discounted_bound(fleet, *problem).bound)
    if isinstance(arrivals, Trace):
        start = int(env.get_state()["world"]["feed"][0])
        before = arrivals.steps(fleet.period) + task.warmup  # begins with the whole log uncollected
        best = Hindsight(arrivals, fleet, task.steps, start=start, before=before)
        return best.bound(budget) / task.steps
    if not isinstance(arrivals, Arrivals) or not isinstance(arrivals.rate, (Drift, Jumps)):
        return float(np.mean(bound_of(arguments, 1, seed).bound))
    rates = np.empty((task.warmup + task.steps, len(fleet)))
    for now in rates:
        now[:] = world.rate[0]
        env.step(np.zeros((1, len(fleet))))
    return float(told_rates_bound(fleet, rates[task.warmup :], budget).bound)


def runs_without_room(task: BenchmarkTask, references: Mapping[str, Reference]) -> list[int]:
    """Return the runs whose bound is not above what the random policy is expected to collect."""
    if BOUND not in references:
        return []
    without = []
    for run, bound in enumerate(references[BOUND].rewards):
        expected = expected_at_random(task, run)
        # What was collected is by chance a little more or less than what is expected.
        if bound <= (references["random"].rewards[run] if expected is None else expected):
            without.append(run)
    return without


def expected_at_random(task: BenchmarkTask, run: int) -> float | None:
    """Return about what uniformly random crawls of the fleet of a run collect per step.

    With a fraction p of the sources in each step, a source holds U/(1 − (1 − p)α) on average, where
    U is its inflow per step. None with an engine or another payoff, which take some of it, and of a
    discounted return.
    """
    env = CrawlVectorEnv(1, **task.informed_arguments("test", run))
    lossy = env.task.engine is not None or env.task.payoff is not None
    if lossy or isinstance(env.task.arrivals, Stories) or task.discount < 1.0:
        return None
    env.reset(seed=task.seed("test", run))
    sources = env.world.sources
    p = min(1.0, env.task.budget / float(sources.cost.sum()))
    return float((p * sources.inflow / (1.0 - (1.0 - p) * sources.retention)).sum())


def _one_line(numbers: re.Match[str]) -> str:
    return " ".join(numbers[0].split())


def _row(reference: dict[str, Any]) -> dict[str, Any]:
    """Return a reference as a row of the record, without the rewards of single runs."""
    error = reference["standard_error"]
    return {
        "policy": reference["policy"],
        "mean": repr(reference["mean"]),
        "standard_error": "" if error is None else repr(error),
        "runs": reference["runs"],
    }


def _references(entry: dict[str, Any]) -> dict[str, Reference]:
    rows = entry["references"]
    return {name: Reference(row["policy"], tuple(row["rewards"])) for name, row in rows.items()}


def score_of(task: BenchmarkTask, references: dict[str, Reference], name: str) -> Estimate:
    """Return the score of a reference, with its interval."""
    if name not in references:
        return statistics.UNKNOWN
    mine, low, high = (references[key].rewards for key in (name, "random", task.best))
    return statistics.score(mine, low, high)


def headroom(references: dict[str, dict[str, Reference]]) -> list[list[str]]:
    """Return the rows of the table of all ranked tasks: rewards and scores of the references."""
    return [
        [
            task.name,
            f"{references[key]['random'].mean:.4g}",
            f"{score_of(task, references[key], UNLEARNT).mean:.3f}",
            f"{references[key]['whittle'].mean:.4g}",
            f"{score_of(task, references[key], BOUND).mean:.3f}",
        ]
        for key, task in tasks().items()
        if key in references and task.tier != "checks"
    ]


def page(references: dict[str, dict[str, Reference]]) -> str:
    """Return the page of the tasks in Markdown."""
    parts = ["<!-- Written by `python -m experiments references`: edit crawl_env/benchmark. -->\n"]
    for tier in TIERS:
        of_tier = [task for task in TASKS.values() if task.tier == tier]
        if of_tier:
            entries = (_entry(task, references.get(task.id, {})) for task in of_tier)
            parts += [f"\n## {_TIERS[tier]}\n", *entries]
    return "\n".join(parts)


def _entry(task: BenchmarkTask, references: dict[str, Reference]) -> str:
    return "\n".join(
        [
            f"### {task.name}\n",
            f"{_what(task)}\n",
            *([_pictured(task, "")] if references else []),
            f"- Information: {_observed(task)}.",
            *_protocol(task),
            *(f"- v{i}: {text}" for i, text in enumerate(task.history)),
            *(f"- Erratum: {text}" for text in task.errata),
            *([""] if references else []),
            _table(task, references),
        ]
    )


def task_page(task: BenchmarkTask, references: dict[str, Reference], pictures: str) -> str:
    """Return the page of one task in Markdown.

    Arguments:
        references: the recorded ones, {} if there are none.
        pictures: the path from the page to the folder of the pictures, with a slash at its end.
    """
    budgets = ", ".join(f"`{task.name}-v{task.version}@1e{len(str(b)) - 1}`" for b in task.budgets)
    same = _is_same_everywhere(task)
    parts = [
        f"# {task.name}\n",
        f"{_what(task)} It is of the tier *{task.tier}*; [all tasks](../tasks.md).\n",
        *([_pictured(task, pictures)] if references else []),
        "## Information\n",
        f"An agent may observe and use *{_observed(task)}*, and nothing else.\n",
        "## How it is played\n",
        *_protocol(task),
        f"- Budgets of training, in source-steps: {budgets}; settings may be chosen by "
        f"{task.trials} trials on the splits train and validation.",
        "\n```{code-block} python",
        f'env = gym.make("{task.id}")  # after import crawl_env',
        f'agents.benchmark("random", tasks="{task.id}")',
        "```\n",
        "## References\n",
        _table(task, references) or "None are recorded: the log is another on every machine.",
        "\n## Versions\n",
        *(f"- v{i}: {text}" for i, text in enumerate(task.history)),
        f"\nThe SHA-256 of its description, which results state, is `{task.hash}`." if same else "",
        "\n## Errata\n",
        *(f"- {text}" for text in task.errata or ("None are known.",)),
    ]
    return "\n".join(parts) + "\n"


def contents(references: dict[str, dict[str, Reference]]) -> str:
    """Return a table of all tasks in Markdown, with links to their pages."""
    rows = [["task", "what it is", "information", "best without learning", "bound"]]
    rows.append(["---", "---", "---", "---:", "---:"])
    for tier in TIERS:
        rows.append([f"**{_TIERS[tier]}**", "", "", "", ""])
        for task in (task for task in TASKS.values() if task.tier == tier):
            own = references.get(task.id, {})
            scores = [
                f"{score_of(task, own, name).mean:.3f}" if name in own else "n/a"
                for name in (UNLEARNT, BOUND)
            ]
            name = f"[{task.name}](task/{task.name}.md)" + " (core)" * (task.name in CORE)
            rows.append([name, task.label, task.information, *scores])
    return markdown(rows)


def recorded_references() -> dict[str, dict[str, Reference]]:
    """Return the recorded references of all tasks that have some, by their ids."""
    return {key: references for key, task in tasks().items() if (references := task.references)}


def _what(task: BenchmarkTask) -> str:
    core = ", in the core" * (task.name in CORE)
    return f"`{task.id}`{core}. {task.group}; {task.label}."


def _pictured(task: BenchmarkTask, pictures: str) -> str:
    return f"![Scores of the references of {task.name}]({pictures}{task.name}.png)\n"


def _observed(task: BenchmarkTask) -> str:
    return f"{task.information} ({', '.join(f'`{x}`' for x in task.features)})"


def _protocol(task: BenchmarkTask) -> list[str]:
    """Return the items of a list: how a task is played."""
    arguments = task.arguments if task.recording else task.arguments_of("test", 0)
    lines = [
        f"- Protocol: {task.seeds} runs of {task.steps:,} steps after {task.warmup:,}"
        + f", discounted by {task.discount:g}" * (task.discount < 1)
        + f"; score 1 is `{task.best}`.",
        f"- Environment: `{_short(arguments)}`.",
    ]
    if task.recording is not None:
        lines.append(_recording(task.recording))
    if task.trains_on:
        lines.append(f"- Trained on: {', '.join(task.trains_on)}.")
    return lines


def _table(task: BenchmarkTask, references: dict[str, Reference]) -> str:
    """Return the table of the references of a task in Markdown, "" if there are none."""
    if not references:
        return ""
    return markdown(
        [
            ["reference", "policy", "reward", "standard error", "runs", "score"],
            ["---", "---", "---:", "---:", "---:", "---:"],
            *(
                [
                    name,
                    one.policy,
                    f"{one.mean:.5g}",
                    "n/a" if one.runs == 1 else f"{one.standard_error:.2g}",
                    str(one.runs),
                    plain(score_of(task, references, name)),
                ]
                for name, one in references.items()
            ),
        ]
    )


def _recording(recording: Recording) -> str:
    """Return how a recording is divided, and by what it is known."""
    parts = f"trained on from {recording.start} to {recording.split}, played to {recording.end}"
    digest = f"SHA-256 `{recording.digest}`" if recording.digest else "another on every machine"
    return (
        f"- Recording: `{recording.name}`, {parts}, steps of {recording.period:g}, sources with "
        f"{recording.least_items} items or more in the first part, decay {recording.decay_rate:g}; "
        f"{digest}."
    )


def _short(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of an environment, long lists shortened."""

    def plain_of(value: Any) -> Any:
        if isinstance(value, list | tuple) and len(value) > 4 and not isinstance(value[0], str):
            return [*value[:2], "…"]
        if isinstance(value, dict):
            return {key: plain_of(one) for key, one in value.items()}
        return value

    short = {key: plain_of(value) for key, value in arguments.items() if key != "features"}
    return ", ".join(f"{key}={value!r}" for key, value in short.items())


def _draw(task: BenchmarkTask, references: dict[str, Reference], path: Path) -> None:
    """Write the picture of a task: the scores of its references in all single runs."""
    low, high = (np.array(references[name].rewards) for name in ("random", task.best))
    figure, axes = plots.new(width=4.0, height=0.55 + 0.22 * len(references))
    for row, (name, one) in enumerate(references.items()):
        scores = run_score(np.array(one.rewards), low, high)
        spread = np.linspace(-0.25, 0.25, scores.size)  # so that no point hides another
        axes.plot(scores, row + spread, "o", ms=3, mew=0, alpha=0.6, color=plots.BLUE)
        axes.plot([scores.mean()] * 2, [row - 0.35, row + 0.35], color=plots.INK, lw=1.5)
        label = name if name == one.policy else f"{name} ({one.policy})"
        axes.text(-0.02, row, label, ha="right", va="center", transform=_rows(axes), size=7.5)
    axes.set_yticks([])
    axes.tick_params(axis="x", labelsize=7.5)
    axes.set_ylim(len(references) - 0.5, -0.5)
    axes.set_xlabel("score of single runs; lines are means", size=7.5)
    figure.savefig(path, dpi=100, bbox_inches="tight")
    plots.close(figure)


def _rows(axes: Any) -> Any:
    """Return the transform of labels beside the rows of a picture."""
    return axes.get_yaxis_transform()


def _picture(references: dict[str, dict[str, Reference]]) -> Any:
    """Return the scores of what learns nothing, of stronger references, and of the bound, on every
    ranked task."""
    ranked = [t for t in TASKS.values() if t.id in references and t.tier != "checks"]
    figure, axes = plots.new(width=8, height=0.9 + 0.27 * len(ranked))
    styles = {UNLEARNT: ("s", 6, plots.ORANGE), _STRONGER: ("D", 5, plots.BLUE)}
    marks: dict[str, list[float]] = {UNLEARNT: [], _STRONGER: [], BOUND: []}
    for task in ranked:
        own = references[task.id]
        scores = {name: score_of(task, own, name).mean for name in own}
        marks[UNLEARNT].append(scores[UNLEARNT])
        marks[_STRONGER].append(
            max((scores[x] for x in task.stronger if x in scores), default=np.nan)
        )
        marks[BOUND].append(scores.get(BOUND, np.nan))
    rows = range(len(ranked))
    low = np.array(marks[UNLEARNT])
    high = np.nanmax([*marks.values(), [1.0] * len(ranked)], axis=0)
    axes.barh(rows, high - low, 0.3, low, color=plots.BLUE, alpha=0.3)
    for name, (marker, size, color) in styles.items():
        axes.plot(marks[name], rows, marker, ms=size, color=color, label=name)
    axes.plot(marks[BOUND], rows, "|", ms=12, mew=2, color=plots.INK, label=BOUND)
    names = [f"{'★ ' * (task.name in CORE)}{task.name}" for task in ranked]
    axes.set_yticks(rows, names)
    axes.axvline(1, color=plots.FAINT, lw=1, ls="--")
    for row, bound in zip(rows, marks[BOUND], strict=True):
        if bound > _RIGHT:
            axes.text(_RIGHT - 0.01, row + 0.1, f"{bound:.1f} →", va="bottom", ha="right")
    axes.set(xlabel="score: 0 random, 1 the reference of the task (★ core)", xlim=(-0.02, _RIGHT))
    axes.set_ylim(len(ranked) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return figure
