"""Tests of `experiments.failures`."""

import json

import pytest

from agents.learning import LEARNERS
from experiments.failures import CASES, DEFAULTS, EXPLORATION, SAMPLES, SCALES, Failures, jobs


@pytest.mark.parametrize("cases", [CASES, SAMPLES, SCALES, EXPLORATION])
def test_experiments_differ_from_the_training_that_fails_in_what_they_say(cases):
    """A change of nothing, such as a setting that is the default already, would show no cause."""
    places = "agent", "task", "budget", "run"
    seen = {}
    for job in jobs(Failures(seeds=2), cases):
        job["settings"] = vars(LEARNERS[job["learner"]].Settings(**job["settings"]))
        columns = job.pop("columns")
        key = json.dumps([columns[name] for name in places])
        seen.setdefault(key, []).append(json.dumps(job, sort_keys=True))
    assert all(len(set(of_run)) == len(of_run) > 1 for of_run in seen.values())
    assert all(change.name != DEFAULTS for case in cases for change in case.changes)
