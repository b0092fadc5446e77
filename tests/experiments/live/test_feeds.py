"""The part of the study of the live scheduler that crawls sixty feeds."""

import pytest

from ephemeral_crawl.core.report import Report
from experiments.live.feeds import measure
from experiments.live.feeds.rules import RULES, follow
from experiments.live.feeds.world import HOUR, Nature, World


def test_rules_meet_the_same_world_and_the_oracle_is_best():
    fractions = {name: follow(World(3, days=4.0), 6, rule) for name, rule in RULES.items()}
    assert max(fractions, key=fractions.get) == "oracle"
    assert min(fractions, key=fractions.get) == "round robin"
    assert follow(World(3, days=4.0), 6, RULES["oracle"]) == fractions["oracle"]


def test_an_item_is_collected_once_and_decays():
    world = World(1, days=2.0)
    i = next(k for k, f in enumerate(world.feeds) if f.nature is Nature.PLAIN and len(f.time))
    feed = world.feeds[i]
    feed.time, feed.worth = feed.time[:1] * 0 + 100.0, feed.worth[:1] * 0 + 2.0
    world.show(i, 50.0)
    assert world.collected == 0.0
    world.show(i, 100.0 + 3 * HOUR)
    world.show(i, 100.0 + 4 * HOUR)
    assert world.collected == pytest.approx(1.0)  # half of 2, after a half-life


def test_the_report_holds_means_of_ratios():
    rows = [
        {"case": case, "seed": seed, "budget": budget, "policy": policy, "fraction": fraction}
        for case in measure.CASES
        for seed in (0, 1)
        for budget in measure.BUDGETS
        for policy, fraction in {
            "Scheduler": 0.4 if case != "pings" else 0.5,
            "oracle": 0.5 if seed else 0.8,
            "miniflux": 0.3,
            "round robin": 0.2,
        }.items()
    ]
    assert "65.0% at 3, 65.0% at 6, 65.0% at 12" in measure.answer(rows)
    report = Report("Feeds")
    measure.write(report, rows)
    assert "+25.0% at 3" in str(vars(report))
