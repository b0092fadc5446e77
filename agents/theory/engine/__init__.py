"""Crawling for an indexing engine: prices, bound, index, exact optimum, and a static problem."""

from crawl_env.extras import missing

try:
    import scipy  # noqa: F401 - special functions, and distributions of queues
except ImportError as error:
    raise ImportError(missing("scipy", "the theory of an indexing engine")) from error
