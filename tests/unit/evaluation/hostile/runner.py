"""Judges the answers of a file of this folder: rows of id, note, answer and the kinds that are right for it; some have `case`,
keys of the case in place of the usual ones, and `times`, how often the answer stands behind itself, or `parts` of it with how
often each does.

Of each file ten are judged by default, spread over all of it, and the others where `-m slow` asks.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from expert_cli.evaluation.cases import read_case
from expert_cli.evaluation.verifiers.case import Case

FEW = 10
few_and_rest = pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["few", "rest"])
TIMEOUT_S = 4.0
FOLDER, PORT = "@FOLDER@", "@PORT@"
"""What stands in an answer for the folder and the port that must stay as they are."""


def rows(verifier: str) -> list[dict[str, Any]]:
    """Return the rows for a verifier."""
    text = Path(__file__).with_name(f"{verifier}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def some(verifier: str, *, few: bool) -> list[dict[str, Any]]:
    """Return ten of the rows, spread over all of them, or the others."""
    known = rows(verifier)
    chosen = {number * len(known) // FEW for number in range(FEW)}
    return [row for number, row in enumerate(known) if (number in chosen) is few]


def answer_of(row: dict[str, Any]) -> str:
    """Return the whole answer of a row."""
    parts = row.get("parts") or [[row["answer"], row.get("times", 1)]]
    return "".join(text * times for text, times in parts)


def misjudged(
    verifier: str,
    case: dict[str, Any],
    *,
    few: bool,
    file: Path | None = None,
    threads: int = 4,
    timeout_s: float = TIMEOUT_S,
    rows_of: str = "",
    **places: object,
) -> list[str]:
    """Judge the answers to `case`, several at once, and say of each that got another verdict than is right for it."""

    def asked(row: dict[str, Any]) -> tuple[Case, str]:
        answer = answer_of(row)
        for name, value in places.items():
            answer = answer.replace(f"@{name.upper()}@", str(value))
        return read_case(row["id"], {"verifier": verifier, **case, **row.get("case", {})}), answer

    def told(row: dict[str, Any]) -> str:
        one, answer = asked(row)
        grade = one.verdict(answer, file, timeout_s)
        return "" if grade.kind in row["kinds"] else f"{row['id']}: {grade.kind}, not {row['kinds']}: {grade.detail}"

    chosen = some(rows_of or verifier, few=few)
    asked(chosen[0])[0].prepare([asked(row) for row in chosen], timeout_s)
    with ThreadPoolExecutor(threads) as pool:
        return [*filter(None, pool.map(told, chosen))]


@contextmanager
def untouched(folder: Path) -> Iterator[dict[str, object]]:
    """Give a folder with a file, a server on a port and one on a path of that folder; nobody has come to them afterwards."""
    (folder / "canary").write_text("alive", encoding="utf-8")
    servers = [socket.socket(socket.AF_INET)] + ([socket.socket(socket.AF_UNIX)] if hasattr(socket, "AF_UNIX") else [])
    for server, place in zip(servers, [("127.0.0.1", 0), str(folder / "socket")], strict=False):
        server.bind(place)
        server.listen()
        server.setblocking(False)
    before = sorted(folder.iterdir())
    yield {"folder": folder, "port": servers[0].getsockname()[1]}
    for server in servers:
        with server:
            try:
                server.accept()
            except BlockingIOError:
                continue
            raise AssertionError("an answer reached a server")
    assert sorted(folder.iterdir()) == before
    assert (folder / "canary").read_text(encoding="utf-8") == "alive"
