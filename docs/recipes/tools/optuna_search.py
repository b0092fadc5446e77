"""Optuna: a study of γ and the learning rate of Stable-Baselines3's PPO, with pruning."""

import json
from importlib.metadata import version

import optuna
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

from crawl_env.envs.sb3 import CrawlVecEnv

TASK = {"sources": "table1", "budget": 2}
ROUNDS, TRIALS = 3, 5


def objective(trial):
    gamma = trial.suggest_categorical("gamma", [0.8, 0.9, 0.99])
    learning_rate = trial.suggest_float("learning_rate", 3e-4, 3e-3, log=True)
    env = VecNormalize(CrawlVecEnv(num_envs=16, **TASK), gamma=gamma)
    model = PPO("MlpPolicy", env, n_steps=64, gamma=gamma, learning_rate=learning_rate, seed=0)
    for done in range(ROUNDS):
        model.learn(3072, reset_num_timesteps=False)
        env.training = False
        utility, _ = evaluate_policy(model, env, n_eval_episodes=1)  # as published, not normalised
        env.training = True
        trial.report(utility / 500, done)
        if trial.should_prune():
            raise optuna.TrialPruned
    return utility / 500


optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
study.optimize(objective, n_trials=TRIALS)
pruned = sum(trial.state == optuna.trial.TrialState.PRUNED for trial in study.trials)
result = {
    "package": "optuna",
    "version": version("optuna"),
    "gymnasium": version("gymnasium"),
    "id": "CrawlVecEnv",
    "result": f"{TRIALS} trials, {pruned} pruned, the best with {study.best_value:.1f} per step at "
    f"γ = {study.best_params['gamma']}",
}
print(json.dumps(result))
