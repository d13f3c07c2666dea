"""The parts of a token store as tasks on a Ray cluster, whose nodes see data and stores under the same paths."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from expert_cli import errors
from expert_cli.config.run_config import RunConfig
from expert_cli.data.store.build import TokenStore
from expert_cli.data.store.inspect import has_stores
from expert_cli.data.store.parts import Part
from expert_cli.errors import EnvironmentProblem, ExpertError, InputError
from expert_cli.pipeline.parts import parts_done, seal, store_of_parts
from expert_cli.pipeline.pretokenize import explain, resolve_inputs, store_for
from expert_cli.utils.reporter import Reporter

LOCAL = "local"
_TRIES = 3
"""How often a task is started again whose node or process is lost; an error of its own ends all."""
_POLL_S = 1.0
_CONNECT_S = 10.0


def build_on_ray(
    run: RunConfig, manifest: Path, options: Mapping[str, Any], address: str, report: Reporter
) -> TokenStore:
    """Return the token store of a run, built by a Ray cluster: as many parts as it has processors, each on one of them.

    options: those that `expert_cli.build_part` is called with. address: "local" starts a cluster on this machine, "auto" finds
    the one that this machine is of. Raises EnvironmentProblem: no Ray, no cluster, a part that was lost too often; and what
    building a part raises.
    """
    if not address:
        raise InputError("--ray needs an address", "Write --ray auto, --ray local, or the address of a cluster.")
    if has_stores(run.store):
        inputs = resolve_inputs(run, report)
        if explain(run, inputs).state.state == "hit":
            return store_for(run, inputs, report)
    elif run.store_url and (store := store_of_parts(run, report)):
        return store
    ray = _connected(address)
    try:
        parts = max(1, int(ray.cluster_resources().get("CPU", 1)))
        task = ray.remote(num_cpus=1, max_retries=_TRIES)(_build_part)
        report.info(f"ray       {len(ray.nodes())} nodes, {parts} processors, a part each")
        tasks = [task.remote(str(manifest), f"{number}/{parts}", dict(options)) for number in range(1, parts + 1)]
        _wait(ray, tasks, run, report)
    finally:
        ray.shutdown()
    return seal(run, report)


def _build_part(manifest: str, part: str, options: Mapping[str, Any]) -> tuple[str, str, str]:
    """What a task does, in a process of its own on some node; returns the error that a user can meet: class, message, hint."""
    from expert_cli.api.stores import build_part

    try:
        build_part(manifest, part, threads=1, **options)
    except ExpertError as error:
        of_ours = next(one.__name__ for one in type(error).__mro__ if one.__module__ == ExpertError.__module__)
        return of_ours, error.message, error.hint
    return "", "", ""


def _connected(address: str) -> Any:
    try:
        import ray
    except ImportError as error:
        raise EnvironmentProblem("--ray: Ray is not installed", "pip install 'expert-cli[ray]'") from error
    host, _, port = address.rpartition(":")
    try:
        if host and port.isdecimal():  # Ray tries for minutes
            socket.create_connection((host, int(port)), _CONNECT_S).close()
        ray.init(address=None if address == LOCAL else address, log_to_driver=False, configure_logging=False)
    except (OSError, RuntimeError, ValueError) as error:
        raise EnvironmentProblem(
            f"--ray {address}: no Ray cluster answers: {error}", f"Start one (ray start --head), or take --ray {LOCAL}."
        ) from error
    return ray


def _wait(ray: Any, tasks: list[Any], run: RunConfig, report: Reporter) -> None:
    """Wait for all parts, and show how much of them is done; the first error of one ends the others."""
    open_ = list(tasks)
    with report.progress("tokenizing on ray", None, "pieces") as bar:
        while open_:
            done, open_ = ray.wait(open_, num_returns=1, timeout=_POLL_S)
            bar.update(parts_done(run), f"{len(tasks) - len(open_)} of {len(tasks)} parts")
            for one in done:
                _result(ray, one, Part(tasks.index(one) + 1, len(tasks)))


def _result(ray: Any, task: Any, part: Part) -> None:
    """Take a part's result. Raises its own error, or EnvironmentProblem if it was lost with its node too often."""
    try:
        failed, message, hint = ray.get(task)
    except ray.exceptions.RayTaskError as error:
        raise RuntimeError(f"part {part}: {error}") from error
    except ray.exceptions.RayError as error:
        raise EnvironmentProblem(
            f"part {part} was lost {_TRIES + 1} times: {error}", "Look at the nodes; what is built stays: start again."
        ) from error
    if failed:
        raise getattr(errors, failed)(message, hint)
