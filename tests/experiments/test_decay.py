"""The decay experiment: laws and fits, a belief's index, expectations, report."""

import csv

import numpy as np
import pytest

from agents import index_at_age, whittle_index
from agents.theory.renewal import renewal_arm
from agents.theory.task_bound import task_bound
from crawl_env import Arrivals, Sources, Task
from crawl_env.content.utility import EXPONENTIAL, LomaxDecay, StretchedDecay
from experiments.decay import command, losses
from experiments.decay.believer import Believer
from experiments.decay.command import Decay
from experiments.decay.laws import LAWS, fitted, fitted_rate, law
from experiments.decay.runs import BELIEVERS, FITTED, KNOWING, RIGHT_MEAN, work

FLEET = Sources.random(30, seed=2)
UNIT = {
    "law": ["stretched", [0.5]],
    "policy": KNOWING,
    "fleet": "dense",
    "budget": 10,
    "drawn": False,
    "observed": False,
    "seeds": 3,
    "seed": 0,
    "warmup": 200,
    "epochs": 300,
}


def agent(decay, feature="value", oldest=600):
    task = Task(FLEET, 3, features=(feature,), arrivals="poisson")
    return Believer(task, FLEET, decay, oldest)


def test_one_who_believes_in_the_exponential_has_the_index_of_theorem_1():
    value = np.random.default_rng(0).exponential(1, (4, 30)) * FLEET.ceiling
    believer = agent(EXPONENTIAL)
    np.testing.assert_allclose(believer._at_value(value), whittle_index(value, FLEET), rtol=1e-12)
    age = np.full((2, 30), 7.0)
    np.testing.assert_allclose(believer._at_age(age)[0], index_at_age(7, FLEET), rtol=1e-12)
    order = np.argsort(believer.predict(value[..., None])[0], axis=-1)
    assert np.array_equal(order, np.argsort(whittle_index(value, FLEET), axis=-1))


@pytest.mark.parametrize("decay", [StretchedDecay(0.4), LomaxDecay(2.0)], ids=repr)
def test_the_index_of_a_value_is_that_of_the_age_at_which_it_is_the_mean(decay):
    believer, cycle = agent(decay), renewal_arm(FLEET, decay)
    for k in (1.0, 3.0, 40.0):
        age = np.full((1, 30), k)
        np.testing.assert_allclose(believer._at_age(age), cycle.index_at_age(age), rtol=1e-12)
        np.testing.assert_allclose(
            believer._at_value(cycle.mean_content(age)), cycle.index_at_age(age), rtol=1e-8
        )
    np.testing.assert_allclose(believer._at_value(2 * FLEET.ceiling[None]), 2 * FLEET.ceiling[None])


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


@pytest.mark.parametrize("named", [LAWS[0], ("stretched", (0.4,)), ("lomax", (1.5,))], ids=str)
def test_knowing_the_decay_all_but_reaches_the_bound_and_nobody_passes_it(named):
    earned, bound = {}, None
    for policy in (KNOWING, RIGHT_MEAN, FITTED, "static", "random"):
        found = work({**UNIT, "law": named, "policy": policy, "seeds": 2, "epochs": 400})
        bound = found.get("bound", bound)
        # What was in stock before the measured epochs may be a little more than at their end.
        earned[policy] = (np.array(found["reward"]) / bound).mean()
        assert earned[policy] < 1.002
    assert earned[KNOWING] > 0.998
    assert earned[KNOWING] >= max(earned.values()) - 1e-3
    assert earned["random"] < 0.8


def test_expected_rewards_are_the_mean_of_drawn_ones():
    """Same crawls, of which one run draws the items; 4 standard errors: one in 16,000 fails."""
    unit = {**UNIT, "policy": RIGHT_MEAN, "fleet": "table1", "budget": 2, "seeds": 40}
    drawn = np.array(work({**unit, "drawn": True, "epochs": 60, "warmup": 20})["reward"])
    mean = np.array(work({**unit, "epochs": 60, "warmup": 20})["reward"])
    assert np.ptp(mean) < 1e-9
    assert abs(drawn.mean() - mean[0]) < 4 * drawn.std(ddof=1) / np.sqrt(40)


def test_the_bound_is_of_the_decay_that_is_there():
    task = Task("table1", 2, arrivals=Arrivals(decay=LomaxDecay(1.5)), observed=False)
    bound = task_bound(task)
    found = work({**UNIT, "law": ["lomax", [1.5]], "fleet": "table1", "budget": 2})
    assert found["bound"] == pytest.approx([bound.bound] * 3)
    assert bound.name == "not observed"


def test_what_is_fitted_is_believed():
    rewards = {
        policy: work({**UNIT, "policy": policy})["reward"] for policy in (RIGHT_MEAN, FITTED)
    }
    assert rewards[RIGHT_MEAN] != rewards[FITTED]
    plain = {**UNIT, "law": ["exponential", []]}
    same = [work({**plain, "policy": policy})["reward"] for policy in BELIEVERS]
    np.testing.assert_allclose(same, same[:1] * 3, rtol=1e-3)
    assert law(("exponential", ())) == EXPONENTIAL


def test_it_writes_a_report_and_every_run(tmp_path, monkeypatch):
    few = (LAWS[0], ("stretched", (0.8,)), ("lomax", (4.0,)))
    for module, name in ((command, "LAWS"), (losses, "LAWS"), (losses, "SEEN_LAWS")):
        monkeypatch.setattr(module, name, few)
    monkeypatch.setattr(losses, "STRETCHED", few[1:2])
    monkeypatch.setattr(losses, "LOMAX", few[2:])
    monkeypatch.setattr(command, "CHECKED", few[:1])
    out = tmp_path / "report"
    Decay(out=out, seeds=2, epochs=8, warmup=4, jobs=1, engine="sequential").run()
    with (out / "records.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {"table1", "dense", "sparse"} == {row["fleet"] for row in rows}
    assert {"nutch", "static", *BELIEVERS} <= {row["policy"] for row in rows}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("<img ") == 2
    assert not list(tmp_path.glob(".*"))
