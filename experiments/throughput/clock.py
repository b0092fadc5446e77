"""Timings; they are in `experiments.clock`."""

from experiments.clock import Call, Timing, interleaved

__all__ = ["Call", "Timing", "interleaved"]
