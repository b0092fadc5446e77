"""`python -m experiments leaderboard`: the page of the results that others have submitted."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from agents.evaluation import statistics
from agents.evaluation.aggregate import iqm
from agents.evaluation.benchmark import check_result, run_scores
from crawl_env import tasks
from crawl_env.benchmark import CORE, TASK_SETS, named
from crawl_env.errors import shown
from crawl_env.files.atomic import write_text
from crawl_env.files.regular import regular
from crawl_env.fleet.parameters import PARAMETERS
from crawl_env.numerics import FloatArray
from ephemeral_crawl.core.evaluation import markdown, plain
from ephemeral_crawl.core.program import Command
from experiments.references import UNLEARNT

FOLDER = Path("results") / "leaderboard"
_LARGEST = 16 << 20  # bytes of a file; one of all tasks has less than a tenth
CANDIDATES, REPORTED, VERIFIED, PAGE = "candidates", "reported", "verified", "leaderboard.md"


@dataclass(kw_only=True)
class Leaderboard(Command):
    """Checks submitted results, publishes them, and writes the page of all that are published.

    Candidates are files of `ephemeral-crawl benchmark` in candidates/. Published results are in
    published/reported/ as their authors sent them, or in published/verified/ where the same runs
    were made again. Files are read as data: nothing that they name is imported or run.
    """

    main: ClassVar[tuple[str, ...]] = ("publish",)

    folder: Path = FOLDER
    """Folder of the leaderboard."""
    publish: str = ""
    """Name of a candidate file to publish, as reported."""
    verified: str = ""
    """Path of a result of the organisers' own runs of a reported agent; it is then verified."""
    salt: str = ""
    """The organiser's secret with which the seeds of all results were made."""

    def run(self) -> None:
        published = self.folder / "published"
        for state in (REPORTED, VERIFIED):
            (published / state).mkdir(parents=True, exist_ok=True)
        (self.folder / CANDIDATES).mkdir(exist_ok=True)
        if self.publish:
            source = self.folder / CANDIDATES / Path(self.publish).name
            if source.suffix != ".json":
                raise ValueError(f"{source.name} is not named .json, so that no page would show it")
            result = self._read(source)
            for path in sorted(published.glob("*/*.json")):
                if path.name == source.name or self._read(path)["hash"] == result["hash"]:
                    raise ValueError(
                        f"{source.name} was published before, as {path.parent.name}/{path.name}; "
                        "a new result needs a new name"
                    )
            source.rename(published / REPORTED / source.name)
        if self.verified:
            own = self._read(Path(self.verified))
            reported = sorted((published / REPORTED).glob("*.json"))
            mine = _same_runs(own, self.verified, {path: self._read(path) for path in reported})
            if self._read(mine)["hash"] == own["hash"]:
                raise ValueError(
                    f"{self.verified} is the reported result itself; run the agent again, and give "
                    "that result"
                )
            mine.rename(published / VERIFIED / mine.name)
        entries = published_results(self.folder, self.salt)
        write_text(self.folder / PAGE, page(entries, self.salt))
        results = [(shown(result["agent"]), result) for _, result in entries]
        reasons = []
        waiting = sorted((self.folder / CANDIDATES).glob("*.json"))
        for path in waiting:
            try:
                results.append((path.name, self._read(path)))
            except ValueError as error:
                reasons.append(str(error))
        for name, result in results:
            for task_id in above_bounds(result):
                print(
                    f"warning: {name} is clearly above the bound of {task_id}; find out whether "
                    "its agent uses more than it observes"
                )
        print(f"{len(entries)} published, {len(waiting)} candidates; {self.folder / PAGE}")
        if reasons and not (self.publish or self.verified):
            raise ValueError("\n".join(reasons))
        for reason in reasons:  # of other candidates
            print(f"warning: {reason}")

    def _read(self, path: Path) -> dict[str, Any]:
        return read(path, self.salt)


def published_results(folder: Path, salt: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Return the published results of a leaderboard with their states, those verified first."""
    return [
        (state, read(path, salt))
        for state in (VERIFIED, REPORTED)
        for path in sorted((folder / "published" / state).glob("*.json"))
    ]


def above_bounds(result: dict[str, Any]) -> list[str]:
    """Return the tasks whose bound a result exceeds by more than chance, as no policy should; none
    of a result with salted seeds, for whose runs no bounds are recorded."""
    if result["salted"]:
        return []
    rewards: dict[str, list[float]] = {}
    for row in sorted(result["runs"], key=itemgetter("run")):
        rewards.setdefault(row["task"], []).append(row["reward"])
    bounds = {task_id: named(task_id).references.get("bound") for task_id in rewards}
    return [
        task_id
        for task_id, bound in bounds.items()
        if bound is not None
        and len(bound.rewards) == len(rewards[task_id])
        and statistics.difference(rewards[task_id], bound.rewards).low > 0
    ]


def read(path: Path, salt: str = "") -> dict[str, Any]:
    """Return a submitted result.

    Raises:
        ValueError: it must not be published; the message names the file and says why.
    """
    try:
        if Path(regular(path)).stat().st_size > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST >> 20} MB, and no result has so many")
        text = path.read_text(encoding="utf-8")
        result: dict[str, Any] = json.loads(text, parse_constant=_not_finite)
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}; give the name of one that exists") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError(
            f"{path.name} is not JSON; submit the file as agents.benchmark wrote it"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None
    try:
        check_result(result, salt)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None
    return result


def _not_finite(constant: str) -> float:
    raise ValueError(f"it has the value {constant}; all numbers must be finite")


def _made(result: dict[str, Any]) -> dict[str, Any]:
    """Return what two results of the same agent have in common, rewards rounded to nine digits."""
    runs = [(r["task"], r["run"], float(f"{r['reward']:.9g}")) for r in result["runs"]]
    return {key: result[key] for key in ("agent", "training", "settings")} | {"runs": runs}


def _same_runs(own: dict[str, Any], name: str, reported: dict[Path, dict[str, Any]]) -> Path:
    """Return the reported result that has the same runs as one of the organisers'.

    Arguments:
        own, name: the organisers' result, and the name of its file.

    Raises:
        ValueError: there is none; the message says what differs.
    """
    mine = _made(own)
    others = {path: _made(result) for path, result in reported.items()}
    for path, other in others.items():
        if other == mine:
            return path
    reason = "no reported result has the agent, training and settings of"
    for path, other in others.items():
        if {**other, "runs": mine["runs"]} == mine:
            count = len({*other["runs"]} - {*mine["runs"]})
            reason = (
                f"{path.name} has the agent, training and settings, but {count} of its "
                f"{len(other['runs'])} runs have other rewards, or are not among the "
                f"{len(mine['runs'])} of"
            )
    raise ValueError(
        f"{reason} {name}. A result is verified once, by runs of the same agent (--called names "
        "it) with the same training and settings that give the same rewards; an agent that draws "
        "at random repeats its runs if it uses its generator, `self.rng`, or the seed that it is "
        "given"
    )


def page(entries: list[tuple[str, dict[str, Any]]], salt: str = "") -> str:
    """Return the page in Markdown: a table for each tier and other set of tasks.

    Arguments:
        entries: states and results, those verified first.
    """
    parts = [
        "<!-- Written by `python -m experiments leaderboard` from the published results. -->\n"
    ]
    for tier in (name for name in TASK_SETS if name != "checks"):
        task_ids = list(tasks(tier))
        rows: list[tuple[float, list[str], dict[str, FloatArray]]] = []
        partial: list[tuple[tuple[str, str], dict[str, FloatArray]]] = []
        earlier: list[dict[str, Any]] = []  # the same runs may be in results of several sets
        for state, result in entries:
            runs = [row for row in result["runs"] if row["task"] in task_ids]
            if (own_runs := _made({**result, "runs": runs})) in earlier:
                continue
            earlier.append(own_runs)
            scores = run_scores(runs, "test", salt)
            if task_ids and set(scores) == set(task_ids):
                together = iqm(list(scores.values()))
                worst = min(float(np.quantile(x, 0.1)) for x in scores.values())
                budget = f"{result['training']:,}"
                own = [
                    _safe(result["agent"]),
                    plain(together),
                    f"{worst:.3f}",
                    _failed(runs, salt),
                ]
                cells = [*own, budget, str(result["trials"]), state]
                rows.append((together.mean, cells, scores))
                continue
            partial.append(((_safe(result["agent"]), f"{result['training']:,}"), scores))
        if rows:
            rows.sort(key=lambda row: -row[0])
            measures = ["IQM of scores", "worst decile", "failed runs", "training", "trials"]
            head = ["agent", *measures, "state"]
            table = [head, ["---", *["---:"] * 5, "---"], *(cells for _, cells, _ in rows)]
            parts.append(f"\n**{tier}** ({len(task_ids)} tasks)\n\n{markdown(table)}")
            complete = {(cells[0], cells[4]) for _, cells, _ in rows}
            others = [entry for entry in partial if entry[0] not in complete]
            names = Counter(cells[0] for _, cells, _ in rows)
            agents = [
                (cells[0] if names[cells[0]] == 1 else _trained(cells[0], cells[4]), scores)
                for _, cells, scores in rows
            ]
            parts.append(f"Mean score of each task:\n\n{_means(task_ids, agents, others)}")
            informed = [
                task.name
                for task in tasks(tier).values()
                if {*PARAMETERS} <= {*task.arguments.get("features", ())}
            ]
            if informed:
                parts.append(
                    f"{', '.join(informed)}: all agents are shown the true parameters of the "
                    "sources. Results do not state which of them an agent uses.\n"
                )
    if len(parts) == 1:
        parts.append(
            f"No result of all tasks of a tier, or of the core ({', '.join(CORE)}), yet.\n"
        )
    return "\n".join(parts)


def _failed(runs: list[dict[str, Any]], salt: str) -> str:
    """Return how many runs are not above the best policy that learns nothing, in the same run;
    "n/a" if its rewards are not recorded, as those of other seeds."""
    by_task = {row["task"]: named(row["task"]).references for row in runs}
    if salt or not all(UNLEARNT in references for references in by_task.values()):
        return "n/a"
    count = sum(row["reward"] <= by_task[row["task"]][UNLEARNT].rewards[row["run"]] for row in runs)
    return f"{count} of {len(runs)}"


def _means(
    task_ids: list[str],
    agents: list[tuple[str, dict[str, FloatArray]]],
    others: list[tuple[tuple[str, str], dict[str, FloatArray]]],
) -> str:
    """Return the table of the mean scores by task and agent, the longer list downwards."""
    downwards = "agent" if len(agents) > len(task_ids) else "task"
    table = [[downwards, *(task_id.rpartition("/")[2] for task_id in task_ids)]]
    table += [[name, *(f"{scores[x].mean():.3f}" for x in task_ids)] for name, scores in agents]
    better = [
        _best(task_id, others, max(float(scores[task_id].mean()) for _, scores in agents))
        for task_id in task_ids
    ]
    if any(better):
        table.append(["better, but plays some of these tasks only", *better])
    if downwards == "task":
        table = [list(row) for row in zip(*table, strict=True)]
    return markdown([table[0], ["---", *["---:"] * (len(table[0]) - 1)], *table[1:]])


def _best(
    task_id: str, others: list[tuple[tuple[str, str], dict[str, FloatArray]]], limit: float
) -> str:
    """Return the largest mean score in a task, with the agent and its training, if it is above the
    largest that is listed; else ""."""
    rivals = [
        (float(scores[task_id].mean()), _trained(*agent))
        for agent, scores in others
        if task_id in scores
    ]
    best = max(rivals, default=(limit, ""))
    return "{:.3f} {}".format(*best) if best[0] > limit else ""


def _trained(name: str, training: str) -> str:
    return f"{name} (training {training})"


def _safe(text: str) -> str:
    """Return a name as text that Markdown and HTML show as it is."""
    escaped = "".join(x if x.isalnum() or x in " .,+-=()" else f"&#{ord(x)};" for x in text)
    return " ".join(escaped.split())
