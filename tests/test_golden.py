"""No number has changed: the hashes of `golden.json`; see `golden.py` for the command."""

import pytest

from tests import golden

QUICK = [name for name, group in golden.GROUPS.items() if group.quick]
RECORD = golden.recorded()
HOW = "Where this is meant: .venv/bin/python -m tests.golden --renew NAME"


@pytest.mark.parametrize("group", QUICK)
def test_what_is_computed_is_what_was_recorded(group):
    here, made_on = golden.fingerprints(), RECORD["made on"]
    for what in ("loops", "products")[: 1 + golden.GROUPS[group].products]:
        if here[what] != made_on[what]:
            pytest.skip(f"hashes are of {made_on[what]}; this is {here[what]}: last bits differ")
    differ = golden.differing(group, golden.computed(group), RECORD["entries"])
    assert not differ, "\n".join([HOW, *differ])


def test_every_entry_is_of_a_group():
    assert {name.split("/")[0] for name in RECORD["entries"]} == set(golden.GROUPS)


def test_the_hash_tells_bits_apart_and_not_names():
    assert golden.digest([1.0, 2.0]) != golden.digest([1.0, 2.0000000000000004])
    assert golden.digest({"a": 1, "b": 2.0}) == golden.digest({"x": 2.0, "y": 1})
    assert golden.digest(1) != golden.digest(1.0)
