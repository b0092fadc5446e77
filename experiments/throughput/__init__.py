"""Throughput of the environments, relative to Gymnasium and to the limits of the machine."""
