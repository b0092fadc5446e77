"""Algorithms of Stable-Baselines3 and sb3-contrib as learners of this project."""
