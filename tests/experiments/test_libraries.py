"""The study of libraries: recipes are run and judged, and the matrix is that of the records."""

import itertools
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from agents import Whittle, evaluate
from crawl_env import CrawlEnv, Sources
from ephemeral_crawl.core.results import ROOT, read_csv
from experiments import libraries
from experiments.libraries import (
    SCRIPTS,
    InstallationFailed,
    Libraries,
    Recipe,
    last_line,
    matrix,
    python_of,
    recipes,
)

RECORD = ROOT / "results" / "libraries"
PYTHON = Path(sys.executable)


def test_the_recipe_of_stable_baselines3_runs_with_few_steps(monkeypatch, capsys):
    """In this process, which has imported its libraries."""
    script = SCRIPTS / "training" / "sb3_ppo.py"
    monkeypatch.syspath_prepend(str(script.parent))
    monkeypatch.setattr("scoring.EPISODES", 2)
    monkeypatch.setattr(sys, "argv", [str(script), "--seed", "1", "--steps", "2048"])
    runpy.run_path(str(script), run_name="__main__")
    result = json.loads(last_line(capsys.readouterr().out))
    assert result["package"] == "stable_baselines3"
    assert (result["seed"], result["steps"]) == (1, 2048)
    gain = (result["reward"] - result["random"]) / (result["whittle"] - result["random"])
    assert result["score"] == pytest.approx(gain)
    assert result["random"] < result["same_sources"] < result["whittle"]
    assert result["score"] < 1.01


ECHO = """
import json, sys
print("so far:")
print(json.dumps({"words": sys.argv[1:]}))
"""


@pytest.mark.parametrize(
    ("script", "result"),
    [
        (ECHO, {"words": ["--seed", "5", "--steps", "20"]}),
        ("raise ValueError('no such id')", {"problem": "ValueError: no such id"}),
        ("print('hello')", {"problem": "printed no result"}),
        ("import sys; sys.exit(3)", {"problem": "exit status 3"}),
        ("import time; time.sleep(60)", {"problem": "stopped after 1 s"}),
    ],
)
def test_a_recipe_is_run_and_what_is_wrong_with_it_is_said(tmp_path, script, result):
    file = tmp_path / "lib_some.py"
    file.write_text(script, encoding="utf-8")
    assert Recipe(file).run(PYTHON, 5, 20, 1 if "sleep" in script else 60) == result


def test_an_environment_that_cannot_be_installed_is_a_failure_of_its_recipes_only(
    tmp_path, monkeypatch
):
    def refuse(python, *words):
        raise InstallationFailed("pip install failed: no such version")

    monkeypatch.setattr(libraries, "_pip", refuse)
    monkeypatch.setattr(libraries.venv, "create", lambda *_, **__: None)
    out = tmp_path / "out"
    study = Libraries(out=out, only=("minari",), environments=tmp_path, run_on="sequential")
    study.run()
    (row,) = read_csv(out / "records.csv")
    assert row["problem"] == "pip install failed: no such version"
    assert "| fails |" in (out / "matrix.md").read_text(encoding="utf-8")
    assert python_of(Recipe(SCRIPTS / "training" / "sb3_ppo.py"), tmp_path) == PYTHON


def _run(score, problem=""):
    return {
        "recipe": "a_b",
        "library": "A",
        "what": "B",
        "trains": True,
        **dict.fromkeys(libraries.MEASURED, ""),
        "steps": 1000,
        "random": 1.0,
        "whittle": 2.0,
        "same_sources": 1.8,
        "ratio": (1 + score) / 2,
        "score": score,
        "seed": 0,
        "problem": problem,
    }


def test_the_worst_run_decides():
    assert libraries.verdict([_run(0.99), _run(1.0)]) == libraries.REACHES
    assert libraries.verdict([_run(1.0), _run(0.98)]) == libraries.FALLS_SHORT
    assert libraries.verdict([_run(1.0), _run(1.0, "ValueError: x | y")]) == libraries.FAILS
    assert r"seed 0: x \| y" in matrix([_run(1.0), _run(1.0, "x | y")])


def test_unknown_libraries_and_sizes_are_refused(tmp_path):
    for wrong, message in (
        ({"only": ("sb4",)}, "sb3"),
        ({"seeds": 0}, "--seeds is 0"),
        ({"only_report": True}, "no tables to make a report from"),
    ):
        with pytest.raises(ValueError, match=message):
            Libraries(out=tmp_path / "out", **wrong).run()


def test_the_discount_factor_decides_what_can_be_learnt():
    table1 = Sources.preset("table1")
    rewards = [libraries.reward_per_step(factor, table1, 2) for factor in (0, 0.7, 0.9)]
    assert rewards == sorted(rewards)
    records = [row for row in read_csv(RECORD / "records.csv") if row["score"]]
    assert rewards[0] == pytest.approx(
        float(records[0]["same_sources"])
    )  # these are best myopically
    assert rewards[2] == pytest.approx(float(records[0]["whittle"]), rel=1e-3)


def test_every_recipe_is_recorded_and_the_matrix_is_that_of_the_records():
    records = read_csv(RECORD / "records.csv")
    assert {row["recipe"] for row in records} == {one.name for one in recipes()}
    assert matrix(records) == (RECORD / "matrix.md").read_text(encoding="utf-8")


def test_the_record_says_that_each_library_works_and_learns():
    records = read_csv(RECORD / "records.csv")
    for one in recipes():
        runs = [row for row in records if row["recipe"] == one.name]
        assert libraries.verdict(runs) == (libraries.REACHES if one.trains else libraries.WORKS), (
            one
        )
        assert len(runs) >= (3 if one.trains else 1), one


def test_the_best_score_within_an_episode():
    """That of docs/researchers/libraries.md, by backward induction over ages, capped at 16."""
    env = CrawlEnv("table1", budget=2)
    fleet, horizon = env.task.sources, env.task.horizon
    pairs = list(itertools.combinations(range(4), 2))

    def after(ages, pair):
        return tuple(1 if i in pair else min(age + 1, 16) for i, age in enumerate(ages))

    start = (1, 1, 1, 1)
    number = {start: 0}
    for ages in (waiting := [start]):
        for pair in pairs:
            if (following := after(ages, pair)) not in number:
                number[following] = len(number)
                waiting.append(following)
    content = fleet.ceiling * (1 - fleet.retention ** np.array(waiting))
    reward = np.stack([content[:, pair].sum(axis=1) for pair in pairs], axis=1)
    following = np.array([[number[after(ages, pair)] for pair in pairs] for ages in waiting])
    best = np.zeros(len(waiting))
    for _ in range(horizon):
        best = (reward + best[following]).max(axis=1)

    agent, (observation, _) = Whittle(env), env.reset(seed=0)
    np.testing.assert_allclose(observation[:, 0], content[0], rtol=1e-6)
    total = 0.0
    for _ in range(horizon):
        observation, gained, *_ = env.step(agent.predict(observation)[0])
        total += gained
    random = horizon * evaluate("random", {"budget": 2}, seeds=5).reward.mean()
    assert (best[0] - random) / (total - random) == pytest.approx(1.003, abs=5e-4)
