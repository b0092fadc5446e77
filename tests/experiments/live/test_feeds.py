"""The parts of the study of the live scheduler that crawl feeds."""

from collections import Counter
from functools import partial

import numpy as np
import pytest

from ephemeral_crawl.core.report import Report
from experiments.core.data import Data, write
from experiments.live import failing, feeds
from experiments.live.command import Live
from experiments.live.over_http import crawl
from experiments.live.rules import RULES, Oracle, bound, follow
from experiments.live.simulated import simulate
from experiments.live.world import DAY, FAILING, HOUR, Nature, World, fleet


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
    assert found[0][0] == follow(World(0, days=5.0), 6, RULES["oracle"])


@pytest.mark.parametrize(("case", "seed"), [("shared hosts", 2), ("pings", 4)])
def test_the_crawl_without_sockets_collects_what_that_over_http_does(case, seed):
    found = []
    for run in (crawl, simulate):
        world = World(seed, days=0.25, shared_hosts=case == "shared hosts")
        per_host = HOUR if world.shared_hosts else 0.0
        run(world, 6, per_host=per_host, pings=case == "pings")
        assert world.requests > 25
        found.append((world.fraction, world.requests))
    # Answers that arrive at once are reported in any order, by which estimates differ a little.
    assert found[0] == pytest.approx(found[1], rel=0.02)


def test_each_row_is_a_job():
    todo = feeds.jobs(Live(http_seeds=0), seeds=(5,), budgets=(6,), days=0.5)
    assert len(todo) == len({str(job) for job in todo})
    some = {job["columns"]["policy"]: job for job in todo}
    assert feeds.HTTP not in some
    for policy in ("bound", "nutch", feeds.SIMULATED):
        assert 0.0 < feeds.work(some[policy])["fraction"] < 1.0


def test_the_report_holds_means_of_ratios():
    fractions = {
        **dict.fromkeys(RULES, 0.2),
        "miniflux": 0.3,
        "bound": 1.0,
        feeds.HTTP: 0.4 * (1 + 2e-6),
    }
    rows = [
        {"case": case, "seed": seed, "budget": budget, "policy": policy, "fraction": fraction}
        for case in feeds.CASES
        for seed in (0, 1)
        for budget in feeds.BUDGETS
        for policy, fraction in {
            **fractions,
            feeds.SIMULATED: 0.4 if case != "pings" else 0.5,
            "oracle": 0.5 if seed else 0.8,
        }.items()
        if case == "own hosts" or policy != feeds.HTTP
    ]
    rows = [{key: str(x) for key, x in row.items()} for row in rows]
    report, data = Report("Feeds"), Data(rows)
    assert "65.0% at 3, 65.0% at 6, 65.0% at 12" in feeds.claim(data)
    write(report, data, feeds.PART.content)
    text = str(vars(report))
    assert "+25.0% at 3 (oracle +0.0%)" in text
    assert "1.33" in text  # of the best rule in use
    assert "6 were also made" in text
    assert "2.0e-06" in text


FEW = {"living": 40, "dead": 12, "natures": dict.fromkeys(FAILING, 5)}


def test_what_happens_does_not_depend_on_what_is_asked():
    asked, other = World(3, days=2.0, **FEW), World(3, days=2.0, **FEW)
    times = np.random.default_rng(1).uniform(0.0, asked.end, (asked.number, 9))
    answers = [[asked.ask(i, t) for t in row] for i, row in enumerate(times.tolist())]
    assert (
        answers
        == [
            [other.ask(i, t) for t in reversed(row)][::-1]
            for i, row in reversed(list(enumerate(times.tolist())))
        ][::-1]
    )
    kinds = Counter(answer.kind for row in answers for answer in row if answer.status is None)
    assert kinds.keys() == {"dns", "connection", "timeout"}
    statuses = {answer.status for row in answers for answer in row}
    assert {200, 403, 404, 429, 503} <= statuses


def test_dead_feeds_leave_the_living_as_they_are():
    alone, beside = fleet(2, days=1.0), fleet(2, dead=30, days=1.0)
    living = [feed for feed in beside.feeds if feed.nature is not Nature.DEAD]
    key = {feed.seed: feed for feed in living}
    assert len(beside.feeds) == beside.number == 230
    for feed in alone.feeds:
        assert np.array_equal(key[feed.seed].time, feed.time)
    assert beside.published == pytest.approx(alone.published)
    assert sum(feed.nature is Nature.DEAD for feed in beside.feeds[:200]) > 15  # among the others
    assert all(
        beside.ask(i, t).status != 200
        for i, feed in enumerate(beside.feeds)
        if feed.nature is Nature.DEAD
        for t in (0.0, DAY)
    )


def test_feeds_that_lapse_publish_before_and_after():
    world = World(0, days=4.0, living=30, natures={Nature.LAPSED: 30}, median=2.0)
    for feed in world.feeds:
        start, end, answer = feed.outages[0]
        assert not ((feed.time >= start) & (feed.time < end)).any()
        assert feed.answer(start).status == answer.status != 200
        assert feed.answer(end).status == 200
        assert 0.0 < start < end < world.end
    assert sum((feed.time >= feed.outages[0].end).sum() for feed in world.feeds) > 100


def test_an_informed_scheduler_asks_once_in_each_outage_and_returns():
    world = fleet(1, dead=100, failing=True, days=0.5)
    simulate(world, 40, informed=True)
    asked = Counter((i, o) for t, i in world.log if (o := world.feeds[i].outage(t)) is not None)
    assert max(asked.values()) == 1
    assert sum(asked.values()) == world.vain > 30
    back = [i for i, o in asked if any(i == k and t >= o.end for t, k in world.log)]
    assert len(back) > 5


def test_failures_are_the_same_over_http():
    found, kinds = [], Counter()
    for run in (crawl, simulate):
        world = World(5, days=0.2, **FEW)
        visits = []
        run(world, 20, **({"visits": visits} if run is crawl else {}))
        kinds.update(visit.error for visit in visits if visit.status is None)
        found.append((world.fraction, world.vain / world.requests))
    # Those asked for at the same time are answered in another order, so that retries differ.
    assert found[0] == pytest.approx(found[1], rel=0.1)
    for reason in ("does not resolve", "no whole answer within 30 s", "refuses connections"):
        assert any(reason in error for error in kinds), reason


def test_rules_give_up_as_their_programs_do():
    names = "oracle", "miniflux", "commafeed"
    worlds = {name: fleet(0, dead=100, failing=True, days=2.0) for name in names}
    for name, world in worlds.items():
        follow(world, 40, RULES[name])
    dead = [i for i, feed in enumerate(worlds["miniflux"].feeds) if feed.nature is Nature.DEAD]
    asked = {name: Counter(i for _, i in world.log) for name, world in worlds.items()}
    assert worlds["oracle"].vain == 0
    assert max(asked["miniflux"][i] for i in dead) == 3
    assert max(asked["commafeed"][i] for i in dead) > 3
    assert all(world.requests == 40 * 24 * 2 for world in worlds.values())
    lost = World(0, days=1.0, living=1, dead=3, natures={Nature.LAPSED: 1}, median=5.0)
    follow(lost, 40, RULES["miniflux"])
    assert lost.vain == 12 < lost.requests < 40 * 24  # three for each: nothing is left to fetch


def test_each_row_of_failing_feeds_is_a_job(monkeypatch):
    monkeypatch.setattr(failing, "DAYS", 1)
    monkeypatch.setattr(failing, "_DAYS", ["day 1"])
    case = {"half": (10, True)}
    todo = {job["columns"]["policy"]: job for job in failing.jobs(None, (1,), case)}
    assert set(todo) == set(failing.POLICIES)
    oracle, rule = (failing.work(todo[name]) for name in ("oracle", "miniflux"))
    for row in (oracle, rule):
        assert 0.3 < row["day 1"] < 1.0
        assert row["used"] == pytest.approx(1.0)
    assert 0.5 > rule["dead"] > oracle["dead"] == 0.0


def test_the_report_of_failing_feeds_holds_paired_differences(capsys):
    def row(case, seed, policy):
        shift = 0.1 * seed + (0.2 + 0.01 * seed if policy == failing.SCHEDULER else 0.0)
        shares = {f"day {day}": 0.3 + shift for day in range(1, 5)}
        return {"case": case, "seed": seed, "policy": policy, **shares, "dead": 0.25, "used": 0.5}

    rows = [row(c, s, p) for c in failing.CASES for s in (1, 0) for p in failing.POLICIES]
    rows = [{key: str(value) for key, value in each.items()} for each in rows]
    data = Data(rows)
    assert "collects 56%, 56%, 56%, 56%" in failing.claim(data)
    assert "rule in use 35%, 35%" in failing.claim(data)
    write(Report("Feeds"), data, failing.PART.content)
    text = capsys.readouterr().out
    assert "+0.205 ± 0.005 (miniflux)" in text
    assert "0.350 ± 0.050" in text
    assert "25.0%" in text
