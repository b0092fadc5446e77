"""The optional dependencies: which extra a missing package belongs to, and how to install it."""

from __future__ import annotations

# Import names of the packages of each extra; pyproject.toml has their versions.
EXTRAS = {
    "render": ("pygame",),
    "parquet": ("pyarrow",),
    "learning": ("stable_baselines3", "sb3_contrib", "torch", "safetensors", "tensorboard"),
    "commands": ("cycler", "jinja2", "joblib", "markupsafe", "matplotlib", "scipy", "tqdm", "tyro"),
    "ray": ("ray",),
    "postgres": ("psycopg",),
    "serve": ("fastapi", "prometheus_client", "pydantic", "starlette", "uvicorn"),
    "crawl": (
        "defusedxml",
        "feedparser",
        "httpcore",
        "httpx",
        "idna",
        "protego",
        "publicsuffixlist",
    ),
    "scrapy": ("scrapy",),
    "reader": ("reader",),
    "offline": ("h5py",),
    "experiments": ("optuna",),
}


def missing(package: str, needed_by: str) -> str:
    """Return a message that says which extra a missing package belongs to.

    >>> print(missing("pygame", "render_mode='human'"))
    render_mode='human' needs the package 'pygame', which is part of the extra 'render'. In a \
checkout, run: pip install ".[render]"; with a wheel: pip install "PATH_OF_THE_WHEEL[render]"
    >>> print(missing("lightgbm", "ephemeral-crawl benchmark"))
    the package 'lightgbm' is not installed. It is imported by code of your own, as \
ephemeral-crawl does not need it; install it first
    """
    package = package.partition(".")[0]
    extra = next((extra for extra, names in EXTRAS.items() if package in names), None)
    if extra is None:
        return (
            f"the package {package!r} is not installed. It is imported by code of your own, as "
            "ephemeral-crawl does not need it; install it first"
        )
    return (
        f"{needed_by} needs the package {package!r}, which is part of the extra {extra!r}. In a "
        f'checkout, run: pip install ".[{extra}]"; with a wheel: pip install '
        f'"PATH_OF_THE_WHEEL[{extra}]"'
    )


def sharing_a_name() -> list[str]:
    """Return the other installed distributions that have a package `agents`, as openai-agents does.

    Of two distributions with a package of the same name, the one installed last overwrites files
    of the other, which pip does not notice.
    """
    from importlib.metadata import packages_distributions  # slow, and needed after a failure only

    owners = packages_distributions().get("agents", [])
    return sorted({owner for owner in owners if owner != "ephemeral-crawl"})
