"""Adaptive agents: what they may know, what they remember, and how near they come to knowing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import agents
from agents.adaptive import ESTIMATORS as ESTIMATORS_BY_NAME
from agents.adaptive import (
    WEAK,
    Adaptive,
    Certainty,
    Changed,
    Drifting,
    FleetPrior,
    Forgetting,
    GammaPoisson,
    HarvestSums,
    Optimism,
    Posterior,
    SelfTuning,
    Streaming,
    Thompson,
    Windowed,
    make_estimator,
)
from agents.evaluation.rollout import Rollout, compare, evaluate, posed_to
from crawl_env import NEVER, CrawlVectorEnv, Sources, Task
from crawl_env.fleet.parameters import PARAMETERS

KINDS: tuple[type[Adaptive], ...] = (Certainty, Optimism, Thompson, SelfTuning)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
COUNTS = ("age", "crawled", "items", "harvest")
SUMS = ("age", "crawled", *HarvestSums.features)
CHANGES = ("age", "crawled", "changed")
UNSEEN: dict[str, Any] = {"arrivals": "poisson", "observed": False, "features": COUNTS}


def poisoned(task: Task, names: tuple[str, ...]) -> Task:
    """Return the task with NaN for some of the sources' parameters."""
    fleet = Sources(**task.sources.__getstate__())
    for name in names:
        object.__setattr__(fleet, name, np.full(task.n, np.nan))
    return replace(task, sources=fleet)


@every_kind
@pytest.mark.parametrize("rule", ["step", "average"])
@pytest.mark.parametrize("shown", [COUNTS, ("crawled", "harvest"), ("value", *COUNTS), SUMS])
def test_hidden_parameters_are_not_read(
    kind: type[Adaptive], rule: str, shown: tuple[str, ...]
) -> None:
    arguments = {
        "sources": Sources.random(8, 0), "budget": 2, "budget_rule": rule, "horizon": None,
        "arrivals": "poisson", "features": shown, "observed": np.arange(8) % 2 == 0,
    }  # fmt: skip
    env = CrawlVectorEnv(2, **arguments)
    hidden = PARAMETERS[:3] if kind is SelfTuning else PARAMETERS[:1]
    honest, blind = kind(env.task, seed=1), kind(poisoned(env.task, hidden), seed=1)
    seen, _ = env.reset(seed=0)
    states: list[Any] = [None, None]
    for _ in range(40):
        if "value" in shown:  # of sources not observed it shows the belief, made of the parameters
            spoilt = seen.copy()
            spoilt[:, 1::2, 0] = np.nan
        else:
            spoilt = seen
        action, states[0] = honest.predict(seen, states[0])
        same, states[1] = blind.predict(spoilt, states[1])
        np.testing.assert_array_equal(action, same)
        assert np.isfinite(action).all()
        seen, *_ = env.step(action)


@every_kind
def test_rows_and_episodes_do_not_mix(kind: type[Adaptive]) -> None:
    """A row alone, or in a batch where others start anew, does the same."""
    env = CrawlVectorEnv(3, sources=Sources.random(6, 1), budget=2, horizon=None, **UNSEEN)
    agent = kind(env.task, seed=0)
    draws = kind in (Thompson, SelfTuning)
    seen, _ = env.reset(seed=5)
    state, alone = None, None
    for t in range(40):
        start = np.array([t == 0, t in (0, 11), t in (0, 20)])
        before = None if state is None else [array.copy() for array in state]
        action, after = agent.predict(seen, state, start)
        for array, copy in zip(state or (), before or (), strict=True):
            np.testing.assert_array_equal(array, copy)
        single, alone = kind(env.task, seed=0).predict(seen[0], alone)
        if not draws:
            np.testing.assert_array_equal(single, action[0])
        assert after is not None
        assert alone is not None
        assert [a.shape[1:] for a in after] == [a.shape[1:] for a in alone]
        if t in (11, 20):  # what was learnt is forgotten, by that row alone
            clock = after[0][:, 0]
            assert clock[1 if t == 11 else 2] == 1
            assert clock[0] == t + 1
        state = after
        seen, *_ = env.step(action)


def test_gaps_are_counted_with_and_without_ages() -> None:
    """The posterior is what the crawls brought: as many items, in the time they cover."""
    fleet = Sources([0.3, 1.0, 4.0, 0.1], 1.0, 0.2, period=0.5)
    for shown in (COUNTS, COUNTS[1:]):
        env = CrawlVectorEnv(
            2, sources=fleet, budget=1, horizon=None, **{**UNSEEN, "features": shown}
        )
        agent = Thompson(env.task, seed=0)
        seen, _ = env.reset(seed=1)
        state: Any = None
        last, items, covered = np.full((2, 4), -1.0), np.zeros((2, 4)), np.zeros((2, 4))
        for t in range(60):
            action, state = agent.predict(seen, state)
            np.testing.assert_allclose(state[-2], items)
            np.testing.assert_allclose(state[-1], covered)
            seen, *_ = env.step(action)
            picked = np.zeros((2, 4), dtype=bool)
            picked.reshape(-1)[env.harvest.picked] = True
            items += seen[..., shown.index("items")]
            covered += np.where(picked, (t - last) * 0.5, 0.0)
            last = np.where(picked, t, last)
        assert items.sum() > 50


@pytest.mark.parametrize("shown", [COUNTS, ("crawled", "harvest", "failed"), SUMS, CHANGES])
def test_failed_crawls_tell_nothing_and_cost_no_gap(shown: tuple[str, ...]) -> None:
    fleet = Sources([2.0, 1.0, 0.5], 1.0, 0.2, failure_rate=0.6)
    arguments = {**UNSEEN, "features": shown, "sources": fleet, "budget": 2, "horizon": None}
    env = CrawlVectorEnv(50, **arguments)
    agent = Thompson(env.task, seed=0)
    seen, _ = env.reset(seed=2)
    state: Any = None
    for _ in range(300):
        action, after = agent.predict(seen, state)
        if state is not None:
            crawled = seen[..., shown.index("crawled")] > 0
            for old, new in zip(state[-2:], after[-2:], strict=True):  # the law, or its sums
                np.testing.assert_array_equal(old[~crawled], new[~crawled])
            # What is taken for the age goes on growing where a crawl failed.
            np.testing.assert_array_equal(after[2][~crawled], state[2][~crawled] + 1)
            assert (after[2][crawled] == 1).all()
        state = after
        seen, *_ = env.step(action)
    law = agent.estimator.posterior(state[3 + len(agent.remembered((1, 3))) :])
    typical = np.median(law.mean, axis=0)  # "changed or not" says little where all is changed
    np.testing.assert_allclose(typical, fleet.arrival_rate, rtol=0.1)


@every_kind
def test_sources_that_may_not_be_crawled_yet_do_no_harm(kind: type[Adaptive]) -> None:
    """Delays and failures at once: what is not available, or fails, brings no news."""
    fleet = Sources(
        np.geomspace(0.2, 2.0, 6), 1.0, 0.2, failure_rate=0.3, crawl_delay=[1, 2, 3, 4, 5, 6]
    )
    shown = (*COUNTS, "available", "failed")
    arguments = {**UNSEEN, "features": shown, "sources": fleet, "budget": 2}
    names = {"whittle": "whittle", "random": "random", "adaptive": kind}
    runs = compare(names, arguments, epochs=150, warmup=150, seeds=4)
    reward = {name: run.reward.mean() for name, run in runs.items()}
    assert reward["adaptive"] > 0.85 * reward["whittle"]


ESTIMATORS: dict[str, Any] = {
    "gamma-poisson": GammaPoisson(),
    "gamma-poisson, forgetting": GammaPoisson(retention=0.999),
    "forgetting": Forgetting(),
    "windowed": Windowed(500.0),
    "drifting": Drifting(),
    "fleet prior": FleetPrior(),
    "bayes": Changed("bayes"),
    "likelihood": Changed("likelihood"),
    "moments": Changed("moments"),
    "lln": Streaming("lln", period=1.0),
    "sa": Streaming("sa", period=1.0),
    "naive": Streaming("naive"),
}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_serves_every_agent(estimator: str) -> None:
    """On a sparse fleet, where "changed or not" says nearly as much as counts."""
    arguments = {**UNSEEN, "sources": Sources.random(30, 3, "sparse"), "budget": 3}
    players = {k.name: _with(k, ESTIMATORS[estimator]) for k in (Certainty, Optimism, Thompson)}
    runs = compare(
        {"whittle": "whittle", "random": "random", **players}, arguments,
        epochs=60, warmup=60, seeds=3,
    )  # fmt: skip
    best, worst = (runs[name].reward.mean() for name in ("whittle", "random"))
    for name in players:
        assert runs[name].reward.mean() > worst + 0.5 * (best - worst)


@pytest.mark.parametrize("shown", [COUNTS, SUMS])
def test_what_one_row_brings_tells_the_others_nothing(shown: tuple[str, ...]) -> None:
    """All that is learnt of the first row, whatever comes in the second."""
    fleet = Sources.random(5, 0)
    task = Task.of(fleet, arrivals="poisson", budget=2, observed=False, features=shown)
    for kind in (Thompson, SelfTuning):
        for estimator in ("forgetting", "fleet-prior"):
            learnt = []
            for seed in (1, 2):
                rng, same = np.random.default_rng(seed), np.random.default_rng(0)
                agent, state = kind(task, seed=0, estimator=estimator), None
                for _ in range(40):
                    seen = np.stack([r.integers(1, 5, (5, len(shown))) for r in (same, rng)])
                    seen[..., shown.index("crawled")] %= 2
                    _, state = agent.predict(seen.astype(np.float32), state)
                drawn = 1 if kind is Thompson else 3  # with chances that rows share
                learnt.append([array[:1] for array in state[3 + drawn :]])
                assert any(not np.array_equal(x[0], x[1]) for x in state[3 + drawn :])
            for one, other in zip(*learnt, strict=True):
                np.testing.assert_array_equal(one, other)


def _with(kind: type[Adaptive], estimator: Any) -> Any:
    return lambda env: kind(env.task, seed=0, estimator=estimator)


@pytest.mark.parametrize("regime", ["dense", "sparse"])
def test_learning_costs_little(regime: str) -> None:
    """Of what Whittle collects with known rates, later than at the start."""
    arguments = {**UNSEEN, "sources": Sources.random(30, 7, regime), "budget": 3}
    names = ["whittle", "adaptive-certainty", "adaptive-optimism", "adaptive-thompson"]
    runs = compare([*names, "adaptive-self-tuning"], arguments, epochs=200, warmup=300, seeds=2)
    best = runs["whittle"].reward.mean()
    for name in names[1:]:
        assert runs[name].reward.mean() > 0.97 * best
    assert runs["adaptive-self-tuning"].reward.mean() > 0.9 * best


def test_certainty_gets_stuck_where_the_others_do_not() -> None:
    """A prior far below the rates of a dense fleet: what was never crawled never will be."""
    low = GammaPoisson(Posterior(np.array(0.5), np.array(0.5)))
    arguments = {**UNSEEN, "sources": Sources.random(100, 0), "budget": 10}
    share = {}
    base = evaluate("whittle", arguments, epochs=100, warmup=200, seeds=1).reward.mean()
    for kind in (Certainty, Optimism, Thompson):
        run = evaluate(_with(kind, low), arguments, epochs=100, warmup=200, seeds=1)
        share[kind] = run.reward.mean() / base
    assert share[Certainty] < 0.92
    assert share[Thompson] > share[Certainty] + 0.03
    assert share[Optimism] > share[Certainty] + 0.02


def test_self_tuning_learns_decay_and_utility() -> None:
    fleet = Sources(2.0, np.geomspace(0.3, 3.0, 12), np.repeat([0.05, 0.4], 6))
    rollout = Rollout(SelfTuning, {**UNSEEN, "sources": fleet, "budget": 3}, seeds=4)
    for _ in range(500):
        rollout.step()
    state: Any = rollout._state
    _, utility, decay = state[3:6]
    visited = rollout.env.world.age < 50
    np.testing.assert_allclose(np.log(state[3][visited] / 2.0), 0.0, atol=0.4)
    error = np.log(utility / decay / (fleet.mean_utility / fleet.decay_rate))[visited]
    assert np.median(np.abs(error)) < 0.35


def test_observed_value_is_what_counts() -> None:
    """Among sources alike, the one that holds most is crawled first."""
    fleet = Sources(np.full(4, 3.0), 1.0, 0.2)
    env = CrawlVectorEnv(1, sources=fleet, features=("value", *COUNTS), arrivals="poisson")
    seen = np.zeros((4, 5), dtype=np.float32)
    seen[:, 0], seen[:, 1] = [1.0, 4.0, 2.0, 3.0], 3.0
    for kind in (Certainty, Optimism):
        action, _ = kind(env.task).predict(seen)
        assert np.argsort(action).tolist() == [0, 2, 3, 1]


@pytest.mark.parametrize("kind", [Certainty, Optimism, Thompson], ids=lambda kind: kind.name)
def test_changed_or_not_is_enough(kind: type[Adaptive]) -> None:
    """No items, no harvests: whether there was anything new, of sources that publish little."""
    arguments = {**UNSEEN, "features": CHANGES, "sources": Sources.random(30, 7, "sparse")}
    env = CrawlVectorEnv(2, **arguments, budget=3, horizon=None)
    agent, known = kind(env.task, seed=1), agents.make("whittle", env)
    assert agent.estimator == Changed()
    paid = []
    for player in (agent, known):
        seen, _ = env.reset(seed=3)
        state: Any = None
        total = 0.0
        for t in range(600):
            action, state = player.predict(seen, state)
            seen, reward, *_ = env.step(action)
            total += reward.sum() if t >= 300 else 0.0
        paid.append(total)
    assert paid[0] > 0.94 * paid[1]


def test_options_and_estimators_by_name() -> None:
    env = CrawlVectorEnv(2, sources=Sources(1.0, [1.0, 2.0], 0.1, period=2.0), features=COUNTS)
    for name in ESTIMATORS_BY_NAME:
        agent = agents.make("adaptive-thompson", env, seed=0, estimator=name)
        assert isinstance(agent, Thompson)
        law = agent.estimator.posterior(agent.estimator.begin((1, 2)))
        np.testing.assert_allclose(law.mean, 25.0)  # 50 an epoch of two units of time
    by_name: Any = {name: make_estimator(name, 2.0) for name in ("window", "forgetting")}
    assert by_name["window"].length == 100.0
    assert by_name["forgetting"].retentions[-1] ** 2 == pytest.approx(0.9)
    given = Drifting(factor=5.0)
    assert agents.make("adaptive-optimism", env, estimator=given, confidence=0.7).estimator is given
    with pytest.raises(TypeError, match="confidence"):
        agents.make("adaptive-thompson", env, confidence=0.7)


@every_kind
def test_average_budgets_are_spent(kind: type[Adaptive]) -> None:
    arguments = {
        **UNSEEN, "sources": Sources.random(20, 4, "sparse"), "budget": 1.5,
        "budget_rule": "average",
    }  # fmt: skip
    run = evaluate(kind, arguments, epochs=300, warmup=150, seeds=4)
    np.testing.assert_allclose(run.cost.mean(), 1.5, rtol=0.06)
    best = evaluate("whittle", arguments, epochs=300, warmup=150, seeds=4).reward.mean()
    assert run.reward.mean() > 0.75 * best


def test_evaluations_show_them_harvests_and_others_meet_the_same_content() -> None:
    assert posed_to("adaptive-thompson", {"features": ("age",)})[1]["features"] == (
        "age", "crawled", "harvest",
    )  # fmt: skip
    fleet = Sources([0.2, 3.0, 40.0, 60.0], 1.0, 0.2)  # dense and sparse
    arguments = {"sources": fleet, "arrivals": "poisson", "observed": False, "budget": 4}
    runs = compare(["whittle", *(k.name for k in KINDS)], arguments, epochs=50, seeds=3)
    for run in runs.values():
        np.testing.assert_allclose(run.reward, runs["whittle"].reward, rtol=1e-12)


@pytest.mark.parametrize("regime", ["dense", "sparse"])
def test_harvests_alone_are_enough(regime: str) -> None:
    arguments = {**UNSEEN, "sources": Sources.random(30, 7, regime), "budget": 3}
    arguments["features"] = ("age",)
    names = ["whittle", "adaptive-thompson", "adaptive-self-tuning"]
    runs = compare(names, arguments, epochs=200, warmup=300, seeds=2)
    best, thompson, tuning = (runs[name].reward.mean() for name in names)
    assert thompson > 0.95 * best
    assert tuning > 0.75 * best  # Λξ̄ and μ from harvests alone, a few items a source


REPORTS = st.one_of(
    st.sampled_from([0.0, 1.0, 1e9, 3e38, np.inf, np.nan, -1.0]), st.floats(0, 100, width=32)
)


@every_kind
@pytest.mark.parametrize(
    "shown", [COUNTS[1:], SUMS, ("crawled", "harvest"), (*CHANGES, "items", "harvest")]
)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_no_report_breaks_an_agent(kind: type[Adaptive], shown: tuple[str, ...], data: Any) -> None:
    task = Task.of(
        Sources.random(3, 0), arrivals="poisson", budget=1, observed=False, features=shown
    )
    hidden = PARAMETERS[:3] if kind is SelfTuning else PARAMETERS[:1]
    estimator = "changed" if "changed" in shown else None
    agent = kind(poisoned(task, hidden), seed=0, estimator=estimator)
    state: Any = None
    seen = np.ones((2, 3, len(shown)), dtype=np.float32)
    for _ in range(data.draw(st.integers(1, 12))):
        for channel, name in enumerate(shown):
            if name != "age":  # an age is no report of the web's: the crawler counts it
                seen[..., channel] = data.draw(arrays(np.float32, (2, 3), elements=REPORTS))
        law = agent.estimator.posterior
        action, state = agent.predict(seen, state)
        assert np.isfinite(action).all()
        assert (action >= 0).all()
        assert (action <= 1).all()
        known = law(state[3 + len(agent.remembered((1, 3))) :])
        assert np.isfinite(known.mean).all()
        assert (known.mean > 0).all()
        assert all(np.isfinite(array).all() for array in (state[0], *state[2:]))


@pytest.mark.parametrize(
    ("features", "estimator", "what"),
    [
        (("age", "items"), None, "needs the feature crawled"),
        (("age", "crawled"), None, "needs one of the features changed, items, harvest_number"),
        (CHANGES, "gamma-poisson", "needs one of the features items, harvest_number, harvest"),
        (CHANGES, "gama-poisson", "unknown estimator 'gama-poisson'; did you mean 'gamma-poisson'"),
    ],
)
def test_refuses_what_tells_nothing(features: Any, estimator: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Certainty(Task.of(features=features), estimator=estimator)


def test_refuses_fleets_drawn_anew_without_their_parameters() -> None:
    task = Task.of(lambda rng: Sources.random(4, rng), features=COUNTS)
    for kind in KINDS:
        wanted = "cost" if kind is SelfTuning else "mean_utility"
        with pytest.raises(ValueError, match=f"needs the feature {wanted}"):
            kind(task)


def test_what_self_tuning_learns_rates_by() -> None:
    """Of items, by one that finds out how much to forget; where none are shown, by nothing."""
    shown = SelfTuning(Task.of(features=COUNTS)).estimator
    assert isinstance(shown, Forgetting)
    alone = ("age", "crawled", "harvest")
    assert isinstance(SelfTuning(Task.of(features=alone)).estimator, GammaPoisson)
    with pytest.raises(ValueError, match=r"an estimator of rates' needs one of the features it"):
        SelfTuning(Task.of(features=alone), estimator="drifting")
    with pytest.raises(ValueError, match=r"all five sums over items or none, .* harvest_age_log;"):
        SelfTuning(Task.of(arrivals="poisson", features=(*COUNTS, *HarvestSums.features[:-1])))


@pytest.mark.parametrize("shown", [COUNTS, ("age", "crawled", "harvest"), ("age", *SUMS[1:])])
def test_self_tuning_does_not_mind_the_unit_of_time(shown: tuple[str, ...]) -> None:
    """The same world told in hours and in minutes."""
    rewards = []
    for unit in (1.0, 60.0):
        one = Sources.random(20, 3, "sparse")
        fleet = Sources(
            one.arrival_rate / unit, one.mean_utility, one.decay_rate / unit, period=unit
        )
        arguments = {
            "sources": fleet, "budget": 2, "arrivals": "poisson", "observed": False,
            "features": shown,
        }  # fmt: skip
        rewards.append(evaluate(_tuning, arguments, epochs=150, warmup=0, seeds=2).reward)
    np.testing.assert_allclose(rewards[0], rewards[1], rtol=1e-3)


def _tuning(env: CrawlVectorEnv) -> SelfTuning:
    return SelfTuning(env.task, seed=0)


def test_refuses_a_confidence_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"confidence is 1.0; it must be at least .5"):
        Optimism(Task.of(features=COUNTS), confidence=1.0)


def test_made_by_name() -> None:
    for kind in KINDS:
        agent = agents.make(kind.name, CrawlVectorEnv(2, features=COUNTS))
        assert type(agent) is kind


@every_kind
def test_what_waited_in_a_time_that_nobody_knows_tells_nothing(kind: type[Adaptive]) -> None:
    """The first crawl of sources never crawled before; the second is the first that counts."""
    fleet = Sources([4.0, 1.0], 1.0, 0.2)
    env = CrawlVectorEnv(
        1, sources=fleet, arrivals="poisson", budget=2, observed=False, start="full",
        features=("age", "crawled", "harvest"), horizon=None,
    )  # fmt: skip
    agent, state = kind(env.task, seed=0), None
    seen, _ = env.reset(seed=0)
    assert (seen[..., 0] == NEVER).all()
    means = []
    for _ in range(4):
        action, state = agent.predict(seen, state)
        law = agent.believed(state)
        means.append((law.shape.copy(), law.rate.copy()))
        seen, *_ = env.step(action)
    for shape, rate in means[:2]:
        np.testing.assert_allclose(shape, np.full((1, 2), WEAK.shape))
        np.testing.assert_allclose(rate, WEAK.rate)
    assert (means[2][1] > WEAK.rate).all()
