"""The live scheduler in crawlers and feed readers of others."""
