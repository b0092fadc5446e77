"""The study of crawlers that feed an indexing engine."""
