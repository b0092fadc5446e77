"""One observed source under random arrivals: its true index, and what using it is worth."""
