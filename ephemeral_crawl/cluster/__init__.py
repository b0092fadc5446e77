"""Fleets and sweeps on several processes and machines, with Ray."""

from ephemeral_crawl.cluster.sharded import ShardedScheduler

__all__ = ["ShardedScheduler"]
