"""The part of the study of the live scheduler that crawls sixty feeds."""

from functools import partial

import numpy as np
import pytest

from ephemeral_crawl.core.report import Report
from experiments.live.feeds import measure
from experiments.live.feeds.bound import bound
from experiments.live.feeds.crawl import crawl
from experiments.live.feeds.rules import RULES, Oracle, follow
from experiments.live.feeds.simulated import simulate
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


def test_nobody_exceeds_the_bound():
    ratios = []
    for seed in range(4):
        for shared, per_host in ((False, 0.0), (True, HOUR)):
            world = World(seed, days=6.0, shared_hosts=shared)
            best = follow(world, 6, RULES["oracle"], per_host)
            ratios.append(best / bound(world, 6, per_host))
    # One that is known exactly; what is collected is random, with a standard deviation of 3 %.
    assert 0.93 < np.mean(ratios) < 1.02
    assert bound(World(0, shared_hosts=True), 12, HOUR) < bound(World(0, shared_hosts=True), 12)


def test_pings_help_who_knows_their_quality():
    found = [
        [follow(World(s, days=5.0), 6, partial(Oracle, pings=p)) for s in range(3)]
        for p in (False, True)
    ]
    assert np.mean(found[1]) > 1.05 * np.mean(found[0])
    assert found[0] == [follow(World(s, days=5.0), 6, RULES["oracle"]) for s in range(3)]


@pytest.mark.parametrize(("case", "seed"), [("shared hosts", 2), ("pings", 4)])
def test_the_crawl_without_sockets_collects_what_that_over_http_does(case, seed):
    found = []
    for run in (crawl, simulate):
        world = World(seed, days=1.0, shared_hosts=case == "shared hosts")
        per_host = HOUR if world.shared_hosts else 0.0
        run(world, 6, per_host=per_host, pings=case == "pings")
        assert world.requests > 100
        found.append(world.fraction)
    assert found[0] == pytest.approx(found[1], rel=1e-3)


def test_each_row_is_a_job():
    todo = measure.jobs(seeds=(5,), http_seeds=0, budgets=(6,), days=1.0)
    assert len(todo) == len({tuple(job.items()) for job in todo})
    assert not any(job["policy"] == measure.HTTP for job in todo)
    some = [job for job in todo if job["policy"] in ("bound", "nutch", measure.SIMULATED)]
    rows = measure.rows(some, [measure.work(job) for job in some])
    assert all(0.0 < row["fraction"] < 1.0 for row in rows)


def test_the_report_holds_means_of_ratios():
    fractions = {
        **dict.fromkeys(RULES, 0.2),
        "miniflux": 0.3,
        "bound": 1.0,
        measure.HTTP: 0.4 * (1 + 2e-6),
    }
    rows = [
        {"case": case, "seed": seed, "budget": budget, "policy": policy, "fraction": fraction}
        for case in measure.CASES
        for seed in (0, 1)
        for budget in measure.BUDGETS
        for policy, fraction in {
            **fractions,
            measure.SIMULATED: 0.4 if case != "pings" else 0.5,
            "oracle": 0.5 if seed else 0.8,
        }.items()
        if case == "own hosts" or policy != measure.HTTP
    ]
    assert "65.0% at 3, 65.0% at 6, 65.0% at 12" in measure.answer(rows)
    report = Report("Feeds")
    measure.write(report, rows)
    text = str(vars(report))
    assert "+25.0% at 3 (oracle +0.0%)" in text
    assert "1.33" in text  # of the best rule in use
    assert "6 were also made" in text
    assert "2.0e-06" in text
