"""Fleets from 10⁴ to 10⁹ sources: reward, time and memory of the event-driven scheduler."""
