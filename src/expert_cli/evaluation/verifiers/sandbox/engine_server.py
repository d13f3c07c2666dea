"""The side of `engine_client` that runs in a process of its own, `engine_server MODULE:ENGINE SOURCE...`.

Before the first query the process gives up what a query does not need: opening files, writing files, more memory.
"""

from __future__ import annotations

import json
import os
import pkgutil
import sys
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from expert_cli.errors import ExpertError
from expert_cli.evaluation.verifiers.contents import Engine, telling_contents
from expert_cli.evaluation.verifiers.sandbox.limits import Stopped

ADDRESS_SPACE_BYTES = 3 << 30
MOST_MADE = 16
"""Cases whose contents are kept."""
LEAST_S = 0.01


def main() -> None:
    """Open the source, then answer a line with a line until stdin ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # an engine that prints must not be taken for a reply
    try:
        sources = _Sources(sys.argv[1], list(map(Path, sys.argv[2:])))
    except _UnreadableError as error:
        return _reply(replies, {"source": str(error), "detail": str(error.__cause__)})
    set_rlimits()
    _reply(replies, {})
    for line in sys.stdin:
        try:
            _reply(replies, sources.reply(json.loads(line)))
        except Stopped as stopped:
            _reply(replies, {"kind": stopped.kind, "detail": stopped.detail})
    return None


class _UnreadableError(Exception):
    pass


class _Sources:
    """The sources that a process holds, and the contents made of the first one for the cases asked last."""

    def __init__(self, entry: str, paths: Sequence[Path]) -> None:
        """Open them. Raises _UnreadableError with the path of one that cannot be opened, caused by the reason."""
        engine = pkgutil.resolve_name(entry)
        self._engines: list[Engine] = []
        for path in paths:
            try:
                self._engines.append(engine(path))
            except (ExpertError, Stopped) as error:
                raise _UnreadableError(path) from error
        self._made: OrderedDict[str, Sequence[Engine]] = OrderedDict()

    def reply(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a question, see `engine_client`. Raises `Stopped`."""
        if "make" in question:
            return {"contents": len(self._make(question["make"]))}
        query, end = question["query"], time.monotonic() + question["timeout_s"]
        if question["look"]:
            self._engines[0].prepare(query, timeout_s=question["timeout_s"])
            return {"rows": []}
        engines = self._contents(question.get("of"))
        if engines is None:
            return {"made": False}
        results = [
            engines[place].run(query, timeout_s=max(LEAST_S, end - time.monotonic()))
            for place in question.get("places", range(1))
        ]
        return {"results": results}

    def _contents(self, of: Mapping[str, Any] | None) -> Sequence[Engine] | None:
        """Return all that is asked, the sources first; None where a case's contents are not here any more."""
        if not of:
            return self._engines
        made = self._made.get(json.dumps(of))
        return None if made is None else [*self._engines, *made]

    def _make(self, of: Mapping[str, Any]) -> Sequence[Engine]:
        made = telling_contents(self._engines[0], of["queries"], of["dialect"], of["count"])
        self._made[json.dumps(of)] = made
        if len(self._made) > MOST_MADE:
            self._made.popitem(last=False)
        return made


def set_rlimits() -> None:
    """Set what limits the system has: no further file, no byte written to one, no core, bounded memory."""
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
