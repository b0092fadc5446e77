"""Common code of the studies: running jobs, recording results, and writing reports."""
