"""Fleets of sources, their parameters and constraints."""

from crawl_env.fleet.columns import FleetColumns
from crawl_env.fleet.parameters import FIXED, PARAMETERS
from crawl_env.fleet.sources import PRESETS, REGIMES, Sources

__all__ = ["FIXED", "PARAMETERS", "PRESETS", "REGIMES", "FleetColumns", "Sources"]
