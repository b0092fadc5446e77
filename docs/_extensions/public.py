"""The modules whose public names have API pages, and where a name is documented."""

from importlib import import_module

MODULES = (
    "crawl_env",
    "crawl_env.envs.wrappers",
    "crawl_env.envs.sb3",
    "crawl_env.envs.torch_env",
    "crawl_env.content.rates",
    "crawl_env.content.utility",
    "crawl_env.fleet.columns",
    "agents",
    "agents.evaluation",
    "agents.evaluation.statistics",
    "agents.adaptive",
    "agents.inference",
    "agents.learning",
    "agents.scheduling",
    "agents.scheduling.relaxation",
    "agents.scheduling.simulation",
    "agents.theory.frequencies",
    "agents.theory.freshness",
    "agents.theory.freshness_rates",
    "ephemeral_crawl.cluster",
    "ephemeral_crawl.live",
    "ephemeral_crawl.shards",
)


def home(module: str, name: str) -> str:
    """Return the first of the modules that exports the same object under the same name."""
    value = getattr(import_module(module), name)
    for other in MODULES:
        found = import_module(other)
        if name in found.__all__ and getattr(found, name) is value:
            return other
    raise LookupError(f"{module}.{name} is not public")
