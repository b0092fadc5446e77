"""The live scheduler over HTTP."""
