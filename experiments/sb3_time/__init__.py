"""Time of Stable-Baselines3 in the environment, in collection and in gradient steps."""
