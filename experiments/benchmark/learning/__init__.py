"""Learning agents against the Whittle policy.

To add an agent, register it in `agents.learning.LEARNERS` and give it an `Entrant` in
`entrants.py`, with the tasks on which it is trained and the number of steps. To add a task, add a
`Setting` to `tasks.py` and name it in the trainings that use it. Then
`python -m experiments benchmark --suite full` runs only the jobs that are missing in the records.
"""
