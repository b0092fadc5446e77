"""`python -m experiments decay`: what the Whittle index loses where interest is not exponential."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.core.report import Report
from experiments.core.runner import Job
from experiments.core.study import ParallelStudy, attributed
from experiments.decay import laws, losses
from experiments.decay.laws import LAWS, Named
from experiments.decay.runs import BELIEVERS, RIGHT_MEAN, work

BLIND = (*BELIEVERS, "static", "myopic", "oldest-first", "random")  # minds ages only
SEEING = (*BELIEVERS, "myopic", "random")
# Laws under which content is also drawn where it is not seen.
CHECKED: tuple[Named, ...] = (laws.EXPONENTIAL, ("stretched", (0.4,)), ("lomax", (1.5,)))


@dataclass(kw_only=True)
class Decay(ParallelStudy):
    """What the Whittle index loses where interest decays otherwise than exponentially, as it
    believes: by law of decay, budget, and whether content is seen. Takes some four minutes."""

    seeds: int = 10
    """Random fleets, on which all policies meet the same arrivals."""
    epochs: int = 1200
    """Epochs measured in each run; a quarter of them where content is drawn."""
    warmup: int = 400
    """Epochs before them that are left out."""
    seed: int = 0
    """Seed of the fleets and the arrivals."""

    def run(self) -> None:
        self.check()
        todo = self._units()
        found = self.runner.run(todo, work)
        done = losses.Done(todo, found)
        report = Report("If interest does not decay exponentially: what the Whittle index loses")
        losses.summary(report, done)
        laws.describe(report)
        losses.unseen(report, done)
        losses.seen(report, done)
        losses.check(report, done, CHECKED)
        self.publish(report, {"records.csv": attributed(done.records())})

    def _units(self) -> list[Job]:
        # The longest first: those in which the most items wait.
        return [
            *(
                self._unit(law, policy, fleet, m, drawn=True, observed=True)
                for m in (2, 10, 30)
                for fleet in ("dense", "sparse")
                for law in reversed(losses.SEEN_LAWS)
                for policy in SEEING
            ),
            *(
                self._unit(law, policy, "dense", losses.USUAL, drawn=True, observed=False)
                for law in CHECKED
                for policy in (RIGHT_MEAN, "nutch")
            ),
            *(
                self._unit(law, policy, fleet, m, drawn=False, observed=False)
                for fleet, budgets in (("dense", (2, 10, 30)), ("table1", (1, 2, 3)))
                for m in budgets
                for law in LAWS
                for policy in BLIND
            ),
        ]

    def _unit(
        self, law: Named, policy: str, fleet: str, budget: int, drawn: bool, observed: bool
    ) -> Job:
        return {
            "law": law,
            "policy": policy,
            "fleet": fleet,
            "budget": budget,
            "drawn": drawn,
            "observed": observed,
            "seeds": 1 if fleet == "table1" else self.seeds,
            "seed": self.seed,
            "epochs": self.epochs // 4 if drawn else self.epochs,
            "warmup": self.warmup // 4 if drawn else self.warmup,
        }
