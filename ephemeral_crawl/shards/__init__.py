"""A fleet on several servers: which sources are whose, and what each gets of the budget."""

from ephemeral_crawl.shards.balancer import Balancer, Quote, divide, quote_of, rate_of
from ephemeral_crawl.shards.owner import divide_anew, domain_of, owner_of, shard_of

__all__ = [
    "Balancer",
    "Quote",
    "divide",
    "divide_anew",
    "domain_of",
    "owner_of",
    "quote_of",
    "rate_of",
    "shard_of",
]
