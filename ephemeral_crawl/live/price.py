"""When a source is due: continuous-time Whittle index, due time at a price, and the price itself.

With y = x/u*, the belief x as a fraction of the ceiling u* = Λξ̄/μ, the index in continuous time is

    γ = (u*/C)[y + (1 − y) ln(1 − y)],    γ = x/C for x ≥ u*,

the limit T → 0 of Theorem 1 (Avrachenkov & Borkar 2015); a time τ after a fetch, without pings, it
is (u*/C)[1 − e^−z (1 + z)] with z = μτ. A source is due when γ reaches the price λ of a budget
unit, and λ is such that the fetches of the fleet cost the budget.

A source that has failed answers with a probability p that grows with the time since the last
attempt (`life`): its index is p γ. It is also due when the expected time for which it has been back
unnoticed reaches what a fetch costs ÷ what the source earns per second at the price.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.scheduling.age_index import signed
from agents.theory.closed_form import continuous_age_reaching, continuous_index
from agents.theory.price import first_near
from crawl_env.compiled import compiled
from ephemeral_crawl.live import hosts as doors
from ephemeral_crawl.live import life
from ephemeral_crawl.live.columns import EXISTS, MEMORIES, NEVER, NO_HOST, STOPPED, Hosts, Sources
from ephemeral_crawl.live.learning import Belief, Shared, belief

_SMALLEST = 1e-9  # price, as a fraction of the highest index
_TOLERANCE = 1e-3  # of the price, as a fraction
_STEP = 1.05  # factor between the first two prices that are tried
_LAST = MEMORIES - 1  # the longest memory
_LATEST = 1e12  # seconds since 1970, from which on a source is never due
_FIRST_RETRY, _LAST_RETRY = 60.0, 1e10  # seconds after a failure that are looked at
_HALVINGS = 12  # of an interval of times
_ROUNDS, _CLOSE = 60, 1e-4  # of the search for a time; its relative accuracy
_EARLIER = 12  # ages at which a peak is looked for
_SATURATED = 20.0  # time constants of decay after which nothing more comes to wait
_HOUR = 3600.0


@compiled
def level_reaching(share: float) -> float:
    """Return the level y < 1 at which y + (1 − y) ln(1 − y) is `share`; infinite if share ≥ 1.

    >>> round(level_reaching(continuous_index(0.3, 1.0)), 12)
    0.3
    """
    return -math.expm1(-continuous_age_reaching(share, 1.0)) if share < 1.0 else np.inf


@compiled
def planned(estimate: Belief, optimism: float) -> tuple[float, float]:
    """Return the ceiling u*, and that of items that no ping announces, for decisions."""
    silent = estimate.silent + optimism * estimate.error
    quiet = silent * (estimate.worth / estimate.decay)
    return quiet + estimate.ping_worth * estimate.ping_rate / estimate.decay, quiet


@compiled
def waiting(
    sources: Sources, i: int, now: float, estimate: Belief, ceiling: float, quiet: float
) -> float:
    """Return the expected worth that a fetch of source i would collect."""
    if sources.fetched[i] == NEVER:
        return ceiling
    x = -quiet * math.expm1(-estimate.decay * max(now - sources.fetched[i], 0.0))
    if sources.shot[i] > 0.0:
        since = max(now - sources.pinged[i], 0.0)
        x += estimate.ping_worth * sources.shot[i] * math.exp(-estimate.decay * since)
    return x


@compiled
def level_at(sources: Sources, i: int, price: float, ceiling: float) -> float:
    """Return the worth that has to wait at source i for its index to reach the price."""
    cost = price * charge(sources, i)
    level = level_reaching(cost / ceiling) * ceiling if ceiling > 0.0 else np.inf
    return level if level < np.inf else cost


@compiled
def charge(sources: Sources, i: int) -> float:
    """Return the cost of a fetch of source i times the factor by which the price of its tag differs
    from that of the budget: with it, all indices are compared with the latter."""
    return np.float64(sources.cost[i]) * np.float64(sources.factor[i])


@compiled
def rotation_of(sources: Sources, i: int, rotation: float) -> float:
    """Return the largest time between two fetches of source i, given that of the fleet."""
    return rotation * np.float64(sources.stretch[i])


@compiled
def adds(sources: Sources, i: int) -> float:
    """Return by how much a fetch of source i that finds items is known to cost more than one that
    finds nothing, times the factor of its tag; 0 if both are not known."""
    if not (sources.hit[i] > sources.vain[i] and sources.vain[i] > 0.0):
        return 0.0
    more = np.float64(sources.hit[i]) - np.float64(sources.vain[i])
    return more * np.float64(sources.factor[i])


@compiled
def marginal_cost(vain: float, more: float, items: float) -> float:
    """Return the denominator of the index of a fetch whose cost depends on what it finds, c + C'
    [1 − e^−ℓ (1 + ℓ)] with ℓ = Λτ: the limit T → 0 of `agents.theory.checks`.

    Items cost the same whenever they are fetched: a source whose fetches often find nothing can be
    looked at more often than its mean cost says.

    Arguments:
        vain, more: c and C', budget units.
        items: ℓ, expected number.
    """
    return vain + more * (1.0 - math.exp(-items) * (1.0 + items))


@compiled
def time_until(
    price: float,
    vain: float,
    more: float,
    ceiling: float,
    quiet: float,
    decay: float,
    rate: float,
) -> float:
    """Return the time after a fetch at which the index of a source whose fetches cost more if they
    find items reaches the price if no ping comes, infinite if never.

    It is the smallest root, to which this converges from below.

    Arguments:
        vain, more: see `marginal_cost`.
        rate: items per second.
    """
    if not ceiling > 0.0:
        return np.inf
    time, cost = 0.0, vain
    for _ in range(_ROUNDS):
        level = level_reaching(price * cost / ceiling) * ceiling
        if not level < quiet:
            return np.inf
        before, time = time, -math.log1p(-level / quiet) / decay
        if time - before < _CLOSE * time:
            break
        cost = marginal_cost(vain, more, rate * time)
    mean_cost = vain - more * math.expm1(-rate * time)
    pays = -math.expm1(-decay * time) * quiet >= price * (1.0 - _CLOSE) * mean_cost
    return time if pays else np.inf  # past the age at which a fetch is worth most for its cost


@compiled
def index_now(sources: Sources, shared: Shared, i: int, now: float) -> float:
    """Return the index of source i."""
    estimate = belief(sources, shared, i)
    ceiling, quiet = planned(estimate, shared.optimism)
    x = waiting(sources, i, now, estimate, ceiling, quiet)
    gain = continuous_index(x / ceiling, ceiling) if ceiling > 0.0 else x
    answering, more = life.answering(sources, shared, i, now), adds(sources, i)
    if more == 0.0 or sources.fetched[i] == NEVER:
        return answering * gain / charge(sources, i)
    vain = np.float64(sources.vain[i]) * np.float64(sources.factor[i])
    age = max(now - sources.fetched[i], 0.0)
    if sources.pending[i] > 0.0:
        none = math.exp(-estimate.silent * age)
        none *= (1.0 - estimate.precision) ** np.float64(sources.pending[i])
        return answering * gain / (vain + more * (1.0 - none))
    most, age = 0.0, min(age, _SATURATED / estimate.decay)
    for _ in range(_EARLIER):  # it never falls: past its peak it is what it was there
        y = -math.expm1(-estimate.decay * age) * quiet
        gain = continuous_index(y / ceiling, ceiling) if ceiling > 0.0 else y
        index = gain / marginal_cost(vain, more, estimate.silent * age)
        worth = y / (vain - more * math.expm1(-estimate.silent * age))
        most, age = max(most, min(index, worth)), 0.7 * age
        if index <= worth:
            break
    return answering * most


@compiled
def value_now(sources: Sources, shared: Shared, i: int, now: float) -> float:
    """Return the expected worth that a fetch of source i would collect, without optimism."""
    estimate = belief(sources, shared, i)
    ceiling, quiet = planned(estimate, 0.0)
    x = waiting(sources, i, now, estimate, ceiling, quiet)
    return life.answering(sources, shared, i, now) * x


@compiled
def due_at(sources: Sources, shared: Shared, i: int, price: float, now: float) -> float:
    """Return when the index of source i reaches the price if no ping comes, infinite if never.

    The belief x tends exponentially to the ceiling A of items without pings: x(t) = A − (A − x₀)
    e^−μ(t − t₀). It reaches the level of the price at once, in between, or never.
    """
    if sources.failures[i] > 0:
        return _again_at(sources, shared, i, price, now)
    if sources.fetched[i] == NEVER:
        return -np.inf
    estimate = belief(sources, shared, i)
    ceiling, quiet = planned(estimate, shared.optimism)
    more = adds(sources, i)
    if more > 0.0:
        if sources.pending[i] > 0.0 and index_now(sources, shared, i, now) >= price:
            return now
        vain = np.float64(sources.vain[i]) * np.float64(sources.factor[i])
        return sources.fetched[i] + time_until(
            price, vain, more, ceiling, quiet, estimate.decay, estimate.silent
        )
    level = level_at(sources, i, price, ceiling)
    start = sources.fetched[i]
    if sources.shot[i] > 0.0:
        start = max(start, now)
    x = waiting(sources, i, start, estimate, ceiling, quiet)
    if x >= level:
        return start
    if not quiet > level:
        return np.inf
    return start + math.log((quiet - x) / (quiet - level)) / estimate.decay


@compiled
def _again_at(sources: Sources, shared: Shared, i: int, price: float, now: float) -> float:
    """Return when the index of a source that has failed reaches the price, infinite if never."""
    estimate, v = belief(sources, shared, i), life.weights(sources, shared, i)
    ceiling, quiet = planned(estimate, shared.optimism)
    threshold, attempt = price * charge(sources, i), sources.tried[i]
    low = max(now - attempt, 0.0)
    if _index_if_back(sources, i, attempt + low, estimate, ceiling, quiet, v) >= threshold:
        return min(attempt + _FIRST_RETRY, now)
    high = max(low, _FIRST_RETRY)
    while _index_if_back(sources, i, attempt + high, estimate, ceiling, quiet, v) < threshold:
        low, high = high, 2.0 * high
        if high > _LAST_RETRY:
            return np.inf
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _index_if_back(sources, i, attempt + middle, estimate, ceiling, quiet, v) < threshold:
            low = middle
        else:
            high = middle
    return attempt + high


@compiled
def _index_if_back(
    sources: Sources,
    i: int,
    at: float,
    estimate: Belief,
    ceiling: float,
    quiet: float,
    v: life.Weights,
) -> float:
    """Return the index times the cost of a source that has failed."""
    x = waiting(sources, i, at, estimate, ceiling, quiet)
    if ceiling > 0.0:
        x = continuous_index(x / ceiling, ceiling)
    return life.back(v, at - sources.tried[i]) * x


@compiled
def inspection_interval(cost: float, first: float, surplus: float, rotation: float) -> float:
    """Return the time after a fetch at which a source is fetched again, however low its index.

    A source that has not shown an item yet may publish its first at any time, and then be like any
    other. With the rate Λ of that, and the mean surplus g that a source earns over what its fetches
    cost at the price λ, fetches a time D apart cost λ/D, and g Λ D/2 is lost until the item is
    found; the best D is (2 λ/(g Λ))^½ (Barlow, Hunter & Proschan 1963 on inspections).

    Arguments:
        cost: budget units.
        first: Λ, 0 if it has shown an item.
        surplus: g/λ, per second.
        rotation: largest time for all sources, seconds; infinite if none is visited in rotation.

    >>> inspection_interval(2.0, 0.01, 4.0, 1000.0), inspection_interval(2.0, 0.01, 4.0, math.inf)
    (10.0, inf)
    """
    if first > 0.0 and surplus > 0.0 and rotation < np.inf:
        return min(rotation, math.sqrt(2.0 * cost / (surplus * first)))
    return rotation


@compiled
def exploration_interval(sources: Sources, shared: Shared, i: int, rotation: float) -> float:
    """Return the time after the last attempt at which source i is tried again, however low its
    index: if it is new or has failed, when the expected surplus that was lost is the price of a
    fetch. For a new source it is the time since it was added."""
    cost, surplus = charge(sources, i), shared.surplus
    rotation = rotation_of(sources, i, rotation)
    if life.tried_at(sources, i) == NEVER:
        loss = surplus * life.answering(sources, shared, i, sources.pinged[i])
        return min(cost / loss, rotation) if loss > 0.0 else rotation
    if not (sources.failures[i] > 0 and rotation < np.inf):
        return _exploration_while_up(sources, shared, i, rotation)
    if sources.items[i, _LAST] > 0.0:
        estimate = belief(sources, shared, i)
        ceiling, _ = planned(estimate, shared.optimism)
        surplus = surplus_at(ceiling, estimate.decay, cost, shared.market)
    surplus *= shared.retrying
    if not surplus > 0.0:
        return rotation
    return min(life.unnoticed_for(life.weights(sources, shared, i), cost / surplus), rotation)


@compiled
def _exploration_while_up(sources: Sources, shared: Shared, i: int, rotation: float) -> float:
    if sources.items[i, _LAST] > 0.0:
        return rotation
    first = belief(sources, shared, i).silent
    return inspection_interval(charge(sources, i), first, shared.surplus, rotation)


@compiled
def longest_interval(sources: Sources, shared: Shared, i: int) -> float:
    """Return the time after the last attempt at which the maximum interval of source i has passed:
    after a failure, the expected time for which it has been back."""
    longest = np.float64(sources.longest[i])
    if sources.failures[i] > 0 and longest < np.inf:
        return life.unnoticed_for(life.weights(sources, shared, i), longest)
    return longest


@compiled
def retried_after(
    sources: Sources, shared: Shared, i: int, price: float, rotation: float, now: float
) -> float:
    """Return the time between two attempts at source i at a price, after it has failed."""
    again = min(
        exploration_interval(sources, shared, i, rotation), longest_interval(sources, shared, i)
    )
    if again == np.inf:  # when its index says so
        again = max(due_at(sources, shared, i, price, now) - sources.tried[i], _HOUR)
    return max(again, max(np.float64(sources.shortest[i]), 1.0))


@compiled
def floored(sources: Sources, shared: Shared, i: int, due: float, rotation: float) -> float:
    """Return when source i can be leased: its due time within its floors and ceilings."""
    marks = sources.marks[i]
    if marks & EXISTS == 0 or marks & STOPPED:
        return np.inf
    attempt = life.tried_at(sources, i)
    if attempt != NEVER:
        again = exploration_interval(sources, shared, i, rotation)
        due = min(due, attempt + min(longest_interval(sources, shared, i), again))
        due = max(due, attempt + np.float64(sources.shortest[i]))
    due = max(due, sources.blocked[i])
    return due if due < _LATEST else np.inf


@compiled
def key_of(
    sources: Sources, shared: Shared, i: int, price: float, rotation: float, now: float
) -> float:
    """Return the key of source i in the heap, at the price from which on it is a candidate."""
    return floored(sources, shared, i, due_at(sources, shared, i, price, now), rotation)


@compiled
def keys(
    sources: Sources,
    shared: Shared,
    rows: NDArray[np.int32],
    price: float,
    rotation: float,
    now: float,
) -> NDArray[np.float64]:
    """Return the keys of some sources, (K,)."""
    times = np.empty(len(rows))
    for k in range(len(rows)):
        times[k] = key_of(sources, shared, signed(rows[k]), price, rotation, now)
    return times


@compiled
def indices(
    sources: Sources, shared: Shared, rows: NDArray[np.int32], now: float
) -> NDArray[np.float64]:
    """Return the indices of some sources, (K,)."""
    values = np.empty(len(rows))
    for k in range(len(rows)):
        values[k] = index_now(sources, shared, signed(rows[k]), now)
    return values


# What fetches of a source are worth and cost.
DEMAND = np.dtype(
    [
        ("ceiling", "<f8"),  # u*
        ("decay", "<f8"),  # per second
        ("cost", "<f8"),  # budget units
        ("charge", "<f8"),  # see `charge`
        ("vain", "<f8"),  # budget units of a fetch that finds nothing, if `more` is not 0
        ("more", "<f8"),  # by how much one that finds items costs more; 0 if it is not known
        ("rate", "<f8"),  # items per second
        ("stretch", "<f8"),  # by which its rotation is longer
        ("first", "<f8"),  # rate of the first item, of a source that has shown none, else 0
        ("shortest", "<f8"),  # seconds
        ("longest", "<f8"),  # seconds, or infinite
        ("host", "<i8"),  # or NO_HOST
        ("answering", "<f8"),  # probability that it answers, over the next day
        ("again", "<f8"),  # time between attempts while it fails, seconds; 0: it did not fail
    ]
)
# An array of this type, (K,). In kernels its columns are attributes, which mypy does not know.
Demand = Any


def demand(sources: Sources, shared: Shared, rotation: float, now: float) -> Demand:
    """Return what fetches of sources are worth and cost."""
    demand = np.zeros(len(sources), DEMAND)
    _find_demand(demand, sources, shared, rotation, now)
    return demand


@compiled
def _find_demand(
    demand: Demand, sources: Sources, shared: Shared, rotation: float, now: float
) -> None:
    for i in range(len(sources)):
        estimate = belief(sources, shared, i)
        demand.ceiling[i], _ = planned(estimate, shared.optimism)
        demand.decay[i], demand.cost[i] = estimate.decay, sources.cost[i]
        demand.charge[i], demand.stretch[i] = charge(sources, i), sources.stretch[i]
        demand.vain[i] = sources.vain[i]
        demand.more[i] = adds(sources, i) / np.float64(sources.factor[i])
        demand.rate[i] = estimate.silent + estimate.precision * estimate.ping_rate
        if sources.items[i, _LAST] == 0.0:
            demand.first[i] = estimate.silent
        demand.shortest[i] = max(np.float64(sources.shortest[i]), 1.0)
        demand.longest[i], demand.host[i] = sources.longest[i], sources.host[i]
        demand.answering[i] = life.answering_soon(sources, shared, i, now)
        if sources.failures[i] > 0:
            demand.again[i] = retried_after(sources, shared, i, shared.market, rotation, now)


@compiled
def surplus_at(ceiling: float, decay: float, cost: float, price: float) -> float:
    """Return what a source earns per second over the cost of its fetches, in units of the price.

    A source that is fetched whenever its index is the price earns u* μ e^−z more, with z = μτ.
    """
    share = price * cost / ceiling if ceiling > 0.0 else np.inf
    return ceiling * decay * math.exp(-continuous_age_reaching(share, 1.0)) / price


@compiled
def _time_until(demand: Demand, k: int, price: float) -> float:
    value, ceiling = price * demand.charge[k] / demand.cost[k], demand.ceiling[k]
    return time_until(
        value, demand.vain[k], demand.more[k], ceiling, ceiling, demand.decay[k], demand.rate[k]
    )


@compiled
def fetches(demand: Demand, k: int, price: float, surplus: float, rotation: float) -> float:
    """Return how often a source is fetched at a price, per second, whatever its host accepts.

    Arguments:
        surplus: mean over the fleet, at this price.
    """
    cost, ceiling = demand.charge[k], demand.ceiling[k]
    share = price * cost / ceiling if ceiling > 0.0 else np.inf
    if demand.more[k] > 0.0:
        interval = _time_until(demand, k, price)
    else:
        interval = continuous_age_reaching(share, 1.0) / demand.decay[k]
    again = inspection_interval(cost, demand.first[k], surplus, rotation * demand.stretch[k])
    interval = max(min(interval, min(demand.longest[k], again)), demand.shortest[k])
    answering, again = demand.answering[k], demand.again[k]
    if again == 0.0:
        return answering / interval
    return answering / (interval + again) + (1.0 - answering) / again


@compiled
def retries(demand: Demand) -> float:
    """Return the cost per second of attempts at sources that fail, as long as they do."""
    total = 0.0
    for k in range(len(demand)):
        if demand.again[k] > 0.0:
            total += (1.0 - demand.answering[k]) * demand.cost[k] / demand.again[k]
    return total


@compiled
def mean_surplus(demand: Demand, price: float) -> float:
    """Return what sources that answer earn per second over the cost of their fetches, on average,
    in units of the price."""
    total, number = 0.0, 0.0
    for k in range(len(demand)):
        if demand.more[k] > 0.0:
            time, decay = _time_until(demand, k, price), demand.decay[k]
            later = demand.more[k] * demand.rate[k] * math.exp(-demand.rate[k] * time)
            surplus = demand.ceiling[k] * decay * math.exp(-decay * time) / price
            surplus = max(surplus - later * demand.charge[k] / demand.cost[k], 0.0)
        else:
            surplus = surplus_at(demand.ceiling[k], demand.decay[k], demand.charge[k], price)
        total += demand.answering[k] * surplus
        number += demand.answering[k]
    return total / number if number > 0.0 else 0.0


@compiled
def spending(demand: Demand, price: float, rotation: float, hosts: Hosts) -> float:
    """Return the cost per second of fetching sources whenever they are due at a price.

    Sources of a host or domain that accepts fewer fetches are all fetched more rarely by the same
    factor.
    """
    surplus = mean_surplus(demand, price) if rotation < np.inf else 0.0
    number, total = len(demand), 0.0
    frequency, of_host = np.empty(number), np.zeros(len(hosts))
    for k in range(number):
        frequency[k] = fetches(demand, k, price, surplus, rotation)
        if demand.host[k] != NO_HOST:
            of_host[demand.host[k]] += frequency[k]
    factor = doors.stretch(hosts, of_host)
    for k in range(number):
        expense = demand.cost[k] * frequency[k]
        if demand.more[k] > 0.0 and frequency[k] > 0.0:
            probability = -math.expm1(-demand.rate[k] / frequency[k])
            expense = (demand.vain[k] + demand.more[k] * probability) * frequency[k]
        if demand.host[k] != NO_HOST:
            expense /= factor[demand.host[k]]
        total += expense
    return total


def _highest_index(demand: Demand) -> float:
    """Return the highest index that any of some sources can have."""
    lowest = np.where(demand["more"] > 0.0, np.minimum(demand["vain"] / demand["cost"], 1.0), 1.0)
    return float((demand["ceiling"] / (demand["charge"] * lowest)).max(initial=0.0))


def market_price(
    demand: Demand, budget: float, rotation: float, hosts: Hosts, guess: float
) -> float:
    """Return the price at which some sources are fetched for `budget` units per second.

    It is between 10⁻⁹ times the highest index, if the budget exceeds what can be spent, and the
    highest index, if maximum intervals alone cost more than the budget.
    """

    def is_enough(value: float) -> bool:
        return spending(demand, value, rotation, hosts) <= budget

    return _lowest_price(is_enough, _highest_index(demand), guess)


def _lowest_price(is_enough: Callable[[float], bool], most: float, guess: float) -> float:
    """Return the lowest price at which a budget is enough, which is at most the highest index; the
    guess if that is 0."""
    if not most > 0.0:
        return guess
    near = first_near(is_enough, guess, most * _SMALLEST, most, _TOLERANCE, _STEP)
    return math.sqrt(math.prod(near))


class Part(NamedTuple):
    """A sample of the sources of a tag, which have a budget of their own."""

    demand: Demand
    hosts: Hosts
    size: float  # of the sample ÷ number of sources
    least: float  # budget units per second
    most: float


def tag_prices(
    parts: Sequence[Part], budget: float, rotation: float, guess: float
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Return the price of a budget that tags with budgets of their own share (see `tags`), the
    prices at which each would spend its maximum and its minimum alone, (T, 2), 0 and infinite where
    there is none or nothing to fetch, and what each spends, (T,), budget units per second.

    Arguments:
        parts: at whose prices, rather than those of the budget, nothing is `charged`.
        guess: of the price.
    """

    def alone(part: Part, bound: float) -> float:
        return market_price(part.demand, bound * part.size, rotation, part.hosts, guess)

    highest = [_highest_index(part.demand) for part in parts]
    # The budgets of a tag bind nothing where none of its sources can be worth a fetch.
    bounds = np.array(
        [
            [
                alone(part, part.most) if part.most < math.inf and index > 0.0 else 0.0,
                alone(part, part.least) if part.least > 0.0 and index > 0.0 else math.inf,
            ]
            for part, index in zip(parts, highest, strict=True)
        ]
    )

    def costs_at(common: float) -> NDArray[np.float64]:
        prices = np.minimum(np.maximum(common, bounds[:, 0]), bounds[:, 1])
        costs = [
            spending(part.demand, price, rotation, part.hosts) / part.size
            for part, price in zip(parts, prices.tolist(), strict=True)
        ]
        return np.array(costs)

    guess = _lowest_price(lambda price: float(costs_at(price).sum()) <= budget, max(highest), guess)
    return guess, bounds, costs_at(guess)


@compiled
def interval_at(sources: Sources, shared: Shared, i: int, price: float, rotation: float) -> float:
    """Return the time between two fetches of source i at a price, if it answers and no ping
    comes."""
    estimate = belief(sources, shared, i)
    ceiling, quiet = planned(estimate, shared.optimism)
    level, more = np.inf, adds(sources, i)
    if ceiling > 0.0:
        level = level_reaching(price * charge(sources, i) / ceiling) * ceiling
    interval = -math.log1p(-level / quiet) / estimate.decay if level < quiet else np.inf
    if more > 0.0:
        vain = np.float64(sources.vain[i]) * np.float64(sources.factor[i])
        interval = time_until(price, vain, more, ceiling, quiet, estimate.decay, estimate.silent)
    again = _exploration_while_up(sources, shared, i, rotation_of(sources, i, rotation))
    interval = min(interval, min(np.float64(sources.longest[i]), again))
    return max(interval, np.float64(sources.shortest[i]))
