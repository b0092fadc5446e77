"""`ephemeral-crawl benchmark`: an agent of a module in the present folder."""

import json
import re
import sys

import pytest

from agents import benchmark
from agents.evaluation.benchmark import check_result, playable
from crawl_env import CrawlVectorEnv
from crawl_env.benchmark import TASKS
from ephemeral_crawl.__main__ import PROGRAM
from ephemeral_crawl.benchmark import Benchmark, load
from tests.refusals import refused

MODULE = """
from agents import Agent, Myopic

class Mine(Agent):
    name = "mine"
    features = ("age",)

    def __init__(self, env, *, seed=None, power=1):
        super().__init__(env, seed=seed)
        self.power = power

    def priority(self, view):
        return (view["age"] / (1 + view["age"])) ** self.power

class Secretive(Mine):
    features = ()

class Leaving(Mine):
    steps = 0

    def priority(self, view):
        Leaving.steps += 1
        if Leaving.steps > 3:
            raise SystemExit(0)
        return super().priority(view)

class Lasting(Mine):
    steps = 0

    def priority(self, view):
        Lasting.steps += 1
        return super().priority(view) / Lasting.steps * (-1) ** (Lasting.steps % 7)
"""


def run(*words):
    few = ("--tasks", "Recovering4M1Discounted", "--run-on", "sequential", "--jobs", "1")
    PROGRAM.run(["benchmark", *few, "--out", "out", *words])


def test_an_agent_enters_with_its_settings(tmp_path, monkeypatch, capsys):
    (tmp_path / "entrant_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    twice = "Recovering4M1Discounted, Recovering4M1Discounted-v0"
    mine = ("--agent", "entrant_module:Mine", "--settings", '{"power": 2}', "--trials", "3")
    run(*mine, "--tasks", twice)
    found = json.loads((tmp_path / "out" / "result.json").read_text())
    check_result(found)
    assert (found["agent"], found["made_by"]) == ("mine", "entrant_module:Mine")
    assert (found["settings"], found["trials"]) == ({"power": 2}, 3)
    assert "Recovering4M1Discounted-v0@0" in capsys.readouterr().out
    for words, reason in (
        (["--agent", "entrant_module:Nobody"], "has no 'Nobody'"),
        (["--agent", "elsewhere:Mine"], "there is no module 'elsewhere'"),
        (["--agent", "entrant_module:Secretive"], "does not show the feature age"),
        (["--agent", "entrant_module:Mine", "--tasks", "Drift10"], "did you mean 'Drift100'?"),
        (
            ["--agent", "entrant_module:Mine", "--tasks", "Drift100-v9"],
            "which is EphemeralCrawl/Drift100-v0",
        ),
        (["--agent", "entrant_module:Mine", "--settings", "[1]"], "give an object"),
        (
            ["--agent", "entrant_module:Mine", "--settings", '{"powr": 2}'],
            "unknown setting of Mine 'powr'; did you mean 'power'? Known: power",
        ),
        (
            ["--agent", "agents.learning:WhittleQ", "--settings", '{"base": "whittle"}'],
            "unknown setting of WhittleQ 'base'",
        ),
        (["--agent", "whittle", "--settings", '{"a": 1}'], "Whittle takes none"),
        (["--agent", "ppo"], "ppo has to be trained before each run"),
        (["--agent", "pppo", "--training", "10000"], "unknown agent 'pppo'"),
        (["--agent", "entrant_module"], "A class of your own is named MODULE:CLASS"),
        (["--agent", ":Mine"], "give MODULE:CLASS"),
        (["--agent", "entrant_module:"], "give MODULE:CLASS"),
        (["--agent", "./entrant_module:Mine"], "give MODULE:CLASS"),
        (["--agent", "whittle", "--trials", "21"], "at most 20 settings may be tried"),
        (
            ["--agent", "ppo", "--training", "12345"],
            "give one of 10,000, 100,000, 1,000,000 (or 0, for none), so that the result",
        ),
        (["--agent", "whittle", "--jobs", "0"], "jobs is 0; give a number of processes"),
        ([], "no agent was given"),
    ):
        with pytest.raises(SystemExit) as error:
            run(*words)
        assert reason in str(error.value)
    with pytest.raises(RuntimeError, match=r"entrant_module:Leaving called sys.exit\(0\)"):
        run("--agent", "entrant_module:Leaving")


def test_a_result_does_not_replace_that_of_another_budget_or_of_other_tasks():
    """All results of an agent had one folder: a second training replaced that of the first."""
    mine = {"agent": "my_module:Mine"}
    folders = [
        Benchmark(**mine, **more).folder
        for more in (
            {},
            {"training": 10_000},
            {"training": 10_000, "split": "validation"},
            {"tasks": "trained", "training": 100_000},
            {"tasks": "Drift100, EphemeralCrawl/Jumps100-v0"},
        )
    ]
    assert [folder.name for folder in folders] == [
        "benchmark-my_module-Mine",
        "benchmark-my_module-Mine-10000",
        "benchmark-my_module-Mine-10000-validation",
        "benchmark-my_module-Mine-trained-100000",
        "benchmark-my_module-Mine-Drift100-EphemeralCrawl-Jumps100-v0",
    ]
    many = ",".join(TASKS)
    names = [Benchmark(**mine, tasks=f"{many},{last}").folder.name for last in ("checks", "open")]
    assert names[0] != names[1]
    assert {len(name) for name in names} == {120}
    others = {"settings": '{"a": 1}'}, {"settings": '{"a": -1}'}, {"features": ("age",)}
    names = [Benchmark(**mine, **more).folder.name for more in (*others, {"salt": "pepper"})]
    assert len(set(names)) == 4
    assert all(re.fullmatch(r"benchmark-my_module-Mine-[0-9a-f]{8}", name) for name in names)


def test_a_learner_that_is_not_trained_is_told(tmp_path, monkeypatch, capsys):
    """A class with `learn` played as it was made, without a word."""
    (tmp_path / "learner_module.py").write_text(
        f"{MODULE}\nclass Learner(Mine):\n    learn = print\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    run("--agent", "learner_module:Learner")
    assert "`learn` is not called: without --training" in capsys.readouterr().out


def test_an_agent_that_is_not_reproducible_is_told(tmp_path, monkeypatch, capsys):
    """Its result was found out only when it was to be verified."""
    (tmp_path / "lasting_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    warning = "when it was played again: the result cannot be verified"
    run("--agent", "lasting_module:Lasting")
    assert warning in capsys.readouterr().out
    check_result(json.loads((tmp_path / "out" / "result.json").read_text()))
    with pytest.warns(UserWarning, match=warning):
        benchmark(load("lasting_module:Lasting"), "Recovering4M1Discounted")
    benchmark(load("lasting_module:Mine"), "Recovering4M1Discounted")  # without a warning


def test_which_names_a_module_may_have(tmp_path, monkeypatch):
    (tmp_path / "my-module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert load("my-module:Mine").name == "mine"
    for package in ("agents", "ephemeral_crawl"):
        rival = tmp_path / f"{package}.py"
        rival.write_text(MODULE)
        for module in ("my-module", package):
            with refused(f"{package}.py has the name of a package of", "rename it"):
                load(f"{module}:Mine")
        rival.unlink()


def test_a_wrong_setting_of_a_known_agent_arose_in_no_line_of_ones_own():
    learner = load("residual-evolution", {"n_steps": -4})
    with pytest.raises(ValueError, match="n_steps is -4") as found:
        playable(learner, ["Sparse10Trained"], (), 10_000)
    assert "benchmark.py" not in str(found.value)


def test_settings_of_a_learner_are_the_fields_of_its_dataclass():
    learner = load("residual-evolution", {"base": "myopic", "n_steps": 4})
    assert learner.__module__ == "agents.learning.fleet.residual"
    agent = learner(CrawlVectorEnv(2, features=("value",)), seed=3)
    assert (agent.name, agent.seed) == ("residual-evolution", 3)
    assert (agent.settings.base, agent.settings.n_steps) == ("myopic", 4)
