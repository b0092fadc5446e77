"""A log played back by the replay command."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t

from agents import AGENTS
from agents.evaluation.rollout import Rollout, evaluate
from agents.theory.engine import backlog
from crawl_env import DecayCurves, ItemLog, PingLog, Signals, Sources, Task, Trace
from ephemeral_crawl.core import evaluation
from ephemeral_crawl.core.log_options import digest
from ephemeral_crawl.core.report import Report
from ephemeral_crawl.core.runner import measured_of
from ephemeral_crawl.live import Scheduler
from ephemeral_crawl.replay import play as replay
from ephemeral_crawl.replay.play import LiveScheduler, Replay, play
from ephemeral_crawl.replay.recording import Recording, _new_and_dead
from ephemeral_crawl.replay.split import WEEK, Log, fitted_to
from ephemeral_crawl.replay.view import View, busy_and_quiet
from tests.ephemeral_crawl.commands import FEW, replayed, rows, totals
from tests.ephemeral_crawl.commands import LOG as EXAMPLE


def recording(split, runs=1, seed=0):
    common = {"budget_rule": "step", "per_host": 1, "observed": False}
    return Recording(
        fleet=split.fleet, arguments=common, seed=seed, title="", conditions="", split=split,
        block=WEEK, runs=runs,
    )  # fmt: skip


def simulated(fleet, span, seed):
    """A log of Poisson arrivals, exponential utilities."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(fleet.arrival_rate * span)
    source = np.repeat(np.arange(len(fleet)), counts)
    worth = fleet.mean_utility[source] * rng.exponential(size=source.size)
    return ItemLog(fleet.names, source, rng.uniform(0, span, source.size), worth, 0.0, span)


def written(tmp_path, text, name="log.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


# ------------------------------------------------------------------------------- what is measured


def test_a_poisson_log_earns_what_poisson_arrivals_earn():
    fleet = Sources.random(12, seed=3, regime="sparse")
    steps = 12_000
    trace = Trace(simulated(fleet, float(steps), 1), random_start=False)
    arguments = {"sources": fleet, "budget": 2, "observed": False, "start": "empty"}
    played = play(Rollout("whittle", {**arguments, "arrivals": trace}), trace, steps)
    expected = evaluate(
        "whittle", {**arguments, "arrivals": "poisson"}, steps=2000, warmup=100, seeds=40
    )
    # Rewards of blocks of 100 steps are all but independent. 4 standard errors: 1 in 10,000.
    blocks = played.reward.reshape(-1, 100).mean(axis=1)
    error = np.hypot(
        blocks.std(ddof=1) / np.sqrt(blocks.size), expected.reward.std(ddof=1) / np.sqrt(40)
    )
    assert error < 0.03 * played.reward.mean()
    assert abs(played.reward.mean() - expected.reward.mean()) < 4 * error


def test_a_tiny_log_by_hand():
    curves = DecayCurves([0, 0, 2, 2], age=[0, 4], remaining=[1, 0])
    log = ItemLog(["a", "b"], [0, 1, 0], [0.5, 1.5, 2.25], [8.0, 4.0, 1.0], 0, 4, curves=curves)
    trace = Trace(log, random_start=False)
    fleet = Sources([1, 1], 1.0, np.log(2), names=["a", "b"])
    arguments = {"sources": fleet, "budget": 1, "start": "empty", "arrivals": trace}
    played = play(Rollout("oldest-first", arguments), trace, 4)
    # Crawled: a at 0 (nothing there, as if never crawled), a at 1 (8 after .5), b at 2 (4 after .5
    # of the 4 hours of its curve), a at 3 (1 after .75).
    assert played.reward[0] == pytest.approx([0, 8 * 2**-0.5, 4 * (1 - 0.5 / 4), 2**-0.75])
    assert played.frequency.tolist() == [0.75, 0.25]
    assert (played.fetched, played.never, played.cost) == (3, 0, 1)
    assert played.delay == pytest.approx((0.5 + 0.5 + 0.75) / 3)
    longer = {**arguments, "sources": fleet.replaced(period=2.0)}  # a at 0 and 2
    assert play(Rollout("oldest-first", longer), trace, 2).delay == pytest.approx(1.5)


@given(data=st.data())
@settings(max_examples=40)
def test_crawls_are_counted_like_a_queue_per_source(data):
    n, steps, runs = 3, 6, 2
    numbers = data.draw(st.lists(st.integers(0, n - 1), max_size=12))
    when = sorted(data.draw(st.floats(0, steps - 0.01)) for _ in numbers)
    log = ItemLog(["a", "b", "c"], numbers, when, np.ones(len(when)), 0, steps)
    fleet = Sources(
        [1.0] * n, 1.0, 0.1, cost=[1, 2, 3], names=["a", "b", "c"], capacity=[1, 2, np.inf]
    )
    tally = replay._Tally(log, fleet, runs, steps)
    cost, items, delay = np.zeros((3, runs))
    crawls, visited = np.zeros((runs, n)), np.zeros((runs, n), dtype=bool)
    last = np.arange(runs)[:, None] * np.ones(n)
    for step in range(steps):
        picked = data.draw(st.lists(st.integers(0, runs * n - 1), unique=True))
        failed = np.array([data.draw(st.booleans()) for _ in picked], dtype=bool)
        tally.count(np.array(picked, dtype=np.intp), failed, step)
        for cell, fails in zip(picked, failed, strict=True):
            run, source = divmod(cell, n)
            now = step + run
            if now < steps:
                crawls[run, source] += 1
                cost[run] += fleet.cost[source]
            if now >= steps or fails:
                continue
            visited[run, source] = True
            waiting = [
                now - t
                for i, t in zip(numbers, when, strict=True)
                if i == source and last[run, source] <= t < now
            ]
            shown = int(min(fleet.capacity[source], len(waiting)))
            items[run] += shown
            delay[run] += sum(sorted(waiting)[:shown])
            last[run, source] = now
    found = tally.read(np.zeros((runs, steps)))
    length = steps - np.arange(runs)
    np.testing.assert_allclose(found.frequency, (crawls / length[:, None]).mean(axis=0))
    assert found.cost == pytest.approx((cost / length).mean())
    assert found.never == np.count_nonzero(~visited) / runs
    assert found.fetched == items.mean()
    with np.errstate(invalid="ignore"):
        assert found.delay == pytest.approx((delay / items).mean(), nan_ok=True)


def test_all_policies_meet_the_same_items(tmp_path):
    # All 20 sources, whoever chooses.
    out = replayed(tmp_path, budget="20", steps=100, agents=tuple(AGENTS))
    records = rows(out / "records.csv")
    by_agent = {}
    for record in records:
        by_agent.setdefault(record["agent"], []).append(float(record["reward"]))
    # No exact index of a log; the clairvoyant, the refitted policy, the schedule, and the bound.
    assert len(by_agent) == len(AGENTS) + 3
    bound = by_agent.pop("hindsight-bound")
    for agent, reward in by_agent.items():
        assert reward == pytest.approx(by_agent["whittle"], rel=1e-9), agent
        assert 0.99 * bound[0] < sum(reward) <= bound[0], "one of two runs starts a step late"


def test_nothing_after_the_split_reaches_the_fleet_and_nothing_later_a_crawl(tmp_path):
    log = ItemLog.from_csv(EXAMPLE)
    shuffled = np.where(log.published > 1500, log.utility[::-1] * 5 + 1, log.utility)
    other = ItemLog(log.names, log.source, log.published, shuffled, log.start, log.end)
    other.to_csv(tmp_path / "other.csv")
    splits = [
        Log(items=path, half_life="5.8h", train_until="1000").split(None, 1.0)
        for path in (EXAMPLE, tmp_path / "other.csv")
    ]
    assert splits[0].fleet == splits[1].fleet
    assert splits[0].refitted != splits[1].refitted
    names = ("whittle", "static", "nutch", "miniflux")
    for name, rule, budget, observed in (
        *((name, "step", 2.0, False) for name in names),
        ("whittle", "average", 0.5, False),
        ("whittle", "average", 0.5, True),  # whose level is found by simulation
        ("static", "average", 0.5, True),
    ):
        reward = []
        for split in splits:
            arguments = {"sources": split.fleet, "budget": budget, "budget_rule": rule}
            arguments |= {"observed": observed, "start": "empty", "arrivals": split.trace}
            reward.append(play(Rollout(name, arguments), split.trace, 520).reward[0])
        # The last step before 1500 begins at 499.
        assert reward[0][:500].tolist() == reward[1][:500].tolist(), (name, rule, observed)
        assert reward[0][500:].tolist() != reward[1][500:].tolist()


def test_signals_are_fitted_to_the_pings_before_the_split(tmp_path, monkeypatch):
    log, path, fitted = ItemLog.from_csv(EXAMPLE), tmp_path / "pings.csv", []
    sent = [f"{log.names[i]},{t:.3f}" for i, t in zip(log.source, log.published, strict=True)]
    path.write_text("\n".join(["source,time", *sent]), encoding="utf-8")

    def with_signals(fleet, items, pings):
        fitted.append((pings.time.min(), pings.time.max(), items.published.max()))
        return fleet, ()

    monkeypatch.setattr("ephemeral_crawl.replay.split._with_signals", with_signals)
    options = Log(items=EXAMPLE, signals=path, half_life="5.8h", train_until="1000")
    found = options.split(None, 1.0)
    (_, last, last_item), (first, *_) = fitted  # of the fleet, and of the one that is refitted
    assert max(last, last_item) < 1000.0 <= first
    assert found.pings.time.min() == first


def test_the_scheduler_is_told_what_its_crawls_found_and_no_more(monkeypatch):
    """What it is told, step by step, follows from its own leases and the log."""
    split = Log(items=EXAMPLE, half_life="5.8h").split(None, 1.0, 300)
    late = 7  # steps after which this run starts
    told, leased = [], []
    record, lease = Scheduler.record, Scheduler.lease

    def leasing(self, **given):
        found = lease(self, **given)
        leased.append([int(one.source) for one in found])
        return found

    def telling(self, outcomes):
        told.append(list(outcomes))
        return record(self, told[-1])

    monkeypatch.setattr(Scheduler, "lease", leasing)
    monkeypatch.setattr(Scheduler, "record", telling)
    (job,) = recording(split).jobs(replay.SCHEDULER, 2.0)
    task = Task(**{**evaluation.arguments_of(job), "features": ("age",)})
    agent, log = LiveScheduler(task, split.trace.log, late), split.trace.log
    told.clear()
    last, place = np.full(len(split.fleet), float(late)), split.fleet.names
    source = np.array([place.index(name) for name in log.names])[log.source]
    published = log.published - log.start
    for step in range(late, late + 200):
        agent.predict(np.zeros((1, len(place), 1)))
        assert len(leased[-1]) <= 2, "the budget of a step"
        for i, outcome in zip(leased[-1], told[-1], strict=True):
            new = (source == i) & (published >= last[i]) & (published <= step)
            hours = [(time - 1e9) / 3600 for time, _ in outcome["items"]]
            np.testing.assert_allclose(hours, published[new], atol=1e-6)
            assert [worth for _, worth in outcome["items"]] == log.utility[new].tolist()
            last[i] = step
    assert sum(map(len, leased)) > 350


def test_the_scheduler_uses_the_pings_of_a_replay():
    """With perfect pings it collects far more, and what it is not shown it does not use."""
    split = Log(items=EXAMPLE, half_life="5.8h").split(None, 1.0, 300)
    log = split.trace.log
    pings = PingLog(log.names, log.source, log.published, log.start, log.end)
    (job,) = recording(split).jobs(replay.SCHEDULER, 1.0)
    quiet = measured_of(Replay, replay.work(split.trace, job))
    assert measured_of(Replay, replay.work(split.trace, job, pings)).total == quiet.total
    heard = replace(split, fleet=Signals(recall=1.0, precision=1.0, delay=0.0).of(split.fleet))
    (job,) = recording(heard).jobs(replay.SCHEDULER, 1.0)
    told = measured_of(Replay, replay.work(split.trace, job, pings))
    assert told.total > 1.2 * quiet.total
    assert told.cost < 1.01


def test_a_scheduler_that_is_not_taught_has_to_find_out_which_sources_are_good():
    split = Log(items=EXAMPLE, half_life="5.8h").split(None, 1.0, 120)
    log = split.trace.log
    (job,) = recording(split).jobs(replay.SCHEDULER, 1.0)
    arguments = {**evaluation.arguments_of(job), "arrivals": split.trace, "features": ("age",)}
    total = {
        taught: play(
            Rollout(lambda env, t=taught: LiveScheduler(env.task, log, taught=t), arguments),
            split.trace,
            120,
        ).total
        for taught in (True, False)
    }
    assert total[True] > 1.1 * total[False]


def test_the_unit_of_a_log_does_not_matter_to_the_scheduler():
    split = Log(items=EXAMPLE, half_life="5.8h").split(None, 1.0, 60)
    (job,) = recording(split).jobs(replay.SCHEDULER, 2.0)
    log, fleet, chosen = split.trace.log, split.fleet, []
    for unit, hours in (("hour", 1.0), ("day", 24.0)):
        same = ItemLog(
            log.names, log.source, log.published / hours, log.utility, log.start / hours,
            log.end / hours, unit=unit,
        )  # fmt: skip
        sources = fleet.replaced(
            arrival_rate=fleet.arrival_rate * hours,
            decay_rate=fleet.decay_rate * hours,
            period=1.0 / hours,
        )
        given = {**evaluation.arguments_of(job), "features": ("age",), "sources": sources}
        agent, nothing = LiveScheduler(Task(**given), same), np.zeros((1, len(fleet), 1))
        chosen.append([agent.predict(nothing)[0].tolist() for _ in range(60)])
    assert np.mean([a == b for a, b in zip(*chosen, strict=True)]) > 0.95  # but for rounding


def test_what_is_collected_by_source_is_all_that_is_collected():
    split = Log(items=EXAMPLE, half_life="5.8h").split(None, 1.0, 40)
    (job,) = recording(split, runs=3).jobs("oldest-first", 2.0)
    by_source = np.array(replay.work_by_source(split.trace, job)["collected"])
    total = measured_of(Replay, replay.work(split.trace, job)).reward.sum()
    assert by_source.sum() == pytest.approx(total / (40 + 39 + 38))  # per step of each run


def test_an_interval_covers_differences_of_blocks_and_of_runs():
    split = SimpleNamespace(steps=20)
    other, same = np.ones((3, 20)), dict.fromkeys(Replay._fields[1:], 0.0)
    for varied, values, degrees in (
        (np.repeat([[1.0], [2.0], [3.0]], 20, axis=1), [1.0, 2.0, 3.0], 2),
        (np.repeat([[1.0, 2.0, 3.0, 4.0, 5.0]] * 3, 4, axis=1), [1.0, 2.0, 3.0, 4.0, 5.0], 4),
    ):
        gain = View(split, 4, 3).gain(Replay(varied + other, **same), Replay(other, **same))
        error = t.ppf(0.975, degrees) * np.std(values, ddof=1) / np.sqrt(len(values))
        mean = np.mean(values)
        assert gain == pytest.approx((mean, mean - error, mean + error))


def test_hours_are_busy_by_what_was_published_before_the_split():
    past = np.add.outer(24.0 * np.arange(20), np.arange(9.0, 15.0)).ravel()
    hour = (6 + np.arange(240)) % 24  # of each step: the first one begins at six
    busy = (hour >= 9) & (hour < 15)
    split = SimpleNamespace(
        past=SimpleNamespace(published=past, start=0.0),
        rest=SimpleNamespace(start=20 * 24 + 6.0, unit="hour"),
        fleet=SimpleNamespace(period=1.0),
    )
    found = busy_and_quiet(SimpleNamespace(split=split, steps=240, published=1.0 + busy))
    assert found is not None
    assert found[0].tolist() == busy.tolist()


def test_a_saved_budget_may_be_overdrawn_by_a_crawl():
    step = recording(Log(items=EXAMPLE, half_life="5.8h").split(None, 1.0, 50))
    average = replace(step, arguments={**step.arguments, "budget_rule": "average"})
    assert average.total_bound(0.05) == step.total_bound(0.05 + 1.0 / 50) > step.total_bound(0.05)


def test_nothing_is_expected_in_the_end_of_sources_that_fell_silent():
    times = [np.arange(0.0, 1000.0, 10.0), np.arange(0.0, 200.0, 5.0)]
    source = np.repeat([0, 1], list(map(len, times)))
    log = ItemLog(["a", "b"], source, np.concatenate(times), np.ones(source.size), 0, 1000)
    assert fitted_to(log, 0.1, 1.0).arrival_rate[1] > 0.1
    assert fitted_to(log, 0.1, 1.0, closed=True).arrival_rate[1] == 0.0


# ------------------------------------------------------------------------------------ the command


def test_it_writes_records_sources_and_a_report(tmp_path, capsys):
    out = replayed(tmp_path, steps=None)
    records = rows(out / "records.csv")
    assert len(records) == 6 * (len(FEW) + 3) + 1, "six weeks; references, schedule, bound"
    assert {"numpy", "commit", "machine", "command", "date", "budget", "from"} <= set(records[0])
    printed = capsys.readouterr().out
    total = totals(out)
    published = sum(float(r["published"]) for r in records if r["agent"] == "whittle")
    assert f"{total['whittle'] / published:.2%}" in printed
    assert published == pytest.approx(
        sum(float(r["utility"]) for r in rows(EXAMPLE) if float(r["published"]) >= 1008.023),
        rel=1e-9,
    )
    assert total["hindsight-bound"] >= total["clairvoyant"] > total["whittle"] > total["random"]
    assert len(rows(out / "sources.csv")) == 20
    assert (out / "report.html").read_text(encoding="utf-8").count("<svg ") == 2
    assert "Recommended policy: " in printed or "No significant difference" in printed
    table = printed.split("Policies under budget")[1].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in table[-3:]] == ["clairvoyant", "whittle", "hindsight"]
    assert not list(tmp_path.glob(".*")), "nothing unfinished is left behind"


def test_an_indexing_engine_and_what_it_costs(tmp_path, capsys, monkeypatch):
    """The reward is what the engine indexes of recorded items."""
    monkeypatch.setattr(backlog, "_ROUNDS", 1)  # how good the index is does not matter
    free = totals(replayed(tmp_path, agents=("whittle",)))
    capsys.readouterr()
    queued = totals(replayed(tmp_path, agents=("whittle",), engine_rate=0.5, engine_capacity=2))
    printed = capsys.readouterr().out
    assert queued.keys() == {*free, "whittle-engine"}
    assert 0 < queued["whittle"] < free["whittle"]
    part = re.search(r"^whittle +[\d.]+ +([\d.]+)% \[", printed.split("lost of")[1], re.M)
    assert part is not None
    lost = 1 - queued["whittle"] / free["whittle"]
    np.testing.assert_allclose(float(part[1]), 100 * lost, atol=0.01)
    assert "more at twice the rate" in printed
    assert re.search(
        r"λ\* = [\d.]+ per step, and one more item indexed per step by κ\* = ", printed
    )


def test_several_budgets_are_drawn_as_a_curve_and_few_blocks_give_no_winner(tmp_path, capsys):
    two = {"agents": ("whittle", "random"), "steps": 300}
    out = replayed(tmp_path, budget="2,4", **two)
    printed = capsys.readouterr().out
    assert "Collected utility by budget" in printed
    assert "2 weeks, which is too few for confidence intervals" in printed
    assert "Recommended policy: " not in printed
    assert "nan" not in printed
    assert (out / "report.html").read_text(encoding="utf-8").count("<svg ") == 3
    replayed(tmp_path, block=24.0, **two)
    assert "Student's t over 13 24-hour blocks and 2 runs" in capsys.readouterr().out


def test_a_fleet_given_is_used_with_its_costs_and_limits(tmp_path, capsys):
    names = sorted({r["source"] for r in rows(EXAMPLE)})
    failure = [0.5] + [0.0] * 19
    fleet = Sources([0.05] * 20, 1.0, 0.12, [2.0] * 20, names=names, failure_rate=failure)
    fleet.to_csv(tmp_path / "fleet.csv")
    out = replayed(
        tmp_path, sources=str(tmp_path / "fleet.csv"), half_life="", budget="4", steps=300
    )
    printed = capsys.readouterr().out
    assert "The fleet is fitted" not in printed
    assert all(float(r["arrival_rate"]) == 0.05 for r in rows(out / "sources.csv"))
    assert printed.split("\nwhittle ")[1].splitlines()[0].split()[-1] == "4", "two crawls of cost 2"


def test_content_can_be_seen_and_the_budget_saved(tmp_path, capsys):
    chosen = ("whittle", "whittle-exact", "static", "oldest-first", "adaptive-thompson")
    seen = replayed(tmp_path, observed=True, budget_rule="average", agents=chosen, steps=200)
    printed = capsys.readouterr().out
    assert "content observed before crawling, budget enforced on average" in printed
    agents = {r["agent"] for r in rows(seen / "records.csv")}
    assert "clairvoyant" not in agents, "all see what it sees"
    assert "whittle-exact" not in agents


def test_sources_nobody_knew_of_are_not_crawled_but_count(tmp_path, capsys):
    text = EXAMPLE.read_text(encoding="utf-8") + "newcomer,1700,1000\nlate,1701,1\n"
    out = replayed(tmp_path, items=written(tmp_path, text), steps=None, agents=("whittle",))
    printed = capsys.readouterr().out
    assert "New: 2 sources published nothing before the split" in printed
    assert "newcomer (1000), late (1)" in printed
    assert "newcomer" not in {r["source"] for r in rows(out / "sources.csv")}
    published = sum(
        float(r["published"]) for r in rows(out / "records.csv") if r["agent"] == "whittle"
    )
    assert published > 3000


def test_time_stamps_part_a_log_too(tmp_path, capsys):
    lines = ["source,published"]
    lines += [f"a,2024-05-{1 + i // 4:02d}T{6 * (i % 4):02d}:30:00Z" for i in range(120)]
    log = written(tmp_path, "\n".join(lines) + "\n")
    given = {"items": log, "budget": "1", "train_until": "2024-05-11", "period": 6.0}
    replayed(tmp_path, agents=("whittle",), steps=None, **given)
    printed = capsys.readouterr().out
    assert "40 items from 0.5 to 240 hours (time 0 is 2024-05-01T00:00:00Z), and 80" in printed
    assert "Crawled: 1 of 1 source, every" in printed
    assert not re.search(r"\b1 (sources|budgets)\b", printed)


def test_the_first_part_must_hold_items(tmp_path):
    log = written(tmp_path, "source,published\na,10\na,11\n")
    with pytest.raises(ValueError, match="give a time within it"):
        Log(items=log, half_life="42min", train_until="10").split(None, 1.0)
    with pytest.raises(ValueError, match="no items from"):
        Log(items=log, half_life="42min", train_until="10.5").split(None, 0.1, steps=1)


@pytest.mark.parametrize("agent", ["static", "clairvoyant", "adaptive-optimism", replay.SCHEDULER])
def test_runs_start_one_step_after_the_other(agent):
    split = Log(items=EXAMPLE, half_life="5.8h").split(None, 1.0, 80)
    (together,) = recording(split, runs=3, seed=5).jobs(agent, 2.0)
    played = measured_of(Replay, replay.work(split.trace, together))
    assert played.reward.shape == (3, split.steps)
    assert all(not row[: late + 1].any() for late, row in enumerate(played.reward))
    alone = []
    for late in range(3):
        later = Trace(split.trace.log.covering(split.rest.start + late, None), random_start=False)
        job = {**together, "runs": 1, "seed": 5 + late}
        alone.append(play(replay.rollout_of(job, later), later, split.steps - late))
        np.testing.assert_allclose(played.reward[late, late:], alone[late].reward[0], rtol=1e-12)
    for name in ("frequency", "cost", "never", "fetched", "delay"):
        expected = np.mean([getattr(run, name) for run in alone], axis=0)
        np.testing.assert_allclose(getattr(played, name), expected, rtol=1e-12)


def test_intervals_and_the_scheduler_spend_on_average():
    events = recording(Log(items=EXAMPLE, half_life="5.8h").split(None, 1.0, 50))
    jobs = {
        "step": events.jobs("whittle", 2.0),
        "average": [
            *events.jobs(replay.SCHEDULER, 2.0),
            *events.jobs("present intervals", 2.0, np.ones(20), "average"),
        ],
    }
    for rule, of_rule in jobs.items():
        assert {job["arguments"]["budget_rule"] for job in of_rule} == {rule}


def test_units_of_different_logs_differ():
    log = ItemLog.from_csv(EXAMPLE)
    changed = ItemLog(log.names, log.source, log.published, log.utility + 1e-9, log.start, log.end)
    curves = DecayCurves([0, *([2] * len(log))], [0, 1], [1, 0])
    curved = ItemLog(
        log.names, log.source, log.published, log.utility, log.start, log.end, curves=curves
    )
    assert len({digest(x) for x in (log, changed, curved)}) == 3


def test_sources_that_are_silent_at_the_split_have_rate_0(tmp_path, capsys):
    """Also one that publishes again, which nobody could know."""
    log = tmp_path / "log.csv"
    times = {"dead": [*range(20)], "again": [*range(20), 90], "living": [*range(0, 100, 3)]}
    rows = [(at, name) for name, ats in times.items() for at in ats]
    log.write_text("\n".join(["source,published", *(f"{name},{at}" for at, name in sorted(rows))]))
    split = Log(items=log, half_life="7h").split(None, 1.0)
    assert split.silent == {"dead", "again"}
    assert dict(zip(split.fleet.names, split.fleet.arrival_rate > 0, strict=True)) == {
        "again": False,
        "dead": False,
        "living": True,
    }
    _new_and_dead(Report("Replay"), SimpleNamespace(split=split), has_limit=False)
    printed = capsys.readouterr().out
    assert "Silent at the split: 2 sources. Policies that are given rates are given 0" in printed
    assert "In the second part 5.6% of all utility is published there." in printed
