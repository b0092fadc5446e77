"""Scheduling at a cost per crawl: `FleetScheduler`, for fleets of up to 10⁹ sources."""

from agents.scheduling.learning import AdaptiveFleetScheduler
from agents.scheduling.scheduler import FleetScheduler, Offers

__all__ = ["AdaptiveFleetScheduler", "FleetScheduler", "Offers"]
