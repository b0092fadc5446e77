"""Results that others submit: published as data, or refused with a reason."""

import json

import pytest

from agents import benchmark
from agents.evaluation.benchmark import sealed
from crawl_env.benchmark import named
from ephemeral_crawl.core.results import ROOT
from experiments import leaderboard
from experiments.leaderboard import Leaderboard, above_bounds, page, published_results, read
from tests.refusals import refused

TASK = "Recovering4M1Discounted"
RESULTS = ROOT / leaderboard.FOLDER


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """A result of the random policy, as text."""
    path = tmp_path_factory.mktemp("result") / "mine.json"
    benchmark("random", TASK, name="<b>mine</b>", out=path)
    return path.read_text()


@pytest.fixture
def folder(tmp_path, result):
    (tmp_path / "candidates").mkdir()
    (tmp_path / "candidates" / "mine.json").write_text(result)
    return tmp_path


def test_a_candidate_is_published_then_verified(folder, monkeypatch):
    own, reported = folder / "own.json", folder / "published" / "reported" / "mine.json"
    result = json.loads((folder / "candidates" / "mine.json").read_text())
    own.write_text(json.dumps(sealed({**result, "machine": "another"})))
    like = folder / "candidates" / "like.json"  # another agent, with the same rewards
    like.write_text(json.dumps(sealed({**result, "agent": "like"})))
    Leaderboard(folder=folder, publish="like.json").run()
    Leaderboard(folder=folder, publish="mine.json").run()
    assert reported.exists()
    with refused("is the reported result itself; run the agent again"):
        Leaderboard(folder=folder, verified=str(reported)).run()
    Leaderboard(folder=folder, verified=str(own)).run()
    verified = folder / "published" / "verified"
    assert [path.name for path in verified.iterdir()] == ["mine.json"]
    with refused("no reported result has the agent, training and settings of"):
        Leaderboard(folder=folder, verified=str(own)).run()
    other = {**result, "agent": "like"}
    other["runs"] = [{**row, "reward": 2.0} for row in other["runs"][:2]] + other["runs"][2:]
    other["runs"].append({**other["runs"][0], "run": 100})
    monkeypatch.setattr(leaderboard, "check_result", lambda result, salt: None)
    own.write_text(json.dumps(other))
    with refused(
        "like.json has the agent, training and settings, but 2 of its 100 runs", "the 101"
    ):
        Leaderboard(folder=folder, verified=str(own)).run()
    monkeypatch.undo()
    own.write_text(json.dumps(result))
    entry = read(own)
    assert "No result of all tasks" in page([("reported", entry)])
    wanted = {task.id: task for task in [named(TASK)]}
    monkeypatch.setattr(leaderboard, "tasks", lambda tier: wanted)
    shown = page([("verified", entry)])
    assert "&#60;b&#62;mine" in shown
    assert "<b>" not in shown
    assert "| 100 of 100 | 0 | 0 | verified |" in shown  # random is not above what learns nothing


def test_the_committed_page_is_that_of_the_published_results():
    shown = page(published_results(RESULTS))
    assert (RESULTS / leaderboard.PAGE).read_text(encoding="utf-8") == shown
    assert "\nDeadline60, Looks100, Diminishing40, Stories20: all agents are shown" in shown
    assert "adaptive-engine (training 0)" in shown  # plays some tasks of the tier, one best of all
    assert "uc-whittle (training" not in shown  # plays some as well, none best of all
    assert "in-context (training" not in shown  # has a column of its own
    assert shown.count("\n| equivariant-index | 0.370") == 1  # of `trained`; `learning` has it, too
    assert "| equivariant-ppo (training 1,000,000) | equivariant-ppo (training 100,000) |" in shown


def test_a_result_above_the_bound_is_named(folder, capsys, monkeypatch):
    path = folder / "candidates" / "mine.json"
    result = json.loads(path.read_text())
    bounds = named(TASK).references["bound"].rewards
    for factor, expected in ((0.999, 0), (1.001, 1)):
        for row in result["runs"]:
            row["reward"] = factor * bounds[row["run"]]
        result["runs"].reverse()  # paired by their runs, not by their order
        assert len(above_bounds(result)) == expected
    assert above_bounds({**result, "salted": True}) == []
    monkeypatch.setattr(leaderboard, "read", lambda path, salt: result)
    Leaderboard(folder=folder).run()
    assert "mine.json is clearly above the bound of EphemeralCrawl/" in capsys.readouterr().out


def test_nothing_is_published_twice(folder):
    text = (folder / "candidates" / "mine.json").read_text()
    Leaderboard(folder=folder, publish="mine.json").run()
    (folder / "candidates" / "other.json").write_text(text)
    with refused("other.json was published before, as reported/mine.json"):
        Leaderboard(folder=folder, publish="other.json").run()
    with refused("there is no file", "nobody.json"):
        Leaderboard(folder=folder, publish="nobody.json").run()


def test_a_faulty_candidate_does_not_hide_the_publication_of_another(folder, capsys):
    for name in ("altered", "bad"):
        (folder / "candidates" / f"{name}.json").write_text("{")
    with refused("altered.json is not JSON", "\nbad.json is not JSON"):
        Leaderboard(folder=folder).run()
    capsys.readouterr()
    Leaderboard(folder=folder, publish="mine.json").run()
    shown = capsys.readouterr().out
    assert "1 published, 2 candidates" in shown
    assert "warning: bad.json is not JSON" in shown


def test_what_is_altered_or_not_finite_is_not_published(folder):
    path = folder / "candidates" / "mine.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps({**result, "agent": "other"}))
    with refused("mine.json: the result of 'other' was altered"):
        Leaderboard(folder=folder, publish="mine.json").run()
    result["runs"][3]["reward"] = float("nan")
    path.write_text(json.dumps(sealed(result)))
    with refused("mine.json: it has the value NaN"):
        Leaderboard(folder=folder).run()
    path.with_name("mine.txt").write_text("")
    with refused("mine.txt is not named .json"):
        Leaderboard(folder=folder, publish="mine.txt").run()
    with path.open("wb") as file:
        file.truncate(17 << 20)
    with refused("mine.json: it has more than 16 MB"):
        Leaderboard(folder=folder, publish="mine.json").run()
    for text in ("[1, 2", "[" * 100_000, "\xff"):
        path.write_text(text, encoding="latin-1")
        with refused("mine.json is not JSON"):
            Leaderboard(folder=folder, publish="mine.json").run()
