"""Saved agents: every part of a file is checked before it is used, whatever was done to it."""

import json
import os
import pickle
import struct
from copy import copy, deepcopy

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from agents.learning import LEARNERS, WhittleQ, load, storage
from crawl_env import CrawlVectorEnv

torch.set_num_threads(1)
SMALL = {
    "hidden": 3,
    "n_steps": 4,
    "n_episodes": 2,
    "buffer_size": 30,
    "batch_size": 4,
    "gradient_steps": 1,
    "n_epochs": 1,
    "n_minibatches": 2,
    "learning_starts": 2,
    "train_freq": 4,
    "n_quantiles": 2,
    "max_age": 16,
}


def environment(name):
    """Return two environments, for some learners with arrivals whose state holds items."""
    arrivals = "poisson" if name in ("dqn", "sac", "maskable-ppo") else "poisson-lomax"
    features = ("age", "crawled", "harvest")
    return CrawlVectorEnv(2, budget=2, features=features, horizon=None, arrivals=arrivals)


def make(name):
    """Return a small agent of four sources in two environments."""
    kind = LEARNERS[name]
    fields = kind.Settings.__dataclass_fields__
    return kind(environment(name), kind.Settings(**{k: v for k, v in SMALL.items() if k in fields}))


def leaves(node, path=()):
    """Return the arrays, numbers and text of a tree with their places."""
    if isinstance(node, dict | list):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from leaves(child, (*path, key))
    else:
        yield path, node


def changed(tree, path, value):
    """Return a tree with another value at one place, which shares all others."""
    first, *rest = path
    tree = copy(tree)
    tree[first] = changed(tree[first], tuple(rest), value) if rest else value
    return tree


def wrong_arrays(array):
    """Return what may have become of an array."""
    other = np.float64 if array.dtype == np.float32 else np.float32
    yield array.astype(other)
    yield array[..., None]
    yield None
    if array.ndim:
        yield array[:-1]
    if array.ndim > 1 and array.shape != array.T.shape:
        yield np.ascontiguousarray(array.T)
    if array.size and array.dtype.kind == "f":
        for number in (np.nan, -np.inf):
            yield np.where(np.arange(array.size).reshape(array.shape) == 0, number, array).astype(
                array.dtype
            )


def wrong_values(value):
    if isinstance(value, np.ndarray):
        yield from wrong_arrays(value)
    elif isinstance(value, bool) or value is None or isinstance(value, str):
        yield 7
    elif isinstance(value, int):
        yield from (-1, "7", float("nan"))
    elif isinstance(value, float):
        yield from (float("nan"), "7", np.zeros(2))


# Settings and the description of the task are compared with the environment's own, see test_base.
PARTS = ("learnt", "rng", "steps", "shape")


@pytest.fixture
def refuses(tmp_path, monkeypatch):
    """A function that asserts that an agent refuses a file which holds a tree, in whose place the
    tree is read."""
    file = tmp_path / "strange-file"
    file.touch()

    def refuse(agent, tree, words="strange-file"):
        with monkeypatch.context() as patch:
            patch.setattr(storage, "load", lambda _: tree)
            with pytest.raises(ValueError, match=words):
                agent.learn(0, checkpoint=file)

    return refuse


def learnt(name, file):
    """Return an agent that has learnt, and what its file holds."""
    agent = make(name).learn(12)
    agent.save(file)
    return agent, storage.load(file)


@pytest.mark.parametrize("name", LEARNERS)
def test_every_wrong_part_of_a_file_is_refused_by_name(name, tmp_path, refuses):
    agent, saved = learnt(name, tmp_path / "agent")
    places = [(p, v) for p, v in leaves(saved) if p[0] in PARTS and p[1:2] != ("features",)]
    assert len(places) > 8
    if len(places) > 60:  # networks, buffers and optimizers of one kind are checked alike
        places = places[:: 2 if name in ("equivariant-index", "dqn") else 16]
    for i, (path, value) in enumerate(places):
        wrong = list(wrong_values(value))
        for bad in wrong if name == "whittle-q" else [wrong[i % len(wrong)]]:
            refuses(agent, changed(saved, path, bad))
    for key in saved["learnt"]:
        lacking, more = deepcopy(saved), deepcopy(saved)
        more["learnt"]["strange"] = lacking["learnt"].pop(key)
        for tree in (lacking, more):
            refuses(agent, tree)


@pytest.mark.parametrize("name", ["lspe", "equivariant-index", "a2c", "dqn"])
def test_every_wrong_part_of_an_environments_state_is_refused(name, tmp_path, refuses):
    agent, saved = learnt(name, tmp_path / "agent")
    for i, (path, value) in enumerate(leaves(saved)):
        if path[0] != "arms" or "task" in path or "tasks" in path or "sources" in path:
            continue
        wrong = [bad for bad in wrong_values(value) if bad is not None]
        if wrong and not (isinstance(value, np.ndarray) and value.size == 0):
            refuses(agent, changed(saved, path, wrong[i % len(wrong)]))
    agent.learn(12, checkpoint=tmp_path / "agent")  # what it wrote itself


def test_moments_smaller_than_their_weights_do_not_reach_the_optimizer(tmp_path, refuses):
    """A fused optimizer would write beyond their end, and the process would die. Nor do those of
    another kind of optimizer."""
    names = ("exp_avg", "exp_avg_sq", "square_avg")
    for name in ("deeptop", "equivariant-ppo", "ppo", "a2c"):
        agent, saved = learnt(name, tmp_path / "agent")
        moments = [(p, v) for p, v in leaves(saved) if p[-1] in names and v.size > 1]
        assert moments
        for path, value in moments[:3]:
            words = rf"strange-file: .*{path[-1]} has shape \(1,\)"
            refuses(agent, changed(saved, path, value.ravel()[:1]), words)
        other = {"step": np.float32(1), "square_avg" if name != "a2c" else "exp_avg": moments[0][1]}
        refuses(agent, changed(saved, moments[0][0][:-1], other), "lacks '(exp|square)_avg")


def test_a_small_file_cannot_ask_for_petabytes(tmp_path):
    file = tmp_path / "agent"
    for name, setting, size in (
        ("whittle-q", "max_age", 10**15),
        ("deeptop", "hidden", 10**8),
        ("deeptop", "buffer_size", 10**15),
        ("qwinn", "max_age", 10**15),
        ("equivariant-index", "hidden", 10**6),
        ("equivariant-index", "buffer_size", 10**14),
        ("qr-dqn", "n_quantiles", 10**12),
        ("dqn", "buffer_size", 10**15),
    ):
        agent, saved = learnt(name, file)
        storage.save(file, changed(saved, ("settings", setting), size))
        with pytest.raises(ValueError, match="agent"):
            type(agent).load(file, environment(name))


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('ran code from a file')",))


def _metadata(path):
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    return dict(json.loads(content[8 : 8 + size])["__metadata__"])


def _with_header(path, change):
    """Rewrite the safetensors header, which says where arrays lie and what they are."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    change(header)
    new = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(new)) + new + content[8 + size :])


DAMAGES = {
    "pickle": lambda path: path.write_bytes(pickle.dumps(Bomb())),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-10]),
    "empty": lambda path: path.write_bytes(b""),
    "other safetensors": lambda path: save_file({"weight": np.eye(2)}, path),
    "no JSON": lambda path: save_file(
        {"weight": np.eye(2)}, path, metadata={"ephemeral-crawl": "?", "format": "2"}
    ),
    "only a list": lambda path: storage.save(path, [7]),
    "arrays of nothing": lambda path: save_file({"9": np.eye(2)}, path, metadata=_metadata(path)),
    "petabytes": lambda path: _with_header(path, lambda h: h["0"].update(shape=[2**50, 4])),
    "beyond the end": lambda path: _with_header(
        path, lambda h: h["0"].update(data_offsets=[0, 2**53], shape=[2**50])
    ),
    "other type": lambda path: _with_header(
        path, lambda h: [h[key].update(dtype="I64") for key in h if key != "__metadata__"]
    ),
    "header of petabytes": lambda path: path.write_bytes(
        struct.pack("<Q", 2**53) + path.read_bytes()[8:]
    ),
    "negative shape": lambda path: _with_header(
        path,
        lambda h: h["__metadata__"].update(
            {"ephemeral-crawl": h["__metadata__"]["ephemeral-crawl"].replace("[4, 16", "[-1, 16")}
        ),
    ),
    "deep": lambda path: save_file(
        {"0": np.eye(2)}, path, metadata={"ephemeral-crawl": "[" * 10**5, "format": "2"}
    ),
    "unknown setting": lambda path: storage.save(
        path, changed(storage.load(path), ("settings", "colour"), "blue")
    ),
    "older format": lambda path: _with_header(path, lambda h: h["__metadata__"].pop("format")),
}


def test_damaged_and_foreign_files_are_refused_by_name(tmp_path):
    file = tmp_path / "strange-file"
    agent, env = make("whittle-q").learn(100), environment("whittle-q")
    for damage in DAMAGES.values():
        agent.save(file)
        damage(file)
        for read in (WhittleQ.load, load):
            with pytest.raises(ValueError, match="strange-file"):
                read(file, env)
        with pytest.raises(ValueError, match="strange-file"):
            agent.learn(100, checkpoint=file)
    with pytest.raises(ValueError, match=r"format '1' .* train the agent again"):
        load(file, env)  # the last of them


@pytest.mark.skipif(os.name != "posix", reason="rights of files are those of POSIX")
def test_files_have_the_users_rights(tmp_path):
    before = os.umask(0o027)
    try:
        storage.save(tmp_path / "agent", {"agent": "doubling"})
    finally:
        os.umask(before)
    assert (tmp_path / "agent").stat().st_mode & 0o777 == 0o640
