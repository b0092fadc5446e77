"""The adaptive study: who sees what, what is counted, what is fitted, and what is written."""

import csv
import gzip
from dataclasses import replace

import numpy as np
import pytest

from agents.adaptive.network import shipped
from agents.evaluation.rollout import Rollout
from agents.theory.index import whittle_index
from crawl_env import Arrivals, CrawlVectorEnv, Jumps, Sources
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.results import ROOT, read_csv
from ephemeral_crawl.replay.play import SCHEDULER
from ephemeral_crawl.replay.split import Log
from experiments.adaptive import (
    abandonment,
    ablations,
    changes,
    cost,
    entrants,
    information,
    recorded,
    regret,
    runs,
)
from experiments.adaptive.command import Adaptive
from experiments.adaptive.entrants import entrant, named
from experiments.adaptive.regret import exponent
from experiments.adaptive.runs import check_paired, curves_of, job, rows_of, work
from experiments.core.data import Data

EXAMPLE = ROOT / "ephemeral_crawl" / "data" / "example-log.csv"
FLEET = {"sources": "drawn-sparse-12", "budget": 2}


def few(chosen, *wanted):
    return [p for p in chosen if entrants.name_of({"entrant": p}) in wanted]


def test_the_exponent_of_a_power_law():
    marks = np.array(runs.marks_of(2000), dtype=float)
    for b in (0.5, 1.0, 0.0):
        found = exponent(np.linspace(1, 4, 20)[:, None] * marks**b, marks, first=100)
        np.testing.assert_allclose(found, b, atol=1e-9)


def test_the_interval_of_an_exponent_holds_it():
    """Random walks about t^.5; of 40 intervals that hold 95 %, fewer than 32 in one of 4,000."""
    marks = np.arange(100.0, 2001.0, 100.0)
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(40):
        walk = rng.normal(0, 1.0, (20, marks.size)).cumsum(axis=1)
        found = exponent(3 * marks**0.5 + walk, marks, first=100, resamples=300)
        held += found.low <= 0.5 <= found.high
        assert found.low < found.mean < found.high
    assert held >= 32


def test_only_late_epochs_are_fitted_and_gains_have_no_exponent():
    marks = np.array([1.0, 10.0, 100.0, 200.0, 400.0])
    lost = np.where(marks < 100, 1e6, marks**0.3)[None]
    assert exponent(lost, marks, first=100).mean == pytest.approx(0.3)
    assert np.isnan(exponent(-lost, marks, first=100).mean)
    one_gains = np.concatenate([lost, lost, -1.5 * lost])  # in 7 of 27 resamples it is two of three
    assert np.isnan(exponent(one_gains, marks, first=100).mean)


def test_abandonment_by_hand():
    """A round is 3 steps: what is crawled once in 5 of them, is at least 7 times in 100. In the
    record, runs and sources are counted."""
    crawls = np.array([[50, 7, 6, 0], [50, 7, 6, 0]])
    often = abandonment.crawled_often(crawls, 400, 4 / 3, 5)
    assert often.tolist() == [[True, True, False, False]] * 2
    todo = [
        job("case", p, FLEET, 40, 2, marks=[20, 40])
        for p in (entrant("whittle"), named("certainty", entrant(entrants.CERTAINTY)))
    ]
    common = {"reward": [[1, 2]] * 2, "expected": [[1, 2]] * 2, "content": "same"}
    counted = abandonment.counted(
        todo,
        [
            {**common, "crawls": [[9, 9, 2], [9, 9, 9]]},
            {**common, "crawls": [[9, 0, 0], [9, 1, 1]]},
        ],
    )
    assert [row["good"] for row in counted] == [2, 3, 2, 3]  # 20/6 crawls in the last 10 steps
    assert [row["good_given_up"] for row in counted] == [0, 0, 1, 0]
    assert [row["fair_given_up"] for row in counted] == [0, 0, 2, 0]
    share = abandonment.given_up("good")(Data(counted), {"entrant": "certainty"})
    assert share == abandonment.binomial(1, 2)


def test_binomial_intervals():
    """Wilson's, for 10 of 100: by hand."""
    assert abandonment.binomial(10, 100)[1:] == pytest.approx((0.05523, 0.17437), abs=1e-5)
    assert abandonment.binomial(0, 400).low == 0.0
    assert abandonment.binomial(5, 5).high == 1.0


def test_entrants_see_what_they_are_told_of_and_not_the_rates():
    assert entrants.shown(entrant("whittle"), observed=True) == (
        "value", "age", "arrival_rate", "mean_utility", "decay_rate", "cost",
    )  # fmt: skip
    changed = entrants.shown(entrant(entrants.THOMPSON, "changed", "changed"))
    assert changed == ("age", "crawled", "changed", "mean_utility", "decay_rate", "cost")
    tuning = entrants.shown(entrant(entrants.TUNING))
    assert tuning == ("age", "crawled", "items", "harvest", "cost")


def test_all_entrants_meet_the_same_content():
    """Whatever they are shown and crawl; seeds in several jobs are runs of one entrant."""
    everybody = [*information.ENTRANTS, entrant(entrants.CLAIRVOYANT)]
    todo = [job("case", p, FLEET, 40, 2, seed) for p in everybody for seed in (5, 7)]
    results = [work(u) for u in todo]
    check_paired(todo, results)
    rows = rows_of(todo, results)
    assert [row["run"] for row in rows] == [0, 1, 2, 3] * len(everybody)
    curves = curves_of(todo, results)
    assert len(curves) == 4 * len(everybody) * len(todo[0]["marks"])
    for row in rows:
        ends = Data(curves).numbers(
            "collected", entrant=row["entrant"], run=row["run"], step=row["steps"]
        )
        assert ends == pytest.approx([float(row["collected"])], rel=1e-5)
    results[2]["content"] = "other"
    with pytest.raises(ValueError, match="did not meet the same content"):
        check_paired(todo, results)


def test_expected_rewards_are_the_mean_of_what_is_collected():
    """Of adaptive crawls, under rates that jump; 4 standard errors: one in 16,000 fails."""
    result = work(
        job("case", entrant(entrants.THOMPSON), FLEET, 60, 200, 1, ("jumps", {"rate": 0.05}))
    )
    gap = np.array(result["reward"])[:, -1] - np.array(result["expected"])[:, -1]
    assert gap.std() > 0
    assert abs(gap.mean()) < 4 * gap.std(ddof=1) / np.sqrt(200)


def test_the_clairvoyant_is_whittle_while_they_stay():
    ends = [
        np.array(work(job("case", entrant(name), FLEET, 60, 3))["expected"])[:, -1]
        for name in ("whittle", entrants.CLAIRVOYANT)
    ]
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-3)  # whittle sees them as float32


def test_the_clairvoyant_knows_the_content_after_rates_have_changed():
    """Content by plain recursion; its order is that of Λ(t)γ(x/Λ(t))."""
    arguments = {
        "sources": Sources([1.0, 2.0, 3.0], 1.5, 0.3), "budget": 1, "observed": False,
        "arrivals": Arrivals(rate=Jumps(rate=0.2)), "features": ("age",), "horizon": None,
    }  # fmt: skip
    env = CrawlVectorEnv(2, **arguments)
    seen, _ = env.reset(seed=0)
    knowing = entrants.Clairvoyant(env)
    waiting, one = env.world.sources.content_at(env.world.age), Sources(np.ones(3), 1.5, 0.3)
    kept, changed = np.exp(-0.3), 0
    for _ in range(60):
        rate = env.world.rate.copy()
        action, _ = knowing.predict(seen)
        index = rate * whittle_index(waiting / rate, one)
        assert np.array_equal(np.argsort(action), np.argsort(index))
        seen, *_ = env.step(action)
        crawled = np.isin(np.arange(6).reshape(2, 3), env.harvest.picked)
        waiting = np.where(crawled, 0.0, kept * waiting) + rate * 1.5 / 0.3 * (1 - kept)
        changed += not np.array_equal(rate, env.world.rate)
    assert changed > 5


def test_regimes_change_all_at_once_at_the_marks():
    fleet = {"sources": "random-sparse-100-0", "budget": 10}
    arrivals = runs.arrivals_of(*changes.switching(10))
    env = CrawlVectorEnv(
        2, **evaluation.arguments_of({"arguments": fleet}), arrivals=arrivals, features=("age",)
    )
    env.reset(seed=0)
    action = np.zeros((2, 100), dtype=np.float32)
    factors = []
    for _ in range(30):
        factors.append(env.world.rate[0] / env.world.sources.arrival_rate)
        env.step(action)
    first, second, third = (np.array(factors[i : i + 10]) for i in (0, 10, 20))
    np.testing.assert_allclose(first, np.broadcast_to(first[0], first.shape))
    np.testing.assert_allclose(np.sort(first[0]), [changes.RATIO[1]] * 50 + [changes.RATIO[0]] * 50)
    np.testing.assert_allclose(second, 2.0 - first)
    np.testing.assert_allclose(third, first)


def test_recovery_by_hand():
    best = np.full(4, 100.0)
    for mine, after in (
        ([95, 96, 97, 98], 10.0), ([50, 96, 94, 97], 40.0), ([50, 60, 99, 94], np.inf),
    ):  # fmt: skip
        assert changes.recovery(np.array(mine, dtype=float), best) == after
    gained = np.tile([7.0, 1.0], changes.SWITCHES)[None]
    gained[:, :2] = 1000.0  # the first regime is no recovery
    assert changes.after_switch(gained.cumsum(axis=1)).tolist() == [[7.0, 1.0]]


def test_steps_until_back_and_what_a_change_costs():
    """Of two rounds a regime: the first is half lost, the second whole."""
    best = np.ones((3, 2 * changes.SWITCHES))
    mine = best.copy()
    mine[:, ::2] = 0.5
    rewards = {"knows-rates-now": best, "mine": mine, "never": best / 2}
    todo = [job("dense", named(x, entrant("whittle")), FLEET, 9, 3) for x in rewards]
    results = [{"expected": gained.cumsum(1).tolist()} for gained in rewards.values()]
    data = Data(changes.rounds_of(todo, results))
    case = {"case": "dense", "entrant": "mine"}
    assert changes.recovered(data, case) == (20.0, 20.0, 20.0)
    assert np.isinf(changes.recovered(data, {**case, "entrant": "never"}).mean)
    assert changes.lag(data, case).mean == pytest.approx(0.5 * changes.ROUND)


def test_how_far_behind_the_best_is_of_the_worst_case():
    rewards = {"one": (10, 9, 8, 9.9), "other": (10, 6, 7, 9.9)}
    names = ("knows-rates-now", "thompson, a", "thompson, b", "whittle, mean rates")
    rows = [
        {"case": case, "entrant": name, "run": run, runs.EXPECTED: repr(float(reward))}
        for case, of_case in rewards.items()
        for name, reward in zip(names, of_case, strict=True)
        for run in range(2)
    ]
    behind = changes.most_behind(Data(rows))
    assert behind == pytest.approx({"thompson, a": 0.1, "thompson, b": 0.1})


@pytest.fixture
def small(monkeypatch):
    learning = (entrants.THOMPSON, entrants.OPTIMISM, entrants.CERTAINTY, entrants.TUNING)
    chosen = ("whittle", "random", *learning, "thompson, fleet prior")
    monkeypatch.setattr(regret, "ENTRANTS", few(regret.ENTRANTS, *chosen))
    cases = dict(list(abandonment.CASES.items())[1:3])
    monkeypatch.setattr(abandonment, "CASES", cases)
    monkeypatch.setattr(information, "ENTRANTS", information.ENTRANTS[:3])
    parts = dict(list(ablations.VARIANTS.items())[:2])
    monkeypatch.setattr(ablations, "VARIANTS", parts)
    monkeypatch.setattr(ablations, "OBSERVED", {"harvest": "utility alone"})
    network = shipped()
    monkeypatch.setattr(entrants, "network_of", lambda settings: network)
    keep = ("knows-rates-now", "random", changes.FROZEN, changes.LEARNS, "thompson, keeps 1")
    for name in ("DRIFT_ENTRANTS", "REGIME_ENTRANTS"):
        monkeypatch.setattr(changes, name, few(getattr(changes, name), *keep))
    costly = few(cost.ENTRANTS, "adaptive-thompson", "thompson, changed")
    measure = cost.measure
    monkeypatch.setattr(cost, "measure", lambda n, rounds: measure(200, rounds, costly))
    everybody = recorded.entrants
    keep = ("whittle", "whittle-refitted", "self-tuning from nothing",
            "certainty, prior the whole first part")  # fmt: skip
    monkeypatch.setattr(recorded, "entrants", lambda split: few(everybody(split), *keep))


def test_the_study_writes_records_and_a_report_which_is_remade_from_them(
    small, tmp_path, monkeypatch
):
    out, log = tmp_path / "out", {"items": EXAMPLE, "half_life": "5.8h", "block": 20}
    settings = {"jobs": 1, "run_on": "sequential", "out": out}
    done = []

    def stopping(unit):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(unit)
        return work(unit)

    monkeypatch.setitem(Adaptive.parts, "regret", replace(regret.PART, work=stopping))
    with pytest.raises(SystemExit):
        Adaptive(seeds=2, steps=40, **log, **settings).run()
    for name, part in Adaptive.parts.items():
        if part.work is work or name == "regret":
            keeping = replace(part, work=lambda unit: (done.append(unit), work(unit))[1])
            monkeypatch.setitem(Adaptive.parts, name, keeping)
    Adaptive(seeds=2, steps=40, **log, **settings).run()
    keys = [str(unit) for unit in done]
    assert len(keys) == len(set(keys)), "what was finished is not run again"
    data = Data(read_csv(out / "runs.csv.gz"))
    assert data.values("part") == list(Adaptive.parts)
    played = data.cases("agent", part="recorded")
    assert {case["agent"] for case in played} == {
        "whittle", "whittle-refitted", "self-tuning from nothing",
        "certainty, prior the whole first part",
    }  # fmt: skip
    for row in data.where(part="cost"):
        for who in ("", "whittle_"):
            assert 0 < float(row[f"{who}decision_seconds"]) < float(row[f"{who}step_seconds"])
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg ") == 4
    Adaptive(only_report=True, **settings).run()
    assert (out / "report.html").read_text(encoding="utf-8") == page
    assert not list(tmp_path.glob(".*"))


def test_everybody_on_a_recorded_log_can_be_made():
    split = Log(items=EXAMPLE, half_life="5.8h").split(None, 1.0, 40)
    chosen = recorded.entrants(split)
    assert len({entrants.name_of({"entrant": p}) for p in chosen}) == len(chosen)
    whole = next(p for p in chosen if entrants.name_of({"entrant": p}).startswith("certainty"))
    law = entrants.estimator_of(whole).posterior(entrants.estimator_of(whole).begin((1, 20)))
    np.testing.assert_allclose(law.mean[0], split.fleet.arrival_rate, rtol=0.3)
    arguments = {
        "sources": split.fleet, "budget": 3, "arrivals": split.trace, "observed": False,
        "start": "empty",
    }  # fmt: skip
    for p in chosen:
        if p["agent"] == SCHEDULER:  # whose lot is tested with the replays
            continue
        shown = {**arguments, "features": entrants.shown(p)}
        rollout = Rollout(lambda env, p=p: entrants.seat(env, p, 0), shown)
        assert sum(float(rollout.step()[0]) for _ in range(20)) > 0


def test_what_the_first_part_showed_helps_in_context_later(monkeypatch):
    """The network is not trained further here, so that fine-tuning changes nothing."""
    monkeypatch.setattr(recorded, "_finetuned", lambda posed, seed: shipped())
    study = Adaptive(items=EXAMPLE, half_life="5.8h", steps=60, part=("recorded",))
    reward = {}
    for todo in recorded.jobs(study):
        name = todo["columns"]["agent"]
        if name.startswith("in-context, from nothing") or "live" in name:
            reward[name.partition("nothing")[2]] = sum(recorded.work(todo)["reward"])
    assert reward[", has crawled the first part"] > 1.03 * reward[""]
    assert reward[", fine-tuned on the first part"] == pytest.approx(reward[""], rel=1e-3)
    assert reward[", told μ"] > 0.8 * reward[""], "the live scheduler"


def test_bad_options_are_refused_in_the_users_terms(tmp_path):
    for options, what in (
        ({"seeds": 0}, "--seeds is 0"),
        ({"steps": 10}, "--steps is 10"),
        ({"part": ("recorded",)}, "give --items"),
    ):
        with pytest.raises(ValueError, match=what):
            Adaptive(out=tmp_path / "out", **{"part": ("regret",), **options}).run()


def test_the_quick_suite_is_a_part_of_the_full_one():
    for part in (each for each in Adaptive.parts.values() if each.work is work):
        quick, full = (
            {(u["case"], entrants.name_of(u)) for u in part.jobs(Adaptive(suite=suite))}
            for suite in ("quick", "full")
        )
        assert quick <= full


RECORD = ROOT / "results" / "adaptive"
PAGE = ROOT / "docs" / "engineers" / "adaptive.md"
SHOWN = {  # what the page calls an entrant of the record, in which part
    ("regret", "{}, N = 100, M = 10"): {
        "| `adaptive-thompson` |": "adaptive-thompson",
        '| the same, `estimator="forgetting"`': "thompson, learns what to keep",
        "| `adaptive-optimism` |": "adaptive-optimism",
        "| `adaptive-certainty` |": "adaptive-certainty",
        "| `adaptive-certainty`, prior mean of 1": "certainty, prior of 1 a step",
        "| `adaptive-thompson`, prior mean of 1": "thompson, prior of 1 a step",
        "| `adaptive-thompson`, observing only": "thompson, changed: bayes",
    },
    ("information", "{}, not observed"): {
        "| the number of new items": "thompson: number of new items",
        "| their total utility; mean": "thompson: utility alone",
        "| whether anything was new": "thompson: whether anything was new",
        "| the age and utility of each": "self-tuning: sums over the items",
        "| number and total utility": "self-tuning: number and utility",
        "| their total utility; nothing": "self-tuning: utility alone",
    },
}


def test_the_committed_record_is_readable_and_says_what_the_page_says():
    second = {}
    for row in read_csv(RECORD / "runs.csv.gz"):
        if row["part"] in ("regret", "information") and row["second_half_expected"] != "nan":
            key = row["part"], row["case"], row["entrant"]
            second.setdefault(key, []).append(float(row["second_half_expected"]))
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for (part, case), named_so in SHOWN.items():
        for label, name in named_so.items():
            line = next(line for line in lines if line.startswith(label))
            for regime in ("dense", "sparse"):
                mine, best = (
                    np.mean(second[part, case.format(regime), who]) for who in (name, "whittle")
                )
                assert f"{100 * mine / best:.2f} %" in line, (label, regime)
    with gzip.open(RECORD / "curves.csv.gz", "rt", encoding="utf-8") as curves:
        names = set(next(csv.reader(curves)))
    assert {"part", "case", "entrant", "run", "step", "collected", "expected"} <= names
