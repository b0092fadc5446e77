"""The tasks of the benchmark: one list, for ids, commands, records and documentation."""

from crawl_env.benchmark.catalogue import CORE, TASK_SETS, TASKS, TIERS, named, tasks
from crawl_env.benchmark.task import BUDGETS, INFORMATION, SPLITS, BenchmarkTask, Reference

__all__ = [
    "BUDGETS",
    "CORE",
    "INFORMATION",
    "SPLITS",
    "TASKS",
    "TASK_SETS",
    "TIERS",
    "BenchmarkTask",
    "Reference",
    "named",
    "tasks",
]
