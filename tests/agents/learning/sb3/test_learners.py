"""Stable-Baselines3's algorithms as learners: repeatable, resumable, played as they learnt."""

import ast
import copy
import inspect
import pickle
import random
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from agents.evaluation.rollout import compare, evaluate
from agents.learning import LEARNERS, load, storage
from agents.learning.sb3.environments import CenteredReward
from agents.learning.sb3.learners import (
    ALGORITHMS,
    NETWORKS,
    DQNSettings,
    PPOSettings,
    StableBaselines,
    sequential_scores,
)
from crawl_env import CrawlEnv, CrawlVectorEnv, Sources
from crawl_env.envs.sb3 import CrawlVecEnv
from tests.agents.learning.common import same

torch.set_num_threads(1)
FEATURES = ("value", "age", "decay_rate")
SMALL = {
    "hidden": 4,
    "n_steps": 8,
    "n_epochs": 2,
    "n_minibatches": 2,
    "train_freq": 8,
    "buffer_size": 40,  # overflows within the runs
    "learning_starts": 9,
    "batch_size": 8,
    "gradient_steps": 2,
    "target_update_interval": 3,
    "n_quantiles": 5,
}
KINDS = [StableBaselines.of(name) for name in ALGORITHMS]
PPO, DQN = StableBaselines.of("ppo"), StableBaselines.of("dqn")
# Each algorithm with one of the networks.
PAIRS = [*zip(KINDS, NETWORKS[:2] * 4, strict=False)]


def crawl(rows=3, **arguments):
    poisson = {"arrivals": "poisson", "budget": 2, "features": FEATURES, "horizon": 13}
    return CrawlVectorEnv(rows, **{**poisson, **arguments})


def agent(kind, network="equivariant", **more):
    names = kind.Settings.__dataclass_fields__
    small = {name: value for name, value in SMALL.items() if name in names}
    env = more.pop("env", None) or crawl()
    return kind(env, kind.Settings(**{**small, "network": network}), **more)


@cache
def learnt(kind, network):
    """Return an agent that has learnt, and that no test may change."""
    return agent(kind, network, seed=3).learn(32)


def generators():
    """Return the states of the global generators."""
    numpy = np.random.mtrand._rand.get_state(legacy=False)
    return random.getstate(), numpy, torch.get_rng_state().numpy()


@pytest.mark.parametrize(("kind", "network"), PAIRS)
def test_runs_repeat_differ_with_the_seed_and_go_on_exactly_when_stopped(kind, network, tmp_path):
    through = learnt(kind, network)
    file = tmp_path / "run"
    random.seed(8)
    np.random.seed(8)  # noqa: NPY002 - what the caller does to these makes no difference
    torch.manual_seed(8)
    before = generators()
    agent(kind, network, seed=3).learn(16, checkpoint=file)
    resumed = agent(kind, network, seed=3).learn(32, checkpoint=file)
    assert same(before, generators())
    assert resumed.steps == through.steps == 32
    assert same(through.state_dict(), resumed.state_dict())
    loaded = load(file, crawl(rows=2))
    assert type(loaded) is kind
    seen = crawl(rows=5, start="random").reset(seed=1)[0]
    batch, _ = through.predict(seen)
    np.testing.assert_array_equal(loaded.predict(seen)[0], batch)
    alone, state = through.predict(seen[2])
    np.testing.assert_array_equal(alone, batch[2])
    assert alone.dtype == np.float32
    assert np.abs(batch).max() <= 1
    assert state is None
    loaded.learn(loaded.steps + 8)  # in another number of rows


@pytest.mark.parametrize(("kind", "network"), PAIRS[2:6:3])
def test_weights_move_with_the_seed_and_what_is_learnt_is_reported(kind, network):
    learner, metrics = agent(kind, network, seed=4), []
    before = {k: w.clone() for k, w in learner.model.policy.state_dict().items()}
    learner.learn(32, progress=lambda steps, new: metrics.append(new))
    after = learner.model.policy.state_dict()
    assert all(bool(torch.isfinite(weight).all()) for weight in after.values())
    assert any(not torch.equal(before[name], after[name]) for name in after)
    assert not same(after, learnt(kind, network).model.policy.state_dict())
    assert 0 < metrics[-1]["reward per step"] < 500
    assert any(name.startswith("train/") for name in metrics[-1])


# What SB3 itself computes from whole observations: mean priorities, Q-values or logits.
THEIRS = {
    "ppo": lambda model, seen: model.policy.get_distribution(seen).distribution.mean,
    "a2c": lambda model, seen: model.policy.get_distribution(seen).distribution.mean,
    "sac": lambda model, seen: model.actor.get_action_dist_params(seen)[0],
    "td3": lambda model, seen: torch.atanh(model.actor(seen).double()),
    "dqn": lambda model, seen: model.q_net(seen),
    "qr-dqn": lambda model, seen: model.quantile_net(seen).mean(dim=1),
    "maskable-ppo": lambda model, seen: model.policy.get_distribution(seen).distribution.logits,
}


@pytest.mark.parametrize(("kind", "network"), PAIRS)
def test_decisions_are_those_of_sb3s_networks_step_by_step(kind, network):
    """In every step of three runs at once, from whole observations, pick by pick."""
    learner = learnt(kind, network)
    env = crawl(horizon=None)
    seen, _ = env.reset(seed=0)
    for _ in range(20):
        action, _ = learner.predict(seen)
        for row, own in zip(seen, action, strict=True):
            theirs = order_by_sb3(learner, row)
            assert np.argsort(-own)[: len(theirs)].tolist() == theirs
        seen, *_ = env.step(action)


def order_by_sb3(learner, row):
    """Return all sources in the order of their priorities, or the two that are picked."""
    values = lambda shown: THEIRS[learner.name](learner.model, torch.from_numpy(shown[None]))[0]  # noqa: E731
    with torch.no_grad():
        if not learner.sequential:
            return values(row).argsort(descending=True, stable=True).tolist()
        picked = []
        for _ in range(2):
            mask = np.isin(np.arange(len(row)), picked)
            value = values(np.column_stack([row, mask.astype(np.float32)])).numpy()
            picked.append(int(np.where(mask, -np.inf, value).argmax()))
        return picked


@pytest.mark.parametrize(
    ("name", "network"),
    [("ppo", "equivariant"), ("a2c", "default"), ("sac", "standardized"), ("td3", "equivariant")],
)
def test_looks_are_learnt_beside_crawls(name, network):
    task = {"sources": Sources.random(6, 0), "budget": 2, "look_cost": 0.2, "arrivals": "poisson"}
    task["features"] = ("age", "seen", "shown", "decay_rate")
    env = crawl(**task)
    learner = agent(StableBaselines.of(name), network, env=env, seed=3).learn(32)
    seen, _ = env.reset(seed=0)
    action, _ = learner.predict(seen)
    assert action.shape == (3, 2, 6)
    assert len(np.unique(action[0])) == 12  # the order of crawls and looks among each other
    theirs = THEIRS[name](learner.model, torch.from_numpy(seen)).flatten(1)
    np.testing.assert_array_equal(
        np.argsort(-action.reshape(3, -1)), (-theirs.detach().numpy()).argsort(axis=-1)
    )
    env.step(action)


def test_no_source_is_picked_twice():
    best = torch.tensor([[3.0, 1.0, 2.0, 0.0]])
    found = sequential_scores(lambda *_: best.clone(), torch.zeros(1, 4, 1), 3)
    assert np.argsort(-found[0]).tolist() == [0, 2, 1, 3]


def test_rewards_are_centred_and_kept_as_they_are_in_the_buffer():
    rows = CenteredReward(CrawlVecEnv(num_envs=2, budget=2, horizon=None), picks=1)
    rows.seed(0)
    rows.reset()
    raw, scaled = [], []
    for _ in range(5):
        scaled.append(rows.step(np.ones((2, 4), dtype=np.float32))[1])
        raw.append(rows.get_original_reward())
        np.testing.assert_allclose(scaled[-1], raw[-1] / np.mean(raw) - 1, rtol=1e-4, atol=1e-6)
    learner = agent(DQN, env=crawl(arrivals="deterministic")).learn(16)
    buffer = learner.model.replay_buffer
    paid = buffer.rewards[: buffer.size()].mean() * 2  # a pick of two is paid
    assert paid == pytest.approx(learner.envs.venv.mean, rel=0.2)


def test_discounts_are_per_epoch():
    env = crawl(budget=3)
    assert StableBaselines.of("maskable-ppo")(env).model.gamma ** 3 == pytest.approx(0.9)
    assert PPO(env).model.gamma == 0.9


def test_sequential_picks_serve_tasks_of_the_benchmark_whose_fleet_is_hidden():
    """Fleets named drawn-… have unit costs; of a function of one's own this is not known."""
    hidden = {"features": ("age", "harvest"), "budget": 2}
    chosen, _ = DQN(crawl(sources="drawn-sparse-9-7", **hidden)).predict(np.zeros((9, 2)))
    assert np.unique(chosen).size == 9
    with pytest.raises(ValueError, match="only those named drawn-… are known"):
        DQN(crawl(sources=lambda rng: Sources.random(9, rng), **hidden))


def test_wrong_environments_settings_and_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"gym\.make_vec"):
        PPO(CrawlEnv())
    with pytest.raises(ValueError, match="budget_rule='step'"):
        StableBaselines.of("sac")(crawl(budget_rule="average"))
    with pytest.raises(ValueError, match=r"seed is 4294967296; .* below 2\*\*32"):
        StableBaselines.of("ppo")(crawl(), seed=2**32)
    with pytest.raises(ValueError, match="same number of picks"):
        DQN(crawl(sources=Sources([5.0, 2.0, 1.0], 1, 0.3, [1, 2, 1])))
    with pytest.raises(ValueError, match="network"):
        PPOSettings(network="equivarient")
    with pytest.raises(ValueError, match="agent 'ppo' needs an instance of"):
        PPO(crawl(), DQNSettings())
    file = tmp_path / "agent"
    agent(PPO).learn(8, checkpoint=file)
    with pytest.raises(ValueError, match="'ppo', not the agent 'sac'"):
        StableBaselines.of("sac").load(file, crawl())
    with pytest.raises(ValueError, match="trained on the features value, age, decay_rate"):
        PPO.load(file, crawl(features=FEATURES[::-1]))
    with pytest.raises(ValueError, match="4 arms"):
        PPO.load(file, crawl(sources="recovering-10"))
    with pytest.raises(ValueError, match="budget"):
        agent(PPO, env=crawl(budget=1)).learn(16, checkpoint=file)
    with pytest.raises(ValueError, match="settings"):
        agent(PPO, "default").learn(16, checkpoint=file)
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(ValueError, match="damaged"):
        PPO.load(file, crawl())


def test_files_with_more_counters_are_read(tmp_path):
    """Those of earlier versions have counters that are private to Stable-Baselines3."""
    file = tmp_path / "agent"
    learner = agent(DQN).learn(16)
    learner.save(file)
    saved = storage.load(file)
    saved["learnt"]["counters"]["_n_calls"] = 16
    saved["arms"]["starts"] = np.ones(3, dtype=bool)
    storage.save(file, saved)
    resumed = agent(DQN).learn(16, checkpoint=file)
    assert same(learner.state_dict(), resumed.state_dict())


def test_no_private_member_of_sb3_is_used():
    for file in Path(inspect.getfile(StableBaselines)).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and re.match("_[^_]", node.attr):
                assert ast.unparse(node.value) == "self", f"{file.name}: {ast.unparse(node)}"
    for kind in (CenteredReward, *(made.equivariant for made in ALGORITHMS.values())):
        assert not [name for name in vars(kind) if re.match("_[^_]", name) and name != "_abc_impl"]


def test_algorithms_are_learners_by_name():
    assert all(LEARNERS[name] is StableBaselines.of(name) for name in ALGORITHMS)
    with pytest.raises(ValueError, match="unknown algorithm 'pro'; did you mean 'ppo'"):
        StableBaselines.of("pro")


def score(learner, arguments):
    """Return 1 where it earns what Whittle earns, 0 for random."""
    settings = {"steps": 280, "warmup": 100, "seeds": 1}
    runs = compare(["whittle", "random"], arguments, **settings)
    best, worst = (runs[name].reward.mean() for name in ("whittle", "random"))
    mean = evaluate(learner, arguments, **settings).reward.mean()
    return float((mean - worst) / (best - worst))


@pytest.mark.parametrize(("kind", "rows", "epochs"), [(PPO, 32, 128), (DQN, 16, 200)])
def test_table_1_is_learnt(kind, rows, epochs):
    arguments = {"sources": "table1", "budget": 1, "features": ("value", "age", "decay_rate")}
    learner = kind(CrawlVectorEnv(rows, **arguments, start="random"), seed=0)
    assert score(learner, arguments) < 0.7
    assert score(learner.learn(epochs), arguments) > 0.97


def test_a_copy_and_what_was_pickled_learn_on_as_the_learner_does():
    learner = agent(StableBaselines.of("dqn")).learn(16)
    copies = [copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))]
    learnt = learner.learn(8).state_dict()
    assert all(same(one.learn(8).state_dict(), learnt) for one in copies)


def test_an_entropy_coefficient_is_a_number_or_learnt():
    kind = StableBaselines.of("sac")
    for good in ("auto", "auto_.1", 0.5):
        kind.Settings(ent_coef=good)
    for bad in ("x", "auto_x", float("nan"), -1, None):
        with pytest.raises(ValueError, match=r'ent_coef is .*"auto"'):
            kind.Settings(ent_coef=bad)
