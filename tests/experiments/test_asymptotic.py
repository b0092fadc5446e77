"""The asymptotic experiment: copies of fleets, rates, and what mixed costs lose."""

import numpy as np
import pytest

from agents import optimal_reward, relaxed_bound
from ephemeral_crawl.core.results import read_csv
from experiments import asymptotic
from experiments.asymptotic import CASES, FLEETS, LINES, WAYS, Asymptotic, slope, work

SOME = {name: FLEETS[name] for name in ("Table 1, M = 2", "random, N = 10, M = 2")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("asymptotic") / "report"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asymptotic, "FLEETS", SOME)
        patch.setattr(asymptotic, "STEPS", 70)
        patch.setattr(asymptotic, "WARMUP", 28)
        patch.setattr(asymptotic, "SEEDS", ((2, 4),))
        patch.setattr(asymptotic, "MIXED_STEPS", 84)
        Asymptotic(most=2, jobs=1, run_on="sequential", out=out).run()
    return out


def test_it_writes_a_report_and_every_run(folder):
    rows = [row for row in read_csv(folder / "records.csv") if row["fleet"]]
    assert {row["fleet"] for row in rows} == set(SOME)
    assert {row["policy"] for row in rows} == set(LINES)
    assert {row["copies"] for row in rows} == {"1", "2"}
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg ") == 1
    assert "knapsack by index" in page
    assert not list(folder.parent.glob(".*"))


def test_one_copy_of_table1_is_as_far_from_its_bound_as_is_known(folder):
    gap = [
        float(row["gap"])
        for row in read_csv(folder / "records.csv")
        if row["fleet"] == "Table 1, M = 2" and row["policy"] == "whittle" and row["copies"] == "1"
    ]
    np.testing.assert_allclose(gap, 1 - 337.774550 / 338.053940, atol=1e-8)


def test_copies_have_copies_of_the_bound_and_in_lockstep_of_the_reward():
    for copied in FLEETS.values():
        fleet = copied.copies(7)
        assert relaxed_bound(fleet, 7 * copied.budget) == pytest.approx(7 * copied.bound, rel=1e-12)
    runs = {"steps": 28, "warmup": 28, "seeds": 1}
    unit = {"agent": "whittle", "arguments": {}, "runs": runs}
    for k in (1, 5):
        found = work({**unit, "columns": {"fleet": "Table 1, M = 2", "copies": k}})
        assert found["reward_per_copy"] == pytest.approx([337.774550], abs=1e-6)


def test_the_gap_closes_from_random_ages():
    unit = {
        "agent": "whittle",
        "arguments": {"start": "random"},
        "runs": {"steps": 420, "warmup": 300, "seeds": 4},
    }
    case = {"fleet": "random, N = 10, M = 2"}
    gaps = [np.mean(work({**unit, "columns": {**case, "copies": k}})["gap"]) for k in (1, 30)]
    assert gaps[0] > 3e-3
    assert abs(gaps[1]) < 3e-4


def test_slopes():
    rng = np.random.default_rng(0)
    gaps = {k: k**-0.5 * rng.normal(1, 0.05, 10) for k in (1, 4, 20, 100)}
    found = slope(gaps)
    assert found.low < -0.5 < found.high
    assert found.high - found.low < 0.1
    assert np.isnan(slope({1: np.array([1.0]), 10: np.array([-1.0]), 100: np.zeros(2)}).mean)
    # What is noise has no logarithm worth fitting.
    assert slope({**gaps, 200: np.array([3e-3, -2e-3])}).mean == pytest.approx(found.mean)
    # What lies above the bound has no logarithm, and is left out.
    assert slope({**gaps, 300: np.array([-1e-3])}).mean == pytest.approx(found.mean)


@pytest.mark.parametrize("case", CASES)
def test_a_knapsack_by_index_recovers_what_greed_loses(case, monkeypatch):
    monkeypatch.setattr(asymptotic, "MIXED_STEPS", 840)
    fleet, budget = CASES[case]
    greedy, knapsack, average, best = (asymptotic.earned(fleet, budget, way)[0] for way in WAYS)
    bound = relaxed_bound(fleet, budget)
    assert greedy < 0.95 * best
    assert 0.999 * best < knapsack < best * (1 + 1e-4)
    assert best < bound
    assert average == pytest.approx(bound, rel=2e-3)
    assert best == optimal_reward(fleet, budget, 1e-6)


def test_refuses_no_copies(tmp_path):
    with pytest.raises(ValueError, match="--most is 0"):
        Asymptotic(most=0, out=tmp_path / "x").run()
