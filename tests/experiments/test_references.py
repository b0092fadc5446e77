"""The recorded references, and the page of the tasks."""

import re
from dataclasses import replace

import numpy as np
import pytest

from agents.evaluation.benchmark import reference_run
from agents.evaluation.rollout import evaluate
from crawl_env.benchmark import TASKS
from crawl_env.benchmark.task import Reference
from experiments.references import (
    _bound,
    contents,
    expected_at_random,
    headroom,
    recorded_references,
    runs_without_room,
    task_page,
)

DRAWN = [name for name, task in TASKS.items() if "drawn-" in task.arguments["sources"]]


@pytest.mark.parametrize("name", DRAWN)
def test_the_bound_of_every_generated_fleet_is_above_the_random_policy(name):
    task = TASKS[name]
    known = task.references
    assert runs_without_room(task, known) == []
    if name == DRAWN[0]:  # the run of another one would be found, too
        rewards = known["bound"].rewards
        worse = {**known, "bound": Reference("bound", (*rewards[:-1], 1e-3 * rewards[-1]))}
        assert runs_without_room(task, worse) == [task.seeds - 1]


@pytest.mark.parametrize(
    ("name", "agent"),
    [
        ("Drift100", "whittle-current"),
        ("Jumps100", "whittle-current"),
        ("Recovering4M1Discounted", "whittle"),
        ("Recovering10M1Discounted", "whittle"),
        ("Recovering100M25Discounted", "whittle"),
    ],
)
def test_the_bound_of_the_steps_of_a_run_is_nearly_attained(name, agent):
    task, known = TASKS[name], TASKS[name].references
    found = _bound(task, 0)
    assert known["bound"].rewards[0] == pytest.approx(found, rel=1e-9)
    below = 1 - np.array(known[agent].rewards) / known["bound"].rewards
    error = below.std(ddof=1) / np.sqrt(task.seeds)
    assert -3 * error <= below.mean() < 0.02


SCORES_1 = {task.name: task.best for task in TASKS.values() if task.best != "whittle"}


@pytest.mark.parametrize("name", [*SCORES_1, "Sparse100ItemsCold"])
def test_what_scores_1_is_what_the_policy_earns_unless_an_erratum_says_so(name):
    task = TASKS[name]
    if any(task.best in text for text in task.errata):
        return
    found = reference_run(task.best, task, 3)
    assert found == pytest.approx(task.references[task.best].rewards[3], rel=1e-9)


@pytest.mark.parametrize("name", ["Dense100Unobserved", "Sparse100Harvest", "General10"])
def test_what_random_crawls_collect_is_known(name):
    task = replace(TASKS[name], seeds=1)
    found = evaluate(
        "random", task.arguments_of("test", 0), steps=8000, seeds=1, seed=task.seed("test", 0)
    )
    assert expected_at_random(task, 0) == pytest.approx(found.reward[0], rel=0.08)


def test_every_task_has_a_page_and_a_row_of_the_table_of_contents():
    known = recorded_references()
    listed = contents(known)
    assert not any("nan" in row for row in headroom(known))
    for task in TASKS.values():
        shown = task_page(task, known.get(task.id, {}), "pictures/")
        assert f"[{task.name}](task/{task.name}.md)" in listed
        headings = re.findall("^## (.*)$", shown, re.M)
        assert headings == ["Information", "How it is played", "References", "Versions", "Errata"]
        assert all(f"`{feature}`" in shown for feature in task.features)
        assert f"- v{task.version}: {task.history[-1]}" in shown
        assert (f"(pictures/{task.name}.png)" in shown) == (task.id in known)
