"""A learner's hyper-parameters searched anew: Optuna proposes, trainings decide."""
