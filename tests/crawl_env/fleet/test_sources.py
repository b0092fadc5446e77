"""A fleet's parameters, what follows from them, where fleets come from, and what is refused."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from crawl_env import CrawlEnv
from crawl_env.fleet.parameters import CONSTRAINTS, PARAMETERS
from crawl_env.fleet.sources import Sources
from tests.references import Z_LIMIT, plainly, z_of_mean, z_of_share
from tests.refusals import refused

DERIVED = ("decay_per_step", "retention", "loss", "ceiling", "inflow")


def fleet_of(n=3, **changed):
    arguments = {
        "arrival_rate": np.arange(1.0, n + 1),
        "mean_utility": np.linspace(0.5, 2.0, n),
        "decay_rate": np.linspace(0.2, 0.9, n),
        "cost": np.linspace(1.0, 3.0, n),
    }
    return Sources(**(arguments | changed))


# ------------------------------------------------------------------------- what follows


def test_table_1_has_the_published_values():
    fleet = Sources.preset("table1")
    assert fleet.arrival_rate.tolist() == [250.0] * 4
    assert fleet.mean_utility.tolist() == [1.0, 0.7, 0.2, 0.08]
    assert fleet.decay_rate.tolist() == [0.70, 0.35, 0.70, 0.21]
    assert fleet.cost.tolist() == [1.0] * 4
    assert fleet.period == 1.0
    near = {"rtol": 1e-6, "atol": 0}
    np.testing.assert_allclose(
        fleet.retention, [0.4965853, 0.7046881, 0.4965853, 0.8105842], **near
    )
    np.testing.assert_allclose(fleet.inflow, [179.790963, 147.655955, 35.958193, 18.039596], **near)
    np.testing.assert_allclose(fleet.ceiling, [357.142857, 500.0, 71.428571, 95.238095], **near)
    assert fleet.published == pytest.approx(250 * 1.98, rel=1e-12)
    assert isinstance(fleet.published, float)


@plainly
@given(
    rate=st.floats(0, 1e3),
    utility=st.floats(0, 1e3),
    decay=st.floats(1e-6, 50),
    period=st.floats(1e-3, 10),
    age=st.integers(0, 50),
)
def test_derived_values_follow_the_definitions(rate, utility, decay, period, age):
    fleet = Sources(rate, utility, decay, period=period)
    m = decay * period
    ceiling = rate * utility / decay
    assert fleet.retention[0] == pytest.approx(math.exp(-m), rel=1e-12)
    assert fleet.loss[0] == pytest.approx(-math.expm1(-m), rel=1e-12)
    assert fleet.ceiling[0] == pytest.approx(ceiling, rel=1e-12)
    assert fleet.inflow[0] == pytest.approx(ceiling * -math.expm1(-m), rel=1e-12)
    assert fleet.content_at(age)[0] == pytest.approx(ceiling * -math.expm1(-m * age), rel=1e-12)
    assert fleet.content_at(math.inf)[0] == pytest.approx(ceiling, rel=1e-12)
    assert fleet.published == pytest.approx(rate * utility * period, rel=1e-12)


def test_constraints_are_summed_up_in_flags():
    plain = fleet_of(3, crawl_delay=[0.0, 0.5, 1.0])  # of at most a period
    assert (plain.is_delayed, plain.is_capped, plain.fails, plain.host_of) == (False,) * 3 + (None,)
    assert plain.delay.tolist() == [1.0] * 3
    bound = fleet_of(crawl_delay=[0, 1.5, 3.0], capacity=[np.inf, 1, 1], failure_rate=[0, 0, 0.1])
    assert (bound.is_delayed, bound.is_capped, bound.fails) == (True,) * 3
    assert bound.delay.tolist() == [1.0, 2.0, 3.0]


# ------------------------------------------------------------------------- shapes


def test_scalars_are_repeated_over_the_fleet():
    for long in PARAMETERS:
        fleet = Sources(**(dict.fromkeys(PARAMETERS, 2.0) | {long: [1.0, 2.0, 3.0]}))
        assert len(fleet) == 3
        for name in PARAMETERS:
            expected = [1.0, 2.0, 3.0] if name == long else [2.0] * 3
            assert getattr(fleet, name).tolist() == expected
            assert getattr(fleet, name).dtype == np.float64


def test_all_scalars_are_a_fleet_of_one_and_cost_defaults_to_one():
    fleet = Sources(2, 3, 4)
    assert len(fleet) == 1
    assert fleet.cost.tolist() == [1.0]
    assert fleet.names == ("1",)
    assert repr(fleet) == "Sources(1 source, period=1)"


def test_select_picks_and_permutes_with_names():
    fleet = fleet_of(4, names=["a", "b", "c", "d"], period=2.5)
    part = fleet.select([3, 1])
    assert part.names == ("d", "b")
    assert part.period == 2.5
    for name in PARAMETERS:
        assert getattr(part, name).tolist() == getattr(fleet, name)[[3, 1]].tolist()
    assert fleet.select(np.array([False, True, False, True])).names == ("b", "d")
    assert fleet.select(slice(1, 3)).names == ("b", "c")
    assert fleet.select([3, 1, 0, 2]).select([2, 1, 3, 0]) == fleet


def test_select_of_unnamed_sources_numbers_them_anew():
    assert fleet_of(4).select([3, 1]).names == ("1", "2")


def test_select_works_along_the_sources_of_a_batch():
    fleets = [fleet_of(3), fleet_of(3, decay_rate=0.7)]
    part = Sources.stack(fleets).select([2, 0])
    assert part == Sources.stack([fleet.select([2, 0]) for fleet in fleets])


def test_selecting_nothing_is_refused():
    with pytest.raises(ValueError, match="empty"):
        fleet_of(2).select(np.array([False, False]))


def test_stack_and_row_are_inverse():
    fleets = [fleet_of(3, decay_rate=d, names=["x", "y", "z"], period=2.0) for d in (0.1, 0.5)]
    batch = Sources.stack(fleets)
    assert batch.arrival_rate.shape == (2, 3)
    assert len(batch) == 3
    assert [batch.fleet(b) for b in range(2)] == fleets
    assert batch.select_fleets([1, 0]) == Sources.stack(fleets[::-1])


def test_stack_refuses_fleets_that_differ_in_size_period_or_hosts():
    for other in (fleet_of(4), fleet_of(3, period=2.0)):
        with refused("one size and period"):
            Sources.stack([fleet_of(3), other])
    for labels in ("hosts", "topics"):
        with refused(f"different {labels}"):
            Sources.stack([fleet_of(3), fleet_of(3, **{labels: ["h", "h", ""]})])


def test_topics_survive_whatever_is_done_to_a_fleet(tmp_path):
    fleet = fleet_of(4, topics=["sport", "", "news", "sport"], names=list("abcd"))
    assert len(set(fleet.topic_of.tolist())) == 3
    assert fleet.topic_of[0] == fleet.topic_of[3]
    fleet.to_csv(tmp_path / "fleet.csv")
    for other in (
        Sources.from_csv(tmp_path / "fleet.csv"),
        Sources(**fleet.describe()),
        pickle.loads(pickle.dumps(fleet)),
        Sources.stack([fleet, fleet]).fleet(1),
        fleet.replaced(period=2.0).replaced(period=1.0),
    ):
        assert other == fleet
    assert fleet.select([3, 1]).topics == ("sport", "")
    assert fleet_of(4, topics=["", "", "", ""]).topics == ()
    assert fleet_of(4).topic_of.tolist() == [0, 1, 2, 3]
    env = CrawlEnv(fleet, 3.0, features=("topic", "value"))
    assert env.reset()[0][:, 0].tolist() == fleet.topic_of.tolist()


# ------------------------------------------------------------------------- equality, safety


def test_equality_is_that_of_all_parameters():
    assert fleet_of() == fleet_of()
    for name in PARAMETERS:
        assert fleet_of() != fleet_of(**{name: 7.0}), name
    assert fleet_of() != fleet_of(period=2.0)
    assert fleet_of() != fleet_of(names=["a", "b", "c"])
    assert fleet_of() != "fleet"


def test_parameters_are_read_only_and_not_the_callers_arrays():
    given_arrays = {p: np.full(3, 2.0) for p in PARAMETERS}
    fleet = Sources(**given_arrays)
    for name in (*PARAMETERS, *CONSTRAINTS, *DERIVED):  # what is derived is kept, too
        with pytest.raises(ValueError, match="read-only"):
            getattr(fleet, name)[0] = 5.0
    for name, array in given_arrays.items():
        array[0] = 9.0
        assert getattr(fleet, name).tolist() == [2.0] * 3
        assert not any(np.shares_memory(getattr(fleet, name), x) for x in given_arrays.values())
        with pytest.raises(AttributeError):
            setattr(fleet, name, np.ones(3))


# ------------------------------------------------------------------------- presets


def test_recovering_bandits_have_their_classes_in_turn():
    classes = [(10, 0.2), (8.5, 0.4), (7, 0.6), (5.5, 0.8)]
    for n in (1, 4, 10, 101):
        fleet = Sources.preset(f"recovering-{n}")
        assert len(fleet) == n
        ceiling, decay = np.array([classes[i % 4] for i in range(n)]).T
        np.testing.assert_allclose(fleet.ceiling, ceiling, rtol=1e-14)
        np.testing.assert_allclose(fleet.decay_per_step, decay, rtol=1e-14)
        assert fleet.cost.tolist() == [1.0] * n


def test_fleet_f_is_five_kinds_five_times():
    fleet = Sources.preset("fleet-f")
    kinds = [(0.5, 1, 0.35), (1, 0.7, 0.1), (0.2, 2, 0.2), (0.3, 0.5, 0.7), (2, 0.3, 0.05)]
    expected = [kind for kind in kinds for _ in range(5)]
    found = zip(fleet.arrival_rate, fleet.mean_utility, fleet.decay_rate, strict=True)
    assert list(found) == expected
    assert fleet.cost.tolist() == [1.0] * 25
    assert fleet.period == 1.0


def test_hacker_news_is_a_year_of_105_sites():
    fleet = Sources.preset("hacker-news")
    assert len(fleet) == 105
    assert fleet.names[:2] == ("github.com", "news.ycombinator.com")
    assert fleet.arrival_rate.sum() * 8760 == pytest.approx(12_007, rel=2e-3)
    assert np.median(fleet.decay_rate) == pytest.approx(0.226, abs=0.01)
    assert (fleet.arrival_rate / fleet.decay_rate).mean() == pytest.approx(0.06, abs=0.005)
    assert fleet.cost.tolist() == [1.0] * 105


def test_an_unknown_preset_suggests_the_nearest():
    for name, near in {
        "tabel1": "table1",
        "hackernews": "hacker-news",
        "Table 1": "table1",
        "fleetf": "fleet-f",
        "recovering": "recovering-<n>",
        "recovering-ten": "recovering-<n>",
        "recovering--4": "recovering-<n>",
        "recovering-999999999": "recovering-<n>",
    }.items():
        with refused(f"unknown preset '{name}'; did you mean '{near}'"):
            Sources.preset(name)
    with refused("Known: table1, fleet-f, recovering-<n>, age-of-information-<n>, hacker-news"):
        Sources.preset("zzz")


def test_a_recovering_fleet_of_none_is_refused():
    with pytest.raises(ValueError, match="at least one source"):
        Sources.preset("recovering-0")
    with pytest.raises(ValueError, match="at least one source"):
        Sources.preset("age-of-information-0")


# ------------------------------------------------------------------------- random fleets

RANGES = {"dense": (0.5, 50.0), "sparse": (0.003, 0.3)}


@pytest.mark.parametrize("regime", sorted(RANGES))
def test_random_fleets_follow_the_stated_distributions(regime):
    n = 40_000
    fleet = Sources.random(n, seed=11, regime=regime)
    low, high = RANGES[regime]
    uniform = {
        "arrival_rate": np.log(fleet.arrival_rate / low) / math.log(high / low),
        "decay_rate": np.log(fleet.decay_rate / 0.03) / math.log(0.5 / 0.03),
    }
    for name, fraction in uniform.items():
        assert fraction.min() >= -1e-12, name
        assert fraction.max() <= 1 + 1e-12, name
        assert stats.kstest(fraction, "uniform").pvalue > 1e-4, name
    score = np.log(fleet.mean_utility) / 0.8
    assert stats.kstest(score, "norm").pvalue > 1e-4
    assert abs(z_of_mean(score**2, 1.0)) < Z_LIMIT
    assert abs(z_of_share(fleet.mean_utility < 1, 0.5)) < Z_LIMIT  # median 1
    correlation = np.corrcoef([*uniform.values(), score])[np.triu_indices(3, 1)]
    assert np.abs(correlation).max() * math.sqrt(n) < Z_LIMIT
    assert np.all(fleet.cost == 1)
    assert fleet.period == 1


def test_random_fleets_are_dense_by_default_and_repeat_with_their_seed():
    assert Sources.random(5, seed=3) == Sources.random(5, seed=3, regime="dense")
    assert Sources.random(5) == Sources.random(5, seed=0)
    assert Sources.random(5, seed=3) != Sources.random(5, seed=4)
    rng = np.random.default_rng(3)
    first, second = (Sources.random(5, rng) for _ in range(2))
    assert first == Sources.random(5, seed=3)
    assert second != first
    for seed in (-1, 1.5):
        with pytest.raises(ValueError, match=f"seed is {seed}; it must be a whole number"):
            Sources.random(5, seed)


def test_an_unknown_regime_suggests_the_nearest():
    with pytest.raises(ValueError, match=r"unknown regime 'spars'; did you mean 'sparse'"):
        Sources.random(3, regime="spars")


# ------------------------------------------------------------------------- what is refused


def test_bad_numbers_are_refused_by_source_parameter_and_remedy():
    for parameter in PARAMETERS:
        bad_ones = [math.nan, math.inf, -math.inf, -0.1]
        bad_ones += [0.0] if parameter in ("decay_rate", "cost") else []
        for bad in bad_ones:
            column = [1.0, bad, 1.0]
            with refused(f"source 1: {parameter} is {bad:g}; it must be ", "finite"):
                fleet_of(**{parameter: column})
            with refused(f"source 'beta': {parameter} is {bad:g}"):
                fleet_of(**{parameter: column}, names=["alpha", "beta", "gamma"])


def test_the_source_at_fault_is_named_in_a_batch_too():
    cost = np.ones((2, 3))
    cost[1, 2] = -1
    with pytest.raises(ValueError, match="source 2: cost is -1"):
        Sources(np.ones((2, 3)), 1.0, 1.0, cost)


def test_lengths_that_differ_are_refused_with_all_shapes():
    with pytest.raises(ValueError, match=r"arrival_rate \(3,\).*decay_rate \(2,\)"):
        Sources([1, 2, 3], 1.0, [0.1, 0.2])
    with pytest.raises(ValueError, match="differ in shape"):
        Sources(np.ones(3), np.ones((2, 3)), 1.0)


def test_what_is_no_array_of_sources_is_refused():
    for empty in ([], np.empty((0,)), np.empty((2, 0))):
        with refused("at least one source"):
            Sources(empty, 1.0, 1.0)
    with refused("(1, 2, 3)", "(B, N)"):
        Sources(np.ones((1, 2, 3)), 1.0, 1.0)
    for bad in ("fast", [[1, 2], [3]], {"a": 1}, [10**400]):
        with refused("decay_rate must be a number or an array of numbers"):
            Sources(1.0, 1.0, bad)
    for period in (0.0, -1.0, math.nan, math.inf, None, [1.0, 2.0], "1", 10**400):
        with refused("period is ", "; it must be ", "positive and finite (time)"):
            fleet_of(period=period)
    for no_sequence in ("abc", None):
        with refused(f"hosts is {no_sequence!r}; give a sequence, one host per source"):
            fleet_of(hosts=no_sequence)
        with refused(f"names is {no_sequence!r}; give a sequence, one name per source"):
            fleet_of(names=no_sequence)
    with refused("hosts has 2 entries for 3 sources"):
        fleet_of(hosts=["a", "a"])
    with refused("topics is 'abc'; give a sequence, one topic per source"):
        fleet_of(topics="abc")
    for names in (["a"], ["a", "b", "c", "d"]):
        with refused(f"names has {len(names)} entries for 3 sources"):
            fleet_of(names=names)
    with refused("source 2: the name 'a' appears twice"):
        fleet_of(names=["a", "b", " a"])
    for nothing in ("", None, math.nan, NAType()):
        with refused("source 1: the source has no name"):
            fleet_of(names=["a", nothing, "b"])


class NAType:
    """As pandas.NA, which has no truth value."""

    def __ne__(self, other):
        return self

    def __bool__(self):
        raise TypeError("ambiguous")


def test_a_missing_host_or_topic_is_one_of_its_own():
    missing = [None, math.nan, NAType()]
    assert fleet_of(hosts=missing).host_of is None
    assert fleet_of(topics=missing).topic_of.tolist() == [0, 1, 2]
    assert fleet_of(topics=np.ones((3, 2))).topic_of.tolist() == [0, 0, 0]  # rows as one name each


def test_numbers_beyond_floating_point_are_refused_without_a_warning():
    for arguments in (
        {"arrival_rate": [1.0, 1e200], "mean_utility": [1.0, 1e200], "decay_rate": 1.0},
        {"arrival_rate": [1.0, 1e10], "mean_utility": 1.0, "decay_rate": [1.0, 1e-300]},
        {"arrival_rate": 1.0, "mean_utility": 1.0, "decay_rate": [1.0, 1e-200], "period": 1e-200},
        {"arrival_rate": 1.0, "mean_utility": 1.0, "decay_rate": [1e-100, 1e300], "period": 1e200},
        {
            "arrival_rate": 1.0,
            "mean_utility": 1.0,
            "decay_rate": 1e200,
            "period": 1e-100,
            "crawl_delay": [0.0, 1e300],
        },
    ):
        with refused("source 1", "other units"):
            Sources(**arguments)
