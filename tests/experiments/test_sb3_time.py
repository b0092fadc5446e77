"""The command sb3-time on a tiny size: that its parts are parts, not how long they take."""

import pytest

from ephemeral_crawl.core.results import read_csv
from experiments import sb3_time
from experiments.sb3_time import CASES, NATIVE, ONE_BY_ONE, SB3Time


def test_the_parts_are_measured_and_written(tmp_path, monkeypatch, capsys):
    some = (("a2c", NATIVE), ("a2c", ONE_BY_ONE), ("dqn", ONE_BY_ONE))
    assert set(some) < set(CASES)
    monkeypatch.setattr(sb3_time, "CASES", some)
    SB3Time(out=tmp_path / "t", rounds=2, num_envs=4).run()
    records = read_csv(tmp_path / "t" / "records.csv")
    assert [(r["algorithm"], r["env"]) for r in records] == list(some)
    for r in records:
        parts = [float(r[part]) for part in sb3_time.PARTS]
        assert min(parts) > 0
        assert sum(parts) == pytest.approx(float(r["total"]))
    one, other = records[:2]
    assert float(one["environment"]) < float(other["environment"])
    assert "In training with SB3 the native environment takes" in capsys.readouterr().out


def test_nothing_to_time_is_refused(tmp_path):
    with pytest.raises(ValueError, match="--rounds is 0"):
        SB3Time(out=tmp_path / "t", rounds=0).run()
