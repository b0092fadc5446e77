"""The adaptive experiment: who sees what, what is counted, what is fitted, and what is written."""

from __future__ import annotations

import csv
import gzip
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.evaluation.rollout import Rollout
from agents.theory.index import whittle_index
from crawl_env import Arrivals, CrawlVectorEnv, Jumps, Sources, Trace
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.results import read_csv
from ephemeral_crawl.replay import play as replay
from ephemeral_crawl.replay.split import Log
from ephemeral_crawl.replay.view import View
from experiments.adaptive import (
    abandonment,
    command,
    cost,
    drift,
    entrants,
    information,
    recorded,
    regimes,
    regret,
    runs,
)
from experiments.adaptive.command import Adaptive
from experiments.adaptive.entrants import entrant, named
from experiments.adaptive.regret import exponent
from experiments.adaptive.runs import QUICK, Found, Size, job, work
from experiments.core.clock import Timing

EXAMPLE = Path(__file__).parents[3] / "ephemeral_crawl" / "data" / "example-log.csv"
TINY = Size(seeds=3, steps=40, quick=True, sources=200, rounds=2)
FLEET = {"sources": "drawn-sparse-12", "budget": 2}


def few(chosen: list[dict[str, Any]], *wanted: str) -> list[dict[str, Any]]:
    return [p for p in chosen if entrants.name_of({"entrant": p}) in wanted]


# ------------------------------------------------------------------------------------- exponents


def test_the_exponent_of_a_power_law() -> None:
    marks = np.array(runs.marks_of(2000), dtype=float)
    for b in (0.5, 1.0, 0.0):
        found = exponent(np.linspace(1, 4, 20)[:, None] * marks**b, marks, first=100)
        np.testing.assert_allclose(found, b, atol=1e-9)


def test_the_interval_of_an_exponent_holds_it() -> None:
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


def test_only_late_epochs_are_fitted_and_gains_have_no_exponent() -> None:
    marks = np.array([1.0, 10.0, 100.0, 200.0, 400.0])
    lost = np.where(marks < 100, 1e6, marks**0.3)[None]
    assert exponent(lost, marks, first=100).mean == pytest.approx(0.3)
    assert np.isnan(exponent(-lost, marks, first=100).mean)
    one_gains = np.concatenate([lost, lost, -1.5 * lost])  # in 7 of 27 resamples it is two of three
    assert np.isnan(exponent(one_gains, marks, first=100).mean)


# ----------------------------------------------------------------------------------- abandonment


def history(crawls: list[list[float]], steps: float = 400) -> runs.Run:
    """Two runs, of which only crawls in the last 100 steps matter."""
    nothing = np.ones((2, 2))
    return runs.Run(np.array([steps / 2, steps]), nothing, nothing, np.array(crawls), ("",))


def test_abandonment_in_a_history_made_by_hand() -> None:
    """A round is 3 epochs: what is crawled once in 5 of them, is at least 7 times in 100."""
    whittle = history([[50, 7, 6, 0], [50, 7, 6, 0]])
    worth = abandonment.crawled_often(whittle, budget=4 / 3, rounds=5)
    assert worth.tolist() == [[True, True, False, False]] * 2
    lost = abandonment.abandoned(worth, history([[40, 0, 0, 0], [0, 1, 9, 3]]))
    assert lost.tolist() == [[False, True, False, False], [True, False, False, False]]


def test_abandonment_is_counted_in_runs_and_in_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    todo = [
        job("abandonment", "case", p, FLEET, 40, 2, marks=[20, 40])
        for p in (entrant("whittle"), named("certainty", entrant(entrants.CERTAINTY)))
    ]
    common = {"reward": [[1, 2]] * 2, "expected": [[1, 2]] * 2, "content": "same"}
    found = Found(
        todo,
        [
            {**common, "crawls": [[9, 9, 2], [9, 9, 9]]},
            {**common, "crawls": [[9, 0, 0], [9, 1, 1]]},
        ],
    )
    monkeypatch.setattr(abandonment, "GOOD", 1)  # 20/3 crawls in the last 10 epochs
    share, fair, sources = abandonment.of(found, "case", "certainty")
    assert (share.mean, fair.mean, sources) == (0.5, 0.5, 1 / 5)
    rows = list(found.records(abandonment.counts))
    assert [row["good_given_up"] for row in rows] == [0, 0, 1, 0]
    assert [row["fair_given_up"] for row in rows] == [0, 0, 2, 0]
    assert [row["good"] for row in rows] == [2, 3, 2, 3]
    assert [row["fair"] for row in rows] == [3, 3, 3, 3]
    assert abandonment.verdict(found) == (
        "case: certainty gives good sources up in 50% of the runs. Below 1 % of them: good ones: "
        "nobody. good ones, with all of the interval: nobody. fair ones: nobody."
    )


def test_binomial_intervals() -> None:
    """Wilson's, for 10 of 100: by hand."""
    assert abandonment.binomial(10, 100)[1:] == pytest.approx((0.05523, 0.17437), abs=1e-5)
    assert abandonment.binomial(0, 400).low == 0.0
    assert abandonment.binomial(5, 5).high == 1.0


# ---------------------------------------------------------------------------- who sees and meets


def test_entrants_see_what_they_are_told_of_and_not_the_rates() -> None:
    assert entrants.shown(entrant("whittle"), observed=True) == (
        "value", "age", "arrival_rate", "mean_utility", "decay_rate", "cost",
    )  # fmt: skip
    changed = entrants.shown(entrant(entrants.THOMPSON, "changed", "changed"))
    assert changed == ("age", "crawled", "changed", "mean_utility", "decay_rate", "cost")
    tuning = entrants.shown(entrant(entrants.TUNING))
    assert tuning == ("age", "crawled", "items", "harvest", "cost")


def test_all_entrants_meet_the_same_content() -> None:
    """Whatever they are shown and crawl; seeds in several jobs are runs of one entrant."""
    everybody = [*information.ENTRANTS, entrant(entrants.CLAIRVOYANT)]
    todo = [job("information", "case", p, FLEET, 40, 2, seed) for p in everybody for seed in (5, 7)]
    results = [work(u) for u in todo]
    found = Found(todo, results)
    assert len({found["case", name].content for name in found.entrants("case")}) == 1
    assert found["case", "random"].reward.shape[0] == 4
    assert [row["run"] for row in found.records()] == [0, 1, 2, 3] * len(everybody)
    assert sum(1 for _ in found.curves()) == 4 * len(everybody) * len(todo[0]["marks"])
    results[2]["content"] = "other"
    with pytest.raises(ValueError, match="did not meet the same content"):
        Found(todo, results)


def test_expected_rewards_are_the_mean_of_what_is_collected() -> None:
    """Of adaptive crawls, under rates that jump; 4 standard errors: one in 16,000 fails."""
    result = work(
        job("x", "case", entrant(entrants.THOMPSON), FLEET, 60, 200, 1, ("jumps", {"rate": 0.05}))
    )
    gap = np.array(result["reward"])[:, -1] - np.array(result["expected"])[:, -1]
    assert gap.std() > 0
    assert abs(gap.mean()) < 4 * gap.std(ddof=1) / np.sqrt(200)


# ----------------------------------------------------------------------------------------- drift


def test_the_clairvoyant_is_whittle_while_they_stay() -> None:
    ends = [
        np.array(work(job("x", "case", entrant(name), FLEET, 60, 3))["expected"])[:, -1]
        for name in ("whittle", entrants.CLAIRVOYANT)
    ]
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-3)  # whittle sees them as float32


def test_the_clairvoyant_knows_the_content_after_rates_have_changed() -> None:
    """Content by plain recursion; its order is that of Λ(t)γ(x/Λ(t))."""
    arguments = {
        "sources": Sources([1.0, 2.0, 3.0], 1.5, 0.3), "budget": 1, "observed": False,
        "arrivals": Arrivals(rate=Jumps(rate=0.2)), "features": ("age",), "horizon": None,
    }  # fmt: skip
    env = CrawlVectorEnv(2, **arguments)
    seen, _ = env.reset(seed=0)
    knowing = entrants.Clairvoyant(env)
    waiting, one = env.world.sources.content_at(env.world.age), Sources(np.ones(3), 1.5, 0.3)
    kept, changes = np.exp(-0.3), 0
    for _ in range(60):
        rate = env.world.rate.copy()
        action, _ = knowing.predict(seen)
        index = rate * whittle_index(waiting / rate, one)
        assert np.array_equal(np.argsort(action), np.argsort(index))
        seen, *_ = env.step(action)
        crawled = np.isin(np.arange(6).reshape(2, 3), env.harvest.picked)
        waiting = np.where(crawled, 0.0, kept * waiting) + rate * 1.5 / 0.3 * (1 - kept)
        changes += not np.array_equal(rate, env.world.rate)
    assert changes > 5


def test_the_clairvoyant_gains_where_rates_change() -> None:
    law = ("jumps", {"rate": 0.02})
    whittle, knowing = (
        np.array(work(job("x", "case", entrant(name), FLEET, 200, 10, 0, law))["expected"])[:, -1]
        for name in ("whittle", entrants.CLAIRVOYANT)
    )
    assert knowing.mean() > 1.02 * whittle.mean()


def test_regimes_change_all_at_once_at_the_marks() -> None:
    fleet = {"sources": "random-sparse-100-0", "budget": 10}
    arrivals = runs.arrivals_of(*regimes.switching(10))
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
    np.testing.assert_allclose(np.sort(first[0]), [regimes.RATIO[1]] * 50 + [regimes.RATIO[0]] * 50)
    np.testing.assert_allclose(second, 2.0 - first)
    np.testing.assert_allclose(third, first)


def test_recovery_by_hand() -> None:
    best = np.full(4, 100.0)
    for mine, after in (
        ([95, 96, 97, 98], 10.0), ([50, 96, 94, 97], 40.0), ([50, 60, 99, 94], np.inf),
    ):  # fmt: skip
        assert regimes.recovery(np.array(mine, dtype=float), best) == after
    marks = np.arange(1, 2 * regimes.SWITCHES + 1) * float(regimes.ROUND)
    gained = np.tile([7.0, 1.0], regimes.SWITCHES)[None]
    gained[:, :2] = 1000.0  # the first regime is no recovery
    run = runs.Run(marks, gained, gained.cumsum(axis=1), np.zeros((1, 3)), ("",))
    assert regimes.after_switch(run).tolist() == [[7.0, 1.0]]


# -------------------------------------------------------------------------------- what is concluded


def made(case: str, rewards: dict[str, Any], marks: list[int]) -> Found:
    """Return runs (S, K) of entrants by name, cumulated, as they would be found."""
    todo, results = [], []
    for name, reward in rewards.items():
        chosen = named(name, entrant("whittle"))
        total = np.asarray(reward, dtype=float)
        todo.append(job("x", case, chosen, FLEET, marks[-1], len(total), marks=marks))
        results.append({"reward": total, "expected": total, "content": "same",
                        "crawls": np.ones((len(total), 3))})  # fmt: skip
    return Found(todo, results)


def joined(*found: Found) -> Found:
    whole = Found([], [])
    for part in found:
        whole._runs.update(part._runs)
    return whole


def paid(reward: np.ndarray) -> replay.Replay:
    return replay.Replay(reward[None], np.zeros(20), 5.0, 0.0, 0.0, 0.0)


def test_who_is_near_and_who_loses_slowly_is_said_of_both_regimes() -> None:
    marks = runs.marks_of(2000)
    t, one = np.array(marks, dtype=float), np.ones((4, 1))
    cases = [
        made(
            regret.case_of(regime, *regret.USUAL),
            {
                "whittle": one * t,
                "random": one * t / 2,
                "slow": one * (t - t**0.4),
                "constant": one * (t - 5 - 0.005 * t),
                "lost at first": one * (t - 20),
                "in one alone": one * (t * (0.9 if regime == "dense" else 1) - t**0.3),
            },
            marks,
        )
        for regime in regret.REGIMES
    ]
    assert regret.verdict(joined(*cases)) == (
        "N = 100, M = 10, in both regimes, with the whole of the interval: at least 99% of "
        "whittle: slow; constant; lost at first. exponent at most 0.5: slow; constant; lost at "
        "first. exponent of doublings at most 0.5, or none, since nothing more is lost: slow; "
        "lost at first."
    )


def test_how_far_behind_the_best_is_of_the_worst_case() -> None:
    def rewards(*seconds: float) -> dict[str, Any]:
        names = ("knows-rates-now", "thompson, a", "thompson, b", "whittle, mean rates")
        return {name: [[10.0, 10 + x]] * 2 for name, x in zip(names, seconds, strict=True)}

    found = joined(
        made("one", rewards(10, 9, 8, 9.9), [1, 2]), made("other", rewards(10, 6, 7, 9.9), [1, 2])
    )
    behind = drift.most_behind(found)
    assert set(behind) == {"thompson, a", "thompson, b"}
    assert behind["thompson, a"] == pytest.approx(0.1)
    assert behind["thompson, b"] == pytest.approx(0.1)


def test_epochs_until_back_and_what_a_change_costs() -> None:
    """Of two steps a regime: the first is half lost, the second whole."""
    marks = [regimes.ROUND * (i + 1) for i in range(2 * regimes.SWITCHES)]
    best, mine = np.ones((3, len(marks))), np.ones((3, len(marks)))
    mine[:, ::2] = 0.5
    rewards = {
        "knows-rates-now": best.cumsum(1),
        "mine": mine.cumsum(1),
        "never": best.cumsum(1) / 2,
    }
    found = made("dense", rewards, marks)
    assert regimes.recovered(found, "dense", "mine") == (20.0, 20.0, 20.0)
    assert np.isinf(regimes.recovered(found, "dense", "never").mean)
    assert regimes.lag(found, "dense", "mine").mean == pytest.approx(0.5 * regimes.ROUND)


@pytest.mark.parametrize(
    ("weeks", "said"), [(40, ": above whittle"), (3, " [n/a]: too few weeks to tell")]
)
def test_the_best_on_a_log_must_be_so_for_enough_weeks(weeks: int, said: str) -> None:
    epochs, hours = 168 * weeks, np.arange(168 * weeks)
    split = Log(items=EXAMPLE, decay_rate=0.12).split(None, 1.0, 40)
    view = View(split, 168, 1)
    view = type("Long", (View,), {"steps": epochs, "blocks": weeks, "block_name": "week"})(*view)
    base = 1.0 + (hours % 7)
    everybody = [entrants.name_of({"entrant": p}) for p in recorded.entrants(split)]
    of_budget = {name: paid(base) for name in everybody}
    best = "thompson, prior a tenth of it"
    of_budget[best] = paid(1.05 * base)
    words = recorded.verdict(view, {5.0: of_budget})
    assert f"the best of those with a prior is {best}, by 5.00%{said}." in words


def test_wider_intervals_hold_narrower_ones() -> None:
    rng = np.random.default_rng(0)
    split = Log(items=EXAMPLE, decay_rate=0.12).split(None, 1.0, 400)
    view = View(split, 40, 1)
    one, other = (paid(rng.random(400)) for _ in range(2))
    usual, wide = view.gain(one, other), view.gain(one, other, level=0.997)
    assert wide.low < usual.low < usual.mean == wide.mean < usual.high < wide.high


# --------------------------------------------------------------------------------- what is written


def rows(path: Path) -> list[dict[str, str]]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def key_of(row: dict[str, str]) -> tuple[str, ...]:
    return row["case"], row["entrant"], row["run"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    learning = (entrants.THOMPSON, entrants.OPTIMISM, entrants.CERTAINTY, entrants.TUNING)
    shown = ("whittle", "random", *learning)
    monkeypatch.setattr(regret, "ENTRANTS", few(regret.ENTRANTS, *shown, "thompson, fleet prior"))
    monkeypatch.setattr(abandonment, "CASES", abandonment.CASES[1:3])
    monkeypatch.setattr(information, "ENTRANTS", information.ENTRANTS[:3])
    keep = (
        "knows-rates-now",
        "random",
        "whittle, mean rates",
        "thompson, keeps 1",
        "thompson, cusum",
    )
    kept = (f"thompson, keeps {x:g}" for x in drift.KEPT)
    monkeypatch.setattr(drift, "ENTRANTS", few(drift.ENTRANTS, *keep, *kept, drift.LEARNS))
    drawn = ("thompson, learns what to keep", "self-tuning, keeps 1",
             "self-tuning, learns what to keep")  # fmt: skip
    monkeypatch.setattr(regimes, "ENTRANTS", few(regimes.ENTRANTS, *keep, *drawn))


def experiment(out: Path, *parts: Any, **options: Any) -> Adaptive:
    settings = {"seeds": 2, "steps": 40, "jobs": 1, "engine": "sequential", **options}
    return Adaptive(part=parts, out=out, **settings)


@pytest.mark.parametrize("part", ["regret", "abandonment", "information", "drift", "regimes"])
def test_every_part_writes_records_and_a_report(part: str, tmp_path: Path, small: None) -> None:
    out = tmp_path / "out"
    experiment(out, part).run()
    records, curves = rows(out / "runs.csv.gz"), rows(out / "curves.csv.gz")
    assert {row["part"] for row in records} == {part}
    assert {"whittle", "whittle, mean rates"} & {row["entrant"] for row in records}
    last = {key_of(row): row for row in curves}
    assert len(last) == (0 if part == "regimes" else len(records))
    for row in records if last else ():
        assert last[key_of(row)]["step"] == row["steps"]
        collected = float(last[key_of(row)]["collected"])
        assert collected == pytest.approx(float(row["collected"]), rel=1e-5)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg ") == (0 if part == "information" else 1)
    assert not list(tmp_path.glob(".*"))


def test_time_is_measured_beside_whittle_in_a_world_that_shows_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = ("adaptive-thompson", "thompson, changed", "self-tuning, sums over the items")
    chosen = few(cost.ENTRANTS, *keep)
    monkeypatch.setattr(cost, "measure", partial(cost.measure, chosen=chosen))
    monkeypatch.setattr(command, "QUICK", TINY)
    experiment(tmp_path / "out", "cost").run()
    records = rows(tmp_path / "out" / "runs.csv.gz")
    assert [(row["entrant"], row["run"]) for row in records] == [
        (name, run) for name in keep for run in ("0", "1")
    ]
    for row in records:
        for who in ("", "whittle_"):
            assert 0 < float(row[f"{who}decision_seconds"]) < float(row[f"{who}step_seconds"])


def test_who_takes_too_long_is_named() -> None:
    one, two, seven = (Timing((x, x, x)) for x in (1.0, 2.0, 7.0))
    costs = [
        cost.Cost("slow", "items", two, seven, one, one),
        cost.Cost("quick", "items", two, two, one, one),
    ]
    assert cost.verdict(costs) == (
        "More than 3 times a step of whittle: nobody. More than 3 times its decision alone: slow."
    )


def test_what_was_finished_is_taken_up(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    total, done = len(information.jobs(TINY)), []

    def stopping(unit: Any) -> Any:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(unit)
        return work(unit)

    monkeypatch.setattr(command, "work", stopping)
    with pytest.raises(SystemExit):
        experiment(tmp_path / "out", "information").run()
    monkeypatch.setattr(command, "work", lambda unit: (done.append(unit), work(unit))[1])
    experiment(tmp_path / "out", "information").run()
    assert len(done) == total


def test_a_recorded_log_is_played_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everybody = recorded.entrants
    keep = ("whittle", "whittle-refitted", "self-tuning from nothing",
            "certainty, prior the whole first part")  # fmt: skip
    monkeypatch.setattr(recorded, "entrants", lambda split: few(everybody(split), *keep))
    out, log = tmp_path / "out", Log(items=EXAMPLE, decay_rate=0.12)
    experiment(out, "recorded", log=log, steps=400).run()
    records = rows(out / "runs.csv.gz")
    assert {row["agent"] for row in records} == set(keep)
    assert {row["budget"] for row in records} == {"5.0"}
    split = log.split(None, 1.0, 400)
    collected = []
    for late in range(2):
        rest = Trace(split.trace.log.covering(split.trace.log.start + late, None), False)
        arguments = {"sources": split.fleet, "budget": 5, "observed": False, "start": "empty"}
        whittle = Rollout("whittle", {**arguments, "arrivals": rest})
        collected.append(replay.play(whittle, rest, 400 - late).total)
    weeks = [float(row["reward"]) for row in records if row["agent"] == "whittle"]
    assert len(weeks) == 3
    assert sum(weeks) == pytest.approx(np.mean(collected), rel=1e-9)
    assert (out / "report.html").read_text(encoding="utf-8").count("<svg ") == 1


def test_everybody_on_a_recorded_log_can_be_made() -> None:
    split = Log(items=EXAMPLE, decay_rate=0.12).split(None, 1.0, 40)
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
        shown = {**arguments, "features": entrants.shown(p)}
        rollout = Rollout(lambda env, p=p: entrants.seat(env, p, 0), shown)
        assert sum(float(rollout.step()[0]) for _ in range(20)) > 0


def test_bad_options_are_refused_in_the_users_terms(tmp_path: Path) -> None:
    for options, what in (
        ({"seeds": 0}, "--seeds is 0"),
        ({"steps": 10}, "--steps is 10"),
    ):
        with pytest.raises(ValueError, match=what):
            experiment(tmp_path / "out", "regret", **options).run()
    with pytest.raises(ValueError, match="give --items"):
        experiment(tmp_path / "out", "recorded").run()


def test_the_quick_suite_is_a_part_of_the_full_one() -> None:
    for module in command.SIMULATED.values():
        quick = {(u["case"], entrants.name_of(u)) for u in module.jobs(QUICK)}
        full = {(u["case"], entrants.name_of(u)) for u in module.jobs(command.FULL)}
        assert quick <= full


# ------------------------------------------------------------------------------------- the record

RECORD = Path(__file__).parents[3] / "results" / "adaptive"
PAGE = Path(__file__).parents[3] / "docs" / "engineers" / "adaptive.md"
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
        "| the number of new items, ": "thompson: number of new items",
        "| their total utility, mean": "thompson: utility alone",
        "| whether anything was new, ": "thompson: whether anything was new",
        "| the age and utility of each": "self-tuning: sums over the items",
        "| number and total utility, ": "self-tuning: number and utility",
        "| their total utility, nothing": "self-tuning: utility alone",
    },
}


def test_the_committed_record_is_readable_and_says_what_the_page_says() -> None:
    second: dict[tuple[str, ...], list[float]] = {}
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
    curves = read_csv(RECORD / "curves.csv.gz")[:1]
    assert set(curves[0]) == {"part", "case", "entrant", "run", "step", "collected", "expected"}
