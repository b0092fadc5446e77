"""Budgets of shards: never more than the whole, and prices that agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ephemeral_crawl.live import Scheduler, TagStatus
from ephemeral_crawl.live.settings import hours_of
from ephemeral_crawl.shards.balancer import Balancer, Quote, divide
from ephemeral_crawl.shards.tag_budgets import TagBudgets, TagQuote, together

FATES = ("answers", "silent", "request lost", "answer lost")


class Fleet:
    """Shards whose demand is a power of the price, B = size · λ^−elasticity."""

    def __init__(self, budgets, sizes, elasticities):
        self.budgets = np.array(budgets, dtype=float)
        self.sizes, self.elasticities = np.array(sizes), np.array(elasticities)

    @property
    def prices(self):
        return (self.budgets / self.sizes) ** (-1.0 / self.elasticities)

    def round(self, balancer, fates=None, check=lambda: None):
        """Make a round, in which the shards meet fates."""
        fates = fates or ["answers"] * len(self.budgets)
        prices = self.prices
        lowered = balancer.lower(
            [
                None if fate == "silent" else Quote(float(budget), float(price), 100, 0)
                for fate, budget, price in zip(fates, self.budgets, prices, strict=True)
            ]
        )
        balancer.acknowledge(self._tell(lowered, fates, check))
        self._tell(balancer.rise(), fates, check)

    def _tell(self, changes, fates, check):
        heard = {}
        for i, budget in changes.items():
            if fates[i] in ("answers", "answer lost"):
                self.budgets[i] = budget
                check()
            if fates[i] == "answers":
                heard[i] = budget
        return heard


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_the_budgets_never_add_up_to_more_than_the_whole(data):
    """Whatever is lost on the way, and also if they did at first."""
    number = data.draw(st.integers(1, 6))
    positive = st.floats(1e-3, 1e3)
    fleet = Fleet(
        *(
            data.draw(st.lists(values, min_size=number, max_size=number))
            for values in (positive, positive, st.floats(0.4, 3.0))
        )
    )
    total = data.draw(st.floats(0.5, 1e4))
    balancer, most = Balancer(total, number), [fleet.budgets.sum()]

    def check():
        now = fleet.budgets.sum()
        assert now <= max(total, most[-1]) * (1 + 1e-12)
        most.append(now)

    fleet.round(balancer, ["answers"] * number, check)
    assert fleet.budgets.sum() <= total * (1 + 1e-9)
    for _ in range(data.draw(st.integers(1, 5))):
        before = fleet.budgets.copy()
        fates = data.draw(st.lists(st.sampled_from(FATES), min_size=number, max_size=number))
        fleet.round(balancer, fates, check)
        silent = [fate == "silent" for fate in fates]
        assert (fleet.budgets[silent] == before[silent]).all()
    for _ in range(2):  # and nothing is lost for ever
        fleet.round(balancer)
    assert fleet.budgets.sum() == pytest.approx(total)


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 40), st.floats(1e-2, 1e9), st.integers(0, 2**32 - 1))
def test_a_division_keeps_to_the_whole_and_to_the_bounds(number, total, seed):
    draw = np.random.default_rng(seed)
    budgets = total * np.exp(draw.normal(0, 3, number))
    prices = np.exp(draw.normal(0, 5, number)) * (draw.random(number) > 0.2)
    least = total / number * draw.uniform(0, 1, number)
    most = least + total * draw.uniform(0, 1, number)
    found = divide(total, budgets, prices, least, most)
    assert (found >= least).all()
    assert (found <= most).all()
    assert found.sum() <= total * (1 + 1e-12)
    before = budgets * (total / budgets.sum())
    bound = np.maximum(4 * before, least)
    assert (found <= bound * (1 + 1e-12)).all()
    if (bound <= most).all() and prices.all():  # so that nothing prevents that all is spent
        assert found.sum() == pytest.approx(total)


@pytest.mark.parametrize(("elasticity", "rounds"), [(0.5, 3), (1.0, 6)])
def test_64_shards_of_100_million_agree_on_a_price_and_do_so_again_after_a_shock(
    elasticity, rounds
):
    draw, total = np.random.default_rng(7), 1e8
    sizes = np.exp(draw.normal(0.0, 0.5, 64))
    fleet = Fleet(np.full(64, total / 64), sizes * total, np.full(64, elasticity))
    balancer = Balancer(total, 64)
    for shock in (1.0, np.where(draw.random(64) < 0.25, 3.0, 1.0)):
        fleet.sizes = fleet.sizes * shock
        assert np.ptp(np.log(fleet.prices)) > 0.5
        for _ in range(rounds):
            fleet.round(balancer)
        assert np.ptp(np.log(fleet.prices)) < 0.05
        assert fleet.budgets.sum() == pytest.approx(total)


def test_nothing_changes_before_each_shard_has_answered_once():
    balancer = Balancer(10.0, 2)
    assert balancer.lower([Quote(9.0, 1.0, 10, 0), None]) == {}
    assert balancer.rise() == {}
    assert balancer.lower([Quote(9.0, 1.0, 10, 0), Quote(1.0, 1e9, 10, 0)]) == {
        0: pytest.approx(6.0),
        1: 1.0,  # as it is: it might follow the hours of another balancer
    }


def test_what_a_shard_may_still_be_told_is_not_given_to_others():
    balancer = Balancer(20.0, 2)
    balancer.acknowledge(balancer.lower([Quote(4.0, 1.0, 10, 0), Quote(4.0, 1.0, 10, 0)]))
    assert balancer.rise() == {0: 10.0, 1: 10.0}  # which the first one has not received yet
    balancer.lower([Quote(4.0, 1.0, 10, 0), Quote(10.0, 100.0, 10, 0)])
    assert balancer.budgets.tolist() == [10.0, 10.0]
    assert balancer.rise() == {0: 10.0}
    balancer.set_budget("10/h", None, 0.0)
    assert balancer.lower([Quote(4.0, 1.0, 10, 0), Quote(10.0, 1.0, 10, 0)]).keys() == {0, 1}
    assert balancer.rise() == {}  # nobody has confirmed it: together they may have too much


def test_hours_of_hardly_any_budget_are_hours_that_a_scheduler_accepts():
    balancer = Balancer.of("08:00 40/h, 22:00 0.001/h", None, 0.0, 2)
    told = balancer.arguments(1e-9 * balancer.total)
    assert min(rate for _, rate in hours_of(told["budget"])) > 0.0
    Scheduler(":memory:", **told).close()


def test_a_budget_that_is_raised_is_spent():
    fleet, balancer = Fleet([5.0, 5.0], [1.0, 3.0], [1.0, 1.0]), Balancer(10.0, 2)
    fleet.round(balancer)
    balancer.set_budget("100/h", None, 0.0)
    for _ in range(6):
        fleet.round(balancer)
    assert fleet.budgets == pytest.approx([25.0, 75.0], rel=0.05)


def test_shards_follow_the_hours_and_never_have_more_than_there_is_at_each():
    balancer = Balancer.of("08:00 40/h, 22:00 10/h", None, 12 * 3600.0, 2)
    assert balancer.total == 40.0
    balancer.acknowledge(balancer.lower([Quote(100.0, 1.0, 10, 0), Quote(30.0, 1.0, 10, 0)]))
    balancer.rise()
    told = [balancer.arguments(part)["budget"] for part in balancer.budgets]
    hours = np.array([[rate for _, rate in hours_of(table)] for table in told])
    assert hours.sum(axis=0) * 3600.0 == pytest.approx([40.0, 10.0])
    assert hours[:, 0] * 3600.0 == pytest.approx(balancer.budgets)
    before = balancer.budgets / 40.0
    balancer.follow(23 * 3600.0)
    assert (balancer.total, balancer.budgets / 10.0) == (10.0, pytest.approx(before))
    # The second one has not noticed yet, and is told.
    lowered = balancer.lower(
        [Quote(balancer.budgets[0], 1.0, 10, 0), Quote(40.0 * before[1], 1.0, 10, 0)]
    )
    assert balancer.budgets.sum() > 10.0
    assert 1 in lowered
    assert lowered[1] <= 10.0
    balancer.set_budget("20/h", None, 0.0)
    assert balancer.arguments(5.0) == {"budget": "5/h"}


class Tagged:
    """Shards with a tag, whose price is a power of its part: of a budget that binds."""

    def __init__(self, sizes):
        self.sizes, self.told = np.array(sizes), [(None, None, 1.0, 1.0)] * len(sizes)

    def quotes(self, budgets, fates):
        found = []
        for k, (least, most, *parts) in enumerate(self.told):
            if fates[k] == "silent":
                found.append(None)
                continue
            price = (parts[1] / self.sizes[k]) ** -2.0 if most else 1.0
            tag = TagStatus(
                "x", 10, False, None, None, 1.0, 0.0, price, 0.0, "", least, most, *parts
            )
            found.append(TagQuote(tag, 0))
        return found

    def round(self, budgets, fates=None, check=lambda: None):
        fates = fates or ["answers"] * len(self.sizes)
        budgets.acknowledge(self._tell(budgets.lower(self.quotes(budgets, fates)), fates, check))
        self._tell(budgets.rise(), fates, check)

    def _tell(self, changes, fates, check):
        heard = {}
        for k, told in changes.items():
            if fates[k] in ("answers", "answer lost"):
                parts = (told.get(f"{name}_part", 1.0) for name in ("least", "most"))
                self.told[k] = (told["least"], told["most"], *parts)
                check()
            if fates[k] == "answers":
                heard[k] = True
        return heard

    def most(self):
        return sum(
            np.inf if most is None else float(most.removesuffix("/h")) * part
            for _, most, _, part in self.told
        )


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_the_maxima_of_a_tag_never_add_up_to_more_than_that_of_all_shards(data):
    number = data.draw(st.integers(1, 5))
    shards = Tagged(data.draw(st.lists(st.floats(0.01, 10.0), min_size=number, max_size=number)))
    budgets, most = TagBudgets("x", number), [np.inf]

    def check():
        now = shards.most()
        assert now <= max(bound, most[-1]) * (1 + 1e-9)
        most.append(now)

    bound = 12.0
    budgets.bounds = ("1/h", "12/h")
    shards.round(budgets, check=check)
    assert shards.most() <= 12.0 * (1 + 1e-9)
    for _ in range(data.draw(st.integers(1, 5))):
        fates = data.draw(st.lists(st.sampled_from(FATES), min_size=number, max_size=number))
        shards.round(budgets, fates, check)
    bound = 20.0
    budgets.bounds = (None, "20/h")
    for _ in range(12):
        shards.round(budgets, check=check)
    assert shards.most() == pytest.approx(20.0, rel=1e-4)
    assert {told[0] for told in shards.told} == {None}
    parts = np.array([told[3] for told in shards.told])
    best = shards.sizes / shards.sizes.sum()
    assert parts == pytest.approx(np.maximum(best, 0.05 / number), rel=0.2)


def test_the_price_of_a_tag_is_that_at_which_it_is_spent():
    tags = [
        TagStatus("x", 10, False, None, None, spends, 0.0, price, 0.0, "")
        for spends, price in ((3.0, 1.0), (1.0, 5.0))
    ]
    (found,) = together([[tag] for tag in tags])
    assert (found.spends, found.price) == (4.0, 2.0)


@pytest.mark.parametrize(
    ("price", "sources", "new", "expected"),
    [
        *((1e-6, 0, 0, 0.0), (1e-6, 50, 0, 0.25), (1e-6, 50, 50, 2.75), (1e-6, 50, 10, 0.75)),
        (1e6, 0, 0, 0.0),  # that of a store in which nothing was ever wanted
    ],
)
def test_a_shard_of_low_price_gets_the_least_of_its_sources(price, sources, new, expected):
    """Nothing if it has none; before they were tried, enough to find out what they are worth."""
    budgets, balancer = [5.0, 5.0], Balancer(10.0, 2)
    for _ in range(12):
        quotes = [Quote(budgets[0], 1.0, 50, 0), Quote(budgets[1], price, sources, new)]
        lowered = balancer.lower(quotes)
        balancer.acknowledge(lowered)
        for i, budget in (lowered | balancer.rise()).items():
            budgets[i] = budget
    assert budgets == pytest.approx([10.0 - expected, expected], abs=1e-4)


def test_bounds_that_leave_nothing_to_divide_are_refused():
    for bounds in ({"least": 6.0}, {"least": 2.0, "most": 1.0}, {"least": -1.0}):
        with pytest.raises(ValueError, match="for 2 shards"):
            Balancer(10.0, 2, **bounds)
