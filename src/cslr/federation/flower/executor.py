"""Executors of our own: they run the installed ``cslr`` for Flower, never code that a server ships.

Flower's SuperNode hands out tasks together with the app bundle of the run; with ``--isolation
process`` the process that takes the task decides what runs. These do not even unpack the bundle.
One process answers all messages of a node, and one runs the server.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx
from flwr.clientapp import ClientApp
from flwr.common.constant import SubStatus
from flwr.common.serde import context_from_proto, run_from_proto
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
)
from flwr.serverapp import Grid
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from cslr.errors import ConfigError

__all__ = ["answer_tasks", "serve_task"]

_PAUSE: Final = 0.1
_TRIES: Final = 3


def answer_tasks(
    address: str, certificate: Path, app: ClientApp, going_on: Callable[[], bool]
) -> None:
    """Answer the tasks of the SuperNode at ``address`` while ``going_on()``."""
    root = certificate.read_bytes()
    main = _client(address, root, "SuperExec")
    try:
        while going_on():
            token = _acquired(main, TaskType.CLIENT_APP)
            if token is None:
                time.sleep(_PAUSE)
                continue
            _answer(_client(address, root, "flwr-clientapp", token), app)
    except httpx.HTTPError as error:
        raise ConfigError(f"the SuperNode is gone ({type(error).__name__})") from None
    finally:
        main.close()


def _answer(client: RuntimeHttpClient, app: ClientApp) -> None:
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    try:
        message, context, _, _ = pull_task_input(client)  # the bundle is not unpacked
        push_message(client, app(message, context), context)
        push_task_output(client=client, context=context, sub_status=SubStatus.COMPLETED, details="")
    finally:
        heartbeat.stop()
        client.close()


def serve_task(
    address: str, certificate: Path, main: Callable[[Grid], None], seconds: float
) -> None:
    """Take the server's task from the SuperLink at ``address`` and run ``main`` with its grid."""
    root, end = certificate.read_bytes(), time.monotonic() + seconds
    client = _client(address, root, "SuperExec")
    try:
        while (token := _acquired(client, TaskType.SERVER_APP)) is None:
            if time.monotonic() > end:
                raise ConfigError(f"the SuperLink at {address} started no run in {seconds:g} s")
            time.sleep(_PAUSE)
    finally:
        client.close()
    grid = HttpGrid(address, root_certificates=root, token=token)
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(grid._runtime_client))
    heartbeat.start()
    status = SubStatus.FAILED
    try:
        given = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
        TaskIdentity.node_id = context_from_proto(given.context).node_id
        grid.set_run(run_from_proto(given.run))
        main(grid)
        status = SubStatus.COMPLETED
    finally:
        _finish(grid, status)
        heartbeat.stop()
        grid.close()


def _finish(grid: HttpGrid, status: str) -> None:
    """Tell the SuperLink that the run is over, unless it is not running any more."""
    grid._retry_invoker.max_tries = 1
    try:
        grid._runtime_client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=""))
    except httpx.HTTPError:
        return


def _client(
    address: str, root: bytes, component: str, token: str | None = None
) -> RuntimeHttpClient:
    more = [] if token is None else [RuntimeTokenHttpInterceptor(token)]
    retries = make_simple_http_retry_invoker()
    retries.max_tries = _TRIES  # by default it retries for ever
    return RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=False,
        root_certificates=root,
        interceptors=[RuntimeVersionHttpInterceptor(component_name=component), *more],
        retry_invoker=retries,
    )


def _acquired(client: RuntimeHttpClient, kind: str) -> str | None:
    """The token of a waiting task, if there is one."""
    found = client.AcquireTask(
        AcquireTaskRequest(supported_task_types=[kind], agentapp_fab_hashes=[])
    )
    return str(found.token) if found.HasField("task") and found.token else None
