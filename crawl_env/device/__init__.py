"""The dense world as torch tensors on any device; see `crawl_env.envs.torch_env`."""
