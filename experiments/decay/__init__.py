"""What the Whittle index loses where interest decays otherwise than it thinks."""
