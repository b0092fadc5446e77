"""The law of U against its moments, an exact formula and simulated content."""

import numpy as np
import pytest
from scipy import special, stats

from agents.theory.shot_noise import Content, one_item
from crawl_env import Arrivals
from crawl_env.content.process import Cells
from crawl_env.content.utility import EqualUtilities, Exponential, Gamma, Lognormal

LAWS = [EqualUtilities(), Exponential(), Gamma(2.0), Gamma(0.5), Lognormal(1.2)]
each_law = pytest.mark.parametrize("law", LAWS, ids=repr)


class Sampled:
    """A law of one's own, of which only draws and the second moment are known."""

    second_moment = 2.0

    def sample(self, rng, n):
        return rng.standard_exponential(n)


def values(content):
    return np.arange(content.mass.size) * content.step


def shortfall(content, level):
    """Return E max(level − U/ξ̄, 0)."""
    return np.maximum(np.asarray(level)[..., None] - values(content), 0.0) @ content.mass


@pytest.mark.parametrize(
    ("law", "items", "decay"),
    [
        (EqualUtilities(), 0.01, 5.0), (EqualUtilities(), 20_000.0, 0.02),
        (Exponential(), 0.3, 0.02), (Gamma(2.0), 5.0, 1.0), (Gamma(0.5), 250.0, 0.3),
        (Lognormal(1.2), 0.01, 5.0), (Lognormal(1.2), 20_000.0, 0.02),
    ],
    ids=repr,
)  # fmt: skip
def test_mean_variance_and_empty_epochs(law, items, decay):
    content = Content.of_items(items, decay, one_item(law))
    x = values(content)
    mean = items * -np.expm1(-decay) / decay
    variance = items * law.second_moment * -np.expm1(-2 * decay) / (2 * decay)
    assert (content.mass >= 0).all()
    assert content.mass.sum() == pytest.approx(1.0, abs=1e-4)
    # With few, equal items the rare epochs of several lie beyond the lattice.
    rare = 2e-2 if isinstance(law, EqualUtilities) and items < 0.1 else 5e-5
    assert content.mass @ x == pytest.approx(mean, rel=rare)
    # At m = 5 most items are worth less than a step of the lattice.
    got = content.mass @ x**2 - (content.mass @ x) ** 2
    assert got == pytest.approx(variance, rel=0.1 if decay == 5 else 0.03)
    assert content.mass[0] == pytest.approx(np.exp(-items), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(("items", "decay"), [(0.3, 0.2), (2.0, 1.0), (40.0, 0.1)])
def test_exponential_utilities_as_in_the_exact_formula(items, decay):
    """U | B ~ Gamma(B, α) with B ~ NegativeBinomial(ℓ/m, α), from the model's page."""
    content, alpha = Content.of_items(items, decay, one_item(Exponential())), np.exp(-decay)
    b = np.arange(1, 2000)
    weight = stats.nbinom.pmf(b, items / decay, alpha)
    for level in items * np.array([0.1, 0.5, 1.0, 2.0]):
        exact = np.exp(-items) + weight @ special.gammainc(b, level / alpha)
        lattice = content.mass[: int(level / content.step) + 1].sum()
        assert lattice == pytest.approx(exact, abs=0.004)
        # E max(z − U, 0) = z P(U ≤ z) − E[U; U ≤ z]
        partial = weight @ (alpha * b * special.gammainc(b + 1, level / alpha))
        assert shortfall(content, level) == pytest.approx(
            level * exact - partial, abs=1e-4 * items + 1e-6
        )


@pytest.mark.parametrize(("items", "decay"), [(0.3, 0.2), (2.0, 1.0), (40.0, 0.1)])
def test_what_spans_leave_is_larger_in_convex_order_than_in_the_exact_formula(items, decay):
    """The formula above for one step of length k, and in the limit Gamma(ℓ/m, 1)."""
    steps, shape = np.array([1.0, 3.0, np.inf]), items / decay
    top = shape + 12.0 * np.sqrt(shape) + 30.0
    laws = Content.within(items, decay, one_item(Exponential()), steps, top / 1022, 1024)
    b = np.arange(1, 2000)
    for k, content in zip(steps, laws, strict=True):
        mean, alpha = -shape * np.expm1(-decay * k), np.exp(-decay * k)
        assert content.mass @ values(content) == pytest.approx(mean, rel=1e-6)
        for level in mean * np.array([0.3, 1.0, 2.0]):
            if np.isfinite(k):
                weight, z = stats.nbinom.pmf(b, shape, alpha), level / alpha
                below = level * special.gammainc(b, z) - alpha * b * special.gammainc(b + 1, z)
                exact = level * np.exp(-items * k) + weight @ below
            else:
                exact = level * special.gammainc(shape, level)
                exact -= shape * special.gammainc(shape + 1, level)
            got = shortfall(content, level)
            assert exact - 1e-5 * mean < got < exact + 0.005 * mean


@each_law
@pytest.mark.parametrize(("items", "decay"), [(0.3, 0.5), (60.0, 1.0)])
def test_simulated_content_has_this_law(law, items, decay):
    """Kolmogorov's distance, halfway between the points of the lattice."""
    n = 20_000
    cells = Cells(np.full(n, items), np.ones(n), np.full(n, decay))
    drawn = np.zeros(n)
    past = Arrivals(utility=law, sampler="items").past(cells, np.ones(n))
    past.add(drawn, None, np.random.default_rng(4))
    content = Content.of_items(items, decay, one_item(law))
    between = np.sort(drawn).searchsorted(values(content) + content.step / 2) / n
    distance = np.abs(between - np.cumsum(content.mass)).max()
    # A right program fails one of these in a million: P(D > d) ≤ 2 exp(−2nd²).
    assert distance < np.sqrt(np.log(2e6) / (2 * n))


def test_a_law_that_can_only_be_sampled():
    exact, own = (Content.of_items(1.0, 0.3, one_item(law)) for law in (Exponential(), Sampled()))
    levels = np.linspace(0.1, 5.0, 30)
    np.testing.assert_allclose(shortfall(own, levels), shortfall(exact, levels), atol=5e-3)


@each_law
def test_items_have_mean_one_and_the_laws_second_moment(law):
    item = one_item(law)
    assert item.weight.sum() == pytest.approx(1.0)
    assert item.weight @ item.value == pytest.approx(1.0)
    assert item.weight @ item.value**2 == pytest.approx(law.second_moment, rel=1e-9)
    assert (np.diff(item.value) > 0).all()
    wide = Gamma(0.5) == law or Lognormal(1.2) == law
    assert item.quantile(0.5) == pytest.approx(
        np.median(law.sample(np.random.default_rng(0), 400_001)), rel=0.2 if wide else 0.1
    )


@pytest.mark.parametrize("law", [Gamma(0.01), Gamma(0.1), Gamma(800.0), Lognormal(2.5)], ids=repr)
def test_laws_at_their_extremes_keep_their_second_moment(law):
    item = one_item(law)
    assert item.weight @ item.value**2 == pytest.approx(law.second_moment, rel=0.01)


def test_a_tail_too_heavy_is_refused():
    with pytest.raises(ValueError, match="too heavy-tailed"):
        one_item(Lognormal(4.0))
