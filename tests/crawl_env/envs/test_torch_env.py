"""The vector environment on tensors: the reference's numbers, on device="cpu"."""

from typing import Any

import numpy as np
import pytest
import torch

from agents.learning.fleet.index import EquivariantIndex, EquivariantIndexSettings
from agents.learning.fleet.ppo import EquivariantPPO, EquivariantPPOSettings
from agents.learning.neural.deeptop import DeepTOP
from crawl_env import Arrivals, CrawlVectorEnv, Sources, task_of
from crawl_env.envs.torch_env import TorchCrawlVectorEnv

torch.set_num_threads(1)
B = 5
SEVEN = Sources.random(7, 3)
ALL = (
    *("value", "age", "crawled", "harvest", "items", "changed", "arrival_rate", "mean_utility"),
    *("decay_rate", "cost", "balance", "available", "failed"),
)


def drawn(rng):
    return Sources.random(6, rng)


TASKS = {
    "table 1": {"budget": 2},
    "one crawl": {"sources": SEVEN, "budget": 1, "start": "full"},
    "all features": {"sources": SEVEN, "budget": 3, "features": ALL, "horizon": 6},
    "scaled": {
        "sources": SEVEN,
        "budget": 3,
        "features": ALL,
        "start": "empty",
        "flat": True,
        "scaled": True,
        "horizon": 6,
        "autoreset_mode": "SameStep",
    },
    "random start": {"sources": SEVEN, "start": "random", "features": ("value", "age")},
    "drawn": {"sources": drawn, "budget": 2, "horizon": 4, "features": ("value", "arrival_rate")},
    "everything": {"sources": Sources([1, 2], 1, 0.5), "budget": 2, "max_episode_steps": 3},
}


def assert_equal(mine, its, rtol):
    np.testing.assert_allclose(mine.numpy(), its, rtol=rtol, atol=1e-30)


@pytest.mark.filterwarnings("ignore:budget is 2 and all sources")
@pytest.mark.parametrize(
    ("task", "dtype"),
    [*((name, "float64") for name in TASKS), ("one crawl", "float32"), ("scaled", "float32")],
)
def test_deterministic_numbers_are_those_of_the_reference(task, dtype):
    exact = 1e-12 if dtype == "float64" else 1e-5
    seen = 2e-7 if dtype == "float64" else 1e-5
    task = TASKS[task]
    one, other = CrawlVectorEnv(B, **task), TorchCrawlVectorEnv(B, dtype=dtype, **task)
    expected, observation = one.reset(seed=4)[0], other.reset(seed=4)[0]
    assert_equal(observation, expected, seen)
    assert observation.dtype == torch.float32
    rng = np.random.default_rng(0)
    for _ in range(25):
        action = rng.integers(-2, 3, (B, one.task.n)).astype(np.float32) / 2
        a, b = one.step(action), other.step(torch.tensor(action))
        assert_equal(b[0], a[0], seen)
        assert_equal(b[1], a[1], exact)
        np.testing.assert_array_equal(b[2].numpy(), a[2])
        np.testing.assert_array_equal(b[3].numpy(), a[3])
        np.testing.assert_array_equal(np.sort(other.harvest.picked), np.sort(one.harvest.picked))
        assert a[4].keys() == b[4].keys()
        if "final_obs" in a[4]:
            last = b[4]["final_obs"], a[4]["final_obs"]
            assert_equal(torch.stack(list(last[0])), np.stack(last[1]), seen)
    assert_equal(other.world.value, one.world.value, exact)
    assert other.world.value.dtype == getattr(torch, dtype)


def test_beliefs_and_options_are_those_of_the_reference():
    task = {
        "sources": SEVEN,
        "budget": 2,
        "arrivals": "poisson",
        "features": ("value", "age"),
        "observed": np.arange(7) == 6,
        "autoreset_mode": "Disabled",
    }
    one, other = CrawlVectorEnv(B, **task), TorchCrawlVectorEnv(B, dtype="float64", **task)
    mask = np.array([True, False, True, False, True])
    options = [
        {"age": np.arange(7.0)},
        {"value": np.arange(7.0)},
        {"value": np.ones((B, 7)), "age": np.full(7, 2.0), "reset_mask": mask},
    ]
    rng = np.random.default_rng(0)
    for given in options:
        one.reset(seed=0, options=dict(given))
        tensors = {name: torch.tensor(x) for name, x in given.items()}
        other.reset(seed=0, options=tensors)
        for _ in range(4):
            action = rng.random((B, 7))
            shown = one.step(action)[0], other.step(action)[0]
            np.testing.assert_allclose(shown[1][:, :6], shown[0][:, :6], rtol=1e-6)
    expected = other.world.value[:, 6].float()
    torch.testing.assert_close(shown[1][:, 6, 0], expected)


@pytest.mark.parametrize("arrivals", ["poisson", Arrivals(utility="lognormal")], ids=str)
def test_what_arrives_depends_on_the_seed_and_not_on_actions(arrivals):
    def arrived(seed, sign):
        env = TorchCrawlVectorEnv(
            B, SEVEN, 2, arrivals=arrivals, horizon=4, start="random", dtype="float64"
        )
        env.reset(seed=seed)
        inflows = []
        for _ in range(9):
            before, begun = env.world.value.clone(), env._begun.copy()
            env.step(sign * torch.arange(7.0).expand(B, 7))
            left = before.ravel()
            left[env.harvest.picked] = 0.0
            left = left.reshape(B, 7) * torch.exp(-torch.tensor(SEVEN.decay_rate))
            if (begun == env._begun).all():  # no step of a reset
                inflows.append(env.world.value - left)
        return torch.stack(inflows)

    one = arrived(0, 1.0)
    assert (one > 0).any()
    torch.testing.assert_close(arrived(0, -1.0), one, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(arrived(1, 1.0), one)


def test_a_saved_state_has_the_same_future_and_a_seed_another():
    env = TorchCrawlVectorEnv(
        B, SEVEN, 2, arrivals="poisson-items", features=("items", "crawled"), horizon=6
    )
    env.reset(seed=0)
    action = torch.rand(B, 7, generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        shown = env.step(action)[0]
    state = env.get_state()
    first = [env.step(action) for _ in range(6)]
    torch.testing.assert_close(env.set_state(state), shown, rtol=0, atol=0)
    again = [env.step(action) for _ in range(6)]
    for one, other in zip(first, again, strict=True):
        for mine, its in zip(one[:4], other[:4], strict=True):
            assert torch.equal(mine, its)
    env.set_state(state, seed=1)
    torch.testing.assert_close(env.step(action)[0], first[0][0])  # what had arrived before
    assert not torch.equal(env.step(action)[0], first[1][0])


def test_what_is_not_supported_is_refused_with_what_to_use_instead():
    costly = Sources([1, 2, 3], 1, 0.2, cost=[1, 2, 1])
    task: Any
    for task, words in (
        ({"arrivals": "poisson-drift"}, "here they are deterministic, or Poisson"),
        ({"budget_rule": "average"}, "here the budget is per step"),
        ({"sources": costly, "budget": 2}, "costs range from 1 to 2"),
        ({"sources": Sources([1, 2], 1, 0.2, crawl_delay=[2, 0])}, "a crawl_delay"),
        ({"engine": {"rate": 3}}, r"engine is Engine\(rate=3\), and engines are not supported"),
        ({"sources": Sources([1, 2], 1, 0.2, capacity=[3, 9])}, "a finite capacity"),
        ({"sources": Sources([1, 2], 1, 0.2, failure_rate=0.1)}, "a failure_rate"),
        ({"sources": Sources([1, 2, 1], 1, 0.2, hosts=["a", "a", "b"])}, "per_host"),
        ({"features": ("harvest_age",), "arrivals": "poisson-items"}, "features has harvest_age"),
    ):
        with pytest.raises(ValueError, match=f"{words}.*CrawlVectorEnv"):
            TorchCrawlVectorEnv(2, **task)
    for argument, words in (
        ({"device": "gpu"}, r"device is 'gpu', which torch cannot use here"),
        ({"dtype": "float16"}, "unknown dtype 'float16'"),
    ):
        with pytest.raises(ValueError, match=words):
            TorchCrawlVectorEnv(2, **argument)
    with pytest.raises(TypeError, match="unexpected keyword argument 'render_mode'"):
        TorchCrawlVectorEnv(2, render_mode="rgb_array")


def test_bad_actions_and_options_are_refused():
    env = TorchCrawlVectorEnv(2, SEVEN, 2)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"shape \(2, 6\); it must have shape \(2, 7\)"):
        env.step(torch.zeros(2, 6))
    with pytest.raises(ValueError, match="NaN as priority"):
        env.step(torch.full((2, 7), torch.nan))
    with pytest.raises(ValueError, match="a whole number of steps"):
        env.reset(options={"age": np.full(7, 1.5)})
    with pytest.raises(ValueError, match="zero or positive"):
        env.reset(options={"value": np.full(7, -1.0)})
    with pytest.raises(ValueError, match="unknown reset option 'ages'"):
        env.reset(options={"ages": np.full(7, 1.0)})


FEATURES = ("value", "age", "arrival_rate", "mean_utility", "decay_rate")
KINDS = {
    EquivariantPPO: EquivariantPPOSettings(hidden=8, n_steps=6),
    EquivariantIndex: EquivariantIndexSettings(
        hidden=8, n_steps=6, buffer_size=100, batch_size=8, gradient_steps=3
    ),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_learners_learn_the_same_in_both_environments(kind):
    task = {"sources": SEVEN, "budget": 2, "features": FEATURES, "horizon": None}
    one = kind(CrawlVectorEnv(4, **task), KINDS[kind], seed=2).learn(24)
    env = TorchCrawlVectorEnv(4, dtype="float64", **task)
    other = kind(env, KINDS[kind], seed=2).learn(24)
    for name, its in one.state_dict()["averaged"].items():
        torch.testing.assert_close(other.state_dict()["averaged"][name], its, rtol=1e-3, atol=1e-4)
    observation, _ = env.reset(seed=0)
    assert other.predict(observation)[0].shape == (4, 7)
    assert task_of(env).n == 7


def test_scaled_observations_are_learnt_from_too():
    env = TorchCrawlVectorEnv(4, SEVEN, 2, features=FEATURES, flat=True, scaled=True, horizon=5)
    agent = EquivariantPPO(env, KINDS[EquivariantPPO]).learn(12)
    age = agent.training_envs[0].observation[..., 1]
    torch.testing.assert_close(age, env.world.age.float())


@pytest.mark.parametrize("kind", [EquivariantPPO, DeepTOP], ids=lambda kind: kind.name)
def test_learning_goes_on_from_a_checkpoint(kind, tmp_path):
    def agent():
        features = FEATURES if kind in KINDS else ("age", "crawled", "harvest")
        env = TorchCrawlVectorEnv(4, SEVEN, 2, features=features, arrivals="poisson", horizon=10)
        return kind(env, KINDS.get(kind), seed=1)

    whole = agent().learn(24)
    agent().learn(12, checkpoint=tmp_path / "agent")
    part = agent().learn(24, checkpoint=tmp_path / "agent")
    name = "averaged" if kind in KINDS else "actor"
    one, other = whole.state_dict()[name], part.state_dict()[name]
    if kind is DeepTOP:
        one, other = dict(enumerate(one["weights"])), dict(enumerate(other["weights"]))
    for key in one:
        np.testing.assert_array_equal(one[key], other[key])
