"""The side of `engine_client` that runs in a process of its own, `engine_server MODULE:ENGINE SOURCE`.

Before the first query the process gives up what a query does not need: opening files, writing files, more memory.
"""

from __future__ import annotations

import json
import os
import pkgutil
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from expert_cli.errors import ExpertError
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped

if TYPE_CHECKING:
    from expert_cli.evaluation.verifiers.query import QueryEngine  # its module takes longer to load than this process

ADDRESS_SPACE_BYTES = 3 << 30


def main() -> None:
    """Open the source, then answer a line with a line until stdin ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # an engine that prints must not be taken for a reply
    try:
        engine: QueryEngine = pkgutil.resolve_name(sys.argv[1])(Path(sys.argv[2]))
    except (ExpertError, Stopped) as error:
        return _reply(replies, {"detail": str(error)})
    set_rlimits()
    _reply(replies, {})
    for line in sys.stdin:
        question = json.loads(line)
        work = engine.prepare if question["look"] else engine.run
        try:
            _reply(replies, {"rows": work(question["query"], timeout_s=question["timeout_s"]) or []})
        except Stopped as stopped:
            _reply(replies, {"kind": stopped.kind, "detail": stopped.detail})
    return None


def set_rlimits() -> None:
    """Set what limits the system has: no further file, no byte written to one, no core, bounded memory.

    Processes are not limited: threads count as such, and duckdb's time limit is one.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    lowest_free = os.dup(0)
    os.close(lowest_free)
    wanted = {
        "RLIMIT_NOFILE": lowest_free,
        "RLIMIT_FSIZE": 0,
        "RLIMIT_CORE": 0,
        "RLIMIT_AS": ADDRESS_SPACE_BYTES,
    }
    for name, value in wanted.items():
        limit = getattr(resource, name)
        hard = resource.getrlimit(limit)[1]
        if hard == resource.RLIM_INFINITY or value <= hard:
            resource.setrlimit(limit, (value, value))


def _reply(replies: IO[str], value: dict[str, Any]) -> None:
    replies.write(json.dumps(value) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
