"""The connection to a Ray cluster."""

from __future__ import annotations

import os
import secrets
import socket
import warnings
from typing import Any

from crawl_env.extras import missing

_OBJECT_STORE = 256 * 2**20  # bytes; what tasks exchange here is small

# Of a Ray on this machine alone, and read when Ray is imported. Ray binds to all interfaces unless
# it takes this machine for one without clusters; whoever connects has to know the token.
_LOCAL = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}


def connect(cpus: int | None = None, address: str | None = None) -> Any:
    """Connect this process to Ray, unless it is connected, and return the module `ray`.

    The environment variable `RAY_ADDRESS` names the cluster, as in Ray's own commands. Without it,
    Ray is started on this machine and ends with this process. It listens on the loopback interface
    only, asks for a token, has no dashboard and reports nothing to anyone.

    Arguments:
        cpus: cores that a Ray started here uses; all by default.
        address: of a cluster, instead of `RAY_ADDRESS`; "auto" is that of which this machine is.

    Raises:
        ModuleNotFoundError: Ray is not installed.
        ConnectionError: no cluster answers at the address.
    """
    named = "" if address else "RAY_ADDRESS="
    address = address or os.environ.get("RAY_ADDRESS", "local")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == "local":
        for name, value in {**_LOCAL, "RAY_AUTH_TOKEN": secrets.token_hex(32)}.items():
            os.environ.setdefault(name, value)
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(missing("ray", "Ray"), name=error.name) from None
    if ray.is_initialized():
        return ray
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if address == "local":
        here = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": _OBJECT_STORE}
        ray.init("local", **here, **quiet)
        if ray.util.get_node_ip_address() not in ("127.0.0.1", "::1"):
            warnings.warn(
                "Ray was imported before it was started here, so that it listens on all network "
                "interfaces; set RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 before the import",
                stacklevel=2,
            )
        return ray
    _check_reachable(address, named)
    ray.init(address, **quiet)
    return ray


def _check_reachable(address: str, named: str) -> None:
    """Refuse an address where nobody listens at once; Ray tries for minutes."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    try:
        if port.isdigit():
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        raise ConnectionError(
            f"no Ray cluster answers at {named}{address} ({error}); start one there with `ray "
            "start --head`, or unset RAY_ADDRESS to use this machine alone"
        ) from None
