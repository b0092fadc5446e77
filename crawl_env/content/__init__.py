"""Content: how items arrive, their utility and its decay, and the uncollected rest."""
