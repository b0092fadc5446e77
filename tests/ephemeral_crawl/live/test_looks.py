"""What pings are worth, and sources that are fetched for the pings that they bring."""

import math

import pytest

from agents.theory.closed_form import continuous_index, notice_gain
from ephemeral_crawl.live import Scheduler
from tests.ephemeral_crawl.live.world import HOUR, Clock


@pytest.mark.parametrize(("x", "more"), [(0.0, 0.9), (0.3, 0.1), (0.3, 2.0), (0.55, 0.2)])
def test_a_notice_is_worth_what_crawls_earn_more_from_then_on(x, more):
    """Crawls in rotation, each when the index reaches the price, with the notice and without."""
    ceiling, level, decay = 1.5, 0.6, 0.2
    price = continuous_index(level / ceiling, ceiling)

    def until(x):
        return math.log((ceiling - x) / (ceiling - level)) / decay if x < level else 0.0

    earned = (level - price) / until(0.0)  # per time, in the long run
    told = max(x + more, level) - earned * until(x + more)
    untold = level + more * math.exp(-decay * until(x)) - earned * until(x)
    assert notice_gain(x, more, ceiling, level) == pytest.approx(told - untold, abs=1e-12)


def fleet(**settings):
    """Return a scheduler of twenty feeds that publish an item an hour, and its clock."""
    clock = Clock()
    live = Scheduler(":memory:", budget="3/h", clock=clock, **settings)
    names = [f"feed{n}" for n in range(20)]
    live.add_many({"source": name} for name in names)
    for name in names:
        live.report(name, [(clock() - HOUR * n, 1.0) for n in range(1, 20)])
    return live, clock, names


def test_a_ping_is_worth_nothing_if_it_changes_nothing():
    live, clock, _ = fleet()
    live.add("new")
    clock.now += HOUR
    worth = live.signal("feed0", "sitemap", at=clock() - 60.0)
    assert 0.0 < worth < 1.0
    assert live.signal("feed0", "sitemap", at=clock() - 30.0) == 0.0  # the same again
    assert live.signal("feed1", "sitemap", at=clock() - 0.9 * HOUR) < worth  # late
    assert live.signal("feed2", "sitemap", at=clock() - 2.0 * HOUR) == 0.0  # fetched since
    assert live.signal("new", "sitemap") == 0.0
    live.pause("feed3")
    assert live.signal("feed3", "sitemap") == 0.0
    clock.now += 100.0 * HOUR
    assert live.signal("feed4", "sitemap") == 0.0  # due anyway
    pings = [{"source": name, "kind": "other"} for name in ("feed5", "feed5", "feed6")]
    assert live.signal_many(pings) == [0.0, 0.0, 0.0]
    for _ in range(30):  # of a kind that misleads
        clock.now += HOUR
        live.signal("feed7", "sitemap")
        live.report("feed7", [])
    clock.now += HOUR
    live.report("feed8", [])
    clock.now += 60.0
    assert live.signal("feed7", "sitemap") < 0.5 * live.signal("feed8", "sitemap")


@pytest.mark.parametrize("worth_at", ["publication", "fetch"])
def test_sitemaps_are_fetched_for_what_their_pings_are_worth(worth_at):
    """Three that cost a tenth: one brings worthy pings, one worthless ones, and one costs more."""
    live, clock, names = fleet(worth_at=worth_at)
    before = live.status().counts
    maps = {"good": (0.1, 0.5), "vain": (0.1, 0.0), "dear": (0.5, 0.5)}
    for name, (cost, _) in maps.items():
        live.add(name, cost=cost)
        live.report(name, [], pings=[])
    for _ in range(100):
        clock.now += 0.5 * HOUR
        for name, (_, worth) in maps.items():
            live.report(name, [], pings=[(clock() - 900.0, worth), (None, worth)])
    found = {name: live.explain(name) for name in maps}
    assert all(e.announces for e in found.values())
    assert found["good"].rate == pytest.approx(4.0, rel=0.1)
    assert found["good"].interval < 0.6 * found["dear"].interval
    assert found["dear"].interval < 0.6 * found["vain"].interval
    counts = live.status().counts
    assert (counts.items, counts.collected) == pytest.approx((before.items, before.collected))
    assert counts.looks == 303.0
    assert counts.looks_cost == pytest.approx(101 * 0.7)
    assert counts.looks_worth == pytest.approx(200 * 1.0)
    assert "pings of other sources" in str(found["good"])
    looks = live.overview().looks
    assert [x.source for x in looks] == ["good", "dear", "vain"]
    assert looks[0].brings == pytest.approx(found["good"].brings)
    assert looks[0].brings > 2.0 * looks[0].spends * found["good"].price > 0.0
    # What they announce others publish.
    feeds = [live.explain(name) for name in names]
    published = sum(e.rate * e.worth * e.answering_soon for e in feeds)
    assert live.overview().published == pytest.approx(published, rel=1e-6)
