"""`pretokenize --ray ADDRESS`: the machines of a Ray cluster read and encode the data files.

Only one function, `FlatMap`, is distributed. The rows are handled by the same code as in one process, and results are returned
in order, so the store is equal byte for byte. The driver selects rows and writes the shards.
"""

from __future__ import annotations

import logging
import pickle  # only between processes of one cluster, as Ray itself does
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from expert_cli.data.encode import limit_threads
from expert_cli.data.select import FlatMap
from expert_cli.errors import EnvironmentProblem, ExpertError
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import first_line, plural

if TYPE_CHECKING:
    import numpy as np


class _Worker:
    """An actor that calls a pickled function, which keeps what it has loaded."""

    def __init__(self, function: bytes) -> None:
        limit_threads(1)  # one worker for each core
        self.function = pickle.loads(function)  # noqa: S301

    def __call__(self, batch: dict[str, np.ndarray[Any, Any]]) -> Iterator[dict[str, list[bytes]]]:
        for thing in batch["item"]:
            try:
                for made in self.function(pickle.loads(thing)):  # noqa: S301
                    yield {"item": [pickle.dumps(made)]}
            except ExpertError as error:
                yield {"item": [pickle.dumps(error)]}


@contextmanager
def ray_flat_map(address: str, report: Reporter) -> Iterator[FlatMap]:
    """Connect to a cluster ("local": start one here), and yield a `FlatMap` that runs there. Raises EnvironmentProblem."""
    try:
        import ray
        import ray.data

        host, _, port = address.rpartition(":")
        if host and port.isdigit() and "/" not in host:  # ray.init itself would try for minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except ImportError as error:
        raise EnvironmentProblem("--ray: Ray is not installed", 'pip install "ray[data]"') from error
    except (OSError, ValueError, RuntimeError) as error:
        known = "local, auto (on a machine of the cluster), HOST:6379 or ray://HOST:10001"
        raise EnvironmentProblem(f"--ray {address}: no cluster answers: {first_line(error)}", known) from error
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    cluster: Any = ray  # its functions are untyped
    cores = int(cluster.cluster_resources().get("CPU", 1))
    report.info(f"ray       {plural(len(cluster.nodes()), 'machine')}, {plural(cores, 'core')}")

    def flat_map(function: Callable[[Any], Iterator[Any]], things: Sequence[Any]) -> Iterator[Any]:
        if not things:
            return
        items = [{"item": pickle.dumps(thing)} for thing in things]
        made = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            _Worker,
            fn_constructor_args=(pickle.dumps(function),),
            batch_size=1,
            batch_format="numpy",
            compute=ray.data.ActorPoolStrategy(size=min(cores, len(items))),
        )
        for row in made.iter_rows():
            result = pickle.loads(row["item"])  # noqa: S301
            if isinstance(result, ExpertError):
                raise result
            yield result

    try:
        yield flat_map
    finally:
        ray.shutdown()
