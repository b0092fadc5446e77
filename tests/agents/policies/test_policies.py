"""Every registered agent in every kind of environment, and what each of them must do."""

import itertools

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

import agents
from agents import Agent, IndexAgent, relaxation
from agents.evaluation.rollout import evaluate, with_features
from agents.policies.base import arrays_of
from agents.theory import multiplier
from crawl_env import ArrivalProcess, CrawlEnv, CrawlVectorEnv, Sources
from crawl_env.content.process import Block
from crawl_env.envs.sb3 import CrawlVecEnv

Z_LIMIT = 4.5  # a right sampler fails one such test in 150,000

MIXED = Sources(
    [4.0, 20, 1, 0, 9], [1.0, 0.3, 2, 1, 0.5], [0.2, 0.7, 0.05, 0.3, 1.2], [1, 2, 0.5, 1, 0.7]
)
CHANNELS = ("arrival_rate", "mean_utility", "decay_rate", "cost")


def drawn(rng):
    return Sources.random(6, rng)


def drawn_costs(rng):
    parameters = Sources.random(6, rng)
    rate, utility, decay = (getattr(parameters, name) for name in CHANNELS[:3])
    return Sources(rate, utility, decay, rng.uniform(0.5, 2, 6), period=0.5)


KINDS = {
    "default": {},
    "age": {"features": ("age",), "observed": False, "budget": 2},
    "poisson": {"sources": "fleet-f", "arrivals": "poisson", "budget": 5},
    "mask": {
        "sources": MIXED, "arrivals": "poisson-gamma", "budget": 2.5, "features": ("value", "age"),
        "observed": [True, False, True, False, False],
    },
    "many": {
        "sources": MIXED, "arrivals": "poisson-items", "budget": 3, "observed": False,
        "start": "random",
        "features": ("balance", "items", "age", "harvest", "crawled", "value", *CHANNELS),
    },
    "average": {"budget": 2.5, "budget_rule": "average", "start": "full"},
    "average costs": {
        "sources": MIXED, "budget": 1.3, "budget_rule": "average", "features": ("age", "balance"),
        "arrivals": "poisson",
    },
    "drawn": {"sources": drawn, "budget": 2, "features": ("value", *CHANNELS)},
    "drawn average": {
        "sources": drawn_costs, "budget": 1.5, "budget_rule": "average",
        "features": (*CHANNELS, "age"), "arrivals": "poisson", "observed": False,
    },
}  # fmt: skip

DRAWS = ("random", "adaptive-thompson", "adaptive-self-tuning", "adaptive-engine")
NAMES = list(agents.AGENTS)
# Each agent in three kinds: both budget rules, drawn fleets, content that is random, and not seen.
TRIPLES = [
    ("default", "many", "drawn average"),
    ("drawn", "average costs", "age"),
    ("poisson", "mask", "drawn average"),
    ("drawn", "average", "many"),
]
PAIRS = [(name, kind) for i, name in enumerate(NAMES) for kind in TRIPLES[i % 4]]


def arguments_of(kind, name):
    """Return the environment's arguments, with all features that the agent asks for."""
    return {"horizon": 6, **with_features(name, KINDS[kind])[1]}


# ------------------------------------------------------------------------------- all agents alike


@pytest.fixture
def rough(monkeypatch):
    """λ* is simulated as briefly as that of a large fleet, where no test needs its digits."""
    monkeypatch.setattr(multiplier, "_MOST", multiplier._FEWEST)


@pytest.mark.usefixtures("rough")
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_every_agent_in_every_kind_of_environment(name, kind):
    """Over a reset: actions are in the space, of the seed alone, the same for one observation as
    for the batch, and leave the observation alone."""
    env = CrawlVectorEnv(3, **arguments_of(kind, name))
    agent, again, alone, other = (agents.make(name, env, seed=seed) for seed in (4, 4, 4, 5))
    observation, _ = env.reset(seed=2)
    state = same_state = other_state = None
    states = [None] * 3
    differs = False
    for _ in range(8):
        given = observation.copy()
        given.flags.writeable = False
        action, state = agent.predict(given, state)
        assert env.action_space.contains(action)
        assert action.dtype == np.float32
        np.testing.assert_array_equal(given, observation)
        assert not np.shares_memory(action, given)
        assert all(len(array) == 3 for array in arrays_of(state or ()))

        same, same_state = again.predict(np.asfortranarray(given), same_state)
        np.testing.assert_array_equal(action, same)
        different, other_state = other.predict(given, other_state)
        differs |= bool((different != action).any())

        # Random agents go on drawing: one after the other is the same stream.
        single = [alone.predict(one, known) for one, known in zip(given, states, strict=True)]
        expected, states = map(list, zip(*single, strict=True))
        assert np.shape(expected[0]) == env.single_action_space.shape
        if kind == "drawn average":  # λ* is found for a batch at a time
            np.testing.assert_array_equal(np.argsort(action), np.argsort(expected))
            np.testing.assert_allclose(action, expected, atol=0.1)
        else:  # numpy may round the last digit of a long array differently
            np.testing.assert_array_max_ulp(action, np.stack(expected), maxulp=1)

        observation, reward, *_ = env.step(action)
        assert np.isfinite(reward).all()
        assert (reward >= 0).all()
    assert differs == (name in DRAWS)


@pytest.mark.parametrize("name", NAMES)
def test_every_agent_has_stable_baselines_predict(name):
    arguments = {**arguments_of("many", name), "horizon": 10}
    native = CrawlVecEnv(3, **arguments)
    native.seed(0)
    agent = agents.make(name, native, seed=0)
    assert isinstance(agent, Agent)
    assert agent.name == name
    returns, lengths = evaluate_policy(agent, native, 3, return_episode_rewards=True)
    assert lengths == [10] * 3
    assert min(returns) >= 0

    batch = native.reset()
    _, memory = agent.predict(batch)
    start = np.ones(len(batch), dtype=bool)
    for how in (True, False):
        action, state = agent.predict(batch, state=memory, episode_start=start, deterministic=how)
        assert (state is None) == (memory is None)
        assert action.shape == batch.shape[:2]


def test_environments_of_stable_baselines_and_what_has_another_shape():
    arguments = arguments_of("many", "whittle")
    dummy = DummyVecEnv([lambda: Monitor(gym.make("EphemeralCrawl-v0", **arguments))] * 2)
    agent = agents.make("whittle", dummy)
    _, lengths = evaluate_policy(agent, dummy, 2, return_episode_rewards=True)
    assert lengths == [6] * 2
    n, f = dummy.observation_space.shape
    for shape in [(n,), (n, f + 1), (3, n, f + 1), (n + 1, f), (2, 2, n, f), (1, n)]:
        with pytest.raises(ValueError, match=rf"observation has shape .* task has \({n}, {f}\)"):
            agent.predict(np.zeros(shape, dtype=np.float32))


# --------------------------------------------------------------------------- what each one crawls


def crawls(name, epochs, rows=3, seed=0, **arguments):
    """Return what an agent crawls, (T, B, N) bool."""
    env = CrawlVectorEnv(rows, **{**with_features(name, arguments)[1], "horizon": None})
    agent = agents.make(name, env, seed=seed)
    observation, _ = env.reset(seed=seed)
    history = np.zeros((epochs, rows, env.task.n), dtype=bool)
    state = None
    for t in range(epochs):
        action, state = agent.predict(observation, state)
        observation, *_ = env.step(action)
        history[t].reshape(-1)[env.harvest.picked] = True
    return history


@pytest.mark.filterwarnings("ignore:budget is .* at most")
@pytest.mark.parametrize(
    ("name", "seed", "rule"),
    [
        ("whittle", 0, "step"), ("whittle", 1, "average"), ("whittle", 2, "step"),
        ("lagrangian", 1, "average"), ("lagrangian", 3, "step"), ("static", 0, "average"),
        ("static", 2, "step"), ("myopic", 1, "step"), ("myopic", 4, "average"),
    ],
)  # fmt: skip
def test_age_alone_is_as_good_as_the_belief(name, seed, rule):
    fleet = Sources.random(12, seed=seed) if seed else MIXED
    arguments = {
        "sources": fleet, "budget": 2.5, "arrivals": "poisson", "observed": False,
        "budget_rule": rule, "start": "empty" if seed == 1 else "fresh",
    }  # fmt: skip
    by_belief = crawls(name, 80, features=("value",), **arguments)
    by_age = crawls(name, 80, features=("age",), **arguments)
    # Deterministic arrivals are the belief: no way to tell them apart either.
    plain = crawls(name, 80, features=("value",), **{**arguments, "arrivals": "deterministic"})
    np.testing.assert_array_equal(by_age, by_belief)
    np.testing.assert_array_equal(by_age, plain)


@pytest.mark.parametrize("name", ["whittle", "myopic"])
def test_acts_on_what_it_sees_and_believes_the_rest(name):
    mask = np.array([True, False, True, False, True])
    env = CrawlVectorEnv(
        6, sources=MIXED, arrivals="poisson", observed=mask, features=("value", "age"), budget=2
    )
    agent = agents.make(name, env)
    observation, _ = env.reset(seed=3)
    rate, utility, decay = MIXED.arrival_rate, MIXED.mean_utility, MIXED.decay_rate
    ceiling, alpha = rate * utility / decay, np.exp(-decay)
    for _ in range(25):
        age = env.world.age
        x = np.where(mask, env.world.value, ceiling * (1 - alpha**age))
        if name == "whittle":
            with np.errstate(invalid="ignore", divide="ignore"):
                y = np.where(ceiling > 0, x / ceiling, 1.0)
                eta = np.where(y < 1, np.ceil(np.log(1 - np.minimum(y, 1 - 1e-9)) / -decay), 0)
            below = ceiling * (1 - alpha**eta - eta * (1 - alpha) * (1 - y))
            index = np.where(y < 1, below, x) / MIXED.cost
        else:
            index = x / MIXED.cost
        action = agent.predict(observation)[0]
        # A strictly increasing function of the index: order by one is order by the other.
        for row, wanted in zip(action, index, strict=True):
            for i, j in itertools.combinations(range(5), 2):
                if abs(wanted[i] - wanted[j]) > 1e-5 * max(wanted[i], wanted[j]):
                    assert (row[i] > row[j]) == (wanted[i] > wanted[j])
        observation, *_ = env.step(action)


# Where random content is seen, λ* is simulated for each fleet: seconds each.
@pytest.mark.parametrize(("rule", "arrivals"), [("step", "poisson"), ("average", "deterministic")])
def test_drawn_fleets_are_known_from_their_channels(rule, arrivals):
    arguments = {
        "budget": 2, "budget_rule": rule, "features": ("value", *CHANNELS), "horizon": 40,
        "arrivals": arrivals,
    }  # fmt: skip
    env = CrawlVectorEnv(2, sources=drawn_costs, **arguments)
    for name in ("whittle", "lagrangian", "static", "myopic", "oldest-first", "fixed"):
        if name == "lagrangian" and rule == "average":
            continue  # ranks by λ*, which is simulated for a batch at a time
        agent = agents.make(name, env, seed=0)
        observation, _ = env.reset(seed=0)
        for _ in range(3):
            action = agent.predict(observation)[0]
            for b in range(2):
                fleet = Sources(
                    *(observation[b, :, 1 + i].astype(float) for i in range(4)), period=0.5
                )
                alone = agents.make(name, CrawlVectorEnv(1, sources=fleet, **arguments))
                expected = alone.predict(observation[b])[0]
                # Scale and λ* depend on more than the fleet; the order of sources does not.
                np.testing.assert_array_equal(np.argsort(action[b]), np.argsort(expected))
            observation, *_ = env.step(action)


def test_oldest_first_goes_round():
    history = crawls("oldest-first", 14, budget=2, sources="recovering-7")
    order = [tuple(np.flatnonzero(row)) for row in history[:, 0]]
    assert order[:4] == [(0, 1), (2, 3), (4, 5), (0, 6)]
    # Nothing waits longer than ⌈7/2⌉ epochs.
    for stretch in np.lib.stride_tricks.sliding_window_view(history, 4, axis=0):
        assert stretch.any(axis=-1).all()


def test_fixed_takes_the_largest_inflow_per_cost():
    fleet = Sources([1.0, 1, 1, 1], [1.0, 2, 3, 4], 0.5, [1, 1, 3, 2.0])
    history = crawls("fixed", 6, sources=fleet, budget=3)
    # Ratios 1, 2, 1, 2: the second, then the fourth at cost 2 fill the budget of 3.
    assert (history == [False, True, False, True]).all()


def test_random_is_uniform():
    history = crawls("random", 1500, rows=10, sources="recovering-5", budget=2, seed=3)
    share = history.mean(axis=(0, 1))
    error = np.sqrt(0.4 * 0.6 / 15_000)
    assert (np.abs(share - 0.4) < Z_LIMIT * error).all()
    pairs = np.einsum("tbi,tbj->ij", *[history.astype(float)] * 2)[np.triu_indices(5, 1)] / 15_000
    assert (np.abs(pairs - 0.1) < Z_LIMIT * np.sqrt(0.1 * 0.9 / 15_000)).all()


class Uniform(ArrivalProcess):
    """Arrivals of one's own: U uniform on (0, 2), one number a source and step."""

    def block(self, cells, state):
        return UniformContent(cells)

    def past(self, cells, steps):
        return UniformContent(cells)


class UniformContent(Block):
    def add(self, value, count, rng):
        value += 2 * rng.random(value.size)


@pytest.mark.parametrize("seed", [0, 1])
def test_random_knows_nothing_of_what_arrives(seed):
    """The same seed for the agent and the environment must not give them the same numbers."""
    arrivals = Uniform()
    env = CrawlVectorEnv(
        20, sources="recovering-4", arrivals=arrivals, budget=1, horizon=None, observed=False
    )
    agent = agents.make("random", env, seed=seed)
    observation, _ = env.reset(seed=seed)
    alpha, x = np.exp(-np.array([0.2, 0.4, 0.6, 0.8])), np.ones(4)
    earned, expected = np.zeros(20), 0.0
    for _ in range(300):
        observation, reward, *_ = env.step(agent.predict(observation)[0])
        earned += reward
        expected += x.sum() / 4
        x = 0.75 * alpha * x + 1
    error = earned.std(ddof=1) / np.sqrt(20)
    assert abs(earned.mean() - expected) < Z_LIMIT * error


# -------------------------------------------------------------------------- the budget on average


INDEXED = [name for name, agent in agents.AGENTS.items() if issubclass(agent, IndexAgent)]


@pytest.mark.parametrize(
    ("name", "shown"),
    [("whittle", "age"), *((name, ("value", "age")[i % 2]) for i, name in enumerate(INDEXED))],
)
def test_waits_when_nothing_is_worth_its_charge(name, shown):
    arguments = {"budget": 0.05, "budget_rule": "average", "features": (shown,)}
    history = crawls(name, 400, rows=1, **arguments)[:, 0]
    if name == "whittle":
        # λ* is what the best source is worth after some epochs: at first there is money, and
        # nothing to spend it on.
        assert not history[:2].any()
    assert history.sum() > 0.9 * 0.05 * 400
    assert history.sum() <= 0.05 * 400 + 1


def test_waits_below_the_charge_and_crawls_above():
    env = CrawlVectorEnv(1, budget=2.5, budget_rule="average", features=("value",))
    agent = agents.make("whittle", env)
    price = relaxation(Sources.preset("table1"), 2.5).multiplier
    seen = np.zeros((4, 1), dtype=np.float32)
    assert (agent.predict(seen)[0] < 0).all()
    # The first source at age 1 has the index (1 − α)u = .5034 x.
    for x, worth in [(price / 0.5034147 * 0.999, False), (price / 0.5034147 * 1.001, True)]:
        seen[0, 0] = x
        action = agent.predict(seen)[0]
        assert (action[0] >= 0) == worth
        assert (action[1:] < 0).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:budget is 8:UserWarning")
def test_with_money_for_everything_crawls_everything(name):
    fleet = Sources([4.0, 20, 1, 3, 9], [1.0, 0.3, 2, 1, 0.5], MIXED.decay_rate, MIXED.cost)
    waits = name in ("nutch", "miniflux")  # until a source is due, whatever money there is
    rule = "step" if waits else "average"
    for budget, shown in [(5.2, "value"), (8.0, "age")]:
        history = crawls(
            name, 15, sources=fleet, budget=budget, budget_rule=rule, features=(shown,)
        )
        assert history.all()


# -------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("dead", [1e-4, 1e-12])
def test_dead_sources_do_not_cost_the_living_their_order(dead):
    """Priorities are float32: a scale taken from the dead would round the living alike."""
    fleet = Sources.random(40, seed=0)
    columns = [
        np.r_[p, np.full(80, x)]
        for p, x in zip(
            (fleet.arrival_rate, fleet.mean_utility, fleet.decay_rate), (dead, 1, 0.1), strict=True
        )
    ]
    alone = evaluate("whittle", {"sources": fleet, "budget": 4}, steps=300, seeds=1)
    beside = evaluate("whittle", {"sources": Sources(*columns), "budget": 4}, steps=300, seeds=1)
    assert beside.reward[0] == pytest.approx(alone.reward[0], rel=1e-6)


@pytest.mark.parametrize("rule", ["step", "average"])
def test_units_of_utility_do_not_change_what_is_crawled(rule):
    table1 = Sources.preset("table1")
    silent = np.zeros(5)
    fleets = [
        Sources(
            np.r_[table1.arrival_rate, silent],
            np.r_[table1.mean_utility * unit, silent + 1],
            np.r_[table1.decay_rate, silent + 1],
        )
        for unit in (1.0, 1e9, 1e-9)
    ]
    rewards = [
        evaluate("whittle", {"sources": f, "budget": 2, "budget_rule": rule}, steps=280, seeds=1)
        for f in fleets
    ]
    assert rewards[1].reward[0] == pytest.approx(1e9 * rewards[0].reward[0], rel=1e-6)
    assert rewards[2].reward[0] == pytest.approx(1e-9 * rewards[0].reward[0], rel=1e-6)


def test_a_negative_index_is_refused():
    class Poorest(agents.IndexAgent):
        name = "poorest"

        def index(self, value, sources):
            return -value

    with pytest.raises(ValueError, match=r"Poorest.index returned -.* for source 0;"):
        evaluate(Poorest, {}, steps=1, seeds=1)


def test_what_reset_returns_is_no_observation():
    env = CrawlEnv()
    with pytest.raises(ValueError, match=r"observation, info = env\.reset\(\)"):
        agents.Whittle(env).predict(env.reset(seed=0))
