"""`ephemeral-crawl benchmark`: an agent on the tasks of the benchmark."""
