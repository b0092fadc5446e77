"""Files of arrays: whatever was done to one array, the file is refused by its and the array's name,
or is as good as one that the product wrote."""

import json
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from agents.scheduling import AdaptiveFleetScheduler, FleetScheduler
from crawl_env.files.arrays import Array, check_arrays, read_archive
from crawl_env.fleet.columns import FleetColumns
from ephemeral_crawl.cluster.sharded import Decision, Shard
from tests.references import plainly
from tests.refusals import refused

Arrays = dict[str, NDArray[Any]]
N = 60


def fleet_rates():
    return np.random.default_rng(3).random((3, N)) + 0.1


@cache
def fleet():
    rng = np.random.default_rng(4)
    return FleetColumns(*fleet_rates(), delay=rng.integers(1, 4, N), host=rng.integers(-1, 5, N))


class Kind(NamedTuple):
    """A kind of file: how the product writes one, and goes on from it."""

    name: str
    write: Callable[[Path], None]
    go_on: Callable[[Path], Any]  # the numbers that it leads to


def of_scheduler(kind, policy, steps, counted, signalled, **options):
    def write(path):
        scheduler = kind(fleet(), 7, policy, seed=1, **options)
        for step in range(steps):
            picked = scheduler.step()
            found = {"counts": picked % 4} if counted else {}
            scheduler.report(failed=picked % 3 == step % 3, **found)
            if signalled:
                scheduler.signal([step % N, 7, 7], [0.5, 1.0, 2.0])
        scheduler.save(path)

    def go_on(path):
        scheduler = kind.load(path, fleet())
        picks = [scheduler.step() for _ in range(5)]
        assert all(len(np.unique(picked)) == len(picked) for picked in picks)
        assert options or scheduler.budget != 7 or set(map(len, picks)) == {7}
        return picks, scheduler.price, scheduler.balance

    return Kind("x.npz", write, go_on)


def of_shard():
    def made(path):
        place = path.parent / "fleet"
        if not place.exists():
            FleetColumns(*fleet_rates()).save(place)
        options = {"budget": 4, "policy": "whittle", "start": "fresh"}
        return Shard(place, 10, 40, options, path, 1)

    def go_on(path):
        shard = made(path)
        offers = shard.offers(5, [], 8).offers
        return [offers.index, offers.crawled_at, offers.source]

    def write(path):
        made(path).offers(0, [Decision(4)] * 5, 4)

    return Kind("shard-1.npz", write, go_on)


KINDS = {
    "scheduler": of_scheduler(FleetScheduler, "whittle", 9, False, True),
    "new scheduler": of_scheduler(FleetScheduler, "static", 0, False, False),
    "on average": of_scheduler(FleetScheduler, "myopic", 9, False, True, budget_rule="average"),
    "hosts": of_scheduler(FleetScheduler, "oldest-first", 4, False, False, per_host=2),
    "learner": of_scheduler(AdaptiveFleetScheduler, "adaptive-thompson", 9, True, True),
    "sure learner": of_scheduler(AdaptiveFleetScheduler, "adaptive-certainty", 9, True, False),
    "shard": of_shard(),
    "fleet": Kind("fleet", lambda path: fleet().save(path), lambda path: columns(path)),
}


def columns(path):
    opened = FleetColumns.open(path)
    assert len(opened) == N
    return [opened.to_sources(), FleetScheduler(opened, 3).step()]


def read(path):
    if path.is_dir():
        return {file.stem: np.load(file) for file in path.glob("*.npy")}
    return read_archive(path)


def rewrite(path, arrays):
    if not path.is_dir():
        np.savez(path, **arrays)
        return
    for file in path.glob("*.npy"):
        file.unlink()
    for name, array in arrays.items():
        np.save(path / f"{name}.npy", array)


def with_first(array, *values):
    """Return an array that begins with other values, in a type that holds them."""
    other = np.array(array, dtype=np.result_type(array, *map(np.min_scalar_type, values)))
    other.reshape(-1)[: len(values)] = values[: other.size]
    return other


def mutations(array):
    """Return what may have become of an array."""
    flat = array.reshape(-1)
    yield from (array[None], flat[:1], array.astype(object), np.array(str(array)[:-3]))
    yield from (np.array("x"), np.zeros(0), np.zeros(array.shape, "V8"), array.astype("S9"))
    if array.ndim:
        yield from (array[:-1], array[::-1], np.concatenate([array, array]), array[:0], array[:1])
        yield np.concatenate([array[1:2], array[1:]])  # the second element or row twice
        yield from (np.resize(array, (10**5, *array.shape[1:])), array[..., None], np.array(7))
    if array.dtype.kind in "fiub":
        with np.errstate(all="ignore"):
            yield from (array.astype(kind) for kind in ("f2", "f4", ">f8", "g", "i1", ">i8", "u8"))
            yield from (array.astype(kind) for kind in ("?", "c16", "M8[s]"))
            yield array.astype("f4") * np.float32(1e30)
        for number in (np.nan, np.inf, -np.inf, -5.0, -1, 2**31, 2**32 - 1, 2**63, 1e300, N, 0.5):
            yield with_first(array, number)
        yield from (with_first(array, *flat[1:2]), with_first(array, *flat[1:2], *flat[:1]))


# Each array is changed in every tenth way, in turn; in files that share most of their arrays with
# others, in every thirtieth.
WHOLE = ("scheduler", "learner", "shard", "fleet")


def outcome_of(go_on, path):
    """Return what a file leads to, or why it is refused."""
    try:
        return str(go_on(path)), ""
    except ValueError as refusal:
        error = str(refusal)
    assert 0 < len(error) < 500 + len(str(path)), error
    return "", error


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_with_another_array_is_refused_or_goes_on(kind, tmp_path):
    name, write, go_on = KINDS[kind]
    path = tmp_path / name
    write(path)
    whole, expected = read(path), str(go_on(path))
    step = 10 if kind in WHOLE else 30
    for i, (array, values) in enumerate(whole.items()):
        others = {other: kept for other, kept in whole.items() if other != array}
        for changed in (others, {**others, "renamed": values})[: 2 if kind in WHOLE else 1]:
            rewrite(path, changed)
            with pytest.raises((ValueError, FileNotFoundError), match=rf"{name}.*{array}"):
                go_on(path)
        for other in list(mutations(values))[i % step :: step]:
            rewrite(path, {**others, array: other})
            outcome, error = outcome_of(go_on, path)
            if error:
                assert name in error, (array, other, error)
                assert array in error, (array, other, error)
                continue
            if array == "failed" and other.shape == (0,):  # then none has failed
                continue
            assert other.shape == values.shape, (array, other)
            if array in ("picked", "signalled"):  # no source twice
                assert len(np.unique(other.T[:1] if other.ndim > 1 else other)) == len(other), other
            if values.dtype.kind in "fiub":
                assert np.isfinite(other[~np.isnan(values)]).all() or array == "price", other
                assert (other >= 0).all() or array in ("balance", "price", "host"), (array, other)
            assert outcome == expected or not (other == values).all(), (array, other)


VALUES = (None, True, -1, 0, 2.5, 10**400, 1e300, "x", [], {}, [1, -1], {"a": 1})


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_refused_by_name(kind, tmp_path):
    name, write, go_on = KINDS[kind]
    path = tmp_path / name
    write(path)
    read(path)
    file = path / "decay_rate.npy" if path.is_dir() else path
    whole, rng = file.read_bytes(), np.random.default_rng(0)
    for content in (b"", b"text", whole[:300], whole[:-40], b"\x93NUMPY" + whole[:50]):
        file.write_bytes(content)
        with refused(name, "decay_rate" * path.is_dir()):
            go_on(path)
    for place in rng.integers(len(whole), size=8 if kind in WHOLE else 3):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with suppress(ValueError):  # or the damage does not matter
            go_on(path)
    file.write_bytes(whole)
    arrays = {} if path.is_dir() else read(path)
    stored = arrays.get("arguments", path / "fleet.json" if path.is_dir() else None)
    if stored is None:
        return
    told = json.loads(stored.read_text() if isinstance(stored, Path) else str(stored))
    changed = [{**told, key: value} for key in (*told, "more") for value in VALUES]
    lacking = [{k: v for k, v in told.items() if k != key} for key in told]
    for text in ("[" * 10**5, "", "7", *map(json.dumps, changed[::7] + lacking)):
        if isinstance(stored, Path):
            stored.write_text(text)
        else:
            rewrite(path, {**arrays, "arguments": np.array(text)})
        _, error = outcome_of(go_on, path)
        assert not error or name in error, (text, error)


def test_no_more_memory_is_taken_than_the_file_has_bytes(tmp_path):
    path, n = tmp_path / "bomb.npz", 10**7
    np.savez_compressed(path, a=np.zeros(n))
    with refused("bomb.npz", "it is compressed"):
        read_archive(path)
    head = tmp_path / "a.npy"
    np.save(head, np.zeros(0))
    claims = head.read_bytes().replace(b"(0,), }", b"(%d,)}" % n)
    for parts in (["a.npy"], ["a.npy"] * 2):
        with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of two parts of one name
            for part in parts:
                archive.writestr(part, claims)
        tracemalloc.start()
        try:
            with refused("bomb.npz", "one name" if len(parts) > 1 else f"the shape ({n},)"):
                read_archive(path)
            assert tracemalloc.get_traced_memory()[1] < n
        finally:
            tracemalloc.stop()


@plainly
@given(st.data())
def test_relations_between_arrays_hold(data):
    """Arrays whose axes have the same name are accepted if their lengths are equal, and only then;
    bounds and order are those of plain Python."""
    lists = [data.draw(st.lists(st.integers(-3, 6), max_size=4)) for _ in range(3)]
    ascending, unique = data.draw(st.booleans()), data.draw(st.booleans())
    declared = {
        "a": Array(np.int8, ("K",), 0, 5, ascending=ascending),
        "b": Array(float, ("K",), -1, unique=unique),
        "c": Array(np.uint8, ("N",), or_empty=True),
    }
    given_arrays = {name: np.array(x, int) for name, x in zip("abc", lists, strict=True)}
    a, b, c = lists
    fine = len(a) == len(b) and all(0 <= x <= 5 for x in a) and all(x >= -1 for x in b)
    fine = fine and (not ascending or a == sorted(set(a))) and (not unique or len({*b}) == len(b))
    fine = fine and len(c) in (0, 3) and min(c, default=0) >= 0
    if fine:
        checked = check_arrays(given_arrays, declared, N=3)
        assert [checked[name].tolist() for name in "abc"] == lists
        assert checked["a"].dtype == np.int8
    else:
        with pytest.raises(ValueError, match=r"^[abc] (is|has)"):
            check_arrays(given_arrays, declared, N=3)
