"""`Learner`, the base class of all learners: `learn`, `predict`, `save`, `load` as in
Stable-Baselines3."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.learning import storage
from agents.learning.arms import Arms, CrawlArms
from agents.policies.base import ObservationView, Policy
from crawl_env import CrawlVectorEnv, Task
from crawl_env.envs.torch_env import usable_device
from crawl_env.errors import check_flag, check_whole, check_within
from crawl_env.numerics import FloatArray, ranks
from crawl_env.rng import generator

S = TypeVar("S")  # the settings of a learner
Progress = Callable[[int, dict[str, float]], object]


class Learner(Policy, Generic[S]):
    """Base class of the learners.

    A subclass has a `name`, `Settings` (a frozen dataclass of all its hyper-parameters) and

    - `setup()`: create the parameters to be learnt, from `self.settings`, `self.arms`, `self.rng`;
    - `update() -> dict`: interact for `steps_per_update` steps, learn from them, return metrics;
    - `score(state) -> FloatArray`: map states (..., N, D) to scores (..., N) of any sign;
    - `learnt`: the attributes that are saved, by their names in the file: arrays, numbers, torch
      modules and optimizers, or objects with `state_dict` and `load_state_dict`. This class saves
      the number of steps, the random generator and the state of the environment, too.

    `agents/learning/tabular/wiql.py` is the shortest example.

    Arguments:
        arms: a `CrawlVectorEnv`, or another implementation of `agents.learning.arms.Arms`.
        settings: hyper-parameters; default `Settings()`.
        seed: seed of training, a whole number; runs with equal seeds are identical.
        device: torch device of neural learners; "auto" is a GPU where there is one.

    Raises:
        ValueError: the environment lacks a feature, or its actions or budget rule are not
            supported; the settings are those of another learner, or out of range; the seed is
            None, negative or no whole number; this machine lacks the device.
    """

    name: ClassVar[str]
    Settings: ClassVar[type]
    state_features: ClassVar[tuple[str, ...]] = ("age",)
    task: Task | None  # type: ignore[assignment]  # None if trained on other arms
    steps_per_update: int = 1
    arms_type: ClassVar[type] = Arms  # type of the arms that it interacts with
    estimates_index: ClassVar[bool] = False  # whether scores are Whittle indices, utility / budget
    size_settings: ClassVar[tuple[str, ...]] = ()  # settings that determine sizes of learnt arrays
    prior_knowledge: ClassVar[str] = ""  # information given besides the observations
    learnt: ClassVar[Mapping[str, str]] = {}
    not_negative: ClassVar[tuple[str, ...]] = ()  # of `learnt`

    def __init__(
        self,
        arms: CrawlVectorEnv | Arms,
        settings: S | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self.seed = check_whole("seed", seed, 0)
        if isinstance(arms, CrawlVectorEnv):
            self.task = arms.task
            arms = CrawlArms(arms, self.state_features, seed)
        else:
            self.task = None
        if not isinstance(arms, self.arms_type):
            raise ValueError(
                f"{arms!r} is not a CrawlVectorEnv; make one with gym.make_vec, "
                'vectorization_mode="vector_entry_point" and features=("age", "crawled", "harvest")'
            )
        self.arms: Arms = arms
        self.settings: S = self.Settings() if settings is None else settings
        if not isinstance(self.settings, self.Settings):
            raise ValueError(
                f"settings is {settings!r}; agent {self.name!r} needs an instance of "
                f"{self.Settings.__name__}({fields(self.Settings)[0].name}=…)"
            )
        check_settings(self.settings, self.name)
        self.device = str(usable_device(device))
        self.rng = generator(seed, "learner")
        self.steps = 0  # steps of each environment so far
        self.setup()

    def learn(
        self,
        total_steps: int,
        checkpoint: str | PathLike[str] | None = None,
        checkpoint_interval: float = 30.0,
        tensorboard_log: str | PathLike[str] | None = None,
        progress: Progress | bool = False,
    ) -> Self:
        """Learn for `total_steps` more steps of each environment.

        The last update is completed, so that up to `steps_per_update` − 1 more steps may be taken;
        `steps` counts all of them.

        Arguments:
            total_steps: number of steps added to `steps`, as in Stable-Baselines3.
            checkpoint: file of a checkpoint. It is written every `checkpoint_interval` seconds, at
                the end, and on Ctrl-C. If it exists, learning resumes from it exactly as without
                an interruption, and its steps count towards the total of this call.
            tensorboard_log: directory of a TensorBoard log.
            progress: True for a progress bar (tqdm), or a function that is called after each update
                with `steps` and the metrics.

        Raises:
            ValueError: `total_steps` is negative; the checkpoint is damaged or belongs to another
                agent, other settings or another environment; or learning diverges, in which case
                the checkpoint stays as it was.
            KeyboardInterrupt: after Ctrl-C, once the running update is completed and the checkpoint
                written; a second Ctrl-C interrupts at once, without writing.
        """
        target = self.steps + check_whole("total_steps", total_steps, 0)
        if checkpoint is not None and Path(checkpoint).exists():
            self._resume(checkpoint)
        saved = time.monotonic()
        with (
            _Interrupt() as interrupt,
            _tensorboard(tensorboard_log, self.steps) as write,
            _bar(progress, self.name, self.steps, target) as show,
        ):
            while self.steps < target and not interrupt.requested:
                metrics = self._updated()
                self.steps += self.steps_per_update
                write(self.steps, metrics)
                show(self.steps, metrics)
                if checkpoint is not None and time.monotonic() - saved > checkpoint_interval:
                    self.save(checkpoint)
                    saved = time.monotonic()
            if checkpoint is not None:
                self.save(checkpoint)
        return self

    def _updated(self) -> dict[str, float]:
        """Return what `update` returns; raise ValueError if it fails because learning diverges."""
        try:
            return self.update()
        except ValueError as error:
            if self.has_diverged(self.state_dict()):
                raise self._divergence() from error
            raise

    def has_diverged(self, learnt: dict[str, Any]) -> bool:
        """Return whether something in what `state_dict` returned is infinite or NaN."""
        return not storage.is_finite(learnt)

    def _divergence(self) -> ValueError:
        return ValueError(
            f"learning of {self.name!r} diverged by step {self.steps:,}: what it learnt holds "
            f"infinite numbers or NaN. Lower the learning rate in the settings, {self.settings!r}"
        )

    def priority(self, view: ObservationView) -> FloatArray:
        """Return priorities in the order of the scores, (B, N)."""
        columns = [view[name] for name in self.state_features]
        return priorities_of(self.score(np.stack(columns, axis=-1))).astype(np.float64)

    def _view(self, observation: ArrayLike) -> ObservationView:
        if self.task is None:
            raise ValueError("this agent was trained on arms without observations; use `score`")
        return super()._view(observation)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the complete state of training to a file; see `agents.learning.storage`.

        Raises:
            ValueError: learning has diverged to numbers that are not finite.
        """
        learnt = self.state_dict()
        if self.has_diverged(learnt):
            raise self._divergence()
        storage.save(
            path,
            {
                "agent": self.name,
                "settings": asdict(self.settings),  # type: ignore[call-overload]
                "seed": self.seed,
                "shape": self.arms.shape,
                "steps": self.steps,
                "rng": self.rng.bit_generator.state,
                "arms": self.arms.get_state(),
                "learnt": learnt,
            },
        )

    @classmethod
    def load(
        cls, path: str | PathLike[str], arms: CrawlVectorEnv | Arms, device: str = "cpu"
    ) -> Self:
        """Return a saved agent, for an environment with the same features.

        `learn` continues from the saved parameters in the given environment, which is reset.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is damaged, or holds another kind of agent or another number of
                sources; the message names the file and the reason.
        """
        saved = cls._read(path)
        with _naming(path):
            agent = cls(arms, cls.Settings(**saved["settings"]), saved["seed"], device)
        agent._restore(path, saved)
        return agent

    def _resume(self, path: str | PathLike[str]) -> None:
        saved = self._read(path)
        with _naming(path):
            mine = {"settings": asdict(self.settings), "seed": self.seed}  # type: ignore[call-overload]
            for what, value in storage.plain(mine).items():  # tuples as lists, as they are loaded
                if saved[what] != value:
                    raise ValueError(
                        f"it was saved with {what} {saved[what]}, and this agent has {mine[what]}; "
                        "use another checkpoint, or load the agent from this one"
                    )
            self.arms.set_state(saved["arms"])
        self._restore(path, saved)

    def _restore(self, path: str | PathLike[str], saved: dict[str, Any]) -> None:
        """Restore the saved state, except for that of the environment."""
        with _naming(path):
            if saved["shape"][1:] != list(self.arms.shape[1:]):
                raise ValueError(
                    f"the agent was trained on {saved['shape'][1]} arms with {saved['shape'][2]} "
                    f"features each, and these are {self.arms.shape[1]} with {self.arms.shape[2]}; "
                    "use an environment like that of training"
                )
            storage.check_generator(saved["rng"], self.rng.bit_generator.state, "rng")
            storage.check_keys(saved["learnt"], self.state_dict(), "learnt")
            self.load_state_dict(saved["learnt"])
            self.steps = check_whole("steps", saved["steps"], 0)
            self.rng.bit_generator.state = saved["rng"]

    @classmethod
    def _read(cls, path: str | PathLike[str]) -> Any:
        saved = storage.load(path)
        if saved["agent"] != cls.name:
            raise ValueError(f"{path} holds {saved['agent']!r}, not the agent {cls.name!r}")
        with _naming(path):
            keys = ("agent", "settings", "seed", "shape", "steps", "rng", "arms", "learnt")
            storage.check_keys(saved, keys, "the file")
            storage.check_like(saved["shape"], [0, 0, 0], "shape")
            check_whole("seed", saved["seed"], 0)
            check_sizes(saved["settings"], cls.size_settings, storage.elements(saved["learnt"]))
        return saved

    # -- implemented by subclasses ---------------------------------------------------------------

    def setup(self) -> None:
        """Create the parameters to be learnt."""
        raise NotImplementedError

    def update(self) -> dict[str, float]:
        """Interact for `steps_per_update` steps, learn from them, and return metrics to log."""
        raise NotImplementedError

    def score(self, state: FloatArray) -> FloatArray:
        """Return scores (..., N) of states (..., N, D); larger scores are crawled first."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return the learnt state: a tree of arrays, numbers and text."""
        return {
            name: storage.state_of(attrgetter(path)(self)) for name, path in self.learnt.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state returned by `state_dict`, which may come from a file.

        Raises:
            ValueError: an array or a number has another type, shape or range. Everything is
                validated before it is used (`agents.learning.storage.restored`).
        """
        for name, path in self.learnt.items():
            *owner, attribute = path.split(".")
            holder = attrgetter(".".join(owner))(self) if owner else self
            low = 0.0 if name in self.not_negative else -math.inf
            part = storage.restored(getattr(holder, attribute), state[name], name, low)
            setattr(holder, attribute, part)


def priorities_of(score: FloatArray) -> NDArray[np.float32]:
    """Return priorities in (−1, 1] in the order of scores of any sign, (..., N).

    Of equal scores, the source with the lower number has the higher priority. Ranks preserve the
    order in float32, which the scores themselves might not.

    Raises:
        ValueError: a score is NaN, which has no rank.
    """
    if np.isnan(score).any():
        raise ValueError(
            "the learnt score of a source is NaN, because learning has diverged; train the agent "
            "again with a lower learning rate"
        )
    rank = ranks(score)
    return (1.0 - 2.0 * rank / score.shape[-1]).astype(np.float32)


def epsilon_greedy(
    score: FloatArray, epsilon: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Return priorities (B, N) in the order of the scores, or in random order with probability ε,
    drawn for each environment."""
    random = rng.random(len(score)) < epsilon
    return priorities_of(np.where(random[:, None], rng.random(score.shape), score))


# -- checks of settings --------------------------------------------------------------------------

_FRACTIONS = (
    *("epsilon", "exploration_final_eps", "exploration_initial_eps"),
    *("gae_lambda", "gamma", "tau", "trace_decay"),
)
_ANY_SIGN = ("log_std_init",)


def check_settings(settings: Any, agent: str) -> None:
    """Raise ValueError unless whole numbers are at least 1, fractions between 0 and 1, other
    numbers finite and not negative, and flags true or false; the kind follows from the annotation
    and name of a field."""
    for field in fields(settings):
        value, name = getattr(settings, field.name), f"{agent}: {field.name}"
        if field.type == "int":
            check_whole(name, value)
        elif field.type == "float":
            low = -math.inf if field.name in _ANY_SIGN else 0.0
            check_within(name, value, low, 1.0 if field.name in _FRACTIONS else math.inf)
        elif field.type == "bool":
            check_flag(name, value)


def check_sizes(settings: Any, names: tuple[str, ...], elements: int) -> None:
    """Raise ValueError if the settings in a file imply arrays far larger than those in it.

    A learnt array has at least as many elements as a hidden layer has weights, or a table has
    states.
    """
    if not isinstance(settings, Mapping):
        raise ValueError("the settings are not a dictionary")
    for name in names:
        size = check_whole(name, settings[name])
        if (size**2 if name == "hidden" else size) > elements:
            raise ValueError(
                f"{name} is {size}, but the arrays of the file have only {elements} elements in all"
            )


@contextmanager
def _naming(path: str | PathLike[str]) -> Iterator[None]:
    """Add the path of the file to errors about its content."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    except (
        *(LookupError, TypeError, AttributeError, OverflowError, MemoryError, RuntimeError),
        RecursionError,
    ) as error:
        raise ValueError(
            f"{path} is damaged, or of another version of this agent ({error!r}); train it again"
        ) from None


# -- helpers of `learn` --------------------------------------------------------------------------


class _Interrupt:
    """Defers the first Ctrl-C until the current update is completed."""

    requested = False

    def __enter__(self) -> _Interrupt:
        self._before: Any = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._request)
        return self

    def _request(self, *_: object) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def __exit__(self, kind: object, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self.requested and kind is None:
            raise KeyboardInterrupt


@contextmanager
def _tensorboard(folder: str | PathLike[str] | None, steps: int) -> Iterator[Progress]:
    """Yield a function that logs metrics; entries of a killed run after `steps` are purged."""
    if folder is None:
        yield lambda steps, metrics: None
        return
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder), purge_step=steps + 1) as writer:

        def write(steps: int, metrics: dict[str, float]) -> None:
            for name, value in metrics.items():
                writer.add_scalar(name, value, steps)

        yield write


@contextmanager
def _bar(progress: Progress | bool, name: str, start: int, target: int) -> Iterator[Progress]:
    """Yield a function that updates the progress bar."""
    if not isinstance(progress, bool):
        yield progress
        return
    if not progress:
        yield lambda steps, metrics: None
        return
    from tqdm import tqdm

    with tqdm(total=target, initial=start, desc=name, unit="step") as bar:

        def show(steps: int, metrics: dict[str, float]) -> None:
            texts = {what: f"{value:.4g}" for what, value in metrics.items()}
            bar.set_postfix(texts, refresh=False)
            bar.update(min(steps, bar.total) - bar.n)

        yield show
