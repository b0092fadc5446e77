"""The paper's table, figures and numbers, beside ours, with what has to be corrected."""
