"""What the server asks of its SuperLink: to register the nodes' keys, and to start a run.

A run needs an app bundle. Ours is empty: nodes and server run the installed ``cslr``.
"""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from pathlib import Path
from typing import Final

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.cli.build import build_fab_from_disk
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from cslr.errors import ConfigError

__all__ = ["empty_bundle", "register_node", "start_run"]

_PROJECT: Final = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "cslr-federation"
version = "1.0.0"
description = "Empty: nodes run the cslr that is installed there"
license = "Apache-2.0"
dependencies = []
[tool.hatch.build.targets.wheel]
packages = ["."]
[tool.flwr.app]
publisher = "cslr"
[tool.flwr.app.components]
serverapp = "empty_bundle.apps:server"
clientapp = "empty_bundle.apps:client"
[tool.flwr.app.config]
"""
_APPS: Final = """\
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
client, server = ClientApp(), ServerApp()
"""


def empty_bundle(apps: str = _APPS) -> bytes:
    """An app bundle whose code is never run.

    apps: the source of its two apps; tests pass another one to show that it is not run.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "app"
        (folder / "empty_bundle").mkdir(parents=True)
        (folder / "pyproject.toml").write_text(_PROJECT, encoding="utf-8")
        (folder / "empty_bundle" / "__init__.py").write_text("", encoding="utf-8")
        (folder / "empty_bundle" / "apps.py").write_text(apps, encoding="utf-8")
        with warnings.catch_warnings():  # Flower uses a name that pathspec has deprecated
            warnings.simplefilter("ignore", DeprecationWarning)
            return bytes(build_fab_from_disk(folder))


def register_node(address: str, certificate: Path, public_key: str) -> None:
    """Register a node at the SuperLink by its P-384 key, a line in SSH format."""
    key = load_ssh_public_key(public_key.encode())
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ConfigError("a node's Flower key must be an elliptic-curve key; join again")
    client = _client(address, certificate)
    try:
        client.RegisterNode(RegisterNodeRequest(public_key=public_key_to_bytes(key)))
    except httpx.HTTPStatusError as error:
        if error.response.status_code != httpx.codes.CONFLICT:
            raise ConfigError(f"the SuperLink did not register a node: {error}") from None
    finally:
        client.close()


def start_run(address: str, certificate: Path, bundle: bytes) -> int:
    """Start a run at the SuperLink; returns its number."""
    client = _client(address, certificate)
    try:
        fab = fab_to_proto(Fab(hashlib.sha256(bundle).hexdigest(), bundle, {}))
        started = client.StartRun(StartRunRequest(fab=fab))
    except httpx.HTTPError as error:
        raise ConfigError(
            f"the SuperLink at {address} did not start a run ({type(error).__name__}); is "
            "`cslr federation serve` running?"
        ) from None
    finally:
        client.close()
    if not started.HasField("run_id"):
        raise ConfigError(f"the SuperLink at {address} did not start a run; see its log")
    return int(started.run_id)


def _client(address: str, certificate: Path) -> ControlHttpClient:
    return ControlHttpClient.from_server_address(
        server_address=address,
        insecure=False,
        root_certificates=certificate.read_bytes(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
    )
