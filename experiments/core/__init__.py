"""What the studies share: running, recording, reporting."""
