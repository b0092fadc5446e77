"""What all learners share: `learn`, `predict`, `save`, `load`, as in Stable-Baselines3."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agents.learning import storage
from agents.learning.arms import Arms, CrawlArms
from agents.policies.base import ObservationView
from crawl_env import CrawlVectorEnv, Task
from crawl_env.numerics import FloatArray

Progress = Callable[[int, dict[str, float]], object]


class Learner:
    """Base of the learners.

    A subclass has `name`, `Settings` (a frozen dataclass: its hyper-parameters, all of them),
    `state_features`, and

    - `prepare()`: make what is learnt, from `self.settings`, `self.arms` and `self.rng`;
    - `improve() -> dict`: interact for `epochs_at_once` epochs and learn from them; return what is
      worth logging;
    - `score(state) -> FloatArray`: from states (..., N, D) to scores (..., N) of any sign;
    - `memory() -> tree`, `remember(tree)`: all that learning goes on from, but what is here.

    Arguments:
        arms: what it learns from: a `CrawlVectorEnv`, or anything like `agents.learning.arms.Arms`.
        settings: hyper-parameters; default `Settings()`.
        seed: the same seed gives the same run.
        device: of torch, for those that use it.
    """

    name: ClassVar[str]
    Settings: ClassVar[type]
    state_features: ClassVar[tuple[str, ...]] = ("age",)
    epochs_at_once: ClassVar[int] = 1
    world: ClassVar[type] = Arms  # what it interacts with
    finds_index: ClassVar[bool] = False  # whether scores are Whittle indices, utility / budget unit
    shares: ClassVar[bool] = False  # whether what one source teaches is used for all

    def __init__(
        self, arms: CrawlVectorEnv | Arms, settings: Any = None, seed: int = 0, device: str = "cpu"
    ) -> None:
        self.task: Task | None = None
        if isinstance(arms, CrawlVectorEnv):
            self.task = arms.task
            arms = CrawlArms(arms, self.state_features, seed)
        if not isinstance(arms, self.world):
            raise ValueError(
                f"{arms!r} is no CrawlVectorEnv; make one with gym.make_vec, "
                'vectorization_mode="vector_entry_point" and features=("age", "crawled", "harvest")'
            )
        self.arms: Arms = arms
        self.settings = self.Settings() if settings is None else settings
        if not isinstance(self.settings, self.Settings):
            raise ValueError(
                f"settings are {settings!r}; give those of agent {self.name!r}, which its class "
                f"makes: settings=….Settings({fields(self.Settings)[0].name}=…)"
            )
        check(self.settings, self.name)
        self.seed, self.device = seed, device
        self.rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3,)))
        self.epochs = 0  # of each row, so far
        self.prepare()

    def learn(
        self,
        epochs: int,
        checkpoint: str | PathLike[str] | None = None,
        every: float = 30.0,
        log: str | PathLike[str] | None = None,
        progress: Progress | bool = False,
    ) -> Self:
        """Learn until `epochs` epochs have been seen in all, counting those of earlier calls.

        It ends with a whole improvement, so up to `epochs_at_once` − 1 epochs later. Where as many
        have been seen already, nothing is learnt.

        Arguments:
            checkpoint: file that is written every `every` seconds, at the end, and when stopped
                by Ctrl-C. Where it exists, learning goes on from it, exactly as if never stopped.
            log: folder for TensorBoard.
            progress: True for a bar (tqdm), or what is called with the epochs seen and what is
                worth knowing.

        Raises:
            ValueError: the checkpoint is of another agent, of other settings or another crawl, or
                `epochs` is negative.
            KeyboardInterrupt: after a stop by Ctrl-C; a second one stops at once, unsaved.
        """
        if epochs < 0:
            raise ValueError(f"epochs is {epochs}; give how many are to be seen in all")
        if checkpoint is not None and Path(checkpoint).exists():
            self._go_on_from(checkpoint)
        saved = time.monotonic()
        with (
            _Stop() as stop,
            _log(log, self.epochs) as write,
            _bar(progress, self.name, self.epochs, epochs) as show,
        ):
            while self.epochs < epochs and not stop.asked:
                facts = self.improve()
                self.epochs += self.epochs_at_once
                write(self.epochs, facts)
                show(self.epochs, facts)
                if checkpoint is not None and time.monotonic() - saved > every:
                    self.save(checkpoint)
                    saved = time.monotonic()
            if checkpoint is not None:
                self.save(checkpoint)
        return self

    def predict(
        self,
        observation: ArrayLike,
        state: Any = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[np.float32], Any]:
        """Return priorities for one observation (N, F) or a batch (B, N, F), and the state.

        Raises:
            ValueError: the agent has learnt from no `CrawlVectorEnv`, or the observation is none
                of its task.
        """
        if self.task is None:
            raise ValueError("this agent has learnt from bare arms; only crawls have observations")
        seen = ObservationView(observation, self.task)
        columns = [seen[name] for name in self.state_features]
        priority = ranked(self.score(np.stack(columns, axis=-1)))
        return (priority[0] if seen.single else priority), state

    def save(self, path: str | PathLike[str]) -> None:
        """Write all that learning goes on from; see `agents.learning.storage`."""
        storage.save(
            path,
            {
                "agent": self.name,
                "settings": asdict(self.settings),
                "seed": self.seed,
                "shape": self.arms.shape,
                "epochs": self.epochs,
                "rng": self.rng.bit_generator.state,
                "arms": self.arms.get_state(),
                "memory": self.memory(),
            },
        )

    @classmethod
    def load(
        cls, path: str | PathLike[str], arms: CrawlVectorEnv | Arms, device: str = "cpu"
    ) -> Self:
        """Return a saved agent for an environment that shows it the same features.

        It knows what it had learnt; `learn` goes on in the given environment, begun anew.

        Raises:
            FileNotFoundError: no such file.
            ValueError: the file is no agent of this kind, or of another number of sources.
        """
        saved = cls._read(path)
        with _explained(path):
            agent = cls(arms, cls.Settings(**saved["settings"]), saved["seed"], device)
        agent._remember(path, saved)
        return agent

    def _go_on_from(self, path: str | PathLike[str]) -> None:
        saved = self._read(path)
        with _explained(path):
            for what, mine in (("settings", asdict(self.settings)), ("seed", self.seed)):
                # As they come back: tuples as lists.
                if saved[what] != storage.plain(mine):
                    raise ValueError(
                        f"it was saved with {what} {saved[what]}, this agent has {mine}; name "
                        "another checkpoint, or load the agent from this one"
                    )
            self.arms.set_state(saved["arms"])
        self._remember(path, saved)

    def _remember(self, path: str | PathLike[str], saved: dict[str, Any]) -> None:
        with _explained(path):
            if saved["shape"][1:] != list(self.arms.shape[1:]):
                raise ValueError(
                    f"it has learnt of {saved['shape'][1]} arms with {saved['shape'][2]} numbers "
                    f"each, these are {self.arms.shape[1]} with {self.arms.shape[2]}; give the "
                    "environment it has learnt in"
                )
            self.remember(saved["memory"])
            self.epochs = saved["epochs"]
            self.rng.bit_generator.state = saved["rng"]

    @classmethod
    def _read(cls, path: str | PathLike[str]) -> Any:
        saved = storage.load(path)
        if saved["agent"] != cls.name:
            raise ValueError(f"{path} holds {saved['agent']!r}, not the agent {cls.name!r}")
        return saved

    # -- what a subclass gives -------------------------------------------------------------------

    def prepare(self) -> None:
        """Make what is to be learnt."""
        raise NotImplementedError

    def improve(self) -> dict[str, float]:
        """Interact for `epochs_at_once` epochs, learn from them, return what is worth logging."""
        raise NotImplementedError

    def score(self, state: FloatArray) -> FloatArray:
        """Return what is worth crawling how much, (..., N), in states (..., N, D)."""
        raise NotImplementedError

    def memory(self) -> dict[str, Any]:
        """Return all that `remember` needs: arrays, numbers, text."""
        raise NotImplementedError

    def remember(self, memory: dict[str, Any]) -> None:
        """Return to what was learnt when `memory` was called."""
        raise NotImplementedError


def ranked(score: FloatArray) -> NDArray[np.float32]:
    """Return priorities in (−1, 1] in the order of scores of any sign, (..., N); of equal scores
    the lower number goes first. Ranks lose no order to float32, as the scores themselves could."""
    rank = np.argsort(np.argsort(-score, axis=-1, kind="stable"), axis=-1)
    return (1.0 - 2.0 * rank / score.shape[-1]).astype(np.float32)


def explored(score: FloatArray, share: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return priorities (B, N) that follow the scores, or in a `share` of the rows pure chance."""
    chance = rng.random(len(score)) < share
    return ranked(np.where(chance[:, None], rng.random(score.shape), score))


@contextmanager
def _explained(path: str | PathLike[str]) -> Iterator[None]:
    """Name the file in errors about its content."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is damaged, or of another version of this agent ({error!r}); learn anew"
        ) from None


class _Stop:
    """Turns Ctrl-C into a wish, granted between two improvements; a second one is not asked."""

    asked = False

    def __enter__(self) -> _Stop:
        self._before: Any = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, *_: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, kind: object, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self.asked and kind is None:
            raise KeyboardInterrupt


@contextmanager
def _log(folder: str | PathLike[str] | None, epochs: int) -> Iterator[Progress]:
    """Give what writes for TensorBoard; what a killed run had logged after `epochs` is dropped."""
    if folder is None:
        yield lambda epochs, facts: None
        return
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder), purge_step=epochs + 1) as writer:

        def write(epochs: int, facts: dict[str, float]) -> None:
            for name, value in facts.items():
                writer.add_scalar(name, value, epochs)

        yield write


@contextmanager
def _bar(progress: Progress | bool, name: str, done: int, epochs: int) -> Iterator[Progress]:
    """Give what shows the progress: a bar if that is all that was asked for."""
    if not isinstance(progress, bool):
        yield progress
        return
    if not progress:
        yield lambda epochs, facts: None
        return
    from tqdm import tqdm

    with tqdm(total=epochs, initial=done, desc=name, unit="epoch") as bar:

        def show(epochs: int, facts: dict[str, float]) -> None:
            bar.set_postfix({what: f"{value:.4g}" for what, value in facts.items()}, refresh=False)
            bar.update(min(epochs, bar.total) - bar.n)

        yield show


_SHARES = ("discount", "explore", "follow", "gae_lambda", "gamma", "tau", "trace")
_OF_ANY_SIGN = ("log_std_init",)


def check(settings: Any, agent: str) -> None:
    """Raise ValueError unless whole numbers are at least 1, shares from 0 to 1, and other numbers
    finite and not negative; what they are is told by annotation and name."""
    for field in fields(settings):
        value, wrong = getattr(settings, field.name), ""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if field.type == "int":
            if not (number and isinstance(value, int) and value >= 1):
                wrong = "give a whole number of at least 1"
        elif field.type == "float":
            if not (number and math.isfinite(value)):
                wrong = "give a finite number"
            elif field.name in _SHARES and not 0 <= value <= 1:
                wrong = "it is a share, from 0 to 1"
            elif value < 0 and field.name not in _OF_ANY_SIGN:
                wrong = "it must not be negative"
        if wrong:
            raise ValueError(f"{agent}: {field.name} is {value!r}; {wrong}")
