"""Trains the network of `agents.adaptive.in_context` on simulated worlds.

    python -m agents.adaptive.training

makes the weights of the package anew. Worlds are drawn at random; noisy policies that use history
alone crawl them; rows of what they saw are labelled with the Whittle index at the true current
parameters; and the network learns the mean of the index (gamma deviance, whose minimiser is the
posterior mean) and an upper quantile (pinball loss). In the later rounds the network itself
chooses the crawls, so that it learns from the histories that it meets (DAgger).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn

from agents.adaptive.base import UnitArms
from agents.adaptive.in_context import InContext
from agents.adaptive.network import DECAYS, WEIGHTS, Network, shipped
from agents.inference.history import INPUTS, PLUG_IN, Array32, C, F, Shows
from agents.policies.base import ObservationView, graded
from agents.theory.renewal import renewal_arm
from crawl_env import ArrivalProcess, Arrivals, CrawlVectorEnv, ItemLog, Sources, Trace
from crawl_env.content.rates import DailyCycle, Drift, Hawkes, Jumps
from crawl_env.content.utility import (
    Decay,
    Exponential,
    ExponentialDecay,
    Gamma,
    Lognormal,
    LomaxDecay,
    StretchedDecay,
)
from crawl_env.errors import (
    check_choice,
    check_non_negative,
    check_positive,
    check_whole,
    check_within,
)
from crawl_env.numerics import FloatArray
from crawl_env.processes import end_with_parent
from crawl_env.simulation.observation import SUMMED

FEATURES = ("age", "crawled", "harvest", "items", *SUMMED, "mean_utility", "decay_rate")
VARIANTS = (Shows(0, 0, 0), Shows(1, 0, 0), Shows(1, 1, 0), Shows(1, 0, 1))
_CELLS = 800  # sources simulated together
_TIMES, _SAMPLED = 16, 120  # times at which rows are taken, and sources at each
_J = len(DECAYS)
_EXTREME = 3.0  # ln of the label over the mean
_HIDDEN = 1e9  # the standard deviation of inputs that are hidden from the network

# Groups of inputs that can be hidden, to measure what they contribute: the means and standard
# deviations over the fleet, the memories that fade, and what is derived from the sums.
GROUPS = {
    "context": tuple(range(F, F + C)),
    "memory": tuple(
        k for k, name in enumerate(INPUTS) if name.startswith(("long_", "short_", "last_"))
    ),
    "derived": tuple(
        k
        for k, name in enumerate(INPUTS)
        if name in ("fit_a", "fit_c", "dispersion", "slope", "slope_known", "level", "plug_in")
        or name.startswith(("shrunken_", "size"))
    ),
}


@dataclass(frozen=True)
class Settings:
    """Everything that determines the weights, besides the versions of the libraries.

    Raises:
        ValueError: a number is out of its range, or `without` is no group of inputs.
    """

    seed: int = 0
    worlds: int = 250  # in every round, each of many fleets
    rounds: int = 2  # the first with a policy made by hand
    hidden: int = 64
    epochs: int = 6  # of the last round; the others have a third
    batch: int = 2048
    learning_rate: float = 2e-3
    blur: float = 0.15  # noise added to the standardised context
    quantile: float = 0.9
    optimism: float = 0.5  # share of the quantile in the index
    growth: float = 0.2  # β, of `InContext`
    without: str = ""  # a group of inputs that is hidden from the network, of `GROUPS`

    def __post_init__(self) -> None:
        for name in ("worlds", "rounds", "hidden", "epochs", "batch"):
            check_whole(name, getattr(self, name))
        check_whole("seed", self.seed, minimum=0)
        check_positive("learning_rate", self.learning_rate)
        for name in ("blur", "growth"):
            check_non_negative(name, getattr(self, name))
        for name in ("quantile", "optimism"):
            check_within(name, getattr(self, name), 0.0, 1.0)
        if self.without:
            check_choice("group of inputs", self.without, GROUPS)


FINETUNING = Settings(rounds=1, worlds=40, epochs=6, learning_rate=5e-4)
_FILES = {
    "sources": "your fleet, as `ephemeral-crawl fit` writes it",
    "items": "your log, a table as for `ephemeral-crawl fit`",
    "curves": "the recorded decay of its items",
}


class World(NamedTuple):
    """A distribution of fleets with the same N, M and law of change, simulated together."""

    env: CrawlVectorEnv
    steps: int
    current: bool  # whether the label is the index at the current rate, rather than the mean one
    shows: Shows


class Rows(NamedTuple):
    """What the network learns from: K rows, of G fleets at some time."""

    inputs: Array32  # (K, F)
    context: Array32  # (G, C)
    group: np.ndarray  # (K,) of the context
    basis: Array32  # (K, J) the curves at the age of the label
    label: Array32  # (K,) the index, relative to the fleet's mean utility per tour and source


def draw_world(
    rng: np.random.Generator, own: Sources | None = None, log: ItemLog | None = None
) -> World:
    """Return a world at random; if `own` is given, with its sources drawn with replacement, or, of
    a log in every other world, with what they published."""
    tour = np.exp(rng.uniform(np.log(1.5), np.log(80.0)))
    n = int(np.exp(rng.uniform(np.log(max(10.0, tour)), np.log(150.0))))
    if own is not None:
        n, tour = len(own), min(tour, len(own))
    budget = max(1, round(n / tour))
    tour = n / budget
    steps = int(np.clip(tour * np.exp(rng.uniform(np.log(20), np.log(250))), 150, 1800))
    law = rng.choice(
        ["constant", "drift", "jumps", "cycle", "bursts"], p=[0.6, 0.15, 0.13, 0.07, 0.05]
    )
    change = np.exp(rng.uniform(np.log(2.0), np.log(200.0))) * tour  # steps
    rate: Any = "constant"
    if law == "drift":
        spread = rng.uniform(0.3, 1.2)
        rate = Drift(sigma=spread * np.sqrt(2 / change), reversion=float(min(1 / change, 0.5)))
    elif law == "jumps":
        shape = np.exp(rng.uniform(np.log(0.3), np.log(3.0)))
        rate = Jumps(rate=float(1 / change), distribution={"name": "gamma", "shape": float(shape)})
    elif law == "cycle":
        rate = DailyCycle(amplitude=rng.uniform(0.2, 1.0), day=24.0)
    elif law == "bursts":
        rate = Hawkes(branching=rng.uniform(0.2, 0.7))
    utility: Any = (Exponential(), Lognormal(rng.uniform(0.4, 1.8)), Gamma(rng.uniform(0.25, 4.0)))[
        rng.choice(3, p=[0.35, 0.45, 0.2])
    ]
    decay: Decay = (
        ExponentialDecay(),
        StretchedDecay(rng.uniform(0.4, 0.9)),
        LomaxDecay(rng.uniform(1.5, 4.0)),
    )[rng.choice(3, p=[0.7, 0.15, 0.15])]
    arrivals: ArrivalProcess = Arrivals(rate=rate, utility=utility, decay=decay, sampler="items")
    replayed = own is not None and log is not None and rng.random() < 0.5
    if replayed:
        assert log is not None
        arrivals = Trace(log)

    def fleet(rng: np.random.Generator) -> Sources:
        if own is None:
            return draw_fleet(rng, n, tour)
        which = rng.integers(n, size=n)
        rate, utility, decay = own.arrival_rate, own.mean_utility, own.decay_rate
        return Sources(rate[which], utility[which], decay[which], period=own.period)

    env = CrawlVectorEnv(
        int(np.clip(_CELLS / n, 4, 60)),
        sources=own if own is not None and replayed else fleet,
        budget=budget,
        arrivals=arrivals,
        observed=False,
        features=FEATURES,
        start="fresh" if rng.random() < 0.7 else "empty",
        horizon=None,
    )
    shows = VARIANTS[rng.choice(4, p=[0.4, 0.12, 0.33, 0.15])]
    return World(env, steps, law in ("drift", "jumps") and not replayed, shows)


def draw_fleet(rng: np.random.Generator, n: int, tour: float) -> Sources:
    """Return a fleet at random: rates and decays per tour over several orders of magnitude."""

    def spread(low: float, high: float, most: float) -> FloatArray:
        centre, width = rng.uniform(np.log(low), np.log(high)), most * rng.random() ** 1.5
        uniform, normal = rng.uniform(-1, 1, n), rng.normal(0, 0.6, n)
        few_large = rng.exponential(0.6, n) - 0.6
        return centre + width * (uniform, normal, few_large)[rng.integers(3)]

    def even(low: float, high: float, most: float) -> FloatArray:
        centre, width = rng.uniform(np.log(low), np.log(high)), most * rng.random()
        return centre + width * rng.uniform(-1, 1, n)

    draw = even if rng.random() < 0.4 else spread
    rate = draw(0.02, 12.0, 4.5)
    decay = draw(0.05, 15.0, 2.2)
    worth = rng.normal(0, 1, n) * 1.6 * rng.random() ** 1.5 + rng.uniform(-5, 8)
    worth += rng.choice([0.0, 0.0, rng.uniform(-0.5, 0.3)]) * (rate - rate.mean())
    return Sources(
        np.exp(np.clip(rate, -9, 4.5)) / tour,
        np.exp(worth),
        np.exp(np.clip(decay, -5, 3.5)) / tour,
    )


def simulate(world: World, network: Network | None, rng: np.random.Generator) -> Rows:
    """Return rows of a world that is crawled by a network with noise; by hand if there is none."""
    env = world.env
    agent = InContext(env, weights=_blank() if network is None else network)
    agent.shows = world.shows
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    view = ObservationView(observation, env.task)
    memory = agent.begin(view)
    shape = memory.age.shape
    fleet, tour = env.world.sources, agent.tour
    arrival, utility, decay = (
        np.broadcast_to(x, shape) * 1.0
        for x in (fleet.arrival_rate, fleet.mean_utility, fleet.decay_rate)
    )
    noise = rng.normal(size=shape) * rng.choice([0.0, 0.3, 1.0], (shape[0], 1))
    trust = rng.choice([0.0, 0.5, 1.0], (shape[0], 1))
    early = np.geomspace(2, world.steps, _TIMES).astype(int).tolist()
    times = {*early, *rng.integers(2, world.steps, _TIMES // 2).tolist()}
    parts: list[Rows] = []
    unit = (arrival * utility).mean(axis=-1, keepdims=True) * tour * fleet.period
    every = np.arange(shape[0])
    for step in range(world.steps):
        view = ObservationView(observation, env.task)
        memory, crawled = agent.observe(view, memory)
        if step in times:
            other = VARIANTS[rng.integers(4)]
            for shows in {world.shows, other}:
                inputs, context, _, centre = agent.inputs(view, memory, every, shows)
                cells = rng.choice(memory.age.size, min(_SAMPLED, memory.age.size), replace=False)
                age = memory.age
                if not world.current:
                    jitter = age * np.exp(rng.uniform(-1.5, 1.5, shape) * (rng.random(shape) < 0.5))
                    age = np.maximum(np.rint(jitter), 1.0)
                rate = env.world.rate if world.current else arrival
                current = Sources(np.maximum(rate, 1e-12), utility, decay, period=fleet.period)
                index = renewal_arm(current, env.task.arrivals.decay).index_at_age(age)
                label = (index / unit).reshape(-1)[cells]
                parts.append(
                    Rows(inputs[cells], context, cells // shape[1],
                         basis_of(age.reshape(-1)[cells], centre[cells] / tour),
                         label.astype(np.float32))
                )  # fmt: skip
        if network is None:
            flow = memory.sums[..., 3] / np.maximum(
                memory.sums[..., 3].mean(-1, keepdims=True), 1e-30
            )
            plug_in = np.log((flow + 0.5) / (memory.sums[..., 7] + 0.5))
            score = np.log(np.maximum(memory.age, 1.0)) + trust * plug_in + noise
            priority = graded(np.exp(np.clip(score, -50, 50)), None)
        else:
            memory = agent.infer(view, memory, crawled)
            priority = graded(agent.index(memory) * np.exp(0.6 * noise), None)
        memory = memory._replace(clock=memory.clock + 1.0)
        observation = env.step(priority)[0]
    return joined(parts)


def joined(parts: list[Rows]) -> Rows:
    """Return all rows together."""
    first = np.cumsum([0, *(len(part.context) for part in parts[:-1])])
    groups = [part.group + at for part, at in zip(parts, first, strict=True)]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    rows = Rows(*columns)._replace(group=np.concatenate(groups))
    sound = (rows.label > 0) & np.isfinite(rows.label) & np.isfinite(rows.inputs).all(axis=1)
    return rows._replace(
        inputs=rows.inputs[sound],
        group=rows.group[sound],
        basis=rows.basis[sound],
        label=rows.label[sound],
    )


def basis_of(age: FloatArray, decay: Array32) -> Array32:
    """Return the curves of the decays δκ, δ (K,) per step, at ages, (K,) steps: (K, J)."""
    decays = decay[:, None].astype(np.float64) * DECAYS
    arms = UnitArms(decays, decays, np.ones(_J), 1.0)  # u* = 1
    ages = np.repeat(age[:, None], _J, axis=1)
    return arms.index_at_age(np.ones_like(ages), ages).astype(np.float32)


class Torch(nn.Module):
    """`Network` as a module."""

    mean: Tensor
    std: Tensor

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.first, self.context = nn.Linear(F, hidden, bias=False), nn.Linear(C, hidden)
        self.second, self.out = nn.Linear(hidden, hidden), nn.Linear(hidden, 2 * _J)
        self.linear = nn.Linear(F, 2 * _J, bias=False)
        for weight in (self.out.weight, self.linear.weight):
            nn.init.zeros_(weight)
        with torch.no_grad():  # at first, the plug-in index
            self.out.bias.copy_(torch.log(torch.tensor(DECAYS == 1.0) * 0.9 + 0.02).repeat(2))
        self.register_buffer("mean", torch.zeros(F + C))
        self.register_buffer("std", torch.ones(F + C))

    def forward(self, inputs: Tensor, context: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logarithms of the mean and of the quantile, (K,)."""
        x = ((inputs - self.mean[:F]) / self.std[:F]).clamp(-8, 8)
        c = ((context - self.mean[F:]) / self.std[F:]).clamp(-8, 8)
        hidden = torch.relu(self.first(x) + self.context(c))
        hidden = torch.relu(self.second(hidden))
        out = self.out(hidden) + self.linear(x) + inputs[:, PLUG_IN, None]
        log = out.reshape(-1, 2, _J) + torch.log(basis + 1e-30)[:, None]
        mean, quantile = torch.logsumexp(log, dim=-1).unbind(-1)
        return mean, quantile

    def standardise(self, rows: Rows, without: str) -> None:
        """Standardise the inputs by those of rows; hide a group of them."""
        parts = rows.inputs, rows.context
        self.mean.copy_(torch.from_numpy(np.concatenate([x.mean(0) for x in parts])))
        std = np.concatenate([x.std(0) for x in parts])
        std = np.maximum(std, 0.05)
        std[list(GROUPS.get(without, ()))] = _HIDDEN
        self.std.copy_(torch.from_numpy(std))

    def load(self, network: Network) -> None:
        """Take the weights of a network."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                owner, _, kind = name.partition(".")
                bias = {"context": "bias", "second": "bias_2", "out": "bias_out"}
                weights = getattr(network, bias[owner] if kind == "bias" else owner)
                parameter.copy_(torch.from_numpy(np.array(weights).T))
            self.mean.copy_(torch.from_numpy(np.array(network.mean)))
            self.std.copy_(torch.from_numpy(np.array(network.std)))

    def network(self, optimism: float, growth: float = 0.0) -> Network:
        """Return the weights."""

        def array(x: Tensor, transposed: bool = False) -> Array32:
            y = x.detach().numpy().astype(np.float32)
            return np.ascontiguousarray(y.T if transposed else y)

        return Network(
            array(self.mean), array(self.std), array(self.first.weight, True),
            array(self.context.weight, True), array(self.context.bias),
            array(self.second.weight, True), array(self.second.bias),
            array(self.out.weight, True), array(self.linear.weight, True),
            array(self.out.bias), np.array([optimism, growth], dtype=np.float32),
        )  # fmt: skip


def fit(module: Torch, rows: Rows, settings: Settings, epochs: int, seed: int) -> dict[str, float]:
    """Fit a module to rows; return the losses in the last epoch."""
    order = torch.Generator().manual_seed(seed)
    inputs, context, basis, label = (
        torch.from_numpy(x) for x in (rows.inputs, rows.context, rows.basis, rows.label)
    )
    group = torch.from_numpy(rows.group)
    log = torch.log(label)
    optimiser = torch.optim.AdamW(module.parameters(), settings.learning_rate, weight_decay=1e-3)
    batches = len(label) // settings.batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, settings.learning_rate, total_steps=max(1, epochs * batches), pct_start=0.1
    )
    losses = np.zeros(2)
    for _ in range(epochs):
        losses[:] = 0.0
        shuffled = torch.randperm(len(label), generator=order)
        for k in range(batches):
            at = shuffled[k * settings.batch : (k + 1) * settings.batch]
            blur = settings.blur * module.std[F:] * torch.randn(settings.batch, C, generator=order)
            mean, quantile = module(inputs[at], context[group[at]] + blur, basis[at])
            error = log[at] - mean
            beyond = (error - _EXTREME).clamp(min=0)  # where the deviance continues as a line
            deviance = (torch.exp(error.clamp(max=_EXTREME)) * (1 + beyond) - error - 1).mean()
            error = log[at] - quantile
            pinball = torch.maximum(
                settings.quantile * error, (settings.quantile - 1) * error
            ).mean()
            optimiser.zero_grad()
            (deviance + pinball).backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            losses += deviance.item(), pinball.item()
    mean_loss, quantile_loss = losses / max(1, batches)
    return {"deviance": float(mean_loss), "pinball": float(quantile_loss)}


def train(
    settings: Settings,
    *,
    start: Network | None = None,
    own: Sources | None = None,
    log: ItemLog | None = None,
    processes: int = 2,
    show: Callable[[str], object] = print,
) -> tuple[Network, dict[str, Any]]:
    """Return a trained network, and how it was made.

    Arguments:
        start: the network to begin with; None for a new one.
        own: a fleet whose sources are those of every other world.
        log: what they published, which is replayed in half of these.
        processes: that simulate; the rows do not depend on their number.
        show: called with a line of text after every round.
    """
    torch.manual_seed(settings.seed)
    module = Torch(settings.hidden if start is None else len(start.bias))
    if start is not None:
        module.load(start)
    parts: list[Rows] = []
    history = []
    network = start
    pool = None
    if processes > 1:
        pool = ProcessPoolExecutor(processes, get_context("spawn"), end_with_parent)
    for number in range(settings.rounds):
        begin = time.monotonic()
        jobs = [
            (settings.seed, number, k, network, *((own, log) if k % 2 == 0 else (None, None)))
            for k in range(settings.worlds)
        ]
        parts += pool.map(_rows_of, jobs) if pool else map(_rows_of, jobs)
        rows = joined(parts)
        simulation = time.monotonic() - begin
        if network is None:
            module.standardise(rows, settings.without)
        last = number == settings.rounds - 1
        epochs = settings.epochs if last else max(1, settings.epochs // 3)
        losses = fit(module, rows, settings, epochs, settings.seed + number)
        network = module.network(settings.optimism, settings.growth)
        history.append({"rows": len(rows.label), **losses})
        fitting = time.monotonic() - begin - simulation
        show(
            f"round {number + 1}: {len(rows.label)} rows, {simulation:.0f} s to simulate, "
            f"{fitting:.0f} s to fit; deviance {losses['deviance']:.4f}, pinball loss "
            f"{losses['pinball']:.4f}"
        )
    if pool:
        pool.shutdown()
    assert network is not None
    return network, {"settings": asdict(settings), "rounds": history}


def _rows_of(job: tuple[Any, ...]) -> Rows:
    seed, number, k, network, own, log = job
    rng = np.random.default_rng((seed, number, k))
    return simulate(draw_world(rng, own, log), network, rng)


def finetune(
    fleet: Sources,
    log: ItemLog | None = None,
    *,
    start: Network | None = None,
    settings: Settings = FINETUNING,
    processes: int = 2,
    show: Callable[[str], object] = print,
) -> tuple[Network, dict[str, Any]]:
    """Return the network of the package, or `start`, trained further on one's own sources.

    In half of the worlds the sources are drawn from the fleet; with a log, half of these replay it.

    Arguments:
        fleet: as fitted to the log by `ephemeral-crawl fit`.
        log: what the sources published.
    """
    begin = shipped() if start is None else start
    return train(settings, start=begin, own=fleet, log=log, processes=processes, show=show)


def _blank() -> Network:
    return Torch(4).network(0.0)


def write(path: Path, network: Network, about: dict[str, Any]) -> str:
    """Write weights and how they were made; return the hash of the weights."""
    arrays = {name: np.ascontiguousarray(x) for name, x in network._asdict().items()}
    digest = hashlib.sha256(b"".join(x.tobytes() for x in arrays.values())).hexdigest()
    about = {**about, "inputs": list(INPUTS), "sha256": digest}
    save_file(arrays, path, metadata={"in-context": json.dumps(about)})
    return digest


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m agents.adaptive.training",
        description="Train the network of the in-context agent, or with --sources train that of "
        "the package further.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="file of the weights")
    for name, text in _FILES.items():
        parser.add_argument(f"--{name}", type=Path, default=argparse.SUPPRESS, help=text)
    group = parser.add_argument_group("settings", "See agents.adaptive.training.Settings.")
    for name, value in asdict(Settings()).items():
        other = getattr(FINETUNING, name)
        default = f"default: {value!r}" + f", with --sources {other!r}" * (other != value)
        option = f"--{name.replace('_', '-')}"
        group.add_argument(option, type=type(value), default=argparse.SUPPRESS, help=default)
    arguments = vars(parser.parse_args())
    out, own = arguments.pop("out"), {name: arguments.pop(name, None) for name in _FILES}
    log, fleet = None, None
    try:
        if (own["curves"] and not own["items"]) or (own["items"] and not own["sources"]):
            raise ValueError("--curves needs --items, and --items needs --sources")
        if own["sources"] and out == WEIGHTS:
            raise ValueError("--sources needs --out, lest the weights of the package be replaced")
        if not out.parent.is_dir():
            raise ValueError(f"--out {out}: there is no folder {out.parent}; make it first")
        if own["sources"]:
            fleet = Sources.from_csv(own["sources"])
        if own["items"]:
            log = ItemLog.from_csv(own["items"], own["curves"])
        settings = replace(Settings() if fleet is None else FINETUNING, **arguments)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    network, about = train(settings) if fleet is None else finetune(fleet, log, settings=settings)
    print(write(out, network, about), out)


if __name__ == "__main__":
    main()
