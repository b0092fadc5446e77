"""Agents of one's own, known by name: registered, or installed with an entry point."""

import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import agents
from agents.registry import AGENTS, GROUP, find
from ephemeral_crawl.__main__ import PROGRAM

ROOT = Path(__file__).parents[2]
POSED = {"sources": "table1", "budget": 2}


class Ceiling(agents.IndexAgent):
    """Crawls the sources with the highest ceiling."""

    name = "ceiling"
    features = ("age",)

    def index(self, value, sources):
        return 0 * value + sources.ceiling


class Oldest(agents.Agent):
    name = "oldest"
    features = ("age",)

    def priority(self, view):
        return -1 / view["age"]


@pytest.fixture(autouse=True)
def _restored():
    before = dict(AGENTS)
    yield
    AGENTS.clear()
    AGENTS.update(before)


def test_a_registered_agent_is_made_and_compared_by_name():
    agents.register("ceiling", Ceiling)
    agents.register("oldest", Oldest)
    assert isinstance(agents.make("ceiling", agents_env()), Ceiling)
    runs = agents.compare(["ceiling", "oldest", "fixed", "oldest-first"], POSED, steps=60, seeds=3)
    # Table 1: sources 1 and 2 have the highest ceilings; `fixed` crawls the highest inflows, 1, 2.
    assert np.array_equal(runs["ceiling"].reward, runs["fixed"].reward)
    assert np.array_equal(runs["oldest"].reward, runs["oldest-first"].reward)  # sees `age`


def agents_env():
    from crawl_env import CrawlEnv

    return CrawlEnv(**POSED, features=("value", "age"))


def test_a_factory_may_be_a_function():
    agents.register("thrifty", partial(agents.Certainty, estimator="likelihood"))
    assert find("thrifty").func is agents.Certainty
    agents.register("shy", lambda env, seed=None: agents.Whittle(env, seed=seed))
    runs = agents.compare(["shy", "whittle"], POSED, steps=50, seeds=3)
    assert np.array_equal(runs["shy"].reward, runs["whittle"].reward)


@pytest.mark.parametrize("name", ["whittle", "ceiling", "clairvoyant"])
def test_a_name_belongs_to_one_agent(name):
    agents.register("ceiling", Ceiling)
    with pytest.raises(ValueError, match=rf"'{name}' is taken by .*; register under another name"):
        agents.register(name, Oldest)
    assert find("ceiling") is Ceiling


def test_the_cell_of_a_notebook_can_be_run_again():
    def cell():
        class Mine(agents.IndexAgent):
            name = "mine"

        agents.register("mine", Mine)
        return Mine

    assert cell() is not cell()
    assert find("mine") is not cell()
    with pytest.raises(ValueError, match="taken by agents"):
        agents.register("whittle", agents.Whittle)


@pytest.mark.parametrize(
    ("name", "factory", "error", "words"),
    [
        ("a b", Oldest, ValueError, "a word without spaces"),
        ("", Oldest, ValueError, "a word without spaces"),
        ("mine", lambda env: None, TypeError, "cannot be called as"),
        ("mine", 3, TypeError, "Give a subclass of agents.Agent"),
        ("mine", max, TypeError, "Give a subclass of agents.Agent"),
    ],
)
def test_what_cannot_be_registered(name, factory, error, words):
    with pytest.raises(error, match=words):
        agents.register(name, factory)


@pytest.mark.parametrize("made", [None, 3])
def test_a_factory_must_make_agents(made):
    agents.register("mine", lambda env, seed: made)
    with pytest.raises(TypeError, match=rf"factory of agent 'mine' returned {made}; it must"):
        agents.evaluate("mine", POSED, steps=1)


def test_an_agent_without_priorities_says_what_to_implement():
    agents.register("mine", agents.Agent)
    with pytest.raises(NotImplementedError, match="Agent must implement priority"):
        agents.evaluate("mine", POSED, steps=1)


def test_an_unknown_name_says_how_to_add_agents():
    with pytest.raises(ValueError, match=r"did you mean 'whittle'\?.*agents.register.*" + GROUP):
        agents.make("whitle", agents_env())


INSTALLED = """
from agents import IndexAgent

class Ceiling(IndexAgent):
    name = "ceiling"

    def index(self, value, sources):
        return 0 * value + sources.ceiling
"""
HOW_TO = (ROOT / "docs" / "how-to" / "agent.md").read_text(encoding="utf-8")
EVERY_OTHER = HOW_TO.partition("import numpy as np")[2].partition("\ntask = ")[0]
SECRETIVE = EVERY_OTHER.replace("EveryOther", "Secretive").replace("features =", "observes =")


@pytest.fixture
def installed(tmp_path):
    """A package with two entry points, one of them broken."""
    code = f"import numpy as np\n{INSTALLED}\n{EVERY_OTHER}\n{SECRETIVE}"
    (tmp_path / "own_agents.py").write_text(code)
    about = tmp_path / "own_agents-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own-agents\nVersion: 1.0\n")
    points = "installed = own_agents:Ceiling\nbroken = own_agents:Nothing\n"
    points += "every-other = own_agents:EveryOther\nsecretive = own_agents:Secretive\n"
    (about / "entry_points.txt").write_text(f"[{GROUP}]\n{points}")
    return tmp_path


def test_an_installed_agent_is_found(installed, monkeypatch):
    monkeypatch.syspath_prepend(installed)
    assert agents.make("installed", agents_env()).name == "ceiling"
    with pytest.raises(ImportError, match="'own_agents:Nothing', cannot be loaded"):
        agents.make("broken", agents_env())
    with pytest.raises(ValueError, match="did you mean 'installed'"):
        agents.make("instaled", agents_env())
    AGENTS.pop("installed")
    other = installed / "other-1.0.dist-info"
    shutil.copytree(installed / "own_agents-1.0.dist-info", other)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    with pytest.raises(ValueError, match="several installed packages have an agent 'installed'"):
        agents.make("installed", agents_env())


def test_installed_agents_are_known_to_the_command_and_see_what_they_observe(
    installed, monkeypatch, capsys
):
    monkeypatch.syspath_prepend(installed)
    words = "evaluate --sources table1 --budget 2 --agents installed every-other --steps 30"
    options = "--warmup 5 --seeds 3 --engine sequential --out"
    PROGRAM.run([*words.split(), *options.split(), str(installed / "out")])
    said = capsys.readouterr().out
    assert "installed" in said
    assert "every-other" in said


def test_an_agent_that_does_not_say_what_it_observes_is_refused_before_any_work(
    installed, monkeypatch, capsys
):
    monkeypatch.syspath_prepend(installed)
    words = "evaluate --sources table1 --budget 2 --agents secretive --seeds 3 --out"
    with pytest.raises(SystemExit) as stop:
        PROGRAM.run([*words.split(), str(installed / "out")])
    said = str(stop.value)
    assert "agent 'secretive' cannot act here: the environment does not show the feature age" in (
        said
    )
    assert 'as in features = ("age",)' in said
    assert not capsys.readouterr().out
    assert not list(installed.glob("out*"))
