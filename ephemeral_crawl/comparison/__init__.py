"""What `evaluate` and `replay` share: options, schedules, budgets, and samples of large fleets."""
