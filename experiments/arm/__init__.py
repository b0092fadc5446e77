"""One observed source under random arrivals: its exact index, and what is gained by using it."""
