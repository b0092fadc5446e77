"""Replays of a recorded log: how much each policy would have collected from it."""
