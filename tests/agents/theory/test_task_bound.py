"""What no policy can beat, for every information set: published numbers, brute force, trials."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import agents
from agents import relaxation
from agents.evaluation.rollout import compare, evaluate
from agents.theory.observed import ObservedArm
from agents.theory.task_bound import task_bound
from crawl_env import (
    ArrivalProcess,
    Arrivals,
    CrawlEnv,
    Drift,
    ItemLog,
    Sources,
    Task,
    Trace,
    World,
)
from crawl_env.content.process import Block, Cells
from crawl_env.content.utility import Exponential, Lognormal, LomaxDecay, StretchedDecay

# A right program fails one simulated comparison in 16,000 (two-sided, 4 standard errors).
Z_LIMIT = 4.0
HALF = np.arange(25) % 2 == 0


def seen(sources, budget, **more):
    return Task(sources, budget, **{"arrivals": "poisson", **more})


@pytest.mark.parametrize(
    ("budget", "blind", "sharp"), [(2, 6.175, 8.139), (5, 8.401, 10.147), (10, 9.589, 10.704)]
)
def test_fleet_f(budget, blind, sharp):
    """The seen bounds were confirmed by a value iteration of each arm of its own."""
    found = [task_bound(seen("fleet-f", budget, observed=o)) for o in (False, HALF, True)]
    assert [bound.name for bound in found] == ["not observed", "partly observed", "observed"]
    assert found[0].bound == pytest.approx(blind, abs=5.1e-4)
    assert found[2].bound == pytest.approx(sharp, abs=2e-3)
    assert found[0].bound < found[1].bound < found[2].bound


def test_without_randomness_to_see_it_is_the_relaxation():
    for arguments, name in (({}, "deterministic"), ({"observed": False}, "not observed")):
        arrivals = "deterministic" if name == "deterministic" else "poisson"
        task = Task("table1", 2, arrivals=arrivals, **arguments)
        assert task_bound(task) == (*relaxation(task.sources, 2), name)


@pytest.mark.parametrize(("budget", "law"), [(2, Exponential()), (10, Lognormal(1.2))], ids=repr)
def test_crawling_all_above_the_price_reaches_it(budget, law):
    """Weak duality from below: reward − λ*(cost − M) of a policy is at most the bound, and is the
    bound where the policy is best at λ*."""
    task = seen("fleet-f", budget, arrivals=Arrivals(utility=law))
    bound, price, _ = task_bound(task)
    arms, rows = ObservedArm(task.sources, task.observed, law), 300
    world, rng = World(task.sources, task.arrivals, rows), np.random.default_rng(2)
    world.start(np.ones(world.shape), rng)
    earned = np.zeros(rows)
    for epoch in range(700):
        crawled = arms.index(world.value) >= price
        if epoch >= 200:
            earned += np.where(crawled, world.value - price, 0.0).sum(axis=1) / 500
        world.crawl(np.flatnonzero(crawled))
        world.advance(rng)
    earned += price * budget
    error = earned.std(ddof=1) / np.sqrt(rows)
    assert abs(earned.mean() - bound) < Z_LIMIT * error + 1e-3 * bound
    assert error < 4e-3 * bound


def test_other_laws_of_decay_have_a_bound_where_nothing_is_seen():
    capped = Sources(1.0, 1.0, [0.2, 0.4], capacity=[3, np.inf])
    log = Trace(ItemLog(["1"], [0], [0.5], [3], 0, 3))
    for decay in (LomaxDecay(2.0), StretchedDecay(0.5)):
        task = seen("table1", 2, arrivals=Arrivals(decay=decay), observed=False)
        assert task_bound(task) == (*relaxation(task.sources, 2, decay=decay), "not observed")
        for unknown in (
            seen("table1", 2, arrivals=Arrivals(decay=decay)),
            seen(capped, 1, arrivals=Arrivals(decay=decay), observed=False),
            seen("table1", 2, arrivals=Arrivals(rate=Drift(), decay=decay), observed=False),
            seen("table1", 2, arrivals="poisson-hawkes"),
            seen("table1", 2, arrivals=log, observed=False),
        ):
            bound, price, name = task_bound(unknown)
            assert np.isnan(bound)
            assert price == relaxation(unknown.sources, unknown.budget).multiplier
            assert name == "unknown"


def test_it_is_the_least_over_the_price():
    task = seen("fleet-f", 3, observed=HALF)
    arms = ObservedArm(task.sources, HALF, Exponential())

    def dual(price):
        return float(3 * price + arms.net_reward(np.array([price])).sum())

    least = minimize_scalar(dual, bounds=(0, 8), method="bounded", options={"xatol": 1e-9})
    bound, price, _ = task_bound(task)
    assert bound == pytest.approx(least.fun, rel=1e-8)
    assert dual(price) == pytest.approx(bound)


def test_a_batch_is_its_rows():
    rows = [Sources.random(7, seed, regime="sparse") for seed in range(3)]
    task = seen(rows[0], 1.0)
    together = task_bound(task, Sources.stack(rows))
    for b, row in enumerate(rows):
        alone = task_bound(task, row)
        assert together.bound[b] == pytest.approx(alone.bound, rel=1e-10)


@pytest.mark.filterwarnings("ignore:budget is .* at most")
def test_what_the_budget_cannot_pay_counts_under_average_only():
    fleet = Sources([1.0, 100.0], 1.0, 0.1, cost=[1.0, 3.0])
    with pytest.warns(UserWarning, match="can never be crawled"):
        hard = task_bound(seen(fleet, 2.0))
    free = task_bound(seen(fleet, 2.0, budget_rule="average"))
    cheap = task_bound(seen(fleet.select([0]), 1.0)).bound
    assert hard.bound == pytest.approx(cheap, rel=1e-6)  # crawled every epoch, in either case
    assert free.bound > 5 * hard.bound


class UniformBlock(Block):
    def add(self, value, count, rng):
        value += rng.uniform(size=value.shape)


class Uniform(ArrivalProcess):
    """Arrivals of one's own."""

    def block(self, cells, state):
        return UniformBlock(cells)

    def past(self, cells, steps):
        return UniformBlock(cells)


def test_other_arrivals_have_no_bound_where_they_are_seen():
    with pytest.raises(ValueError, match=r"only known for Poisson.*observed=False"):
        task_bound(seen("table1", 1, arrivals=Uniform()))
    agents.make("whittle-exact", seen("table1", 1, arrivals=Uniform()))


class Chain:
    """One source on a grid: stay (n, n) and fresh (n,) moves, and what a crawl brings (n,)."""

    def __init__(self, items, utility, decay, observed, n):
        draws, cells = 200_000, Cells(*(np.full(200_000, x) for x in (items, utility, decay)))
        alpha, mean = np.exp(-decay), items * utility * -np.expm1(-decay) / decay
        if not observed:  # the belief: the age
            self.value = mean / (1 - alpha) * (1 - alpha ** np.arange(1.0, n + 1))
            self.stay = np.eye(n)[np.minimum(np.arange(n) + 1, n - 1)]
            self.fresh = np.eye(n)[0]
            return
        drawn = np.zeros(draws)
        Arrivals().past(cells, np.ones(draws)).add(drawn, None, np.random.default_rng(3))
        drawn = np.sort(drawn).reshape(500, -1).mean(axis=1)
        drawn *= mean / drawn.mean()
        self.value = (mean / (1 - alpha) + 10 * utility) * np.linspace(0, 1, n) ** 1.5
        self.stay = self._moves(alpha * self.value[:, None] + drawn)
        self.fresh = self._moves(drawn[None])[0]

    def _moves(self, after):
        n = self.value.size
        after = np.minimum(after, self.value[-1])
        left = np.clip(np.searchsorted(self.value, after, side="right") - 1, 0, n - 2)
        upper = (after - self.value[left]) / np.diff(self.value)[left]
        moves, rows = np.zeros((len(after), n)), np.arange(len(after))[:, None]
        rows = np.broadcast_to(rows, after.shape)
        np.add.at(moves, (rows, left), (1 - upper) / after.shape[1])
        np.add.at(moves, (rows, left + 1), upper / after.shape[1])
        return moves


def optimum(first, second):
    """Return the best average reward with one crawl an epoch, by joint value iteration."""
    value = np.zeros((first.value.size, second.value.size))
    for _ in range(2000):
        one = first.value[:, None] + (second.stay @ (first.fresh @ value))[None]
        two = second.value[None] + (first.stay @ (value @ second.fresh))[:, None]
        change = np.maximum(one, two) - value
        if np.ptp(change) < 1e-4 * change.max():
            break
        value += change - change[0, 0]
    return float(0.5 * (change.min() + change.max()))


PAIRS = {
    "sparse": ([0.3, 0.15], [1.0, 2.0], [0.3, 0.1]),
    "unlike": ([8.0, 0.1], [0.2, 4.0], [0.2, 0.5]),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(
    "observed", [(True, True), (True, False)], ids=["observed", "partly observed"]
)
def test_closed_form_below_exact_index_below_optimum_below_bound(pair, observed):
    columns = PAIRS[pair]
    chains = [Chain(*row, n=90) for row in zip(*columns, observed, strict=True)]
    best = optimum(*chains)
    arguments = {
        "sources": Sources(*columns), "budget": 1, "arrivals": "poisson",
        "observed": np.array(observed),
    }  # fmt: skip
    runs = compare(["whittle", "whittle-exact"], arguments, steps=600, warmup=100, seeds=400)
    closed, exact = runs["whittle"].reward, runs["whittle-exact"].reward
    error = exact.std(ddof=1) / np.sqrt(exact.size)
    paired = (exact - closed).std(ddof=1) / np.sqrt(exact.size)
    assert exact.mean() > closed.mean() - Z_LIMIT * paired - 1e-3 * best
    grid = 3e-3 * best  # the grid of the brute force and its draws
    assert exact.mean() < best + Z_LIMIT * error + grid
    assert exact.mean() > 0.97 * best
    assert best < task_bound(Task(**arguments)).bound + grid


def error_of(run):
    """Return the standard error of the mean reward."""
    return float(run.reward.std(ddof=1) / np.sqrt(run.reward.size))


@pytest.mark.parametrize(
    ("information", "rule"),
    [
        ("observed", "average"), ("partly observed", "average"), ("not observed", "step"),
    ],
)  # fmt: skip
def test_no_agent_beats_the_bound_of_what_it_sees(information, rule):
    observed = {"observed": True, "partly observed": HALF, "not observed": False}[information]
    arguments = {
        "sources": "fleet-f", "budget": 4, "budget_rule": rule, "arrivals": "poisson",
        "observed": observed,
    }  # fmt: skip
    bound = float(task_bound(Task(**arguments)).bound)
    everybody = list(agents.AGENTS)[rule == "step" or observed is HALF :: 3]
    for name, run in compare(everybody, arguments, steps=50, warmup=40, seeds=16).items():
        assert run.reward.mean() < bound + Z_LIMIT * error_of(run), name
    best = evaluate("whittle-exact", arguments, steps=120, warmup=50, seeds=40)
    assert best.reward.mean() < bound + Z_LIMIT * error_of(best)
    assert best.reward.mean() > 0.98 * bound or rule == "step"


@pytest.mark.parametrize("budget", [0.25, 1.0])
def test_the_exact_index_reaches_the_bound_when_the_budget_may_be_saved(budget):
    fleet = Sources(0.05, np.linspace(0.5, 2.0, 30), 0.1)
    arguments = {
        "sources": fleet,
        "budget": budget,
        "budget_rule": "average",
        "arrivals": "poisson",
    }
    got = evaluate("whittle-exact", arguments, steps=2000, warmup=500, seeds=20)
    assert got.cost.mean() == pytest.approx(budget, rel=0.05)
    assert got.reward.mean() > 0.97 * task_bound(Task(**arguments)).bound


def test_seeing_is_worth_no_less_where_only_the_last_items_stay():
    fleet = Sources([1.0, 1.0], 1.0, 1e-3, capacity=[50, 50])
    seen, unseen = (
        task_bound(
            Task(fleet, 0.05, budget_rule="average", arrivals="poisson-items", observed=observed)
        ).bound
        for observed in (True, False)
    )
    assert seen >= unseen


def test_what_is_no_task_is_refused():
    with pytest.raises(ValueError, match=r"give a Task: crawl_env\.task_of\(env\)"):
        task_bound({"budget": 2})


def test_fleets_that_are_drawn_at_each_reset_have_no_common_bound():
    drawn = CrawlEnv("drawn-sparse-5", arrivals="poisson", observed=False)
    with pytest.raises(
        ValueError, match=r"every fleet has a bound .* as `sources`, env\.unwrapped"
    ):
        task_bound(drawn.task)
    drawn.reset(seed=0)
    assert task_bound(drawn.task, drawn.unwrapped.world.sources).bound.shape == (1,)
