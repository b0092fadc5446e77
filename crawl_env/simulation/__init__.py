"""One step of the environment: the task, selection of sources, observation."""
