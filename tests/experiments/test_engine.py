"""The study of an indexing engine: its parts, and its report."""

import numpy as np
import pytest

from agents.theory.engine import backlog
from crawl_env import Task
from ephemeral_crawl.core.results import read_csv
from experiments.__main__ import PROGRAM
from experiments.engine import small
from experiments.engine.command import AGENTS, INVENTED


def test_the_quick_study_and_its_report(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(backlog, "_ROUNDS", 1)  # how good the index is does not matter
    out = tmp_path / "engine"
    short = ["--suite", "quick", "--seeds", "2", "--steps", "5"]
    PROGRAM.run(["engine", *short, "--part", "service", "recordings", "--engine", "sequential",
                 "--out", str(out)])  # fmt: skip
    assert "whittle-engine" in capsys.readouterr().out
    rows = read_csv(out / "service.csv.gz")
    assert {row["agent"] for row in rows} == set(AGENTS)
    assert all(float(row["bound"]) > 0 for row in rows if row["bound"])
    replayed = read_csv(out / "recordings.csv.gz")
    assert {(row["recording"], row["agent"]) for row in replayed} == {
        (INVENTED, agent) for agent in AGENTS[:2]
    }


@pytest.mark.parametrize("case", [6, 8])
def test_small_cases_are_in_order(case):
    found = small.exact_work({"case": case, "seed": 0})
    assert found["bound"] > found["optimum"]
    for policy in small.POLICIES:
        assert found[policy] <= found["optimum"] * (1 + 1e-3)
    assert found["whittle-engine"] > 0.98 * found["optimum"]


def test_what_a_learner_crawls_is_read_state_by_state():
    """A learner that crawls what the optimal policy does earns the optimum."""
    process = small._process()
    optimum, best = process.optimum(1e-6)

    class Optimal:
        """Stands for a learner, of the same observations."""

        task = Task(
            small.FLEET,
            1,
            engine=small.ENGINE,
            arrivals="poisson-items",
            observed=False,
            features=small.SEES,
            scaled=True,
        )

        def predict(self, observation):
            age, backlog = np.moveaxis(self.task.natural(observation), -1, 0)
            place = np.rint(age).astype(int) - 1
            chosen = best[(0, *place.T, np.rint(backlog[:, 0]).astype(int))]
            return np.eye(len(small.FLEET))[chosen], None

    earned = process.reward(small._choices_of(process, Optimal()))
    np.testing.assert_allclose(earned, optimum, rtol=1e-5)


def test_a_learner_is_trained_in_front_of_an_engine():
    job = {"agent": small.AGENT, "features": list(small.SEES), "seed": 0, "steps": 60}
    (reward,) = small.learner_work(job)["rewards"].values()
    assert 0 < reward <= small._process().optimum(1e-4)[0] * (1 + 1e-4)
