"""The search: Optuna's tree-structured Parzen estimator, in a file that it goes on from.

J. Bergstra et al., Algorithms for hyper-parameter optimization, NeurIPS 2011; T. Akiba et al.,
Optuna: a next-generation hyperparameter optimization framework, KDD 2019, arXiv 1907.10902.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from experiments.tune.spaces import Space
from experiments.tune.trials import Outcome, Settings

FILE = "search.jsonl"
_ABOUT = "about"


class Trial(NamedTuple):
    """A finished trial."""

    number: int
    settings: Settings  # that were searched
    outcome: Outcome


class Search:
    """Trials of settings within a space, the defaults first, kept in a file.

    Each proposal depends on `seed` and on the trials before it alone, so that a search that was
    stopped goes on as if it had not been.

    Arguments:
        about: what the trials depend on besides their settings.

    Raises:
        ValueError: the file is damaged, or is of a search about something else.
    """

    def __init__(
        self, file: Path, space: Space, defaults: Settings, about: Mapping[str, str], seed: int
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space, self._seed = space, seed
        self._searched = {name: defaults[name] for name in space}
        about = {**about, "space": str(dict(space)), "seed of the search": str(seed)}
        self._study = _study(file)
        known = self._study.user_attrs.setdefault(_ABOUT, about)
        differing = [name for name in about if known.get(name) != about[name]]
        if differing:
            raise ValueError(
                f"{file} holds a search with other {', '.join(differing)}; name another --out, or "
                "delete it to begin anew"
            )
        self._study.set_user_attr(_ABOUT, about)

    @property
    def trials(self) -> list[Trial]:
        """The finished trials."""
        facts = self._study.user_attrs
        return [
            Trial(trial.number, self._taken(trial), Outcome(**facts[str(trial.number)]))
            for trial in self._study.get_trials(states=[TrialState.COMPLETE])
        ]

    @property
    def default(self) -> Trial:
        return next(trial for trial in self.trials if trial.settings == self._searched)

    @property
    def best(self) -> Trial:
        """The first of the highest value."""
        return max(self.trials, key=lambda trial: trial.outcome.value)

    def go_on(self, trials: int, examine: Callable[[Settings, bool], Outcome]) -> None:
        """Go on until so many trials are finished, beginning with one that was stopped.

        `examine` is given settings, and whether they are the defaults.
        """
        while len(self.trials) < trials:
            trial = self._next()
            settings = self._taken(trial)
            outcome = examine(settings, settings == self._searched)
            # Before the trial is told to be finished, so that none is without.
            self._study.set_user_attr(str(trial.number), asdict(outcome))
            self._study.tell(trial.number, outcome.value)
            best = self.best
            broken = f", {outcome.broken} broke off: {outcome.error}" * bool(outcome.broken)
            print(
                f"trial {trial.number} of {trials}: {outcome.value:.4f}{broken}; "
                f"best {best.outcome.value:.4f} (trial {best.number})",
                flush=True,
            )

    def _next(self) -> FrozenTrial:
        """Return the trial that was stopped, or a new one."""
        for trial in self._study.get_trials(states=[TrialState.RUNNING]):
            if set(trial.params) == set(self._space):
                return trial
            self._study.tell(trial.number, state=TrialState.FAIL)  # stopped while it was proposed
        number = len(self._study.get_trials())
        if not self._study.get_trials(states=[TrialState.WAITING, TrialState.COMPLETE]):
            self._study.enqueue_trial(
                {name: r.proposed(self._searched[name]) for name, r in self._space.items()}
            )
        draw = np.random.SeedSequence(self._seed, spawn_key=(number,)).generate_state(1)
        self._study.sampler = TPESampler(seed=int(draw[0]))
        asked = self._study.ask({name: r.distribution() for name, r in self._space.items()})
        return self._study.get_trials()[asked.number]

    def _taken(self, trial: FrozenTrial) -> dict[str, Any]:
        return {name: r.taken(trial.params[name]) for name, r in self._space.items()}


def _study(file: Path) -> optuna.Study:
    try:
        storage = JournalStorage(JournalFileBackend(str(file)))
        return optuna.create_study(
            storage=storage, study_name="search", direction="maximize", load_if_exists=True
        )
    except (ValueError, LookupError) as error:
        raise ValueError(f"{file} is damaged ({error}); delete it, or name another --out") from None
