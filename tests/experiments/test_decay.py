"""The decay experiment: fits, the index of an assumed decay function, expectations, report."""

import numpy as np
import pytest

from agents import index_at_age, whittle_index
from agents.theory.renewal import renewal_arm
from agents.theory.task_bound import task_bound
from crawl_env import Arrivals, Sources, Task
from crawl_env.content.utility import EXPONENTIAL, LomaxDecay, StretchedDecay
from ephemeral_crawl.core.results import read_csv
from experiments import decay as study
from experiments.decay import (
    FITTED,
    FUNCTIONS,
    KNOWING,
    RIGHT_MEAN,
    WHITTLES,
    AssumedDecay,
    DecayStudy,
    fitted,
    fitted_rate,
    work,
)

FLEET = Sources.random(30, seed=2)


def run(decay=("stretched", [0.5]), seeds=3, steps=300, warmup=200, **task):
    """Return the result of a job."""
    usual = {"fleet": "dense", "budget": 10, "observed": False, "seed": 0}
    columns = {**usual, "policy": KNOWING, **task}
    length = {"seeds": seeds, "steps": steps, "warmup": warmup}
    return work({"columns": columns, "decay": decay, **length})


@pytest.mark.parametrize("decay", [EXPONENTIAL, StretchedDecay(0.4), LomaxDecay(2.0)], ids=repr)
def test_sources_are_ranked_by_the_index_of_the_assumed_decay(decay):
    """At ages by `index_at_age`; at a value by the index of the age at which it is the mean."""
    rng, arm = np.random.default_rng(0), renewal_arm(FLEET, decay)
    age = rng.integers(1, 40, (4, 30)).astype(np.float64)
    index = arm.index_at_age(age)
    for feature, shown in (("age", age), ("value", arm.mean_content(age))):
        task = Task(FLEET, 3, features=(feature,), arrivals="poisson")
        agent = AssumedDecay(task, lambda: FLEET, decay)
        priority = agent.predict(shown[..., None].astype(np.float32))[0]
        ranked = np.take_along_axis(index, np.argsort(priority, axis=-1), axis=-1)
        assert np.all(np.diff(ranked, axis=-1) >= -1e-5 * index.max())
    if decay == EXPONENTIAL:
        np.testing.assert_allclose(index[0], index_at_age(age[0], FLEET), rtol=1e-12)
        np.testing.assert_allclose(index, whittle_index(arm.mean_content(age), FLEET), rtol=1e-7)


def test_fits():
    assert fitted_rate(EXPONENTIAL) == pytest.approx(1.0, rel=1e-6)
    rates = [fitted_rate(StretchedDecay(beta)) for beta in (0.9, 0.7, 0.5)]
    assert 1 < rates[0] < rates[1] < rates[2]
    z = np.linspace(0, 5, 49)
    survival = LomaxDecay(2.0).survival(z)
    tried = np.linspace(0.5, 5, 4501)
    squares = ((np.exp(-tried[:, None] * z) - survival) ** 2).sum(axis=1)
    assert fitted_rate(LomaxDecay(2.0)) == pytest.approx(tried[squares.argmin()], abs=1.1e-3)
    assert fitted(FLEET, LomaxDecay(2.0)).inflow.sum() > 0


@pytest.mark.parametrize("named", [("stretched", (0.4,)), ("lomax", (1.5,))], ids=str)
def test_knowing_the_decay_nearly_reaches_the_bound_and_nothing_exceeds_it(named):
    earned, bound = {}, None
    for policy in (KNOWING, RIGHT_MEAN, FITTED, "static", "random"):
        found = run(named, seeds=2, steps=400, policy=policy)
        bound = found["bound"] or bound
        # The content before the measured steps may be a little more than at their end.
        earned[policy] = (np.array(found["reward"]) / bound).mean()
        assert earned[policy] < 1.002
    assert earned[KNOWING] > 0.998
    assert earned[KNOWING] >= max(earned.values()) - 1e-3
    assert earned[RIGHT_MEAN] != earned[FITTED]
    assert earned["random"] < 0.8


def test_the_bound_is_of_the_decay_that_is_there():
    task = Task("table1", 2, arrivals=Arrivals(decay=LomaxDecay(1.5)), observed=False)
    bound = task_bound(task)
    found = run(["lomax", [1.5]], fleet="table1", budget=2)
    assert found["bound"] == pytest.approx([bound.bound] * 3)
    assert bound.name == "not observed"


def test_all_are_alike_under_exponential_decay():
    same = [run(["exponential", []], policy=policy)["reward"] for policy in WHITTLES]
    np.testing.assert_allclose(same, same[:1] * 3, rtol=1e-3)


def test_it_writes_a_report_and_every_run(tmp_path, monkeypatch):
    few = (FUNCTIONS[0], ("lomax", (4.0,)))
    for name in ("FUNCTIONS", "SEEN_FUNCTIONS"):
        monkeypatch.setattr(study, name, few)
    out = tmp_path / "report"
    DecayStudy(out=out, seeds=2, steps=8, warmup=4, jobs=1, run_on="sequential").run()
    rows = read_csv(out / "records.csv")
    assert {"table1", "dense", "sparse"} == {row["fleet"] for row in rows}
    assert {"static", *WHITTLES} <= {row["policy"] for row in rows}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg ") == 3
    assert not list(tmp_path.glob(".*"))
