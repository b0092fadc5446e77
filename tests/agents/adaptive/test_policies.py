"""Adaptive agents: what they may know, their recurrent state, and how near they come to knowing."""

from copy import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import agents
from agents.adaptive import Certainty, Optimism, SelfTuning, Thompson
from agents.adaptive.base import Memory
from agents.evaluation.rollout import compare, evaluate
from agents.evaluation.statistics import score
from agents.inference import (
    Changed,
    FleetPrior,
    Forgetting,
    GammaPoisson,
    HarvestSums,
    Posterior,
    SignalQuality,
    weak_prior,
)
from agents.policies.base import arrays_of
from crawl_env import NEVER, CrawlVectorEnv, Signals, Sources, Task
from crawl_env.fleet.parameters import PARAMETERS, SIGNALS
from tests.agents.inference.common import UNIT

KINDS = (Certainty, Optimism, Thompson, SelfTuning)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
COUNTS = ("age", "crawled", "items", "harvest")
SUMS = ("age", "crawled", *HarvestSums.features)
CHANGES = ("age", "crawled", "changed")
UNSEEN = {"arrivals": "poisson-items", "observed": False, "features": COUNTS}


def poisoned(task, names):
    """Return the task with NaN for some of the sources' parameters; that there are signals, and
    without them nothing, remains known."""
    fleet = Sources(**task.sources.__getstate__())
    names += SIGNALS if fleet.is_signalled else ()
    for name in names:
        object.__setattr__(fleet, name, np.full(task.n, np.nan))
    other = copy(task)  # the constructor would refuse them
    object.__setattr__(other, "sources", fleet)
    return other


def hidden_from(kind):
    return PARAMETERS[:3] if kind is SelfTuning else PARAMETERS[:1]


# ------------------------------------------------------------------- what they read and remember


@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        ("average", ("crawled", "harvest")),
        ("step", ("value", *COUNTS)),
        ("average", SUMS),
        ("step", ("value", *SUMS, "pings")),
    ],
)
def test_hidden_parameters_are_not_read(rule, shown):
    for kind in KINDS:
        check_hidden(kind, rule, shown)


def check_hidden(kind, rule, shown):
    arguments = {
        "sources": Sources.random(8, 0), "budget": 2, "budget_rule": rule, "horizon": None,
        "arrivals": "poisson-items", "features": shown, "observed": np.arange(8) % 2 == 0,
    }  # fmt: skip
    if "pings" in shown:
        arguments["signals"] = Signals(recall=[0.5, 0.8] * 4, precision=0.7, delay=[0, 0, 1, 1] * 2)
    env = CrawlVectorEnv(2, **arguments)
    honest, blind = kind(env, seed=1), kind(poisoned(env.task, hidden_from(kind)), seed=1)
    seen, _ = env.reset(seed=0)
    states = [None, None]
    for _ in range(30):
        spoilt = seen
        if "value" in shown:  # of sources not observed it shows the belief, made of the parameters
            spoilt = seen.copy()
            spoilt[:, 1::2, 0] = np.nan
        action, states[0] = honest.predict(seen, states[0])
        same, states[1] = blind.predict(spoilt, states[1])
        np.testing.assert_array_equal(action, same)
        assert np.isfinite(action).all()
        seen, *_ = env.step(action)


def fleet_in(time, utility):
    """Return one fleet in other units; `time` and `utility` are the numbers that stand for 1."""
    one = Sources.random(12, 3, "sparse")
    return Sources(
        one.arrival_rate / time, one.mean_utility * utility, one.decay_rate / time, period=time
    )


def in_units(seen, shown, time, utility):
    """Return an observation in other units."""
    column = {name: seen[..., i].astype(float) for i, name in enumerate(shown)}
    shift = np.log(utility)
    told = {
        "harvest": lambda: column["harvest"] * utility,
        "harvest_age": lambda: column["harvest_age"] * time,
        "harvest_age_squared": lambda: column["harvest_age_squared"] * time**2,
        "harvest_log": lambda: column["harvest_log"] + shift * column["harvest_number"],
        "harvest_age_log": lambda: (
            (column["harvest_age_log"] + shift * column["harvest_age"]) * time
        ),
    }
    return np.stack([told.get(name, lambda n=name: column[n])() for name in shown], axis=-1)


@pytest.mark.parametrize(
    ("shown", "rule", "estimator"),
    [
        (COUNTS, "step", "forgetting"),
        (COUNTS, "average", None),
        (("age", "crawled", "harvest"), "average", None),
        ((*CHANGES, "harvest"), "step", "changed"),
        (SUMS, "average", "fleet-prior"),
    ],
)
def test_units_of_time_and_utility_do_not_matter(shown, rule, estimator):
    for kind in KINDS:
        check_units(kind, shown, rule, estimator)


def model_of(state):
    """Return rate, mean utility and decay of the fleet that `SelfTuning` plans with."""
    return state.plan.drawn.rate, state.plan.utility, state.plan.decay


def check_units(kind, shown, rule, estimator):
    """The same crawls in units a billion times as large or small give the same priorities, and
    estimates in these units."""
    if kind is SelfTuning and estimator == "changed":
        estimator = None
    units = [(1.0, 1.0), (UNIT, 1.0), (1 / UNIT, UNIT)]
    arguments = {"budget": 2, "budget_rule": rule, **UNSEEN, "features": shown, "horizon": None}
    tasks = [CrawlVectorEnv(2, sources=fleet_in(*unit), **arguments) for unit in units]
    crawlers = [kind(env, seed=0, estimator=estimator) for env in tasks]
    states = [None] * len(units)
    seen, _ = tasks[0].reset(seed=1)
    for _ in range(30):
        actions = []
        for i, (agent, unit) in enumerate(zip(crawlers, units, strict=True)):
            action, states[i] = agent.predict(in_units(seen, shown, *unit), states[i])
            actions.append(action)
        for action in actions[1:]:
            np.testing.assert_allclose(action, actions[0], atol=5e-3)
        seen, *_ = tasks[0].step(actions[0])
    laws = [agent.posterior(state) for agent, state in zip(crawlers, states, strict=True)]
    for law, state, (time, utility) in zip(laws, states, units, strict=True):
        np.testing.assert_allclose(law.mean * time, laws[0].mean, rtol=1e-6)
        if kind is SelfTuning:
            for mine, first, scale in zip(
                model_of(state), model_of(states[0]), (time, 1 / utility, time), strict=True
            ):
                np.testing.assert_allclose(mine * scale, first, rtol=1e-3)
    if kind is not SelfTuning or "items" in shown:
        assert not np.allclose(laws[0].mean, weak_prior().mean)  # something was learnt


@every_kind
def test_rows_and_episodes_do_not_mix(kind):
    """A row alone, or in a batch where others start anew, is treated alike."""
    env = CrawlVectorEnv(3, sources=Sources.random(6, 1), budget=2, horizon=None, **UNSEEN)
    agent = kind(env, seed=0)
    draws = kind in (Thompson, SelfTuning)
    seen, _ = env.reset(seed=5)
    state, alone = None, None
    for t in range(40):
        start = np.array([t == 0, t in (0, 11), t in (0, 20)])
        before = [array.copy() for array in arrays_of(state or ())]
        action, after = agent.predict(seen, state, start)
        for array, same in zip(arrays_of(state or ()), before, strict=True):
            np.testing.assert_array_equal(array, same)
        single, alone = kind(env, seed=0).predict(seen[0], alone)
        if not draws:
            np.testing.assert_array_equal(single, action[0])
        assert isinstance(after, Memory)
        assert alone is not None
        shapes, others = ([a.shape[1:] for a in arrays_of(each)] for each in (after, alone))
        assert shapes == others
        if t in (11, 20):  # what was learnt is forgotten, in that row alone
            clock = after.clock[:, 0]
            assert clock[1 if t == 11 else 2] == 1
            assert clock[0] == t + 1
        state = after
        seen, *_ = env.step(action)


@pytest.mark.parametrize("shown", [COUNTS, SUMS])
def test_what_one_row_learns_does_not_depend_on_the_others(shown):
    task = Task(
        Sources.random(5, 0), arrivals="poisson-items", budget=2, observed=False, features=shown
    )
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
                assert state is not None
                # Draws are from a generator that rows share.
                content = state[4].content if kind is SelfTuning else ()
                arrays = [*content, *state[5]]
                learnt.append([array[:1] for array in arrays])
                assert any(not np.array_equal(x[0], x[1]) for x in arrays)
            for one, other in zip(*learnt, strict=True):
                np.testing.assert_array_equal(one, other)


# ------------------------------------------------------------------------- what crawls reveal


def test_gaps_are_counted_with_and_without_ages():
    """The posterior holds as many items, in the time that the crawls cover."""
    fleet = Sources([0.3, 1.0, 4.0, 0.1], 1.0, 0.2, period=0.5)
    for shown in (COUNTS, COUNTS[1:]):
        env = CrawlVectorEnv(
            2, sources=fleet, budget=1, horizon=None, **{**UNSEEN, "features": shown}
        )
        agent = Thompson(env, seed=0)
        seen, _ = env.reset(seed=1)
        state = None
        last, items, covered = np.full((2, 4), -1.0), np.zeros((2, 4)), np.zeros((2, 4))
        for t in range(60):
            action, state = agent.predict(seen, state)
            np.testing.assert_allclose(state.rates.items, items)
            np.testing.assert_allclose(state.rates.time, covered)
            seen, *_ = env.step(action)
            picked = seen[..., shown.index("crawled")] > 0
            items += seen[..., shown.index("items")]
            covered += np.where(picked, (t - last) * 0.5, 0.0)
            last = np.where(picked, t, last)
        assert items.sum() > 50


@pytest.mark.parametrize("shown", [COUNTS, ("crawled", "harvest", "failed"), SUMS, CHANGES])
def test_failed_crawls_reveal_nothing_and_the_gap_goes_on(shown):
    fleet = Sources([2.0, 1.0, 0.5], 1.0, 0.2, failure_rate=0.6)
    arguments = {**UNSEEN, "features": shown, "sources": fleet, "budget": 2, "horizon": None}
    env = CrawlVectorEnv(20, **arguments)
    agent = Thompson(env, seed=0)
    seen, _ = env.reset(seed=2)
    state = None
    for _ in range(300):
        action, after = agent.predict(seen, state)
        assert isinstance(after, Memory)
        if state is not None:
            crawled = seen[..., shown.index("crawled")] > 0
            for old, new in zip(state.rates[-2:], after.rates[-2:], strict=True):
                np.testing.assert_array_equal(old[~crawled], new[~crawled])
            np.testing.assert_array_equal(after.age[~crawled], state.age[~crawled] + 1)
            assert (after.age[crawled] == 1).all()
        state = after
        seen, *_ = env.step(action)
    typical = np.median(agent.posterior(state).mean, axis=0)
    np.testing.assert_allclose(typical, fleet.arrival_rate, rtol=0.1)


@every_kind
def test_content_that_arrived_in_an_unknown_time_reveals_nothing(kind):
    """The first crawl of sources never crawled before; the second is the first that counts."""
    env = CrawlVectorEnv(
        1, sources=Sources([4.0, 1.0], 1.0, 0.2), arrivals="poisson", budget=2, observed=False,
        start="full", features=("age", "crawled", "harvest"), horizon=None,
    )  # fmt: skip
    agent, state, prior = kind(env, seed=0), None, weak_prior()
    seen, _ = env.reset(seed=0)
    assert (seen[..., 0] == NEVER).all()
    laws = []
    for _ in range(4):
        action, state = agent.predict(seen, state)
        laws.append(agent.posterior(state))
        seen, *_ = env.step(action)
    for law in laws[:2]:
        np.testing.assert_allclose(law.shape, np.full((1, 2), prior.shape))
        np.testing.assert_allclose(law.rate, prior.rate)
    assert (laws[2].rate > prior.rate).all()


REPORTS = st.one_of(
    st.sampled_from([0.0, 1.0, 1e9, 3e38, np.inf, np.nan, -1.0]), st.floats(0, 100, width=32)
)


@every_kind
@settings(max_examples=8)
@given(data=st.data())
def test_no_observation_breaks_an_agent(kind, data):
    shown = data.draw(
        st.sampled_from(
            [
                COUNTS[1:], SUMS, ("crawled", "harvest"), (*CHANGES, "items", "harvest"),
                (*SUMS, "pings"),
            ]
        )
    )  # fmt: skip
    task = Task(
        Sources.random(3, 0), arrivals="poisson-items", budget=1, observed=False, features=shown,
        signals={"recall": 0.5 if "pings" in shown else 0.0},
    )  # fmt: skip
    estimator = "changed" if "changed" in shown else None
    agent = kind(poisoned(task, hidden_from(kind)), seed=0, estimator=estimator)
    state = None
    seen = np.ones((2, 3, len(shown)), dtype=np.float32)
    for _ in range(data.draw(st.integers(1, 8))):
        for channel, name in enumerate(shown):
            if name != "age":  # which the crawler counts itself
                seen[..., channel] = data.draw(arrays(np.float32, (2, 3), elements=REPORTS))
        action, state = agent.predict(seen, state)
        assert ((action >= 0) & (action <= 1)).all()
        known = agent.posterior(state)
        assert np.isfinite(known.mean).all()
        assert (known.mean > 0).all()
        assert all(np.isfinite(x).all() for x in arrays_of(state) if x is not state.multiplier)


# ------------------------------------------------------------------------------ what they collect


def test_delays_and_failures_at_once_do_no_harm():
    fleet = Sources(
        np.geomspace(0.2, 2.0, 6), 1.0, 0.2, failure_rate=0.3, crawl_delay=[1, 2, 3, 4, 5, 6]
    )
    shown = (*COUNTS, "available", "failed")
    arguments = {**UNSEEN, "features": shown, "sources": fleet, "budget": 2}
    names = ["whittle", *(kind.name for kind in KINDS)]
    runs = compare(names, arguments, steps=100, warmup=100, seeds=3)
    for name in names:
        assert runs[name].reward.mean() > 0.85 * runs["whittle"].reward.mean()


@pytest.mark.parametrize(
    "estimator", [GammaPoisson(retention=0.999), Forgetting(), FleetPrior(), Changed()],
    ids=["gamma-poisson", "forgetting", "fleet-prior", "changed"],
)  # fmt: skip
def test_every_estimator_serves_every_agent(estimator):
    """On a sparse fleet, where "changed or not" reveals nearly as much as counts."""
    arguments = {**UNSEEN, "sources": Sources.random(30, 3, "sparse"), "budget": 3}
    entrants = {k.name: _with(k, estimator) for k in (Certainty, Optimism, Thompson)}
    runs = compare(
        {"whittle": "whittle", "random": "random", **entrants}, arguments,
        steps=60, warmup=60, seeds=3,
    )  # fmt: skip
    best, worst = (runs[name].reward.mean() for name in ("whittle", "random"))
    for name in entrants:
        assert runs[name].reward.mean() > worst + 0.5 * (best - worst)


def _with(kind, estimator):
    return lambda env: kind(env, seed=0, estimator=estimator)


@pytest.mark.parametrize(
    ("regime", "features", "close", "tuning"),
    [("dense", COUNTS, 0.97, 0.9), ("sparse", ("age",), 0.95, 0.75)],
)
def test_learning_costs_little(regime, features, close, tuning):
    """Of what Whittle collects with known rates, later than at the start; with items and with
    harvests alone, from which a few items a source reveal little of Λξ̄ and μ."""
    task = {**UNSEEN, "sources": Sources.random(30, 7, regime), "budget": 3, "features": features}
    names = ["whittle", *(kind.name for kind in KINDS)]
    runs = compare(names, task, steps=150, warmup=300, seeds=2)
    best = runs["whittle"].reward.mean()
    for name in names[1:-1]:
        assert runs[name].reward.mean() > close * best
    assert runs[names[-1]].reward.mean() > tuning * best


@pytest.mark.parametrize("kind", [Certainty, Optimism, Thompson], ids=lambda kind: kind.name)
def test_changed_or_not_suffices_where_sources_publish_little(kind):
    arguments = {**UNSEEN, "features": CHANGES, "sources": Sources.random(30, 7, "sparse")}
    env = CrawlVectorEnv(2, **arguments, budget=3, horizon=None)
    agent, known = kind(env, seed=1), agents.make("whittle", env)
    assert agent.estimator == Changed()
    collected = []
    for each in (agent, known):
        seen, _ = env.reset(seed=3)
        state = None
        total = 0.0
        for t in range(400):
            action, state = each.predict(seen, state)
            seen, reward, *_ = env.step(action)
            total += reward.sum() if t >= 200 else 0.0
        collected.append(total)
    assert collected[0] > 0.94 * collected[1]


def test_certainty_gives_sources_up_where_the_others_do_not():
    """A prior far below the rates of a dense fleet: what was never crawled never will be."""
    low = GammaPoisson(Posterior(np.array(0.5), np.array(0.5)))
    arguments = {**UNSEEN, "sources": Sources.random(100, 0), "budget": 10}
    base = evaluate("whittle", arguments, steps=100, warmup=200, seeds=1).reward.mean()
    score = {
        kind: evaluate(_with(kind, low), arguments, steps=100, warmup=200, seeds=1).reward.mean()
        for kind in (Certainty, Optimism, Thompson)
    }
    assert score[Certainty] < 0.92 * base
    assert score[Thompson] > score[Certainty] + 0.03 * base
    assert score[Optimism] > score[Certainty] + 0.02 * base


def test_observed_value_decides():
    """Of equal sources, the one of the largest value is crawled first."""
    fleet = Sources(np.full(4, 3.0), 1.0, 0.2)
    env = CrawlVectorEnv(1, sources=fleet, features=("value", *COUNTS), arrivals="poisson-items")
    seen = np.zeros((4, 5), dtype=np.float32)
    seen[:, 0], seen[:, 1] = [1.0, 4.0, 2.0, 3.0], 3.0
    for kind in (Certainty, Optimism):
        action, _ = kind(env).predict(seen)
        assert np.argsort(action).tolist() == [0, 2, 3, 1]


def test_average_budgets_are_spent():
    arguments = {
        **UNSEEN, "sources": Sources.random(20, 4, "sparse"), "budget": 1.5,
        "budget_rule": "average",
    }  # fmt: skip
    names = ["whittle", *(kind.name for kind in KINDS)]
    runs = compare(names, arguments, steps=200, warmup=100, seeds=2)
    for name in names[1:]:
        np.testing.assert_allclose(runs[name].cost.mean(), 1.5, rtol=0.06)
        assert runs[name].reward.mean() > 0.75 * runs["whittle"].reward.mean()


# --------------------------------------------------------------------------------------- arguments


def test_signals_are_learnt_where_there_are_any():
    quality = Signals(recall=0.5, precision=0.8)
    for kind in KINDS:
        task = Task(signals=quality, features=(*SUMS, "items", "pings")[1:])
        assert isinstance(kind(task).estimator, SignalQuality)
        for other in (task.replaced(features=SUMS), task.replaced(signals=Signals(recall=0))):
            assert not isinstance(kind(other).estimator, SignalQuality)
            with pytest.raises(ValueError, match="which ignores signals; add pings"):
                kind(other).quality(None)
    seen = Task(signals=quality, features=(*COUNTS, "pings"))
    with pytest.raises(ValueError, match="needs the sums over items to learn from signals"):
        SelfTuning(seen)
    assert not isinstance(SelfTuning(seen, estimator="forgetting").estimator, SignalQuality)
    changes = Thompson(Task(signals=quality, features=(*CHANGES, "pings")))
    assert not changes.estimator.counts
    with pytest.raises(ValueError, match="needs one of the features items, harvest_number"):
        Thompson(Task(signals=quality, features=(*CHANGES, "pings")), estimator=SignalQuality())


def test_learning_the_quality_of_signals_costs_little():
    """Of `whittle`, which knows everything, from step 150 to 350."""
    task = {
        "sources": Sources.random(20, 0, "sparse"), "budget": 1,
        "features": ("value", *SUMS, "items"),
        "signals": Signals(recall=0.5, precision=0.8),
    }  # fmt: skip
    agents_compared = {
        "known": "whittle",
        **{kind.name: kind.name for kind in (Thompson, SelfTuning)},
        "ignoring": lambda env: Thompson(env, seed=0, estimator="gamma-poisson"),
    }
    runs = compare(agents_compared, task, steps=200, warmup=150, seeds=2)
    known = runs["known"].reward.mean()
    assert runs["adaptive-thompson"].reward.mean() > 0.97 * known
    assert runs["adaptive-self-tuning"].reward.mean() > 0.95 * known
    assert runs["ignoring"].reward.mean() < 0.85 * known


def test_self_tuning_learns_rare_items_that_decay_slowly_from_harvests_alone():
    """From a crawl that found nothing it must not conclude that nothing is ever published."""
    rng = np.random.default_rng(0)
    rate = np.exp(rng.uniform(np.log(4e-4), np.log(0.15), 100))
    task = {
        "sources": Sources(rate, rng.lognormal(0, 0.8, 100), 0.029), "budget": 4,
        "arrivals": "poisson", "observed": False, "features": ("age", "crawled", "harvest"),
    }  # fmt: skip
    names = ("whittle", "random", "adaptive-self-tuning")
    runs = compare(names, task, steps=300, warmup=200, seeds=3)
    best, worst, learnt = (runs[name].reward for name in names)
    assert score(learnt, worst, best).mean > 0.86


def test_the_default_estimators_of_self_tuning():
    """ "forgetting" where the number of items is shown; where it is not, none is used."""
    assert isinstance(SelfTuning(Task(features=COUNTS)).estimator, Forgetting)
    alone = Task(features=("age", "crawled", "harvest"))
    assert isinstance(SelfTuning(alone).estimator, GammaPoisson)


DRAWN = {"sources": lambda rng: Sources.random(4, rng)}


REFUSED = [
        (Certainty, {"features": ("age", "items")}, {}, "needs the feature crawled"),
        (Certainty, {"features": ("age", "crawled")}, {}, "features changed, items, harvest_num"),
        (Certainty, {"features": CHANGES}, {"estimator": "gamma-poisson"},
         "needs one of the features items, harvest_number, harvest"),
        (Certainty, {"features": CHANGES}, {"estimator": "gama-poisson"},
         "unknown estimator 'gama-poisson'; did you mean 'gamma-poisson'"),
        (Certainty, {**DRAWN, "features": COUNTS}, {}, "needs the feature mean_utility"),
        (SelfTuning, {**DRAWN, "features": COUNTS}, {}, "needs the feature cost"),
        (SelfTuning, {"features": COUNTS[:2] + COUNTS[3:]}, {"estimator": "changed"},
         r"an estimator of rates' needs one of the features it"),
        (SelfTuning, {"arrivals": "poisson-items", "features": (*COUNTS, *SUMS[2:-1])}, {},
         r"all five sums over items or none, .* harvest_age_log;"),
        (Optimism, {"features": COUNTS}, {"confidence": 1.0}, r"confidence is 1\.0; it must be"),
]  # fmt: skip


def test_unusable_tasks_and_options_are_refused():
    for kind, arguments, options, what in REFUSED:
        with pytest.raises(ValueError, match=what):
            kind(Task(**arguments), **options)
