"""`ephemeral-crawl reshard`: divides the sources of shards anew among their stores."""
