"""Sweeps and fleets on several processes and machines, with Ray."""
