"""`ephemeral-crawl balance`: one budget for the servers of shards."""
