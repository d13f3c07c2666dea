"""Judges answers with the user's own program, for cases that no other verifier can judge.

The program reads one line of JSON from stdin, {"case": the row's keys except prompt and input, "answer"}, and prints
{"correct", "detail"}. It gets the answer in no other way. It runs without a sandbox.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from pydantic import Field

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.case import Case, Example, Grade
from expert_cli.utils.subprocesses import how_it_ended


class CommandCase(Case):
    """`command`, your own program, which decides (with `--allow-commands`); `arguments`, `expected`: passed to it."""

    starts = "command"
    file_key = "command"
    fences = frozenset({"command"})
    example = Example({"prompt": "Count the vowels of tree.", "command": "judge.py", "expected": "2"}, "2", "3")

    command: str = Field(min_length=1)  # relative to the file of the row; a .py file is run by this Python
    arguments: list[str] = Field(default=[])
    expected: Any = None

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:
        """Let the program decide; `timeout_s` includes its start. Raises InputError if it fails."""
        program = file or Path(self.command)
        command = [*([sys.executable] if program.suffix == ".py" else []), str(program), *self.arguments]
        try:
            with TemporaryFile() as told, TemporaryFile() as out, TemporaryFile() as err:  # a pipe may stay open
                told.write(json.dumps({"case": self.model_dump(), "answer": answer}).encode() + b"\n")
                told.seek(0)
                how: Any = {"stdin": told, "stdout": out, "stderr": err}
                code = subprocess.run(command, check=False, cwd=program.parent, timeout=timeout_s, **how).returncode
                said, complaint = (file.read() for file in (out, err) if not file.seek(0))
        except subprocess.TimeoutExpired:
            return Grade("timeout", f"{self.command} took more than {timeout_s:g} s to judge it")
        except OSError as error:
            raise self._fault(f"cannot be started: {error.strerror}") from error
        if code:
            last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
            raise self._fault(f"{how_it_ended(code)}: {last[:200]}")
        with suppress(ValueError, TypeError, KeyError):
            reply = json.loads(said)
            if isinstance(reply["correct"], bool):
                return Grade("correct" if reply["correct"] else "wrong", str(reply.get("detail", "")))
        raise self._fault(f"printed {said[:80]!r}")

    def _fault(self, what: str) -> InputError:
        hint = 'it must print {"correct": true or false, "detail": "..."} and end with exit code 0'
        return InputError(f"command: {self.command} {what}", hint)
