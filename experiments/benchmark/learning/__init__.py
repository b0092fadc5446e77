"""Learning agents against the Whittle policy.

To add an agent, register it in `agents.learning.LEARNERS` and give it a `Player` in `players.py`,
with the tasks that it learns and for how long. To add a task, add a `Setting` to `tasks.py` and
name it in the lessons of those who shall learn it. Then `python -m experiments benchmark --suite
full` runs what is missing in the records, and nothing else.
"""
