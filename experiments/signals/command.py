"""`python -m experiments signals`: what signals that may be false or missing are worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from agents.evaluation import statistics
from agents.theory.freshness import WEIGHTS
from crawl_env import Task
from ephemeral_crawl.core.evaluation import arguments_of
from ephemeral_crawl.core.runner import Job
from experiments.core import recordings
from experiments.core.data import (
    Across,
    Case,
    Column,
    Data,
    Lines,
    Table,
    mean,
    share,
    total,
    value,
    versus,
)
from experiments.core.study import Part, Recordings, Size, SuiteStudy
from experiments.signals import quality, unknown
from experiments.signals.tasks import (
    BOUND,
    NONE,
    OBSERVED,
    PUBLISHED,
    SHARE,
    TASK,
    check,
    gain,
    job,
    label,
    share_and_gain,
    signals,
    tasks,
)

# ------------------------------------------------------------------------------------------- exact

CLOSED, EXACT, MYOPIC = "whittle", "whittle-exact", "myopic"
QUALITIES = ((0.5, 0.05), (0.5, 0.2), (0.5, 0.8), (0.9, 0.95), (1.0, 1.0))


def _exact_jobs(study: Any) -> list[Job]:
    size = study.size
    return [
        job(size, task, agent, signals(*pair), quality=label(*pair))
        for task in tasks(size)
        for pair in (QUALITIES[1:3] if size.quick else QUALITIES)
        for agent in (CLOSED, EXACT, MYOPIC)
    ]


def _of_exact(level: float = 0.95) -> Any:
    """Return the cell of what the exact index gains over the closed form."""
    cell = gain(level, agent=CLOSED)
    return lambda data, case: cell(data, {**case, "agent": EXACT})


def _exact_claim(data: Data) -> str:
    cases = data.cases("case", "quality")
    gains = [_of_exact()(data, case).mean for case in cases]
    level = 1 - 0.05 / len(cases)  # Bonferroni
    clear = sum(_of_exact(level)(data, case).high < 0 for case in cases)
    best, worst = (cases[int(place)] for place in (np.argmax(gains), np.argmin(gains)))
    return (
        f"the exact index gains {max(gains):.2%} at most ({', '.join(best.values())}) and "
        f"{min(gains):.2%} at least ({', '.join(worst.values())}); it is clearly behind the closed "
        f"form in {clear} of {len(cases)} cases"
    )


EXACT_INDEX = Part(
    jobs=_exact_jobs,
    heading="The closed-form index and the exact one",
    content=(
        "With pings, the belief jumps, and Theorem 1 at the belief is no longer the exact index of "
        "a source: `whittle-exact` solves the arm with the law of the pings. Gain: its mean reward "
        "over that of `whittle` on the same arrivals and pings, minus one, with a 95 % interval. "
        "`myopic` crawls the largest beliefs.",
        Lines(
            "Gain of the exact index, with 95 % intervals.",
            x="quality",
            y=_of_exact(),
            line="budget",
            columns="fleet",
            where={"agent": EXACT},
            labels=("", "gain, %"),
            style="o",
            scale=100,
            level=0,
            title="M = {}",
        ),
        Table(
            "The exact index",
            {**TASK, "quality": "signals"},
            (
                Column("gain", _of_exact()),
                Across("agent", (mean(*BOUND),), title="{}, of the bound"),
            ),
        ),
    ),
    claim=_exact_claim,
)

# --------------------------------------------------------------------------------------- freshness

INDEX, STATIC, LAMBDA = "freshness", "freshness-static", "lambda-crawl"
OLDEST, PING = "oldest-first", "ping-first"
FRESHNESS_STEPS = 1000  # at most
FEATURES = {INDEX: ("age", "pings"), STATIC: ("age",), LAMBDA: ("crawled", "pings")}
ALL_TOLD = label(1.0, 1.0)  # every change is told, which LambdaCrawl has a model of


def _freshness_jobs(study: Any) -> list[Job]:
    size = replace(study.size, steps=min(study.size.steps, FRESHNESS_STEPS))
    by_quality: dict[str, dict[str, Any]] = {NONE: {}}
    for pair in QUALITIES[2:3] if size.quick else (*QUALITIES[1:3], (0.8, 0.8), (1.0, 1.0)):
        by_quality[label(*pair)] = signals(*pair)
    return [
        job(
            size,
            task,
            agent,
            {**arguments, **({"features": FEATURES[agent]} if weight else {})},
            {"weight": weight} if weight else None,
            quality=quality,
            weight=weight,
        )
        for task in tasks(size)
        for quality, arguments in by_quality.items()
        for agent, weight in _weighted(quality, WEIGHTS[:2] if size.quick else WEIGHTS)
    ]


def _weighted(quality: str, weights: Any) -> Iterator[tuple[str, str]]:
    """Yield agent and weight, "" for none. Agents that ignore signals run without these only."""
    yield CLOSED, ""
    yield (OLDEST if quality == NONE else PING), ""
    for agent in {NONE: (INDEX, STATIC, LAMBDA), ALL_TOLD: (INDEX, LAMBDA)}.get(quality, (INDEX,)):
        for weight in weights:
            yield agent, weight


_FRESHNESS_GAIN = gain(agent=CLOSED, weight="")


def _best(data: Data, case: Case) -> tuple[str, statistics.Estimate]:
    """Return the weight with which an agent collects most, and its gain over whittle."""
    best = max(data.cases("weight", **case), key=lambda one: SHARE(data, one).mean)
    return best["weight"], _FRESHNESS_GAIN(data, best)


def _best_text(best: tuple[str, statistics.Estimate]) -> str:
    weight, gain = best
    text = f"{gain.mean:+.1%} [{gain.low:+.1%}, {gain.high:+.1%}]"
    return f"{text} ({weight})" if weight else text


def _freshness_claim(data: Data) -> str:
    def losses(quality: str, agent: str) -> str:
        cases = data.cases("case", quality=quality, agent=agent)
        shares = [-_best(data, case)[1].mean for case in cases]
        return f"{min(shares):.0%} to {max(shares):.0%}"

    qualities = data.values("quality")
    quality = next(q for q in (label(0.5, 0.8), *qualities) if q in qualities)
    return (
        f"policies of web freshness lose {losses(NONE, INDEX)} ({INDEX}), {losses(NONE, STATIC)} "
        f"({STATIC}) and {losses(NONE, LAMBDA)} ({LAMBDA}) of what the Whittle policy collects, "
        f"each with the best of four weights; with signals of {quality}, {INDEX} loses "
        f"{losses(quality, INDEX)}, and crawling whatever pinged first {losses(quality, PING)}"
    )


FRESHNESS = Part(
    jobs=_freshness_jobs,
    heading="Policies of web freshness",
    content=(
        "The policies were made to keep copies of pages fresh, and know nothing of decay: "
        "`freshness` crawls by the index of Busa-Fekete et al. (2025), which without signals is "
        "that of Cho and Garcia-Molina (2003); `freshness-static` keeps the rates of Azar et al. "
        "(2018); `lambda-crawl` those of LambdaCrawl (Kolobov et al. 2019). They take the "
        "importance of a source as given. Each is run with four choices of it (flow Λξ̄, ceiling "
        "u*, utility ξ̄, equal), and the tables have the best for each task, chosen after the fact; "
        "the choice is in parentheses. Loss: reward relative to the Whittle policy with the same "
        "information on the same arrivals, with an interval of 95 %.",
        Table(
            "Signals: {quality}",
            TASK,
            (
                Column("whittle: share of all", SHARE, share, {"agent": CLOSED, "weight": ""}),
                Column("of the bound", mean(*BOUND), of={"agent": CLOSED, "weight": ""}),
                Across("agent", (_best,), _best_text, (INDEX, STATIC, LAMBDA, OLDEST, PING)),
            ),
            each=("quality",),
        ),
    ),
    claim=_freshness_claim,
)

# ------------------------------------------------------------------------------------------- delay

DELAYS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # mean, steps


def _delay_jobs(study: Any) -> list[Job]:
    size = study.size
    delays: tuple[float | str, ...] = (NONE, *((0.0, 2.0) if size.quick else DELAYS))
    return [
        job(
            size,
            task,
            CLOSED,
            {} if delay == NONE else signals(0.8, 0.8, float(delay)),
            delay=delay,
        )
        for task in tasks(size)
        for delay in delays
    ]


_DELAY_GAIN = gain(delay=NONE)


def _delay_claim(data: Data) -> str:
    first, *_, last = (case for case in data.cases("fleet", "budget", "delay", **data.cases(
        "case")[0]) if case["delay"] != NONE)  # fmt: skip
    return (
        f"on {first['fleet']} with M = {first['budget']}, signals of recall 0.8 and precision 0.8 "
        f"gain {_DELAY_GAIN(data, first).mean:.0%} without delay and "
        f"{_DELAY_GAIN(data, last).mean:.0%} with a mean delay of {float(last['delay']):g} steps"
    )


DELAY = Part(
    jobs=_delay_jobs,
    heading="Delay",
    content=(
        "Recall 0.8, precision 0.8; a true ping comes after its item by an exponential time. The "
        "belief allows for the delay. The bound is that of pings without delay, which are worth at "
        "least as much. Gain: share of the utility collected relative to no signals.",
        Lines(
            "Gain over no signals against the mean delay.",
            x="delay",
            y=_DELAY_GAIN,
            line="budget",
            columns="fleet",
            labels=("mean delay, steps", "gain over no signals, %"),
            scale=100,
            level=0,
            title="M = {}",
        ),
        Table(
            "Share of all utility (gain), by mean delay in steps",
            TASK,
            (Across("delay", (SHARE, _DELAY_GAIN), share_and_gain),),
        ),
    ),
    claim=_delay_claim,
)

# ------------------------------------------------------------------------------------------- mixed

RECALL, PRECISION = 0.5, 0.8
NOWHERE, ALL, MOST, LEAST = "none", "all", "the largest quarter", "the smallest three quarters"
THIRDS = "a third each: not observed, signals, observed"


def _mixed_jobs(study: Any) -> list[Job]:
    return [
        job(study.size, task, CLOSED, arguments, signalled=name)
        for task in tasks(study.size)
        for name, arguments in _mixtures(task[1])
    ]


def _mixtures(sources: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield arguments of the environment by name: which sources have signals or are observed."""
    fleet = Task(**arguments_of({"arguments": {"sources": sources}})).sources
    n = len(fleet)
    rank = np.argsort(np.argsort(-fleet.arrival_rate * fleet.mean_utility, kind="stable"))
    largest, third = rank < -(-n // 4), rank % 3

    def at(signalled: np.ndarray) -> dict[str, Any]:
        defaults = signals(0.0, PRECISION)["signals"]
        return {"signals": {**defaults, "recall": (RECALL * signalled).tolist()}}

    yield NOWHERE, {}
    yield LEAST, at(~largest)
    yield MOST, at(largest)
    yield ALL, at(np.ones(n))
    yield THIRDS, {**at(third == 1), "observed": (third == 2).tolist()}


def _mixed_claim(data: Data) -> str:
    case = data.cases("fleet", "budget")[0]
    none, most, everywhere = (
        SHARE(data, {**case, "signalled": name}).mean for name in (NOWHERE, MOST, ALL)
    )
    return (
        f"on {case['fleet']} with M = {case['budget']}, signals of recall {RECALL:g} and precision "
        f"{PRECISION:g} at {MOST} of the sources raise the share of all utility collected from "
        f"{none:.0%} to {most:.0%}, and at all of them to {everywhere:.0%}"
    )


MIXED = Part(
    jobs=_mixed_jobs,
    heading="Some sources with signals",
    content=(
        f"Signals of recall {RECALL:g} and precision {PRECISION:g} at the quarter of the sources "
        "that publish the most utility per step, at the others, or at all; and fleets in which "
        "every third source, in the order of that utility, has signals, every third is observed, "
        "and the rest is not observed. Share of all utility; gain over no signals; reward as a "
        "fraction of the bound for policies with the same observations.",
        Table(
            "Share of all utility (gain), by the sources with signals",
            TASK,
            (Across("signalled", (SHARE, gain(signalled=NOWHERE)), share_and_gain),),
        ),
        Table(
            f"Mixed fleets: {THIRDS}",
            TASK,
            (
                Column("of the bound", mean(*BOUND)),
                Column("information set", value("information"), str),
            ),
            where={"signalled": THIRDS},
        ),
    ),
    claim=_mixed_claim,
)

# -------------------------------------------------------------------------------------- recordings

BUDGETS, RUNS = (2, 5, 10, 20), 6  # runs start one step after the other, each with its own pings


def _recording_jobs(study: Any) -> list[Job]:
    size: Size = study.size
    pairs = quality.SHOWN[1:2] if size.quick else quality.SHOWN
    by_quality = {
        NONE: {"observed": False},
        **{label(*pair): {"observed": False, **signals(*pair)} for pair in pairs},
        OBSERVED: {"observed": True},
    }
    return [
        recordings.job(
            name,
            folder,
            size,
            2 if size.quick else RUNS,
            CLOSED,
            {"budget": budget, "features": ["value"], **arguments},
            budget=budget,
            quality=quality_name,
        )
        for name, folder in recordings.folders(size)
        for budget in (BUDGETS[:1] if size.quick else BUDGETS)
        if 2 * budget <= len(recordings.read(folder).fleet)
        for quality_name, arguments in by_quality.items()
    ]


_recorded_share = total(*PUBLISHED)
_recorded_gain = versus(statistics.gain, "reward", quality=NONE)


def _recorded_text(collected: statistics.Estimate, gain: statistics.Estimate) -> str:
    interval = f"{gain.mean:+.0%} [{gain.low:+.0%}, {gain.high:+.0%}]"
    return share(collected) + (f" ({interval})" if gain.mean else "")


def _recorded_claim(data: Data) -> str:
    claims = []
    for recording in data.values("recording"):
        case = data.cases("recording", "budget", recording=recording)[0]
        none, some, every = (
            f"{_recorded_share(data, {**case, 'quality': name}).mean:.0%}"
            for name in (NONE, label(0.5, 0.8), OBSERVED)
        )
        claims.append(
            f"on the recording {recording} with M = {case['budget']}, whittle collects {none} "
            f"without signals, {some} with r = .5 and p = .8, and {every} if it sees all content"
        )
    return "; ".join(claims)


RECORDINGS = Part(
    jobs=_recording_jobs,
    work=recordings.replayed,
    rows=recordings.each_week,
    heading="Recorded arrivals",
    content=(
        "The fleet is fitted to the first two thirds of a recording, and the rest is replayed. "
        "Items, their times, utilities and decay are the recorded ones; the pings are simulated: "
        "each item triggers one with probability r, and false pings are as frequent as precision p "
        "takes at the fitted rate. So p is not exact where a source publishes more or less than "
        "before. Share of the utility published that the Whittle policy collects, with the gain "
        "over no signals in parentheses.",
        Table(
            "Recording: {recording}",
            {"budget": "M"},
            (Across("quality", (_recorded_share, _recorded_gain), _recorded_text),),
            each=("recording",),
        ),
    ),
    claim=_recorded_claim,
)

# ----------------------------------------------------------------------------------------- command


@dataclass(kw_only=True)
class Signals(SuiteStudy):
    """What signals of changes (WebSub, sitemaps, webhooks) that may be false or missing are worth
    to a crawler, by recall, precision and budget."""

    title: ClassVar[str] = "What signals of changes are worth"
    parts: ClassVar[Mapping[str, Part]] = {
        "quality": quality.PART,
        "exact": EXACT_INDEX,
        "freshness": FRESHNESS,
        "delay": DELAY,
        "mixed": MIXED,
        "unknown": unknown.PART,
        "recordings": RECORDINGS,
    }
    sizes: ClassVar[Mapping[str, Size]] = {
        "quick": Size(seeds=4, steps=200, warmup=50, quick=True),
        "full": Size(seeds=24, steps=1500, warmup=200),
    }
    after: ClassVar[Any] = (check,)

    part: tuple[
        Literal["quality", "exact", "freshness", "delay", "mixed", "unknown", "recordings"], ...
    ] = ()
    """Parts to run; the recorded tables of the others are kept. By default all are run, the
    recordings if some are given."""
    recordings: Recordings = ()
    """Folders of recordings, each with items.csv.gz and curves.csv.gz (see `replay`)."""
