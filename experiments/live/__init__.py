"""The live scheduler, measured; see `command`."""
