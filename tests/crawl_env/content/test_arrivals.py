"""Content in law: moments, Laplace transforms, independence, counts, ages, cost, and refusals.

Every statistical test compares with a value derived by hand (see `references`), at 4.5 standard
errors and a fixed seed.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from crawl_env import Bursts, DailyCycle, Drift, Jumps
from crawl_env.content import poisson as module
from crawl_env.content.arrivals import (
    ARRIVALS,
    VARYING,
    Arrivals,
    Cells,
    Deterministic,
    Poisson,
    make_arrivals,
)
from crawl_env.content.decay import LomaxDecay, StretchedDecay
from crawl_env.content.utility import Constant, Exponential, Gamma, Law, Lognormal
from crawl_env.content.world import World
from crawl_env.fleet.sources import Sources
from tests.references import (
    Z_LIMIT,
    transform_of_content,
    transform_of_law,
    z_of_mean,
    z_of_share,
    z_of_variance,
)

LAWS = [
    pytest.param(Constant(), "constant", 0.0, id="constant"),
    pytest.param(Exponential(), "exponential", 0.0, id="exponential"),
    pytest.param(Lognormal(0.6), "lognormal", 0.6, id="lognormal"),
    pytest.param(Gamma(0.7), "gamma", 0.7, id="gamma"),
]
EACH_LAW = pytest.mark.parametrize(("law", "law_name", "parameter"), LAWS)
SECOND_MOMENT = {"constant": 1.0, "exponential": 2.0, "lognormal": math.exp(0.36), "gamma": 17 / 7}

# ℓ = ΛT items an epoch, ξ̄, m = μT
SETTINGS = {
    "sparse": (0.2, 1.3, 0.22),
    "a few": (1.8, 0.7, 0.35),
    "many": (9.0, 2.0, 0.7),
    "long epochs": (4.0, 1.0, 6.0),
}
EACH_SETTING = pytest.mark.parametrize("setting", SETTINGS)


def cells_of(settings: list[tuple[float, float, float]], rows: int) -> Cells:
    """Return `rows` environments of the given sources, as flat cells."""
    return Cells(*(np.tile(column, rows) for column in np.array(settings, dtype=float).T))


def epochs_of(
    arrivals: Arrivals,
    settings: list[tuple[float, float, float]],
    rows: int,
    count: bool = False,
    epochs: int = 1,
    seed: int = 1,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return utility and counts of single epochs, (epochs, rows, sources) each."""
    cells, rng = cells_of(settings, rows), np.random.default_rng(seed)
    stream = arrivals.stream(cells, count)
    shape = (epochs, rows, len(settings))
    value, items = np.zeros(shape), np.zeros(shape) if count else None
    for t in range(epochs):
        stream(value[t].reshape(-1), None if items is None else items[t].reshape(-1), rng)
    return value, items


def content_of(
    arrivals: Arrivals,
    setting: tuple[float, float, float],
    epochs: float,
    rows: int,
    count: bool = False,
    seed: int = 2,
) -> tuple[np.ndarray, np.ndarray]:
    cells = cells_of([setting], rows)
    return arrivals.content(cells, np.full(rows, epochs), count, np.random.default_rng(seed))


def assert_content_in_law(
    value: np.ndarray,
    setting: tuple[float, float, float],
    epochs: float,
    law: str,
    parameter: float,
) -> None:
    """Mean u_k, variance ℓE[ξ²](1−α^2k)/(2m), P(U = 0) = exp(−ℓk), E exp(−sU) for some s."""
    items, mean_utility, m = setting
    mean = items * mean_utility / m * -math.expm1(-m * epochs)
    second = SECOND_MOMENT[law] * mean_utility**2
    variance = items * second * -math.expm1(-2 * m * epochs) / (2 * m)
    assert value.min() >= 0
    assert abs(z_of_mean(value, mean)) < Z_LIMIT
    assert abs(z_of_variance(value, mean, variance)) < Z_LIMIT
    for s in (0.3 / mean, 3.0 / mean, 20.0 / mean_utility):
        expected = transform_of_content(s, *setting, epochs, law, parameter)
        if expected > 0.01:  # else a few samples near zero carry the whole mean
            assert abs(z_of_mean(np.exp(-s * value), expected)) < Z_LIMIT, s
    never = math.exp(-items * epochs)
    if value.size * never > 20:
        assert abs(z_of_share(value == 0, never)) < Z_LIMIT


# ------------------------------------------------------------------------- the references


def test_the_transform_of_exponential_content_has_its_closed_form() -> None:
    """((1 + αξ̄s)/(1 + ξ̄s))^(Λ/μ), the law of the gamma Ornstein–Uhlenbeck innovation."""
    for (items, mean, m), s, k in itertools.product(SETTINGS.values(), (0.1, 1.0, 9.0), (1, 4)):
        alpha = math.exp(-m * k)
        closed = ((1 + alpha * mean * s) / (1 + mean * s)) ** (items / m)
        found = transform_of_content(s, items, mean, m, k, "exponential", 0)
        assert found == pytest.approx(closed, rel=1e-10)


@EACH_LAW
def test_the_transform_has_the_moments_of_the_model(
    law: Law, law_name: str, parameter: float
) -> None:
    items, mean, m = 1.8, 0.7, 0.35
    h = 1e-4
    log = [
        math.log(transform_of_content(s, items, mean, m, 1, law_name, parameter))
        for s in (h, 2 * h)
    ]
    alpha = math.exp(-m)
    second = SECOND_MOMENT[law_name] * mean**2
    assert law.second_moment == pytest.approx(SECOND_MOMENT[law_name], rel=1e-12)
    assert (4 * log[0] - log[1]) / (2 * h) == pytest.approx(
        -items * mean * (1 - alpha) / m, rel=1e-6
    )
    assert (log[1] - 2 * log[0]) / h**2 == pytest.approx(
        items * second * (1 - alpha**2) / (2 * m), rel=1e-3
    )
    assert transform_of_law(law_name, parameter)(np.array([0.0]))[0] == pytest.approx(1.0)


# ------------------------------------------------------------------------- one epoch


@EACH_LAW
@EACH_SETTING
@pytest.mark.parametrize("count", [False, True], ids=["utility alone", "counting"])
def test_one_epoch_of_content_has_its_law(
    law: Law, law_name: str, parameter: float, setting: str, count: bool
) -> None:
    value, _ = epochs_of(Poisson(law), [SETTINGS[setting]], 15_000, count)
    assert_content_in_law(value.ravel(), SETTINGS[setting], 1, law_name, parameter)


@pytest.mark.parametrize("one_go", [0.0, 0.3, 2.0, math.inf], ids=lambda x: f"one go above {x:g}")
def test_wherever_exponential_content_is_drawn_in_one_go_the_law_is_the_same(
    one_go: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet of sparse and dense sources together, so that both samplers work side by side."""
    monkeypatch.setattr(module, "ONE_GO", one_go)
    settings = list(SETTINGS.values())
    value, _ = epochs_of(Poisson(), settings, 15_000, seed=4)
    for i, setting in enumerate(settings):
        assert_content_in_law(value[0, :, i], setting, 1, "exponential", 0.0)
    correlation = np.corrcoef(value[0].T)[np.triu_indices(len(settings), 1)]
    assert np.abs(correlation).max() * math.sqrt(15_000) < Z_LIMIT


@pytest.mark.parametrize("period", [0.02, 0.3, 1.0, 4.0, 80.0], ids=lambda t: f"T={t:g}")
def test_one_go_and_item_by_item_agree_in_distribution(
    period: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ONE_GO", 0.0)
    n, rate, mean, decay = 12_000, 3.0, 0.8, 0.5
    setting = (rate * period, mean, decay * period)
    at_once, _ = epochs_of(Poisson(), [setting], n, count=False, seed=6)
    by_item, _ = epochs_of(Poisson(), [setting], n, count=True, seed=7)
    rng = np.random.default_rng(8)  # and a third, written here
    counts = rng.poisson(rate * period, n)
    owner = np.repeat(np.arange(n), counts)
    worth = rng.exponential(mean, owner.size) * np.exp(-decay * rng.uniform(0, period, owner.size))
    plain = np.bincount(owner, worth, minlength=n)
    assert stats.ks_2samp(at_once.ravel(), by_item.ravel()).pvalue > 1e-4
    assert stats.ks_2samp(at_once.ravel(), plain).pvalue > 1e-4
    if rate * period < 5:
        never = math.exp(-rate * period)
        for sample in (at_once, by_item, plain):
            assert abs(z_of_share(np.ravel(sample) == 0, never)) < Z_LIMIT


@pytest.mark.parametrize("count", [False, True], ids=["utility alone", "counting"])
@EACH_LAW
def test_sources_and_epochs_are_independent(
    law: Law, law_name: str, parameter: float, count: bool
) -> None:
    settings = [(0.5, 1, 0.3), (3.0, 2, 0.1), (0.5, 1, 0.3), (1.0, 1, 2.0), (8.0, 0.5, 0.4)]
    rows = 6000
    value, items = epochs_of(Poisson(law), settings, rows, count, epochs=3, seed=9)
    for drawn in (value,) if items is None else (value, items):
        by_row = drawn.transpose(1, 0, 2).reshape(rows, -1)  # 3 epochs × 5 sources a row
        correlation = np.corrcoef(by_row.T)[np.triu_indices(15, 1)]
        assert np.abs(correlation).max() * math.sqrt(rows) < Z_LIMIT
        # Neighbouring rows: the last source of one stands beside the first of the next.
        for t in range(3):
            across = np.corrcoef(drawn[t, :-1, -1], drawn[t, 1:, 0])[0, 1]
            assert abs(across) * math.sqrt(rows) < Z_LIMIT


def test_same_seed_same_content_and_the_buffer_is_added_to() -> None:
    cells = cells_of(list(SETTINGS.values()), 3)
    for name in (name for name in ARRIVALS if name not in VARYING):
        stream = make_arrivals(name).stream(cells, True)
        first, second = np.zeros(12), np.full(12, 100.0)
        items = np.full(12, 7.0)
        stream(first, np.zeros(12), np.random.default_rng(3))
        stream(second, items, np.random.default_rng(3))
        np.testing.assert_allclose(second - 100, first, atol=1e-12)
        assert items.sum() > 7 * 12, name


# ------------------------------------------------------------------------- counts


@EACH_LAW
@EACH_SETTING
def test_counts_are_poisson(law: Law, law_name: str, parameter: float, setting: str) -> None:
    rate = SETTINGS[setting][0]
    _, items = epochs_of(Poisson(law), [SETTINGS[setting]], 20_000, count=True, seed=10)
    n = items.ravel()
    assert np.array_equal(n, np.round(n))
    assert abs(z_of_mean(n, rate)) < Z_LIMIT
    assert abs(z_of_variance(n, rate, rate)) < Z_LIMIT
    for k in range(12):
        share = stats.poisson.pmf(k, rate)
        if n.size * share > 50:
            assert abs(z_of_share(n == k, share)) < Z_LIMIT, k


@pytest.mark.parametrize(
    ("law", "second"), [(Constant(), 1.0), (Exponential(), 2.0)], ids=["constant", "exponential"]
)
@EACH_SETTING
def test_given_the_count_each_item_has_its_mean_and_variance(
    law: Law, second: float, setting: str
) -> None:
    """E[U|n] = n·ξ̄(1−α)/m and Var[U|n] = n·(E[ξ²](1−α²)/(2m) − (ξ̄(1−α)/m)²)."""
    _, mean, m = SETTINGS[setting]
    value, items = epochs_of(Poisson(law), [SETTINGS[setting]], 60_000, count=True, seed=11)
    value, items = value.ravel(), items.ravel()
    one = mean * -math.expm1(-m) / m
    spread = second * mean**2 * -math.expm1(-2 * m) / (2 * m) - one**2
    assert np.all(value[items == 0] == 0)
    assert np.all(value[items > 0] > 0)
    tested = 0
    for n in range(1, 14):
        given_n = value[items == n]
        if given_n.size > 500:
            tested += 1
            assert abs(z_of_mean(given_n, n * one)) < Z_LIMIT, n
            assert abs(z_of_variance(given_n, n * one, n * spread)) < Z_LIMIT, n
    assert tested >= 2


def test_a_constant_item_lies_between_its_worth_after_one_epoch_and_now() -> None:
    value, items = epochs_of(Poisson(Constant()), [(0.5, 3.0, 0.7)], 5000, count=True)
    one = value[items == 1]
    assert 3.0 * math.exp(-0.7) <= one.min() < one.max() <= 3.0
    age = np.log(3.0 / one) / 0.7
    assert stats.kstest(age, "uniform").pvalue > 1e-4


def test_deterministic_epochs_add_the_mean_of_everything() -> None:
    settings = [(2.0, 3.0, 0.5), (0.0, 1.0, 1.0), (1e-3, 10.0, 30.0)]
    value, items = epochs_of(Deterministic(), settings, 2, count=True, epochs=2)
    expected = [n * x / m * -math.expm1(-m) for n, x, m in settings]
    np.testing.assert_allclose(value, np.broadcast_to(expected, value.shape), rtol=1e-14)
    np.testing.assert_allclose(items, np.broadcast_to([2.0, 0.0, 1e-3], items.shape))


# ------------------------------------------------------------------------- content of an age


@EACH_LAW
@pytest.mark.parametrize("age", [1, 3, 12])
@pytest.mark.parametrize("count", [False, True], ids=["utility alone", "counting"])
@pytest.mark.parametrize("setting", ["sparse", "a few", "many"])
def test_content_of_an_age_has_the_law_of_that_many_epochs(
    law: Law, law_name: str, parameter: float, age: int, count: bool, setting: str
) -> None:
    n = 6000
    value, items = content_of(Poisson(law), SETTINGS[setting], age, n, count)
    assert_content_in_law(value, SETTINGS[setting], age, law_name, parameter)
    if count:
        rate = SETTINGS[setting][0] * age
        assert abs(z_of_mean(items, rate)) < Z_LIMIT
        assert abs(z_of_variance(items, rate, rate)) < Z_LIMIT
        assert np.array_equal(items == 0, value == 0)


@EACH_LAW
def test_content_of_an_age_agrees_with_epochs_of_stream_and_decay(
    law: Law, law_name: str, parameter: float
) -> None:
    setting, age, n = SETTINGS["a few"], 4, 10_000
    epochs, _ = epochs_of(Poisson(law), [setting] * age, n, seed=12)
    value = epochs[0] @ np.exp(-setting[2] * np.arange(age))
    content, _ = content_of(Poisson(law), setting, age, n)
    assert stats.ks_2samp(value, content).pvalue > 1e-4


@pytest.mark.parametrize("setting", SETTINGS)
def test_exponential_content_that_was_never_crawled_is_gamma(setting: str) -> None:
    items, mean, m = SETTINGS[setting]
    value, counts = content_of(Poisson(), SETTINGS[setting], math.inf, 20_000)
    assert stats.kstest(value, stats.gamma(items / m, scale=mean).cdf).pvalue > 1e-4
    assert np.all(counts == 0)


@EACH_LAW
@pytest.mark.parametrize("setting", ["sparse", "a few"])
def test_content_that_was_never_crawled_has_the_stationary_law(
    law: Law, law_name: str, parameter: float, setting: str
) -> None:
    n = 10_000
    value, _ = content_of(Poisson(law), SETTINGS[setting], math.inf, n)
    assert_content_in_law(value, SETTINGS[setting], math.inf, law_name, parameter)


@EACH_LAW
def test_one_more_epoch_leaves_the_stationary_law_as_it_is(
    law: Law, law_name: str, parameter: float
) -> None:
    setting = SETTINGS["a few"]
    value, _ = content_of(Poisson(law), setting, math.inf, 10_000)
    later, _ = epochs_of(Poisson(law), [setting], 10_000, seed=13)
    later = math.exp(-setting[2]) * value + later.ravel()
    assert_content_in_law(later, setting, math.inf, law_name, parameter)


@EACH_LAW
def test_counting_does_not_hinder_the_stationary_law(
    law: Law, law_name: str, parameter: float
) -> None:
    """`Arrivals.content`: infinity is the stationary law, whose number of items is 0."""
    setting = SETTINGS["a few"]
    value, items = content_of(Poisson(law), setting, math.inf, 10_000, count=True)
    assert_content_in_law(value, setting, math.inf, law_name, parameter)
    assert np.all(items == 0)


@EACH_LAW
def test_silent_sources_never_crawled_are_empty_even_when_counting(
    law: Law, law_name: str, parameter: float
) -> None:
    value, items = content_of(Poisson(law), (0.0, 1.0, 0.5), math.inf, 3, count=True)
    assert value.tolist() == items.tolist() == [0.0] * 3


@EACH_LAW
def test_a_great_age_is_as_good_as_never(law: Law, law_name: str, parameter: float) -> None:
    """Nothing is left of what came 10⁸ epochs ago, so nothing of it need be simulated."""
    setting, n = SETTINGS["a few"], 3000
    value, _ = content_of(Poisson(law), setting, 1e8, n)
    assert_content_in_law(value, setting, math.inf, law_name, parameter)


def test_ages_may_differ_from_cell_to_cell() -> None:
    ages = np.tile([0.0, 1.0, 5.0, math.inf], 8000)
    cells = cells_of([SETTINGS["a few"]], ages.size)
    for law, name, parameter in [(Exponential(), "exponential", 0.0), (Gamma(0.7), "gamma", 0.7)]:
        value, _ = Poisson(law).content(cells, ages, False, np.random.default_rng(14))
        by_age = value.reshape(-1, 4).T
        assert np.all(by_age[0] == 0)
        for content, age in zip(by_age[1:], ages[1:4], strict=True):
            assert_content_in_law(content, SETTINGS["a few"], age, name, parameter)


def test_deterministic_content_is_the_mean_of_its_age() -> None:
    cells = Cells(np.array([2.0, 2.0, 0.0]), np.array([3.0, 3.0, 1.0]), np.array([0.5, 0.5, 0.5]))
    ages = np.array([4.0, math.inf, math.inf])
    rng = np.random.default_rng(0)
    value, items = Deterministic().content(cells, ages, True, rng)
    np.testing.assert_allclose(value, [12 * -math.expm1(-2.0), 12.0, 0.0], rtol=1e-14)
    assert items.tolist() == [8.0, 0.0, 0.0]


# ------------------------------------------------------------------------- silent sources

PLACES = {
    "first": [0.0, 3.0, 3.0],
    "last": [3.0, 3.0, 0.0],
    "middle": [3.0, 0.0, 3.0],
    "several at both ends": [0.0, 0.0, 3.0, 0.0, 0.0],
    "alone": [0.0],
    "all": [0.0, 0.0],
    "beside the sparse": [0.0, 1e-3, 0.0, 1e-3, 0.0],
}


@EACH_LAW
@pytest.mark.parametrize("count", [False, True], ids=["utility alone", "counting"])
@pytest.mark.parametrize("place", PLACES)
def test_silent_sources_never_get_anything(
    law: Law, law_name: str, parameter: float, count: bool, place: str
) -> None:
    rates = PLACES[place]
    settings = [(rate, 1.0, 0.4) for rate in rates]
    rows = 7000 // len(rates)
    value, items = epochs_of(Poisson(law), settings, rows, count, epochs=3, seed=15)
    silent = np.array(rates) == 0
    assert np.all(value[..., silent] == 0)
    assert items is None or np.all(items[..., silent] == 0)
    if not silent.all():
        assert value[..., ~silent].sum() > 0
    for age in (5.0, math.inf):
        if count and age == math.inf:
            continue
        cells = cells_of(settings, rows)
        content, counts = Poisson(law).content(
            cells, np.full(cells.items.size, age), count, np.random.default_rng(16)
        )
        assert np.all(content.reshape(rows, -1)[:, silent] == 0)
        assert np.all(counts.reshape(rows, -1)[:, silent] == 0)


class AtTheEnd(np.random.Generator):
    """A generator whose gaps all but vanish after the first: places land at the very end."""

    def standard_exponential(self, *size: Any) -> np.ndarray:  # type: ignore[override]
        gaps = np.full(*size, 1e-300)
        gaps[0] = 1.0
        return gaps


def test_an_item_rounded_beyond_the_end_goes_to_the_last_source_that_publishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Six chunks of 5.3/6 each end 9e-16 beyond 5.3: silent sources stand there."""
    assert 5 * 5.3 / 6 + 5.3 / 6 > 5.3
    monkeypatch.setattr(module, "_CHUNK", 1)
    cells = cells_of([(3.0, 1.0, 0.4), (2.3, 1.0, 0.4), (0.0, 1.0, 0.4), (0.0, 1.0, 0.4)], 1)
    items, rng = np.zeros(4), AtTheEnd(np.random.PCG64(0))
    stream = Poisson(Constant()).stream(cells, True)
    for _ in range(20):
        stream(np.zeros(4), items, rng)
    assert items[0] > 0
    assert items[1] > 0
    assert items[2:].tolist() == [0, 0]


class AsOldAsCanBe(np.random.Generator):
    """A generator of uniforms that are all but one: every item is as old as is simulated."""

    def random(self, *size: Any) -> np.ndarray:  # type: ignore[override]
        return np.full(*size, 1 - 2.0**-53)


@pytest.mark.parametrize("age", [1e6, math.inf], ids=["old", "never crawled"])
def test_only_items_worth_less_than_rounding_are_left_out(age: float) -> None:
    cells = cells_of([(2.0, 3.0, 0.5)], 50)
    rng = AsOldAsCanBe(np.random.PCG64(0))
    value, _ = Poisson(Constant()).content(cells, np.full(50, age), False, rng)
    most = 2.0 * 37 / 0.5 + 150  # items of one cell within 37 time constants, and to spare
    assert 0 < value.max() < 3.0 * 2.3e-16 * most


# ------------------------------------------------------------------------- many items


@EACH_LAW
@pytest.mark.parametrize("chunk", [2, 7])
def test_cutting_the_work_into_chunks_keeps_the_law(
    law: Law, law_name: str, parameter: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK", chunk)
    settings = [SETTINGS["a few"], (0.0, 1.0, 1.0), SETTINGS["many"], SETTINGS["sparse"]]
    # Few rows and many epochs: with one long line, most cells never meet a boundary.
    value, items = epochs_of(Poisson(law), settings, 2, count=True, epochs=1500, seed=17)
    for i, setting in enumerate(settings):
        if setting[0]:
            assert_content_in_law(value[..., i].ravel(), setting, 1, law_name, parameter)
            n = items[..., i].ravel()
            assert abs(z_of_mean(n, setting[0])) < Z_LIMIT
            assert abs(z_of_variance(n, setting[0], setting[0])) < Z_LIMIT
    assert np.all(items[..., 1] == 0)
    correlation = np.corrcoef(items.reshape(1500, 8)[:, [0, 2, 3, 4, 6, 7]].T)
    assert np.abs(correlation[np.triu_indices(6, 1)]).max() * math.sqrt(1500) < Z_LIMIT


def test_more_items_than_one_chunk_holds_are_poisson_at_the_seam_too() -> None:
    n, rate, epochs = 701, 100.0, 100
    assert n * rate > 2**16
    cells = cells_of([(rate, 1.0, 0.5)], n)
    stream, rng = Poisson(Constant()).stream(cells, True), np.random.default_rng(18)
    items = np.zeros((epochs, n))
    for t in range(epochs):
        stream(np.zeros(n), items[t], rng)
    assert abs(z_of_variance(items.sum(axis=1), n * rate, n * rate)) < Z_LIMIT
    for seam in (items[:, 0], items[:, n // 2], items[:, -1]):
        assert abs(z_of_mean(seam, rate)) < Z_LIMIT
        assert abs(z_of_variance(seam, rate, rate)) < Z_LIMIT
    halves = np.corrcoef(items[:, : n // 2].sum(axis=1), items[:, n // 2 + 1 :].sum(axis=1))[0, 1]
    assert abs(halves) * math.sqrt(epochs) < Z_LIMIT


class Counting:
    """A generator that counts the numbers it is asked for."""

    def __init__(self, seed: int) -> None:
        self.rng, self.numbers = np.random.default_rng(seed), 0

    def __getattr__(self, name: str) -> Any:
        draw = getattr(self.rng, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            drawn = draw(*arguments, **options)
            self.numbers += np.size(drawn)
            return drawn

        return counted


def numbers_drawn(arrivals: Arrivals, items: float, cells: int, count: bool, age: float = 0) -> int:
    rng = Counting(19)
    fleet = cells_of([(items, 1.0, 0.5)], cells)
    if age:
        arrivals.content(fleet, np.full(cells, age), count, rng)  # type: ignore[arg-type]
    else:
        stream = arrivals.stream(fleet, count)
        stream(np.zeros(cells), np.zeros(cells) if count else None, rng)  # type: ignore[arg-type]
    return rng.numbers


@EACH_LAW
def test_work_is_in_proportion_to_the_items(law: Law, law_name: str, parameter: float) -> None:
    """100,000 cells with 100 or 10,000 items among them: at most four numbers an item."""
    for items in (1e-3, 0.1):
        drawn = numbers_drawn(Poisson(law), items, 100_000, True)
        expected = items * 100_000
        assert expected < drawn < 4.6 * expected


def test_dense_exponential_content_takes_three_numbers_however_much_is_published() -> None:
    for items in (10.0, 1e4, 1e8):
        assert numbers_drawn(Poisson(), items, 50, False) == 150
        assert numbers_drawn(Poisson(), items, 50, False, age=20.0) <= 160


def test_items_wholly_decayed_are_not_simulated() -> None:
    for law in (Constant(), Gamma()):
        # 37 time constants of 2 epochs, 4 numbers an item
        assert numbers_drawn(Poisson(law), 1.0, 50, False, age=1e6) < 5 * 74 * 50


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            lambda cells: Poisson("constant").stream(cells, False), id="an epoch, constant"
        ),
        pytest.param(lambda cells: Poisson().stream(cells, True), id="an epoch, counting"),
        pytest.param(
            lambda cells: Poisson("gamma").content(
                cells, np.full(2, 3.0), False, np.random.default_rng(0)
            ),
            id="content of an age",
        ),
    ],
)
def test_more_items_than_can_be_simulated_are_refused_with_a_remedy(make: Any) -> None:
    with pytest.raises(ValueError, match=r"e\+\d+ items .*one by one; use .*deterministic"):
        make(cells_of([(1e9, 1.0, 0.5)], 2))


# ------------------------------------------------------------------------- names and objects


def test_names_are_understood() -> None:
    assert make_arrivals("deterministic") == Deterministic()
    assert make_arrivals("poisson") == Poisson(Exponential())
    assert make_arrivals("poisson-constant") == Poisson(Constant())
    assert make_arrivals("poisson-exponential") == Poisson(Exponential())
    assert make_arrivals("poisson-lognormal") == Poisson(Lognormal(1.2))
    assert make_arrivals("poisson-gamma") == Poisson(Gamma(2.0))
    assert make_arrivals("poisson-lomax") == Poisson(Exponential(), LomaxDecay(2.0))
    assert make_arrivals("poisson-gamma-stretched") == Poisson(Gamma(2.0), StretchedDecay(0.5))
    laws = ("constant", "exponential", "lognormal", "gamma")
    decays = ("stretched", "lomax")
    assert set(ARRIVALS) == {
        "deterministic",
        "poisson",
        *(f"poisson-{word}" for word in (*laws, *decays)),
        *(f"poisson-{law}-{decay}" for law in laws for decay in decays),
        *(f"poisson-{change}" for change in ("drift", "jumps", "cycle", "bursts")),
    }
    assert make_arrivals("poisson-drift") == Drift(0.1, 0.01)
    assert make_arrivals("poisson-jumps") == Jumps(0.01, Gamma(2.0))
    assert make_arrivals("poisson-cycle") == DailyCycle(0.5, 24.0, 0.0)
    assert make_arrivals("poisson-bursts") == Bursts(0.5, 1.0)
    assert make_arrivals("deterministic").deterministic
    assert not make_arrivals("poisson").deterministic


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("poison", "poisson"),
        ("poisson-lognorm", "poisson-lognormal"),
        ("determinstic", "deterministic"),
        ("poisson-", "poisson"),
        ("Poisson", "poisson"),
    ],
)
def test_unknown_names_suggest_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ValueError, match=rf"unknown arrivals '{name}'; did you mean '{near}'"):
        make_arrivals(name)


@pytest.mark.parametrize("bad", [None, 3, Constant(), object], ids=["None", "3", "law", "object"])
def test_an_object_that_brings_no_content_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match=r"arrivals is .*`deterministic`, `stream` and `content`"):
        make_arrivals(bad)


@pytest.mark.parametrize("kind", [Poisson, Deterministic], ids=["Poisson", "Deterministic"])
def test_a_class_is_not_taken_for_an_object_of_it(kind: type) -> None:
    with pytest.raises(ValueError, match="arrivals is"):
        make_arrivals(kind)


class OneEach:
    """Somebody's own arrivals: one item of full worth an epoch at every source."""

    deterministic = False

    def stream(self, cells: Cells, count: bool) -> Any:
        def add(value: np.ndarray, items: np.ndarray | None, rng: np.random.Generator) -> None:
            value += cells.mean_utility
            if items is not None:
                items += 1

        return add

    def content(
        self, cells: Cells, epochs: np.ndarray, count: bool, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        return 10.0 * cells.mean_utility, np.full(cells.items.size, 10.0)


def test_your_own_arrivals_are_accepted_and_used() -> None:
    own = OneEach()
    assert make_arrivals(own) is own
    sources = Sources([5.0, 5.0], [2.0, 3.0], math.log(2))
    world, rng = World(sources, own, rows=2, count=True), np.random.default_rng(0)
    world.start(np.ones((2, 2)), rng)
    assert world.value.tolist() == [[20.0, 30.0]] * 2
    world.advance(rng)
    np.testing.assert_allclose(world.value, [[12.0, 18.0]] * 2)
    assert world.items.tolist() == [[11.0, 11.0]] * 2


def test_old_content_of_exponential_utilities_is_drawn_at_once() -> None:
    """Ages of thousands of epochs are stationary: no item of them needs to be simulated."""
    n = 20_000
    cells = Cells(np.full(n, 50.0), np.ones(n), np.full(n, 0.5))
    value, _ = Poisson().content(cells, np.full(n, 1e5), False, np.random.default_rng(0))
    mean, variance = 100.0, 100.0  # of Gamma(Λ/μ, 1)
    assert abs(value.mean() - mean) < 4.5 * np.sqrt(variance / n)
    assert abs(value.var() - variance) < 0.05 * variance
