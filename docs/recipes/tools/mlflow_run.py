"""MLflow: a run with parameters, a learning curve and the model, read back from a local store."""

import json
import tempfile
from importlib.metadata import version
from pathlib import Path

import mlflow
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

from crawl_env.envs.sb3 import CrawlVecEnv

TASK = {"sources": "table1", "budget": 2}

with tempfile.TemporaryDirectory() as folder:
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    experiment = mlflow.create_experiment("crawl", Path(folder, "artifacts").as_uri())
    env = CrawlVecEnv(num_envs=4, **TASK)
    model = PPO("MlpPolicy", env, n_steps=250, batch_size=250, seed=0)
    with mlflow.start_run(experiment_id=experiment) as run:
        mlflow.log_params({**TASK, "gamma": model.gamma})
        for done in range(3):
            model.learn(1000, reset_num_timesteps=False)
            utility, _ = evaluate_policy(model, env, n_eval_episodes=4)
            mlflow.log_metric("utility_per_step", utility / 500, step=done)
        model.save(f"{folder}/model.zip")
        mlflow.log_artifact(f"{folder}/model.zip")
    client = mlflow.MlflowClient()
    kept = client.get_run(run.info.run_id).data
    curve = client.get_metric_history(run.info.run_id, "utility_per_step")
    assert kept.params["budget"] == "2"
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["model.zip"]

result = {
    "package": "mlflow",
    "version": version("mlflow"),
    "gymnasium": version("gymnasium"),
    "id": "CrawlVecEnv",
    "result": f"{len(kept.params)} parameters, {len(curve)} points of a curve and the model",
}
print(json.dumps(result))
