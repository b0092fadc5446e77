"""What evaluate and replay share: the present rule, samples, schedules, and questions."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from agents.evaluation.rollout import evaluate
from agents.evaluation.statistics import Estimate
from agents.policies.static import Scheduled
from agents.theory.engine import places
from agents.theory.task_bound import task_bound
from crawl_env import ItemLog, Sources, Task
from crawl_env.simulation.selection import whole_budget
from ephemeral_crawl.comparison import indexing
from ephemeral_crawl.comparison.events import Events, Results
from ephemeral_crawl.comparison.present import Equal, Measurement, Present, equal, since_last_crawl
from ephemeral_crawl.comparison.report import against, collects, equal_utility, equals, limit
from ephemeral_crawl.comparison.sample import Sample, sample
from ephemeral_crawl.comparison.schedule import Schedule, clock, own_multiplier
from ephemeral_crawl.core.study import FILE, check_question, question, text_of

FLEET = Sources([1.0, 0.2, 0.0], [2.0, 9.0, 1.0], [0.3, 0.05, 0.1], names=["a", "b", "c"])


def root(budget, error=0.0):
    reward = 10 * budget**0.5
    return Measurement(budget, reward, budget, reward - error)


def test_the_budget_of_equal_utility_is_found_and_run():
    tried = []

    def measure(budget):
        tried.append(budget)
        return root(budget)

    now = Measurement(4, 12, 4, 12)
    found = equal(now, measure, lambda m: m**0.8, least=0.01, whole=False)
    assert 12 <= found.run.reward <= 12 * 1.01
    assert found.fewer == pytest.approx(1 - 1.44 / 4, abs=0.01)
    assert found.run.budget in tried
    assert len(tried) <= 8
    whole = equal(root(40)._replace(reward=22), root, lambda m: m**0.8, least=1.0, whole=True)
    assert whole.run.budget == 5
    assert equal(Measurement(4, 21, 4, 21), root, lambda m: m, least=1.0, whole=True) is None
    # Intervals that cost no whole number of fetches are compared with the next larger one.
    dearer = equal(Measurement(4.5, 21, 4.5, 21), root, lambda m: m, 1.0, True)
    assert dearer.same.budget == 5
    assert "it spends 5 (11.1% more)" in equal_utility("present intervals", dearer, "items")


def test_noise_is_no_equal_utility():
    now = Measurement(4, 12, 4, 12)
    found = equal(now, lambda m: root(m, error=2.0), lambda m: m**0.8, least=0.01, whole=False)
    assert found.run.reward == pytest.approx(14, rel=0.01), "12 and its error"
    assert found.run.least >= 12
    assert equal(now, lambda m: root(m, error=9.0), lambda m: m, least=0.01, whole=False) is None
    unknown = now._replace(least=-np.inf)
    assert equal(now, lambda m: unknown, lambda m: m, least=0.01, whole=False) is None


def test_the_answer_claims_no_difference_without_significance():
    for gain, text in (
        (Estimate(0.05, -0.01, 0.11), ", which does not differ significantly from crawling"),
        (Estimate(0.05, np.nan, np.nan), ", which does not differ significantly from crawling"),
        (Estimate(0.05, 0.01, 0.11), ", 5% more than crawling"),
        (Estimate(-0.05, -0.11, -0.01), ", 5% less than crawling"),
    ):
        assert against(gain, present=False).startswith(text)


def test_an_answer_names_policy_and_rule_once():
    def sure(gain):
        return Estimate(gain, gain, gain)

    first = collects("whittle", 7, 10, 2, None) + against(sure(0.63), present=False)
    compared = "63% more than crawling all sources in turn"
    assert first == f"whittle collects 70% with a budget of 2 per step, {compared}"
    more = against(sure(0.4), present=False, again=True)
    second = collects("whittle", 8, 10, 3, "whittle") + more
    assert second == "80% with 3, 40% more"
    assert collects("static", 8, 10, 3, "whittle") == "static 80% with 3"


def test_what_collects_nothing_is_not_recommended():
    """Not even whittle, which may have been fitted to a source that has fallen silent since."""
    few = SimpleNamespace(reward=lambda run: Estimate(run, np.nan, np.nan), few=lambda: "too few")
    few._clearly_better = lambda *given: False
    assert Events.recommended(few, {"oldest-first": 0.7, "whittle": 0.0}) == "oldest-first"
    assert Events.recommended(few, {"oldest-first": 0.7, "whittle": 0.1}) == "whittle"


def test_of_many_policies_one_is_better_only_if_it_is_so_clearly():
    levels = []
    for gap, better in (
        (Estimate(0.02, 0.01, 0.03), True),
        (Estimate(0.02, -0.01, 0.05), False),
        (Estimate(5e-4, 4e-4, 6e-4), False),  # whatever is certain of it
    ):
        events = SimpleNamespace(lead=lambda a, b, level, gap=gap: levels.append(level) or gap)
        assert Events._clearly_better(events, 1.0, 1.0, 4) == better
    assert levels == pytest.approx([1 - 0.05 / 4] * 3)


def test_an_answer_says_what_present_intervals_collect_where_nothing_is_certain():
    intervals = Present("present intervals", np.array([0.5, 0.25, 0.0]))
    said = equals(intervals, None, "whittle", part=0.5571)
    assert said.startswith("; your present rule collects 56% (it is not certain")
    now = Measurement(4, 12, 4, 12)
    saves = [
        "fewer fetches"
        in equals(intervals, Equal(now, now, now._replace(cost=cost)), "whittle", 0.5)
        for cost in (3.0, 3.99)
    ]
    assert saves == [True, False]


def test_references_and_checks_are_no_policies_to_recommend():
    def reward(run):
        return Estimate(run, run, run)

    events = SimpleNamespace(references=("clairvoyant",), checks=("exact",), reward=reward)
    runs = {"static": 1.0, "clairvoyant": 8.0, "whittle": 2.0, "exact": 9.0}
    assert list(Results(events, {3.0: runs}).peers(3.0)) == ["whittle", "static"]


def test_a_present_rule_is_read_from_a_table(tmp_path):
    path = tmp_path / "now.csv"
    path.write_text("source,interval\nb,4\na,2\nc,\n", encoding="utf-8")
    rule = Present.of(str(path), FLEET)
    assert rule.rates.tolist() == [0.5, 0.25, 0.0]
    assert rule.budget(FLEET, 9.0) == 0.75
    assert Present.of("nutch", FLEET).budget(FLEET, 9.0) == 9.0
    slow = FLEET.replaced(period=2.0, cost=[1.0, 4.0, 1.0])
    rule = Present.of(str(path), slow)
    assert rule.rates.tolist() == [1.0, 0.5, 0.0]  # per step
    assert rule.budget(slow, 9.0) == 1.0 + 4.0 * 0.5
    for text, message in (
        ("source,interval\na,2\n", "lacks 2 of the sources"),
        ("source,interval\na,0.5\nb,1\nc,1\n", "at least one step"),
        ("source,interval\na,\nb,\nc,\n", "nothing is crawled"),
        ("source,interval\na,0\nb,1\nc,1\n", "a is 0; give a positive time"),
        ("source,interval\na,2\nb,4\nc,\na,50\n", "row 5: the name 'a' appears twice"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            Present.of(str(path), FLEET)
    with pytest.raises(ValueError, match="did you mean 'nutch'"):
        Present.of("nutsch", FLEET)


def test_a_schedule_is_played_at_its_intervals():
    rates = [0.5, 0.1, 0.0]
    task = Task(FLEET, budget=0.6, budget_rule="average", arrivals="poisson", observed=False)
    run = evaluate(lambda env: Scheduled(env, rates), task, steps=400, warmup=0, seeds=1)
    assert run.frequency == pytest.approx(rates, abs=0.01)
    with pytest.raises(ValueError, match="3 numbers of crawls per step"):
        Scheduled(task, [0.5, 0.1])


def test_rows_say_interval_next_crawl_and_reason():
    schedule = Schedule(Task(FLEET, budget=1), longest=np.inf)
    rows = schedule.rows(lambda time: f"{time:g}", None)
    assert [row["source"] for row in rows] == ["a", "b", "c"]
    assert rows[2]["interval"] == rows[2]["next_crawl"] == ""
    assert rows[2]["reason"] == "never: publishes nothing"
    spent = sum(1 / float(row["interval"]) for row in rows[:2])
    assert spent == pytest.approx(1, rel=1e-4)
    assert {row["next_crawl"] for row in rows[:2]} == {"0", "1"}, "one crawl per step"
    limited = Schedule(Task(FLEET, budget=1), longest=8.0)
    rows = limited.rows(lambda time: f"{time:g}", None)
    assert rows[2]["interval"] == "8"
    assert "maximum interval" in rows[2]["reason"]
    assert 0 < limited.price < 0.2
    assert "with the limit collects 1.50% less than without" in limit(limited, 0.015)
    assert "with the limit collects 0.24% more than without" in limit(limited, -0.0024)


def test_times_of_a_schedule_are_in_the_unit_of_the_rates():
    fleet, since = Sources.random(20, seed=1), np.random.default_rng(0).uniform(0, 20, 20)
    slow = fleet.replaced(
        arrival_rate=0.5 * fleet.arrival_rate, decay_rate=0.5 * fleet.decay_rate, period=2.0
    )
    found, same = (
        Schedule(Task(sources, budget=3), longest=15.0, since=times)
        for sources, times in ((fleet, since), (slow, 2.0 * since))
    )
    assert same.first == pytest.approx(2.0 * found.first)
    assert same.interval == pytest.approx(2.0 * found.interval)
    assert {row["interval_measured"] for row in same.rows(str, np.full(20, 0.5))} == {"4"}
    log = ItemLog(["a"], [0], [1], [1], origin="2026-11-30T00:00:00Z", unit="day")
    assert clock(log, 1.0)(0.5) == "2026-12-01T12:00:00Z"


def test_reasons_where_crawls_fail_and_where_hosts_limit_them():
    failing = Sources([2, 1, 0.5], [1, 1, 2], [0.1, 0.2, 0.3], failure_rate=[0.5, 0.2, 0.2])
    schedule = Schedule(Task(failing, budget=0.8, budget_rule="average", observed=False))
    rows = schedule.rows(str, None)
    assert rows[0]["reason"] == "worth a crawl after 5 steps: its index reaches λ*"
    assert float(rows[0]["interval"]) == 3, "half of the attempts are repeated in the next step"
    assert float(rows[0]["index"]) >= schedule.best.multiplier
    hosted = Sources([2, 1, 0.01], [1, 1, 0.1], 0.2, hosts=["a", "a", "a"])
    reasons = Schedule(Task(hosted, budget=2, observed=False)).reasons()
    assert reasons[0] == "as often as the limit of its host allows"
    assert reasons[2] == "never: the crawls of its host are worth more at other sources"


def test_no_first_crawl_is_later_than_the_maximum_interval():
    rng = np.random.default_rng(0)
    fleet = Sources(np.r_[rng.uniform(1, 5, 5), np.full(15, 0.001)], 1.0, 0.3)
    schedule = Schedule(Task(fleet, budget=1, observed=False), longest=30.0)
    assert schedule.first.max() <= 30
    assert schedule.interval.max() <= 30


def test_the_bound_of_an_engine_with_few_places_is_found_once(monkeypatch):
    found = []
    monkeypatch.setattr(places, "places_bound", lambda *_: found.append(1) or 0.5)
    task = Task(
        Sources([0.3, 0.4, 0.5], 2.0, 0.1),
        1,
        engine={"rate": 1.0, "capacity": 2},
        arrivals="poisson-items",
        observed=False,
    )
    bound = indexing.bound_of(task)
    assert (bound.bound, len(found)) == (0.5, 1)
    saved = task_bound(task.replaced(budget_rule="average"))
    assert (bound.multiplier, bound.price) == (saved.multiplier, saved.price)


@pytest.mark.filterwarnings("ignore:budget is")
def test_one_budget_has_one_multiplier_or_the_report_says_why_not():
    dear = Sources([2, 1, 0.5, 0.2], [1, 2, 5, 5], [0.2, 0.1, 0.3, 0.05], cost=[1, 2, 1, 3])
    hidden, items = {"observed": False}, {"arrivals": "poisson-items"}
    for task, reason in (
        (Task(dear, 3, **hidden), ""),
        (Task(dear, 1, budget_rule="average", **hidden), ""),
        (Task(dear, 1, **hidden), "does not pay for every source"),
        (Task("table1", 2.5, **hidden), "cannot spend all"),
        (Task("table1", 2, observed=True, **items), "no account of observed content"),
        (Task("table1", 2, signals="websub", **hidden), "no account of signals"),
        (Task("table1", 2, engine={"rate": 1.0}, **hidden, **items), "the indexing engine"),
    ):
        plain = task.replaced(engine=None, signals=None, arrivals="deterministic")
        same = indexing.bound_of(task).multiplier == Schedule(plain).best.multiplier
        told = own_multiplier(task)
        assert same == (told == "")
        assert reason in told


def test_what_an_engine_costs_is_measured_without_it_and_with_better_ones(monkeypatch):
    job = {"arguments": {"engine": {"rate": 1.5, "threshold": 0.2}, "sources": "f"}}
    for price, names in ((0.1, indexing.REFERENCES[:2]), (0.3, indexing.REFERENCES)):
        monkeypatch.setattr(indexing, "price_of", lambda bound, price=price: price)
        jobs = {name: x["arguments"] for name, x in indexing.references(job, job, None).items()}
        assert tuple(jobs) == names
        assert jobs[indexing.FREE] == {"sources": "f"}
        assert jobs[indexing.FASTER]["engine"] == {"rate": 3.0, "threshold": 0.2}
    assert jobs[indexing.REFUSING]["engine"] == {"rate": 1.5, "threshold": 0.3}
    assert indexing._loss(Estimate(-0.2, -0.3, -0.1)) == (0.2, 0.1, 0.3)


def test_first_crawls_of_large_fleets_are_found_in_longer_steps(monkeypatch):
    rng = np.random.default_rng(0)
    fleet = Sources(rng.lognormal(size=80), 1.0, 0.002, hosts=["h"] * 80)
    since = rng.uniform(0, 400, 80)
    task = Task(fleet, budget=1 / 8, budget_rule="average", observed=False)
    exact = Schedule(task, since=since).first
    monkeypatch.setattr("ephemeral_crawl.comparison.schedule._WORK", 80 * 100.0)
    found = Schedule(task, since=since).first
    crawled = np.isfinite(exact)
    assert crawled.sum() > 60
    assert np.array_equal(crawled, np.isfinite(found))
    # About 16 steps are one, whose crawls follow one another.
    assert np.abs(found[crawled] - exact[crawled]).max() < 24
    assert not np.array_equal(found[crawled], exact[crawled])
    assert len(np.unique(found[crawled])) == crawled.sum()


def test_next_crawls_follow_from_the_last_ones(tmp_path):
    alike = Sources([1.0] * 4, [1.0] * 4, [0.1] * 4, names=list("abcd"))
    path = tmp_path / "last.csv"
    path.write_text("source;since\nd;4\nb;1\nc;2\na;3.5\n", encoding="utf-8")
    since = since_last_crawl(str(path), alike)
    assert Schedule(Task(alike, budget=1), since=since).first.tolist() == [1, 3, 2, 0]
    # Never crawled is waiting for ever, so that the order is that of no last crawls at all.
    task = Task(Sources.random(20, seed=1), budget=3)
    never = Schedule(task, since=np.full(20, np.inf))
    assert never.first.tolist() == Schedule(task).first.tolist()
    # Whoever was crawled now is crawled after its interval, here longer than what is simulated.
    rare = Sources([5.0] * 8 + [0.02], 1.0, 0.01)
    plan = Schedule(Task(rare, budget=4), since=np.zeros(9))
    assert plan.interval[-1] > 3 * 9 / 4 + 10
    assert plan.first[-1] == plan.interval[-1]
    limited = Schedule(Task(FLEET, budget=1), longest=8.0, since=np.array([1.0, 2.0, 7.0]))
    assert limited.first[2] == 1.0
    late = Schedule(Task(FLEET, budget=1), longest=8.0, since=np.full(3, 9.0))
    assert late.first.max() == 0.0  # all are due, though the budget pays for one of them
    for text, message in (
        ("source,since\na,-1\nb,1\nc,\nd,\n", "since of a is -1"),
        ("source,since\na,1\n", "lacks 3 of the sources"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            since_last_crawl(str(path), alike)


def test_a_sample_keeps_the_ratio_of_budget_and_sources():
    fleet = Sources.random(10_000, seed=0, regime="sparse")
    for budget in (1000.0, 50.0, 10.0):
        found = sample(fleet, [budget])
        (own,) = found.budgets
        size = len(found.places)
        assert size <= 300
        assert own >= 1
        assert own == whole_budget(fleet.cost, own), "a whole number of crawls"
        share = own / found.stretch / size
        assert share == pytest.approx(budget / len(fleet), rel=0.02)
        part = found.of(fleet)
        assert part.period == found.stretch
        # The part of what is published is that of the sources.
        ratio = part.published / found.stretch / size * len(fleet) / fleet.published
        assert ratio == pytest.approx(1, rel=0.1)
        assert str(size) in found.sentence(fleet, [budget])
    assert sample(fleet, [10.0, 100.0]).budgets == [1.0, 10.0]  # steps are as long for both
    dear = fleet.replaced(cost=np.where(np.arange(10_000) == 7, 1e6, 1.0))
    assert sample(dear, [50.0]).stretch == sample(fleet, [50.0]).stretch  # it is never crawled
    crawls = Sample(np.array([0, 2]), [1.0], 3).crawls(np.array([0.5, 0.1, 0.2]))
    assert crawls == pytest.approx([1.0, 0.6])  # of a step three times as long, at most one
    small = sample(FLEET, [2.0])
    assert small.sentence(FLEET, [2.0]) == ""
    few = fleet.replaced(mean_utility=np.where(np.arange(10_000) == 7, 1e6, 1.0))
    assert "publish 1% of what all do" in sample(few, [50.0]).sentence(few, [50.0])
    assert "of what all do" not in sample(fleet, [50.0]).sentence(fleet, [50.0])


def test_a_folder_is_replaced_by_the_same_question_only(tmp_path):
    fleet = tmp_path / "fleet.csv"
    FLEET.to_csv(fleet)
    folder = tmp_path / "out"
    asked = question("evaluate", {"sources": str(fleet), "budget": "4"})
    check_question(folder, asked, replace=False)
    folder.mkdir()
    check_question(folder, asked, replace=False)
    (folder / FILE).write_text(text_of(asked), encoding="utf-8")
    check_question(folder, asked, replace=False)
    other = question("evaluate", {"sources": str(fleet), "budget": "8"})
    with pytest.raises(ValueError, match=r"another question \(--budget 4\).*--out.*--replace"):
        check_question(folder, other, replace=False)
    check_question(folder, other, replace=True)
    FLEET.select([0, 1]).to_csv(fleet)
    changed = question("evaluate", {"sources": str(fleet), "budget": "4"})
    with pytest.raises(ValueError, match=r"--sources fleet\.csv as it was then"):
        check_question(folder, changed, replace=False)
    check_question(folder, {**asked, "sources": "misspelt.csv"}, replace=False)  # refused when read
    assert str(tmp_path) not in json.dumps(asked), "a report may be published"
    (folder / FILE).unlink()
    (folder / "report.html").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="not recorded"):
        check_question(folder, asked, replace=False)
