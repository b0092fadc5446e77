"""Indices, bounds and optima.

The index and the bound of a fleet or a task, and the optimum of a small one, are functions of
`agents`. Here are the arms behind them: a source alone, crawled at a Lagrange multiplier λ; what
is optimal at λ*; and constant frequencies. `closed_form` is the home of the Whittle index and its
inverse, `price` that of the searches for λ.
"""

from agents.theory.arm import Information, SingleArm, arm_of, information
from agents.theory.frequencies import static_frequencies, static_reward
from agents.theory.multiplier import BudgetMultiplier
from agents.theory.observed import ObservedArm, solve_arm
from agents.theory.relaxation import Relaxation, net_reward
from agents.theory.renewal import RenewalArm, renewal_arm, simplified
from agents.theory.schedule import RelaxedSchedule, relaxed_schedule
from agents.theory.task_bound import Bound, EngineBound

__all__ = [
    "Bound",
    "BudgetMultiplier",
    "EngineBound",
    "Information",
    "ObservedArm",
    "Relaxation",
    "RelaxedSchedule",
    "RenewalArm",
    "SingleArm",
    "arm_of",
    "information",
    "net_reward",
    "relaxed_schedule",
    "renewal_arm",
    "simplified",
    "solve_arm",
    "static_frequencies",
    "static_reward",
]
