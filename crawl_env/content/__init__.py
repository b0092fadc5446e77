"""Content: arrival processes, distributions of utility, decay functions and the world's state."""
