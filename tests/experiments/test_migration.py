"""Old names in records: translated both ways, and old keys recognised."""

from __future__ import annotations

import pytest

from experiments.migration import (
    RENAMES,
    Key,
    Text,
    Value,
    key_of,
    old_keys,
    previous,
    renamed,
)

NAMES = (
    Key("rate", "learning_rate", within="settings", when=("learner", ("ppo", "a2c"))),
    Key("epochs", "steps"),
    Value("features", "account", "balance"),
    Value("budget_rule", "epoch", "step"),
    Text(("task",), "not seen", "not observed"),
)
OLD = {
    "learner": "ppo",
    "settings": {"rate": 0.1},
    "epochs": 5,
    "features": ["age", "account"],
    "task": "Poisson, not seen",
    "exams": [{"arguments": {"budget_rule": "epoch", "rate": 1}, "runs": {"epochs": 7}}],
}
NEW = {
    "learner": "ppo",
    "settings": {"learning_rate": 0.1},
    "steps": 5,
    "features": ["age", "balance"],
    "task": "Poisson, not observed",
    "exams": [{"arguments": {"budget_rule": "step", "rate": 1}, "runs": {"steps": 7}}],
}


def test_names_are_translated_where_they_are_meant_and_back() -> None:
    assert renamed(OLD, NAMES) == NEW
    assert previous(NEW, NAMES) == OLD
    other = {**OLD, "learner": "sac"}
    assert renamed(other, NAMES)["settings"] == {"rate": 0.1}
    assert previous(renamed(other, NAMES), NAMES) == other
    assert renamed("epochs", NAMES) == "epochs"
    with pytest.raises(ValueError, match="both names"):
        renamed({"epochs": 1, "steps": 2}, NAMES)


def test_every_earlier_key_of_a_unit_is_known() -> None:
    stages = [renamed(OLD, NAMES[:i]) for i in range(len(NAMES))]
    assert {key_of(stage) for stage in stages} == set(old_keys(NEW, NAMES))
    assert key_of(NEW) not in old_keys(NEW, NAMES)


def test_no_renaming_of_the_project_undoes_another() -> None:
    new = [
        (r.new, r.within, r.when)
        if isinstance(r, Key)
        else (r.keys if isinstance(r, Text) else r.key, r.new)
        for r in RENAMES
    ]
    assert len(set(new)) == len(new)
