"""Sources move to another scheduler with what was learnt of them."""

import base64
import json

import numpy as np
import pytest

from ephemeral_crawl.live import Scheduler, SourceExists
from ephemeral_crawl.live.fitting import Totals
from ephemeral_crawl.live.snapshot import to_bytes

START = 1_700_000_000.0


def scheduler(clock, **settings):
    return Scheduler(":memory:", budget="60/h", clock=clock, **settings)


@pytest.fixture
def one():
    """A scheduler that has crawled for a day; its clock stands still."""
    now = [START]
    made, draw = scheduler(lambda: now[0]), np.random.default_rng(3)
    for i in range(20):
        made.add(
            f"https://a{i}.example/feed",
            host=f"a{i % 5}.example",
            max_interval="24h" if i % 3 else None,
            cost=1.0 + i % 2,
        )
    made.limit_host("a1.example", "10min")
    made.limit_host("*.example", "1s")
    made.pause("https://a7.example/feed")
    for _ in range(48):
        now[0] += 1800.0
        for lease in made.lease(30):
            if lease.source.startswith("https://a3."):
                made.failed(lease.id, status=503)
            else:
                items = [(now[0] - t, w) for t, w in draw.exponential(1e4, (draw.poisson(2), 2))]
                made.report(lease.id, items)
        made.signal("https://a2.example/feed", "websub")
    made.clock = now
    return made


def facts(found, names):
    return [vars(found.explain(name)) for name in names]


def test_all_sources_are_known_elsewhere_as_here(one):
    now, names = one.clock[0], one.sources()
    other = scheduler(lambda: now + 0.0)
    assert other.adopt(json.loads(json.dumps(one.export(names)))) == len(names)
    assert other.sources() == names
    a, b = (s._ledger.state for s in (one, other))
    for column in a.table.dtype.names:
        if column not in ("lease", "host"):
            np.testing.assert_array_equal(a.table[column][:20], b.table[column][:20])
    assert a.numbers_of.tolist() == b.numbers_of.tolist()
    assert a.cost == pytest.approx(b.cost)
    assert [s.settings(name) for s in (one,) for name in names] == [
        other.settings(name) for name in names
    ]
    theirs = [vars(other.explain(name)) for name in names]
    for mine, its in zip(facts(one, names), theirs, strict=True):
        assert its["rate"] == pytest.approx(mine["rate"], rel=0.05)
        assert its["value"] == pytest.approx(mine["value"], rel=0.05)
    pings = [a.table[name][:20].sum() for name in ("true_pings", "pings")]
    np.testing.assert_allclose(b.kind_pings[0, :2], pings)
    np.testing.assert_allclose(b.totals.sums, Totals().sums + a.totals.sums)
    for host, interval in (("a1.example", 600.0), ("*.example", 1.0)):
        assert b.shared.hosts["interval"][b.host_names.row(host)] == interval
    assert len(other.lease(5)) <= 1  # for the limit of the domain


def test_times_are_those_of_the_clock_where_it_was_set(one):
    """The other scheduler's clock was set back by a day: its own time differs from it."""
    now = [one.clock[0] + 86_400.0]
    other = scheduler(lambda: now[0])
    other.add("x")
    other.report("x")
    now[0] -= 86_400.0
    other.adopt(one.export(one.sources()))
    name = "https://a2.example/feed"
    assert other.explain(name).fetched_at == pytest.approx(one.explain(name).fetched_at)
    third = scheduler(lambda: now[0])
    third.adopt(other.export([name]))  # and where it is the one that exports
    assert third.explain(name).fetched_at == pytest.approx(one.explain(name).fetched_at)


def test_of_two_limits_of_a_host_the_longer_one_holds(one):
    other = scheduler(lambda: one.clock[0])
    other.limit_hosts({"a1.example": "1h", "*.example": 0.5})
    other.adopt(one.export(one.sources()))
    assert [other.host_limit(host) for host in ("a1.example", "*.example")] == [3600.0, 1.0]


def test_what_was_adopted_is_replayed_from_the_journal(one, tmp_path):
    now = one.clock[0]
    with Scheduler(tmp_path / "b.db", budget="1/h", clock=lambda: now) as other:
        one.pause(host="*.example")
        one.update(one.sources()[0], tag="news")
        one.pause(tag="news")
        other.adopt(one.export(one.sources()[:7]))
        assert other.status().paused == 7
        other.adopt(one.export(one.sources()[7:]))
        with Scheduler(tmp_path / "b.db", clock=lambda: now) as again:
            assert len(again) == 20
            assert to_bytes(again._ledger.state) == to_bytes(other._ledger.state)


def test_what_was_not_exported_is_refused(one):
    good, other = one.export(one.sources()[:3]), scheduler(lambda: one.clock[0])
    nan = base64.b64encode(np.full(3, np.nan).tobytes()).decode()

    def column(value):
        return base64.b64encode(np.full(3, value, np.float32).tobytes()).decode()

    for bad in (
        {},
        {**good, "sources": good["sources"] * 2},
        {**good, "sources": good["sources"][:1] * 3},
        {**good, "sources": [["a\n", None, None]] * 3},
        {**good, "sums": [float("inf")] * 4},
        {**good, "learnt": {**good["learnt"], "fetched": nan}},
        {**good, "learnt": {**good["learnt"], "fetched": "?"}},
        {**good, "learnt": {**good["learnt"], "fetched": good["learnt"]["cost"]}},
        {**good, "learnt": {**good["learnt"], "other": nan}},
        {**good, "learnt": {**good["learnt"], "cost": column(np.inf)}},
        {**good, "learnt": {**good["learnt"], "cost": column(-1.0)}},
        {**good, "learnt": {}},
        {**good, "learnt": []},
        {**good, "sums": [10**400] * 4},
        {**good, "learnt": {**good["learnt"], "cause": base64.b64encode(b"\xff" * 3).decode()}},
    ):
        with pytest.raises(ValueError, match="not sources that a scheduler has exported"):
            other.adopt(bad)
    assert len(other) == 0
    other.adopt({**good, "paused_tags": ["of no source"]})
    with pytest.raises(SourceExists):
        other.adopt(good)
