"""Policies, learning agents and bounds for EphemeralCrawl; `make` creates policies by name."""

from agents.adaptive.engine import AdaptiveEngine
from agents.adaptive.in_context import InContext
from agents.adaptive.policies import Certainty, Optimism, SelfTuning, Thompson
from agents.adaptive.stories import AdaptiveStories
from agents.evaluation import compare, evaluate
from agents.evaluation.benchmark import benchmark
from agents.policies.base import Agent, ObservationView, Policy
from agents.policies.checks import WhittleConditional, WhittleLooks
from agents.policies.deadline import DeadlineAssignment, WhittleDeadline
from agents.policies.engine import WhittleEngine
from agents.policies.freshness import Freshness, FreshnessStatic, LambdaCrawl
from agents.policies.index import IndexAgent, Myopic, Whittle, WhittleExact
from agents.policies.industry import Miniflux, Nutch
from agents.policies.knapsack import WhittleKnapsack
from agents.policies.lagrangian import Lagrangian
from agents.policies.periodic import LagrangianPeriodic, WhittlePeriodic
from agents.policies.planner import Planner
from agents.policies.regimes import WhittleCurrent, WhittleRegimes
from agents.policies.simple import Fixed, OldestFirst, PingFirst, Random
from agents.policies.static import Static
from agents.policies.stories import WhittleStories
from agents.policies.topics import GreedyTopics
from agents.registry import AGENTS, make, register
from agents.scheduling import AdaptiveFleetScheduler, FleetScheduler
from agents.theory.index import index_at_age, myopic_index, whittle_index
from agents.theory.optimum import optimal_reward
from agents.theory.relaxation import relaxation, relaxed_bound
from agents.theory.task_bound import task_bound

__all__ = [
    "AGENTS",
    "AdaptiveEngine",
    "AdaptiveFleetScheduler",
    "AdaptiveStories",
    "Agent",
    "Certainty",
    "DeadlineAssignment",
    "Fixed",
    "FleetScheduler",
    "Freshness",
    "FreshnessStatic",
    "GreedyTopics",
    "InContext",
    "IndexAgent",
    "Lagrangian",
    "LagrangianPeriodic",
    "LambdaCrawl",
    "Miniflux",
    "Myopic",
    "Nutch",
    "ObservationView",
    "OldestFirst",
    "Optimism",
    "PingFirst",
    "Planner",
    "Policy",
    "Random",
    "SelfTuning",
    "Static",
    "Thompson",
    "Whittle",
    "WhittleConditional",
    "WhittleCurrent",
    "WhittleDeadline",
    "WhittleEngine",
    "WhittleExact",
    "WhittleKnapsack",
    "WhittleLooks",
    "WhittlePeriodic",
    "WhittleRegimes",
    "WhittleStories",
    "benchmark",
    "compare",
    "evaluate",
    "index_at_age",
    "make",
    "myopic_index",
    "optimal_reward",
    "register",
    "relaxation",
    "relaxed_bound",
    "task_bound",
    "whittle_index",
]
