"""The command `ephemeral-crawl`: what a crawl engineer asks of a fleet or of a log.

Each command is a module here, or a folder with a module `command.py`; `core` holds what they share
with the studies of `experiments`: folders of results, parallel jobs, tables and reports.
"""
