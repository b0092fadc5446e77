"""The environments: Gymnasium's two interfaces, Stable-Baselines3's, wrappers, and `task_of`."""
