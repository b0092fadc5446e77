"""Names that have changed in recorded jobs, so that old records stay valid.

A job is JSON, and the hash of that JSON is the key of its results in a record. Renaming an
argument, a task or a hyper-parameter therefore changes the key of a result but not the result.
`RENAMES` lists these renamings, oldest first. `renamed` translates JSON that was written under old
names, `previous` translates back, and `key_of` and `old_keys` return the key of a job under its
present and under all earlier names, so that records made before a renaming are still recognised.

To rename something that is part of a job, append it to `RENAMES`; nothing has to be run again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Key:
    """A renamed key of JSON objects.

    Arguments:
        old, new: the names.
        within: only in objects that are the value of this key, or members of a list that is;
            default in all objects.
        when: only in jobs whose top-level key has one of these values: (key, values).
    """

    old: str
    new: str
    within: str = ""
    when: tuple[str, tuple[str, ...]] | None = None

    def applied(self, job: Any, back: bool = False) -> Any:
        """Return the JSON under the new name, or back under the old one."""
        old, new = (self.new, self.old) if back else (self.old, self.new)
        if self.when is not None:
            key, values = self.when
            if not (isinstance(job, dict) and job.get(key) in values):
                return job
        return self._walk(job, "", old, new)

    def _walk(self, node: Any, parent: str, old: str, new: str) -> Any:
        if isinstance(node, list):
            return [self._walk(child, parent, old, new) for child in node]
        if not isinstance(node, dict):
            return node
        here = not self.within or self.within == parent
        if here and old in node and new in node:
            raise ValueError(f"cannot rename {old!r} to {new!r}: the record has both names")
        return {
            new if here and key == old else key: (
                self._walk(child, key, old, new) if isinstance(child, dict | list) else child
            )
            for key, child in node.items()
        }


@dataclass(frozen=True)
class Value:
    """A renamed value of a key, also where the key holds a list of values.

    Arguments:
        key: its key, in any object.
        old, new: the values.
    """

    key: str
    old: str
    new: str

    def applied(self, job: Any, back: bool = False) -> Any:
        """Return the JSON with the new value, or back with the old one."""
        old, new = (self.new, self.old) if back else (self.old, self.new)
        return self._walk(job, "", old, new)

    def _walk(self, node: Any, parent: str, old: str, new: str) -> Any:
        if isinstance(node, dict):
            return {
                key: self._walk(child, key, old, new)
                if key == self.key or isinstance(child, dict | list)
                else child
                for key, child in node.items()
            }
        if isinstance(node, list):
            return [self._walk(child, parent, old, new) for child in node]
        return new if parent == self.key and node == old else node


@dataclass(frozen=True)
class Text:
    """A renamed part of the text of some keys.

    Arguments:
        keys: the keys whose values are texts, in any object.
        old, new: the parts. Old texts must not contain `new`, so that they can be translated back.
    """

    keys: tuple[str, ...]
    old: str
    new: str

    def applied(self, job: Any, back: bool = False) -> Any:
        """Return the JSON with the new text, or back with the old one."""
        old, new = (self.new, self.old) if back else (self.old, self.new)
        return self._walk(job, "", old, new)

    def _walk(self, node: Any, parent: str, old: str, new: str) -> Any:
        if isinstance(node, dict):
            return {
                key: self._walk(child, key, old, new)
                if key in self.keys or isinstance(child, dict | list)
                else child
                for key, child in node.items()
            }
        if isinstance(node, list):
            return [self._walk(child, parent, old, new) for child in node]
        return node.replace(old, new) if isinstance(node, str) and parent in self.keys else node


Rename = Key | Value | Text


def _of_learners(names: str, *pairs: tuple[str, str]) -> tuple[Key, ...]:
    """Return renamings of the hyper-parameters of some learners."""
    when = ("learner", tuple(names.split()))
    return tuple(Key(old, new, "settings", when) for old, new in pairs)


_EPSILON, _GAMMA, _TAU = ("explore", "epsilon"), ("discount", "gamma"), ("follow", "tau")
_RATE = ("rate", "learning_rate")
_MULTIPLIER = ("slow", "multiplier_learning_rate")
_TASK = ("group", "task")
_BUFFER = (("batch", "batch_size"), ("replay", "buffer_size"))

RENAMES: tuple[Rename, ...] = (
    *_of_learners(
        "whittle-q lagrange-q lspe wiql",
        ("states", "max_age"),
        _EPSILON,
        ("visits", "learning_rate_decay_visits"),
        ("settle", "multiplier_decay_steps"),
    ),
    *_of_learners("whittle-q lspe wiql", ("fast", "learning_rate")),
    *_of_learners("lagrange-q", ("fast", "activity_learning_rate"), ("medium", "learning_rate")),
    *_of_learners("whittle-q lagrange-q lspe qwinn", _MULTIPLIER),
    *_of_learners("wiql neurwin deeptop qwinn", _GAMMA),
    *_of_learners(
        "neurwin",
        ("epochs", "n_steps"),
        ("episodes", "n_episodes"),
        ("sharp", "sigmoid_scale"),
        ("oldest", "max_age"),
        _RATE,
    ),
    *_of_learners("deeptop qwinn", _EPSILON, *_BUFFER, _TAU),
    *_of_learners(
        "deeptop",
        ("oldest", "max_age"),
        ("critic_rate", "critic_learning_rate"),
        ("actor_rate", "actor_learning_rate"),
    ),
    *_of_learners("qwinn", ("states", "max_age"), _RATE, ("visits", "multiplier_decay_steps")),
    *_of_learners(
        "equivariant-ppo equivariant-index",
        ("window", "n_steps"),
        _RATE,
        ("slower", "learning_rate_decay_updates"),
        ("latest", "averaging_power"),
    ),
    *_of_learners(
        "equivariant-ppo",
        ("trace", "gae_lambda"),
        ("passes", "n_epochs"),
        ("batches", "n_minibatches"),
        ("few", "small_fleet"),
        ("entropy", "ent_coef"),
        ("clip", "clip_range"),
        ("steepest", "max_grad_norm"),
    ),
    *_of_learners(
        "equivariant-index",
        ("sequences", "max_sequences"),
        *_BUFFER,
        ("updates", "gradient_steps"),
        ("trace", "trace_decay"),
        _TAU,
        ("noise", "exploration_noise"),
        ("jitter", "noise_jitter"),
        ("spread", "multiplier_std"),
    ),
    *_of_learners("ppo maskable-ppo", ("batches", "n_minibatches")),
    *_of_learners("td3", ("noise", "action_noise_std")),
    *_of_learners("dqn qr-dqn", ("exploring", "exploration_steps")),
    Key("player", "entrant"),
    Key("rows", "num_envs"),
    Key("epochs", "steps"),
    Key("pauses", "evaluate_at"),
    Key("practice", "environments"),
    Key("exams", "tests"),
    Key("index_epochs", "index_steps"),
    Key("crawl_epochs", "env_steps"),
    Key("source_epochs", "source_steps"),
    Value("budget_rule", "epoch", "step"),
    Value("features", "account", "balance"),
    Key("unit", "job"),
    Value("entrant", "bound without seeing", "bound-unobserved"),
    Value("information", "unseen", "not observed"),
    Value("information", "mixed", "partly observed"),
    Value("information", "seen", "observed"),
    Text(_TASK, "not seen", "not observed"),
    Text(_TASK, "budget in every epoch", "budget per step"),
    Text(_TASK, "budget on average", "average budget"),
    Text(_TASK, "Σ .99^t r_t over 300 epochs", "Σ 0.99^t r_t over 300 steps"),
    Text(_TASK, "mean of epochs 6 000 … 11 999", "mean reward of steps 6,000–11,999"),
    Text(_TASK, "another fleet in each", "a different fleet in each"),
    Text(_TASK, "some sources seen, some not; and costs", "some sources observed, some not; costs"),
    Text(_TASK, "every other source seen", "every other source observed"),
    Text(_TASK, "Fleets drawn anew, M", "A new fleet in every episode, M"),
    Text(_TASK, "; parameters in view", "; parameters observed"),
)


def renamed(tree: Any, renames: Sequence[Rename] = RENAMES) -> Any:
    """Return JSON that was written under old names with the present names.

    >>> names = Key("explore", "epsilon", "settings"), Value("features", "account", "balance")
    >>> renamed({"settings": {"explore": 0.1}, "features": ["age", "account"]}, names)
    {'settings': {'epsilon': 0.1}, 'features': ['age', 'balance']}
    """
    text = json.dumps(tree, ensure_ascii=False)
    for rename in renames:
        if rename.old in text:  # most trees have few old names, and records have many trees
            tree = rename.applied(tree)
            text = json.dumps(tree, ensure_ascii=False)
    return tree


def previous(tree: Any, renames: Sequence[Rename] = RENAMES) -> Any:
    """Return JSON with the names that it had before all of these renamings.

    >>> previous({"settings": {"epsilon": 0.1}}, (Key("explore", "epsilon", within="settings"),))
    {'settings': {'explore': 0.1}}
    """
    for rename in reversed(renames):
        tree = rename.applied(tree, back=True)
    return tree


def key_of(job: Any) -> str:
    """Return the key of a job: a hash of its JSON."""
    return hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()[:12]


def old_keys(job: Any, renames: Sequence[Rename] = RENAMES) -> list[str]:
    """Return the keys that a job had before each of the renamings, latest first.

    They include every key that the job has had, since renamings take effect in the listed order.
    """
    keys = []
    for rename in reversed(renames):
        job = rename.applied(job, back=True)
        keys.append(key_of(job))
    return list(dict.fromkeys(keys))
