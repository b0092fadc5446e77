"""A fleet on several servers: which sources are whose, and what each gets of the budget."""
