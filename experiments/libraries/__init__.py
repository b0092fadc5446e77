"""Libraries of reinforcement learning on the environment as it is: recipes, run and recorded."""
