"""One step of a crawl: the task, selection, observation."""
