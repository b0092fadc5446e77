"""`agents.benchmark` and the results that it writes."""

import copy
import json
import sys
from dataclasses import replace
from functools import cached_property, partial
from types import ModuleType

import numpy as np
import pytest

import agents
from agents.evaluation import benchmark as entry
from agents.evaluation import evaluate
from agents.learning import LEARNERS
from crawl_env import CrawlVectorEnv, tasks
from crawl_env.benchmark import CORE, TASKS
from crawl_env.benchmark.task import REFERENCES
from tests.refusals import refused

SMALL = "Sparse100RatesCold"
ID = TASKS[SMALL].id


class Oldest(agents.Agent):
    name = "oldest"
    features = ("age",)

    def priority(self, view):
        return view["age"] / (1 + view["age"])


class Learnt(Oldest):
    """Steps as often as it is told, or more."""

    excess = 1

    def __init__(self, env, *, seed=None):
        super().__init__(env, seed=seed)
        self._env = env

    def learn(self, steps):
        self._env.reset(seed=self._seed)
        for _ in range(self.excess * steps):
            self._env.step(self._env.action_space.sample())


@pytest.fixture(scope="module")
def result():
    return agents.benchmark(Oldest, SMALL)


def test_a_result_has_the_rewards_of_evaluate_on_the_seeds_of_the_task(result):
    task = TASKS[SMALL]
    assert [row["run"] for row in result["runs"]] == list(range(task.seeds))
    for row in result["runs"][:3]:
        run = evaluate(Oldest, task.id, seed=task.seed("test", row["run"]), seeds=1)
        assert row["reward"] == run.reward[0]
    low, high = (np.array(x) for x in entry.reference_rewards(task))
    gain, gap = np.array([row["reward"] for row in result["runs"]]) - low, high - low
    mean = gain.mean() / gap.mean()
    assert result["scores"][ID]["mean"] == pytest.approx(mean)
    each = np.sort(mean + (gain - mean * gap) / gap.mean())
    quarter = task.seeds // 4
    assert result["iqm"] == pytest.approx(each[quarter:-quarter].mean())
    entry.check_result(json.loads(json.dumps(result)))


def test_it_resumes_and_refuses_the_results_of_others(tmp_path, monkeypatch):
    out = tmp_path / "result.json"
    count = 0

    def stop(done, of, task):
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        agents.benchmark(Oldest, SMALL, out=out, progress=stop)
    partial = json.loads(out.read_text())
    assert len(partial["runs"]) == 3
    with refused("is incomplete; the same call goes on from it"):
        entry.check_result(partial)
    with refused("holds results of another agent, another class or function, another version of"):
        agents.benchmark("random", SMALL, out=out)
    altered = tmp_path / "altered.json"
    row = {**partial["runs"][0], "reward": 9e9}
    for other, words in (
        ({**partial, "runs": [row]}, "holds no result, or an altered one"),
        ({"runs": []}, "holds no result, or an altered one"),
        (entry.sealed({**partial, "code": "x"}), "of another version of the agent;"),
    ):
        altered.write_text(json.dumps(other))
        with refused(words):
            agents.benchmark(Oldest, SMALL, out=altered)
    with refused(f"also holds runs of {ID}, which would be lost"):
        agents.benchmark(Oldest, "Recovering4M1Discounted", out=out)
    with monkeypatch.context() as patch:
        patch.setattr(entry, "play", None)  # no run comes first
        with pytest.raises(FileNotFoundError, match="no such folder; create it first"):
            agents.benchmark(Oldest, SMALL, out=tmp_path / "new" / "out.json")
        with refused("progress is True; give a function, which is called with the number of fin"):
            agents.benchmark(Oldest, SMALL, progress=True)
    whole = agents.benchmark(Oldest, SMALL, out=out)
    assert whole["runs"][:3] == partial["runs"]
    assert json.loads(out.read_text()) == whole


def test_settings_are_stated_as_a_file_has_them():
    """A call whose settings had a tuple did not go on from its own file."""
    given = {"layers": (64, 64), 1: "one", "rate": np.float32(0.5), "scales": np.arange(2)}
    stated = {"layers": [64, 64], "1": "one", "rate": 0.5, "scales": [0, 1]}
    assert entry.header(Oldest, settings=given)["settings"] == stated
    for other in ({"clip": np.inf}, {"env": object()}):
        with refused("which JSON cannot hold; give finite numbers and text"):
            entry.header(Oldest, settings=other)


def test_an_agent_has_its_own_name_or_that_of_its_class():
    """A class without a name was "agent", or had the name of the agent on which it is based."""

    class Mine(agents.Whittle):
        pass

    class Scaled(Oldest):
        @property
        def name(self):
            return "scaled by 2"

    env = CrawlVectorEnv(1, features=("age",))
    named = Oldest(env)
    named.name = "of the object"
    for agent, name in (
        (Oldest, "oldest"),
        (partial(Oldest, power=2), "oldest"),
        (named, "of the object"),
        (Scaled, "Scaled"),
        (Scaled(env), "scaled by 2"),
        (Mine, "Mine"),
        (Mine(CrawlVectorEnv(1)), "Mine"),
        (entry.benchmark, "benchmark"),
        ("whittle", "whittle"),
    ):
        assert entry.name_of(agent) == name
    assert all(entry.name_of(kind) == name for name, kind in LEARNERS.items())
    for wrong in (3, "a\nb"):  # before any run
        with refused("the name of the agent is"):
            entry.header(Oldest, wrong)


NOTEBOOK = """
import agents
import numpy as np
from numba import njit
ONES = np.ones(4)
WEIGHTS = 1.0
@njit
def weighted(age):
    return WEIGHTS * age
SCALE = 1.0
FACTORS = 1.0
def longest(age):
    return SCALE * age
def factors():
    return [FACTORS for k in (0, 1) if k in {0, 1}]
class Mine(agents.Agent):
    name, features = "mine", ("age",)
    def __init__(self, env, *, seed=None, scale=1.0):
        super().__init__(env, seed=seed)
    def priority(self, view):
        age = weighted(view["age"]) * ONES[0]
        return factors()[0] * longest(age) / (1 + age)
"""


@pytest.mark.parametrize(
    "change",
    [
        ("* longest", "* -longest"),  # in the class
        ("return SCALE * age", "return age"),  # in a function that it calls
        ("SCALE = 1.0", "SCALE = 2.0"),
        ("FACTORS = 1.0", "FACTORS = 2.0"),  # named in a comprehension alone
        ("in {0, 1}", "in {0, 2}"),
        ('("age",)', '("age", "crawled")'),
        ("scale=1.0", "scale=2.0"),  # a default of its constructor
        ("np.ones(4)", "np.full(4, 2.0)"),
        ("WEIGHTS = 1.0", "WEIGHTS = 2.0"),  # only in a function that Numba compiles
    ],
)
def test_a_changed_class_of_a_notebook_is_another_version(change, tmp_path, monkeypatch):
    """Its module has no file; the results of the class before the change were returned."""
    monkeypatch.setattr(entry, "play", lambda *_: pytest.fail("a run is made"))

    def cell(text):
        module = ModuleType("notebook")
        monkeypatch.setitem(sys.modules, "notebook", module)
        exec(text, vars(module))
        return module.Mine

    out = tmp_path / "result.json"
    head = entry.header(cell(NOTEBOOK))
    sys.modules["notebook"].__file__ = "<stdin>"  # python < script.py
    assert entry.header(sys.modules["notebook"].Mine) == head
    rows = [{"task": ID, "run": run, "revision": entry.revision()} for run in range(3)]
    out.write_text(json.dumps(entry.sealed({**head, "complete": False, "runs": rows})))
    with pytest.raises(pytest.fail.Exception, match="a run is made"):  # the same cell again
        agents.benchmark(cell(NOTEBOOK), SMALL, out=out)
    with refused("holds results of another version of the agent;"):
        agents.benchmark(cell(NOTEBOOK.replace(*change)), SMALL, out=out)


def test_a_model_that_learnt_more_is_another_version():
    """The results of the model before were returned, also of a function that calls it."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(1, 1)

    def act(observation):
        return model(observation)

    class Trained:  # a model of Stable-Baselines3
        policy = model

    def versions():
        return [entry.header(agent)["code"] for agent in (act, Trained())]

    before = versions()
    assert before == versions()
    with torch.no_grad():
        model.weight += 1
    assert all(one != other for one, other in zip(before, versions(), strict=True))


class Weighted(Oldest):
    """Crawls by weights that it is made with."""

    name = "weighted"

    def __init__(self, env, *, seed=None, weights=1.0):
        super().__init__(env, seed=seed)
        self.weights = np.asarray(weights)
        self.layers = [{"w": np.asarray(weights)}]

    def priority(self, view):
        return np.tanh(self.weights * view["age"])

    @cached_property
    def total(self):  # computed when it acts
        return self.weights.sum()


def version(agent):
    return entry.header(agent)["code"]


def test_the_version_of_an_object_is_that_of_what_it_holds():
    """Of the arrays of an object and the arguments of a partial function nothing was included."""
    env = CrawlVectorEnv(1, "table1", features=("age",))
    agent = Weighted(env, weights=[1.0, 2.0, 3.0, 4.0])
    before = version(agent)
    assert before == version(Weighted(env, weights=[1.0, 2.0, 3.0, 4.0]))
    assert agent.total == 10
    assert version(agent) == before
    agent.weights[0] = 5.0
    other = version(agent)
    assert other != before
    agent.layers[0]["w"][0] = 5.0
    assert version(agent) != other


def test_what_an_agent_holds_is_left_as_it_is(tmp_path):
    """The text file of an agent was closed: only tensors are detached."""
    agent = Weighted(CrawlVectorEnv(1, "table1", features=("age",)))
    with (tmp_path / "log").open("w") as agent.file:
        assert version(agent) == version(agent)
        agent.file.write("open")


def test_all_learners_have_a_version_of_their_own():
    """Those whose module names the class of tensors ended in a traceback."""
    versions = [version(learner) for learner in LEARNERS.values()]
    assert len({*versions}) == len(LEARNERS)
    assert versions == [version(learner) for learner in LEARNERS.values()]


def test_partial_gives_an_agent_arguments():
    """It was named partial, with the code of functools, and not shown what the class observes."""
    half, double = (partial(Weighted, weights=w) for w in (0.5, 2.0))
    one, other = entry.header(half), entry.header(double)
    assert (one["agent"], one["made_by"]) == ("weighted", f"{__name__}:Weighted")
    assert len({one["code"], other["code"], version(Weighted)}) == 3
    assert one["code"] == version(partial(Weighted, weights=0.5))
    task = {"sources": "table1", "budget": 2, "arrivals": "poisson"}
    opposite = partial(Weighted, weights=-1.0)
    one, other = (evaluate(x, task, steps=99, seeds=1).reward for x in (opposite, Weighted))
    assert one != other
    assert entry.playable(half, "Recovering4M1Discounted")[0]


def test_the_normalisation_of_a_model_is_part_of_its_version():
    """The results of a model before its VecNormalize saw more observations were returned."""
    pytest.importorskip("stable_baselines3")
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecNormalize

    from crawl_env.envs.sb3 import CrawlVecEnv

    env = VecNormalize(CrawlVecEnv(2, sources="table1"))
    model = PPO("MlpPolicy", env, n_steps=2, batch_size=4, device="cpu", seed=0)
    before = version(model)
    assert before == version(model)
    env.obs_rms.mean += 1
    assert version(model) != before


def changed(result, change, seal=True):
    other = copy.deepcopy(result)
    change(other)
    return entry.sealed(other) if seal else other


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r["runs"].pop(4), f"has no run 4 of {ID}"),
        (lambda r: r["runs"].append(r["runs"][7]), f"has run 7 twice of {ID}"),
        (lambda r: r["runs"][2].update(seed=5), "has the seed 5, which is not its seed"),
        (lambda r: r["runs"][2].update(reward=float("nan")), "not a finite number"),
        (lambda r: r["runs"][2].update(reward=10**400), "not a finite number"),
        (lambda r: r["runs"][2].update(run=[2]), "a run of 'oldest' lacks a value"),
        (lambda r: r["runs"][2].pop("samples"), "a run of 'oldest' lacks a value"),
        (lambda r: r["runs"].append(3), "a run of 'oldest' lacks a value"),
        (lambda r: r["runs"].clear(), "has no runs"),
        (lambda r: [row.update(task="Drift10") for row in r["runs"]], "unknown task 'Drift10'"),
        (lambda r: r.update(agent=["oldest"]), "this is no result"),
        (lambda r: r.update(agent=" "), "the name of the agent is ' '; give one of 1 to 100"),
        (lambda r: r.update(agent="\u200b"), "the name of the agent is"),  # of no width
        (lambda r: r.update(agent="\u202eenim"), "the name of the agent is"),  # from right to left
        (lambda r: r.update(agent=101 * "x"), "the name of the agent is"),
        (lambda r: r.update(training=12_345), "12,345 source-steps of training were allowed"),
        (lambda r: r.update(salted=True), "were made with an organiser's salt"),
        (lambda r: r.update(scores={ID: 1.0}), "do not follow from its rewards"),
        (lambda r: r["runs"][2].update(revision="x"), "made by 2 revisions of the code"),
        (lambda r: r["runs"][2].update(spec="x"), "another definition of this task"),
        (lambda r: r["runs"][2].update(samples=9), "trained longer in"),
        (lambda r: r["runs"][2].update(reward=1e3), "do not follow from its rewards"),
        (lambda r: r["scores"][ID].update(mean=2.0), "do not follow from its rewards"),
        (lambda r: r.update(iqm=r["iqm"] + 0.001), "do not follow from its rewards"),
        (lambda r: r.pop("iqm"), "do not follow from its rewards"),
        (lambda r: r.update(trials=1000), "1000 settings were tried"),
        (lambda r: r.update(split="validation"), "run it on 'test'"),
    ],
)
def test_what_is_not_published(result, change, words):
    with refused(words):
        entry.check_result(changed(result, change))


def test_an_organiser_checks_results_with_the_salt_of_their_seeds(monkeypatch):
    monkeypatch.setitem(TASKS, SMALL, replace(TASKS[SMALL], seeds=4))
    found = json.loads(json.dumps(agents.benchmark("oldest-first", SMALL, salt="s")))
    entry.check_result(found, "s")
    with refused("has the seed", "which is not its seed"):
        entry.check_result(found, "another")
    with refused("were made with an organiser's salt; give it"):
        entry.check_result(found)


def test_an_altered_result_is_found_by_its_hash(result):
    with refused("was altered: its hash is not that of its content"):
        entry.check_result(changed(result, lambda r: r.update(agent="better"), seal=False))
    with refused("this is no result"):
        entry.check_result({"agent": "mine"})


def test_an_agent_observes_no_more_than_the_task_shows():
    with refused("W observes value", "which EphemeralCrawl/Drift100-v0 does not show"):
        entry.playable(type("W", (agents.Whittle,), {"features": ("value",)}), ["Drift100"])
    can, left_out = entry.playable("adaptive-optimism", "learning")
    assert [task.name for task in can] == ["Sparse100RatesCold"]
    assert "needs the feature mean_utility" in left_out[TASKS["Sparse100Items"].id]
    assert not entry.playable("adaptive-self-tuning", "learning")[1]
    with refused("Regimes100-v0: agent 'whittle' cannot act here"):
        agents.benchmark("whittle", ["Deadline60", "Regimes100"])
    can, left_out = entry.playable("whittle", ["trained", "Deadline60", "open", "Deadline60"])
    assert [task.name for task in can[:2]] == ["Deadline60", "Looks100"]
    assert {TASKS["Sparse10Trained"].id, TASKS["Regimes100"].id} <= set(left_out)
    with refused("Regimes100-v0: agent 'whittle' cannot act here"):  # named, too
        entry.playable("whittle", ["open", "Regimes100"])
    with refused("tasks is empty"):
        agents.benchmark("whittle", [])
    for tasks_themselves in (TASKS[SMALL], [ID, TASKS["Drift100"]]):
        with refused("tasks has BenchmarkTask(name=", "give names of tiers or tasks, of a task"):
            agents.benchmark("whittle", tasks_themselves)


def test_training_is_counted_and_limited():
    task = TASKS["Sparse10Trained"]
    row = entry.play(Learnt, task, 0, training=800)
    assert row["samples"] == 800
    with refused("took 1,600 source-steps of training", "800 are allowed"):
        entry.play(type("Slow", (Learnt,), {"excess": 2}), task, 0, training=800)
    with refused("and oldest has no method `learn`", "no estimates", "or leave out the training"):
        entry.play(Oldest, task, 0, training=800)


@pytest.mark.parametrize("name", ["in-context", "adaptive-self-tuning"])
def test_agents_that_learn_while_they_crawl_begin_with_what_they_learnt(name):
    task = TASKS["Sparse100Trained"]
    new, trained = (entry.play(name, task, 1, training=steps) for steps in (0, 20_000))
    assert trained["samples"] == 20_000
    assert trained["reward"] > new["reward"]
    with refused("Drift100", "other ones are drawn at each reset"):
        entry.playable(name, ["Drift100"], training=10_000)
    with refused("General10", "other ones are drawn at each reset"):
        entry.playable(name, ["General10"], training=10_000)


class Elsewhere(Learnt):
    """Trains in environments of its own, from whole episodes, and plans with mean utilities."""

    features = ("age", "mean_utility")
    steps_per_update = 20

    def __init__(self, env, *, seed=None):
        super().__init__(env, seed=seed)
        self._env = CrawlVectorEnv(8, **self.task.arguments)

    def priority(self, view):
        return super().priority(view) * view["mean_utility"] / (1 + view["mean_utility"])


def test_learners_that_make_their_environments_and_those_with_names():
    task = TASKS["Recovering4M1Discounted"]
    assert entry.play(Elsewhere, task, 0, training=1300)["samples"] == 1280
    with refused("learns from 20 steps at a time, which are 640 source-steps here, and 600 are"):
        entry.playable(Elsewhere, [task.id], training=600)
    ppo = entry.entrant("ppo")
    assert ppo.name == "ppo"
    assert entry.playable(ppo, [task.id], training=10_000) == ([task], {})
    assert entry.entrant("whittle") == "whittle"
    with refused("dqn has to be trained before each run"):
        agents.benchmark("dqn", [task.id])
    with refused("unknown agent 'clairvoyant'"):
        agents.benchmark("clairvoyant", [task.id])


class Model:
    """Counts the steps of single environments, and completes its rollouts, as models of
    Stable-Baselines3 do."""

    num_timesteps = 0

    def __init__(self, env, *, seed):
        self.n = env.task.n

    def learn(self, total_timesteps):
        self.num_timesteps = -(-total_timesteps // 512) * 512

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        return np.zeros((1, self.n)), None


def test_a_model_of_stable_baselines3_is_told_the_steps_of_all_environments():
    task = TASKS["Sparse10Trained"]
    assert entry.play(Model, task, 0, training=10_000)["samples"] == 10_240
    with refused("took 5,120 source-steps", "let it stop earlier"):
        entry.play(Model, task, 0, training=800)


def test_an_error_says_in_which_run_it_occurred():
    class Late(Oldest):
        def predict(self, *given, **more):
            self.steps = getattr(self, "steps", 0) + 1
            action, state = super().predict(*given, **more)
            return action * (1 if self.steps < 9 else np.nan), state

    with pytest.raises(ValueError, match="NaN") as found:
        entry.play(Late, TASKS[SMALL], 7)
    assert found.value.__notes__ == [f"This was in run 7 of {ID}, split 'test'."]


def test_an_error_of_an_agent_says_in_which_line_it_arose():
    """ValueErrors are shown without a traceback, as are those of NumPy in a wrong line."""

    class Wrong(Learnt):
        def priority(self, view):
            return np.concatenate([view["age"], np.zeros(3)])

        def learn(self, steps):
            raise ValueError("diverged")

    with refused("cannot act here: all the input arrays", "(test_benchmark.py, line ", "priority)"):
        agents.benchmark(Wrong, SMALL)
    with pytest.raises(ValueError, match="diverged") as found:
        entry.play(Wrong, TASKS["Sparse10Trained"], 0, training=800)
    assert found.value.__notes__[0].endswith(", in learn).")


def test_scores_of_runs_are_one_for_the_reference_and_average_to_the_score_of_the_task():
    task = TASKS["Sparse100ItemsCold"]

    def scores(rewards):
        rows = [{"task": task.id, "reward": float(reward)} for reward in rewards]
        return entry.run_scores(rows)[task.id], entry.scores_of(rows)[task.id].mean

    low, high = entry.reference_rewards(task)
    assert scores(low)[0] == pytest.approx(0.0, abs=1e-12)
    assert scores(high)[0] == pytest.approx(1.0)
    single, together = scores(0.2 * low + 0.8 * high + np.random.default_rng(0).normal(size=20))
    assert single.mean() == pytest.approx(together)
    assert single.std() > 0.1


def test_recorded_references_are_those_of_the_tasks():
    recorded = json.loads(REFERENCES.read_text(encoding="utf-8"))
    for task in tasks().values():
        if task.recording is not None and not task.recording.digest:
            continue  # another log on every machine
        known = task.references
        assert known, f"record the references of {task.id}: python -m experiments references"
        assert recorded[task.id]["hash"] == task.hash, f"record the references of {task.id} again"
        low, best = (np.array(known[name].rewards) for name in ("random", task.best))
        assert low.size == task.seeds
        assert task.ref_min_score == pytest.approx(low.mean())
        assert task.score(task.ref_max_score or 0.0) == 1.0
        assert best.mean() > low.mean()
    task = TASKS[CORE[0]]
    for name in ("random", task.best):
        again = entry.reference_run(name, task, 1)
        assert again == pytest.approx(task.references[name].rewards[1], rel=1e-9)
