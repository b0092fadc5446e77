"""Example files, with which all other commands can be tried."""
