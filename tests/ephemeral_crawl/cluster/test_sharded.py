"""A sharded scheduler selects what one scheduler selects, also when a node of the cluster dies."""

import numpy as np
import pytest

from agents.scheduling import FleetScheduler, simulation
from agents.scheduling.simulation import simulate
from crawl_env.fleet.columns import FleetColumns
from ephemeral_crawl.cluster import ShardedScheduler
from tests.conftest import remove


def fleet(folder, n=3000, seed=3, **columns):
    """A fleet in a folder, whose shards are unequal and hold equal sources."""
    rng = np.random.default_rng(seed)
    kind = np.sort(rng.integers(n // 3, size=n))
    made = FleetColumns(
        np.exp(rng.normal(0, 1.5, n))[kind], 1.0, 10 ** rng.uniform(-2, 0, n)[kind], **columns
    )
    made.save(folder / "fleet")
    return made


def assert_same(one, many, steps, failures=0.0, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        picks = one.step()
        np.testing.assert_array_equal(many.step(), picks)
        np.testing.assert_array_equal(many.ages, one.ages)
        assert (many.price, many.steps) == (one.price, one.steps)
        if failures:
            failed = rng.random(picks.size) < failures
            one.report(failed=failed)
            many.report(failed=failed)


def test_shards_select_what_one_scheduler_selects(tmp_path, local_ray):
    delay = np.random.default_rng(1).integers(1, 40, 3000)
    columns = fleet(tmp_path, delay=delay, cost=2.0)
    one = FleetScheduler(columns, 2 * 70)
    with ShardedScheduler(tmp_path / "fleet", 2 * 70, shards=2) as many:
        assert_same(one, many, 60, failures=0.2)
        with pytest.raises(ValueError, match=r"failed has shape \(3,\); give one element for each"):
            many.report(failed=[True, False, True])


def test_a_process_dies_without_checkpoints(tmp_path, local_ray):
    """All crawls of a step may be of one shard, whose offers have to be asked for again."""
    columns = FleetColumns(np.repeat([1e-3, 1.0], 500), 1.0, 0.01)
    columns.save(tmp_path / "fleet")
    one = FleetScheduler(columns, 100, "oldest-first", start="full")
    arguments = {"policy": "oldest-first", "start": "full", "shards": 2}
    with ShardedScheduler(tmp_path / "fleet", 100, **arguments) as many:
        assert_same(one, many, 30)
        assert sorted(many._crawls) == [0, 100]
        local_ray.kill(many._shards[1], no_restart=False)
        assert_same(one, many, 10)


def test_a_node_dies_and_the_rewards_are_the_same(tmp_path, cluster, local_ray, monkeypatch):
    """The checkpoint is older than the last decisions, which the shard repeats elsewhere."""
    columns = fleet(tmp_path, failure_rate=0.1)
    alone = simulate(columns, 40, "myopic", steps=80)
    (victim,) = cluster.worker_nodes
    options = {"policy": "myopic", "shards": 2, "checkpoints": tmp_path / "kept", "every": 16}
    with ShardedScheduler(tmp_path / "fleet", 40, **options) as many:

        def tick():
            if many.steps == 40:
                nodes = [node_of(local_ray, shard) for shard in many._shards]
                assert victim.node_id in nodes, "a shard runs on the node that dies"
                remove(cluster, victim, local_ray)

        monkeypatch.setattr(simulation, "FleetScheduler", lambda *_, **__: many)
        sharded = simulate(columns, 40, "myopic", steps=80, tick=tick)
        assert victim.node_id not in [node_of(local_ray, shard) for shard in many._shards]
        assert max(map(len, many._log)) <= 16, "checkpoints shorten what is to be repeated"
        assert len(list((tmp_path / "kept").rglob("shard-*.npz"))) == 2
    assert not list((tmp_path / "kept").iterdir())
    for name in ("reward", "expected", "failures", "price"):
        np.testing.assert_array_equal(getattr(sharded, name), getattr(alone, name), name)
    assert alone.failures.sum() > 0


def node_of(ray, shard):
    return ray.get(
        shard.__ray_call__.remote(lambda _: __import__("ray").get_runtime_context().get_node_id())
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": -1}, "budget is -1"),
        ({"policy": "static"}, "unknown policy 'static'"),
        ({"start": "random"}, "unknown start 'random'"),
        ({"shards": 4000}, "shards is 4000; the fleet has only 3,000 sources"),
        ({"shards": 3}, "shards is 3; the cluster has only 2 cores"),
        ({"every": 0}, "every is 0; it must be a whole number of steps"),
    ],
)
def test_bad_arguments(arguments, message, tmp_path, local_ray):
    fleet(tmp_path)
    with pytest.raises(ValueError, match=message):
        ShardedScheduler(**{"fleet": tmp_path / "fleet", "budget": 4, **arguments})


def test_fleets_that_cannot_be_sharded(tmp_path, local_ray):
    fleet(tmp_path, host=np.zeros(3000, np.int32))
    with pytest.raises(ValueError, match="sources share hosts"):
        ShardedScheduler(tmp_path / "fleet", 4)
    (tmp_path / "other").mkdir()
    fleet(tmp_path / "other", cost=np.linspace(1, 2, 3000))
    with pytest.raises(ValueError, match="costs of the sources differ"):
        ShardedScheduler(tmp_path / "other" / "fleet", 4)
    with pytest.raises(FileNotFoundError):
        ShardedScheduler(tmp_path / "nothing", 4)
