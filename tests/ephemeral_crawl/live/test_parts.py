"""The parts: heap, index, due times, price, true pings."""

import math
import random

import numpy as np
import pytest

from agents.theory.checks import CheckedArm
from agents.theory.closed_form import continuous_index
from agents.theory.index import index_at_age
from crawl_env import Sources
from ephemeral_crawl.live import Scheduler, columns, heap, learning, life, price, snapshot
from ephemeral_crawl.live.fitting import Totals, fitted, unfitted
from ephemeral_crawl.live.names import NameTable
from tests.ephemeral_crawl.live.world import DAY, HOUR, Clock
from tests.refusals import refused


def test_the_heap_gives_what_sorting_gives():
    rng = np.random.default_rng(0)
    keys = rng.choice([*range(20), np.inf], 50)
    h = heap.Heap.of(keys[:30], 30).with_rows(50)
    keys[30:] = np.inf
    for _ in range(2000):
        i = int(rng.integers(50))
        keys[i] = np.inf if rng.random() < 0.2 else rng.integers(20)
        heap.move(h, i, keys[i])
        order = np.sort(keys[keys < np.inf])
        for most in (0, 7, 50):
            rows = heap.first(h, most)
            assert len(set(rows.tolist())) == len(rows)
            assert sorted(keys[rows]) == order[:most].tolist()
            assert most == 50 or keys[rows].tolist() == order[:most].tolist()
    assert int(h.size[0]) == np.isfinite(keys).sum()


def test_the_index_is_the_limit_of_theorem_1():
    step = 1e-4  # hours
    fleet = Sources(
        arrival_rate=[0.7], mean_utility=[2.0], decay_rate=[0.23], cost=[3.0], period=step
    )
    ceiling = 0.7 * 2.0 / 0.23
    for age in (0.5, 4.0, 30.0):
        limit = continuous_index(-math.expm1(-0.23 * age), ceiling) / 3.0
        assert limit == pytest.approx(float(index_at_age(age / step, fleet)[0]), rel=1e-3)


@pytest.mark.parametrize("share", [1e-14, 1e-9, 1e-3, 0.5, 0.999, 1 - 1e-12])
def test_the_level_reaches_the_share(share):
    z = -math.log1p(-price.level_reaching(share))
    assert -math.expm1(-z) - z * math.exp(-z) == pytest.approx(
        share, rel=1e-3 if share < 1e-8 else 1e-9
    )


def fleet(n=8, seed=0):
    rng = np.random.default_rng(seed)
    sources = columns.record_view(columns.new_sources(n))
    sources.marks[:] = columns.EXISTS
    sources.host[:] = -1
    sources.cost[:] = rng.uniform(0.5, 3, n)
    sources.longest[:] = math.inf
    sources.items[:] = rng.uniform(1, 50, (n, 1))
    sources.exposure[:] = rng.uniform(10, 300, (n, 1)) * HOUR
    sources.fetched[:] = -rng.uniform(0, 5, n) * HOUR
    shared = unfitted(math.log(2) / (3 * HOUR))
    return sources, shared


def test_sources_are_due_when_their_index_reaches_the_price():
    sources, shared = fleet()
    sources.shot[::2], sources.pinged_for[::2], sources.pings[::2] = 0.5, 50 * HOUR, 4.0
    sources.pinged[:] = -HOUR
    sources.vain[1::4], sources.hit[1::4], sources.factor[1] = 0.2, 2.5, 1.5
    sources.pending[7], sources.vain[7], sources.hit[7] = 1.0, 0.2, 2.5
    reached = 0
    for i in range(8):
        rel = 1e-3 if sources.hit[i] else 1e-6  # of what is found in rounds
        for value in (0.01, 0.3, 1.0, 2.0):
            due = price.due_at(sources, shared, i, value, 0.0)
            if due > 0 and due < math.inf:
                reached += 1
                assert price.index_now(sources, shared, i, due) == pytest.approx(value, rel=rel)
                if not (sources.shot[i] or sources.pending[i]):
                    interval = price.interval_at(sources, shared, i, value, math.inf)
                    assert interval == pytest.approx(due - sources.fetched[i], rel=rel)
            elif due <= 0:
                assert price.index_now(sources, shared, i, 0.0) >= value * (1 - rel)
            else:
                later = [price.index_now(sources, shared, i, t * HOUR) for t in range(100)]
                assert max(later) < value
    assert reached > 3


def test_what_waits_at_a_source_that_is_pinged_for_ever_is_its_ceiling():
    sources, shared = fleet(1)
    every, now = 600.0, 100 * DAY
    sources.pings[0], sources.true_pings[0], sources.pinged_for[0] = 90.0, 70.0, 90.0 * every
    known = learning.belief(sources, shared, 0)
    ceiling, quiet = price.planned(known, shared.optimism)
    assert quiet > price.planned(known, 0.0)[1]
    pings = np.arange(every / 2, 50 * DAY, every)
    sources.fetched[0] = now - 50 * DAY
    sources.pinged[0] = now - 1000.0
    sources.shot[0] = np.exp(-known.decay * (pings - 1000.0)).sum()
    waits = price.waiting(sources, 0, now, known, ceiling, quiet)
    assert waits == pytest.approx(ceiling, rel=1e-3)
    assert waits > 1.2 * quiet
    sources.fetched[0] = now
    rest = price.waiting(sources, 0, now, known, ceiling, quiet)  # of the pings alone
    assert waits - rest == pytest.approx(quiet, rel=1e-6)


def test_the_index_never_falls_while_nothing_is_heard_of_a_source():
    sources, shared = fleet(1)
    sources.items[0], sources.exposure[0] = 2.0, 400 * HOUR  # seldom, and they are soon worthless
    sources.vain[0], sources.hit[0], sources.fetched[0] = 0.05, 3.0, 0.0
    ages = np.geomspace(60.0, 100 * DAY, 200)
    found = np.array([price.index_now(sources, shared, 0, age) for age in ages])
    assert (found >= 0.96 * np.maximum.accumulate(found)).all()
    known = learning.belief(sources, shared, 0)
    ceiling, _ = price.planned(known, shared.optimism)
    assert found[-1] > 10.0 * ceiling / 3.0  # of all that ever waits, at the cost of finding it
    costs = 0.05 - (3.0 - 0.05) * np.expm1(-known.silent * ages)
    best = (-ceiling * np.expm1(-known.decay * ages) / costs).max()
    assert 0.96 * best < found.max() < 1.01 * best  # of what a fetch is ever worth for its cost


def test_a_ping_makes_a_fetch_dearer_that_costs_more_if_it_finds_items():
    sources, shared = fleet(1)
    sources.vain[0], sources.hit[0], sources.factor[0], sources.fetched[0] = 0.5, 2.5, 1.5, -HOUR
    sources.pending[0], sources.shot[0] = 2.0, 1.5
    known = learning.belief(sources, shared, 0)
    ceiling, quiet = price.planned(known, shared.optimism)
    share = price.waiting(sources, 0, 0.0, known, ceiling, quiet) / ceiling
    none = math.exp(-known.silent * HOUR) * (1.0 - known.precision) ** 2
    cost = 1.5 * (0.5 * none + 2.5 * (1.0 - none))
    answers = life.answering(sources, shared, 0, 0.0)
    index = answers * continuous_index(share, ceiling) / cost
    assert price.index_now(sources, shared, 0, 0.0) == pytest.approx(index)
    for vain, hit in ((0.0, 2.5), (0.5, 0.0), (0.5, 0.5)):  # one is not known, or they are the same
        sources.vain[0], sources.hit[0] = vain, hit
        assert price.adds(sources, 0) == 0.0
    sources.stretch[0] = 4.0
    assert price.rotation_of(sources, 0, 5.0) == 20.0


def test_the_market_price_spends_the_budget():
    sources, shared = fleet(20)
    hosts = columns.new_hosts(2)
    sources.host[:5] = 0
    sources.items[3:6] = 0.0
    hosts["interval"][0] = HOUR
    shared = shared._replace(hosts=columns.record_view(hosts))
    wanted = price.demand(sources, shared, 1e6, 0.0)
    for budget in (0.5 / HOUR, 4 / HOUR):
        value = price.market_price(wanted, budget, 1e6, hosts, 1.0)
        # Spending jumps where a source is no longer worth a fetch.
        more, less = (
            price.spending(wanted, value * factor, 1e6, hosts) for factor in (0.998, 1.002)
        )
        assert less <= budget <= more


def test_surplus_and_spending_are_those_of_the_best_interval():
    sources, shared = fleet(20)
    sources.vain[::2], sources.hit[::2] = 0.3, 2.0  # the others cost the same whatever they find
    sources.factor[::4] = 1.5
    sources.pings[8:12], sources.true_pings[8:12], sources.pinged_for[8:12] = 9.0, 6.0, 90.0 * HOUR
    wanted, value = columns.record_view(price.demand(sources, shared, 1e6, 0.0)), 0.4
    wanted.answering[3], wanted.again[3] = 0.4, 5.0 * HOUR  # it fails
    tau = np.geomspace(0.01 * HOUR, 1000 * HOUR, 20_000)
    ceiling, decay = np.array(wanted.ceiling)[:, None], np.array(wanted.decay)[:, None]
    vain = np.where(sources.hit > 0.0, sources.vain, sources.cost)[:, None].astype(float)
    more = np.where(sources.hit > 0.0, sources.hit - sources.vain, 0.0)[:, None].astype(float)
    spent = vain - more * np.expm1(-wanted.rate[:, None] * tau)
    paid = value * sources.factor[:, None].astype(float) * spent
    earned = (ceiling * -np.expm1(-decay * tau) - paid) / tau
    best, k = np.maximum(earned.max(axis=1), 0.0), earned.argmax(axis=1)
    worth_it = best > 1e-12
    assert 5 < worth_it.sum() < 20
    mean = np.average(best, weights=wanted.answering)
    assert price.mean_surplus(wanted, value) == pytest.approx(mean / value, rel=1e-4)
    interval = np.where(worth_it, tau[k], math.inf)
    wanted.longest[0], wanted.longest[np.flatnonzero(~worth_it)[0]] = 0.5 * interval[0], 40.0 * HOUR
    wanted.shortest[1] = 2.0 * interval[1]
    interval = np.clip(interval, wanted.shortest, wanted.longest)
    fetches = wanted.answering / (interval + wanted.again)
    fetches[3] += 0.6 / wanted.again[3]
    each = vain[:, 0] - more[:, 0] * np.expm1(-wanted.rate / np.maximum(fetches, 1e-12))
    spending = price.spending(wanted, value, math.inf, columns.record_view(columns.new_hosts()))
    assert spending == pytest.approx(fetches @ each, rel=1e-3)
    assert price.retries(wanted) == pytest.approx(0.6 * wanted.cost[3] / wanted.again[3])


def test_sources_that_never_had_an_item_are_inspected_at_the_best_interval():
    cost, rate, surplus = 2.0, 0.01, 0.3
    interval = np.geomspace(0.1, 1000, 100_000)
    loss = cost / interval + surplus * rate * interval / 2
    best = interval[loss.argmin()]
    assert price.inspection_interval(cost, rate, surplus, 1e9) == pytest.approx(best, rel=1e-3)
    assert (
        price.inspection_interval(cost, rate, surplus, math.inf) == math.inf
    )  # nothing is visited in rotation
    assert (
        price.inspection_interval(cost, rate, surplus, 5.0)
        == price.inspection_interval(cost, 0.0, surplus, 5.0)
        == 5.0
    )


def test_single_sources_of_hosts_do_not_change_the_prior():
    """What a source's items say of it counts once: also if it is alone on its host."""
    priors = []
    for hosts in (1, 30):
        rng = np.random.default_rng(2)
        sources, table = columns.record_view(columns.new_sources(30)), columns.new_hosts(hosts)
        sources.host[:] = np.arange(30) if hosts == 30 else columns.NO_HOST
        sources.exposure[:] = rng.uniform(50, 300, (30, 1)) * HOUR
        sources.items[:] = rng.poisson(rng.gamma(0.5, 0.5 / HOUR, (30, 1)) * sources.exposure)
        shared = unfitted(math.log(2) / (3 * HOUR))._replace(hosts=table)
        for _ in range(50):
            which, kinds = np.arange(30), np.zeros((0, learning.KIND_SUMS))
            shared = fitted(shared, sources, which, Totals(), kinds, shared.decay)
        assert (table["factor"] == 1.0).all()
        priors.append((shared.shape, shared.rate))
    assert priors[0] == priors[1]


@pytest.mark.parametrize("gap", [0.01, 5.0])
@pytest.mark.parametrize("at_once", [True, False])
def test_what_the_sources_share_is_fitted_when_few_have_reported(gap, at_once):
    """After a source of few items and nineteen of six an hour, the next one is expected to be like
    these, however soon after another the reports come; the budget changes nothing of that."""
    clock = Clock()
    clock.now = DAY
    live = Scheduler(":memory:", budget="100/h", clock=clock)
    live.add_many({"source": str(i)} for i in range(21))
    poor, *good = live.lease(20)
    live.report(poor.id, [(clock() - 20 * HOUR * (k + 0.5), 1.0) for k in range(2)])
    clock.now += gap
    items = [(clock() - 600.0 * (k + 0.5), 1.0) for k in range(18)]
    outcomes = [{"lease": lease.id, "items": items} for lease in good]
    for outcome in [outcomes] if at_once else [[outcome] for outcome in outcomes]:
        live.record(outcome)
        clock.now += gap
    (other,) = set(live.sources()) - {lease.source for lease in (poor, *good)}
    rate, market = live.explain(other).rate, live.status().price
    assert rate == pytest.approx(5.4, rel=0.02)
    live._configure({"budget": "200/h"})
    assert live.explain(other).rate == pytest.approx(rate, rel=1e-3)
    assert live.status().price < market


def test_true_pings_are_those_of_bayes_rule():
    rng = np.random.default_rng(0)
    n, p, silent = 3, 0.4, 1.2
    true = rng.binomial(n, p, 400_000)
    items = true + rng.poisson(silent, true.size)
    for k in range(6):
        of_k = true[items == k]
        error = 5 * of_k.std() / math.sqrt(of_k.size) + 1e-12
        assert abs(learning.true_pings(float(k), float(n), silent, p) - of_k.mean()) < error
    assert learning.true_pings(5.0, 3.0, silent, 1.0) == 3.0  # all of them


def test_the_decay_is_the_slope_within_fetches():
    rng = np.random.default_rng(0)
    totals, decay = Totals(), math.log(2) / (8 * HOUR)
    for _ in range(400):
        worth = rng.lognormal(0, 2)  # differs between sources; valuable ones are fetched sooner
        age = rng.uniform(0, 10 * HOUR / worth**0.2, rng.integers(1, 6))
        learning.add_ages(
            totals.sums, age, worth * rng.exponential(1.0, age.size) * np.exp(-decay * age)
        )
    found, error = totals.decay()
    assert abs(found - decay) < 4 * error
    assert error < 0.2 * decay


def test_names_are_those_of_a_dictionary():
    rng = random.Random(0)
    names, rows, free = NameTable(), {}, []
    for _ in range(3000):
        name = rng.choice(["a", "ab", "é", "日本"]) * rng.randrange(1, 4) + str(rng.randrange(400))
        if name in rows and rng.random() < 0.7:
            free.append(rows.pop(name))
            names.take(free[-1])
        elif name in rows:
            with refused("appears twice"):
                NameTable.of_lines(f"{name}\n{name}\n".encode())
        else:
            rows[name] = free.pop() if free and rng.random() < 0.8 else len(names)
            names.give([rows[name]], [name])
        assert names.row(name) == rows.get(name, -1)
    assert names.number == len(rows) > 100
    assert {name: i for i, name in enumerate(names) if name is not None} == rows
    assert names.rows(["nobody", *rows]) == [-1, *rows.values()]
    again = NameTable.of_lines(b"".join(names.lines()))
    assert list(again) == list(names)
    assert again.rows(rows) == list(rows.values())
    many = [f"https://e{i}.example/feed" for i in range(50_000)]
    names.give(range(len(names), len(names) + len(many)), many)
    assert names.row(many[777]) == names.row(many[0]) + 777
    with refused("appears twice"):
        names.give([len(names)], many[:1])


@pytest.mark.parametrize("lines", [b"a\nb", b"\xff\n", b"a" * 40_000 + b"\n"])
def test_names_that_are_damaged_are_refused(lines):
    with pytest.raises(ValueError):  # noqa: PT011 the message depends on the damage
        NameTable.of_lines(lines)


def test_worth_at_the_fetch_tells_what_worth_at_publication_does():
    ages = np.linspace(0.0, 4.0, 400)
    told = {}
    for moment, left in (("publication", 1.0), ("fetch", np.exp2(-ages / 3.0))):
        clock = Clock()
        live = Scheduler(":memory:", budget="6/h", half_life="3h", worth_at=moment, clock=clock)
        live.add("a")
        live.report("a", zip(clock() - ages * HOUR, 4.0 * left * np.ones(400), strict=True))
        spread = live._ledger.state.totals.sums[:2]
        told[moment] = [live.explain("a").worth, live.status().counts.collected, *spread]
    assert told["fetch"] == pytest.approx(told["publication"], rel=0.02)


def test_what_is_counted_is_what_the_table_says():
    rng, clock = random.Random(0), Clock()
    live = Scheduler(":memory:", budget="60/h", clock=clock)
    state = live._ledger.state
    changes = {
        "add": lambda x: x in live or live.add(x, cost=rng.uniform(0.1, 9.0)),
        "cost": lambda x: live.update(x, cost=rng.uniform(0.1, 9.0)),
        "report": lambda x: live.report(x, [(None, 1.0)]),
        "failed": live.failed, "remove": live.remove, "pause": live.pause, "resume": live.resume,
    }  # fmt: skip
    for _ in range(400):
        change, x = rng.choice(list(changes)), str(rng.randrange(7))
        if change == "add" or x in live:
            changes[change](x)
        exists = (state.table["marks"] & columns.EXISTS) != 0
        assert state.cost == pytest.approx(state.table["cost"][exists].sum())
        counted = state.numbers_of.tolist()
        state.count()
        stored = snapshot.from_bytes(snapshot.to_bytes(state)).numbers_of.tolist()
        assert state.numbers_of.tolist() == stored == counted
        clock.now += 60.0


def test_the_rate_of_a_host_is_that_of_its_sources_with_two_of_the_fleet():
    rng = np.random.default_rng(3)
    sources, table = columns.record_view(columns.new_sources(24)), columns.new_hosts(3)
    sources.host[:] = np.arange(24) % 3
    sources.exposure[:] = rng.uniform(50, 300, (24, 1)) * HOUR
    rate = np.array([0.1, 1.0, 5.0])[sources.host] / HOUR
    sources.items[:] = rng.poisson(rate[:, None] * sources.exposure)
    shared = unfitted(math.log(2) / (3 * HOUR))._replace(hosts=table)
    for _ in range(50):
        kinds = np.zeros((0, learning.KIND_SUMS))
        shared = fitted(shared, sources, np.arange(24), Totals(), kinds, shared.decay)
    items, time = sources.items[:, -1].astype(float), sources.exposure[:, -1].astype(float)
    posterior = (shared.shape + items) / (shared.rate + time) / (shared.shape / shared.rate)
    for host in range(3):
        mean = posterior[sources.host == host].mean()
        assert table["factor"][host] == pytest.approx((2 + 7 * mean) / (2 + 7), rel=2e-3)


@pytest.mark.parametrize("part", [1e-4, 9e-3, 0.02, 1.0])  # of the shortest memory
def test_items_and_time_of_a_part_fade_from_the_moment_in_which_they_fall(part):
    sources, shared = fleet(1)
    before = sources.items[0].astype(float), sources.exposure[0].astype(float)
    time = part * learning.MEMORIES[0]
    learning.observe(sources, shared, 0, np.array([4.0]), time)
    for m, memory in enumerate(learning.MEMORIES):
        moments = (np.arange(100_000) + 0.5) / 100_000 * time
        within = np.exp(-moments / memory).mean()
        kept = math.exp(-time / memory)
        exposure = kept * before[1][m] + time * within
        assert sources.items[0, m] == pytest.approx(kept * before[0][m] + 4 * within, rel=1e-4)
        assert sources.exposure[0, m] == pytest.approx(exposure, rel=1e-4)


def test_the_index_with_a_cost_of_what_is_found_is_the_limit_of_that_in_steps():
    step, decay, rate, vain, more = 1e-3, 0.5, 0.3, 0.1, 0.9
    arm = CheckedArm(Sources(rate, 1.0, decay, period=step), vain, np.array([more]))
    ceiling = rate / decay
    for age in (0.3, 1.0, 1.8):
        gained = continuous_index(-math.expm1(-decay * age), ceiling)
        index = gained / price.marginal_cost(vain, more, rate * age)
        assert index == pytest.approx(arm.index_at_age(np.array([[age / step]])).item(), rel=5e-3)
        found = price.time_until(index, vain, more, ceiling, ceiling, decay, rate)
        assert found == pytest.approx(age, rel=1e-3)
    dearer = 1.1 * arm.max_multiplier().item()  # than it ever is
    assert price.time_until(dearer, vain, more, ceiling, ceiling, decay, rate) == np.inf
