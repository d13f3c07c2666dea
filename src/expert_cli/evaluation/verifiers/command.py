"""Judges answers by a program of the user's own, where nothing else knows what is right.

It gets one line of JSON on stdin, {"case": the row's keys beside prompt and input, "answer"}, and prints {"correct", "detail"},
or "kind" as well. No walls stand around it: `evaluation/grade.py` runs it only where asked to. An answer reaches it as JSON
text alone: never as an argument, a name of a file or a word of a shell.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.case import Case, Example, Grade, Kind
from expert_cli.evaluation.verifiers.sandbox.child_process import Stopped, read_all, readable
from expert_cli.utils.subprocesses import LineProcess, how_it_ended

MAX_REPLY_BYTES = 65_536


class _Reply(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    correct: bool
    detail: str = ""
    kind: Kind | None = None


class CommandCase(Case):
    """`command`, a program of your own, which decides (with `--allow-commands`); `arguments`, `expected`: what it is given."""

    starts = "command"
    file_key = "command"
    fences = frozenset({"command"})
    example = Example(
        {"prompt": "Count the vowels of tree.", "command": "judge.py", "expected": "2"}, right="2", wrong="3"
    )

    command: str = Field(
        min_length=1,
        description="The program, relative to the file of the row; one that ends in .py is run by this Python.",
    )
    arguments: list[str] = Field(default=[], description="What stands behind it.")
    expected: Any = Field(default=None, description="What the program needs to know of the right answer.")

    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade:
        """Ask the program, which has `timeout_s` from its start to its end. Raises InputError where it fails."""
        if file is None:
            raise InputError(f"command: {self.command} was not found", "paths are relative to the file of the row")
        printed = b""
        try:
            readable(answer)
            printed = self._printed(file, json.dumps({"case": self.model_dump(), "answer": answer}), timeout_s)
            reply = _Reply.model_validate_json(printed)
        except Stopped as stopped:
            return stopped.verdict
        except TimeoutError:
            return Grade("timeout", f"{self.command} took more than {timeout_s:g} s to judge it")
        except ValidationError as error:
            raise self._fault(f"printed {printed[:80]!r}: {error.errors(include_url=False)[0]['msg']}") from error
        kind = reply.kind or ("correct" if reply.correct else "wrong")
        if (kind == "correct") != reply.correct:
            raise self._fault(f"printed correct {reply.correct} and kind {kind}")
        return Grade(kind, reply.detail)

    def _printed(self, file: Path, line: str, timeout_s: float) -> bytes:
        command = [*([sys.executable] if file.suffix == ".py" else []), str(file), *self.arguments]
        how: Any = {"cwd": file.parent, "own_session": True, "max_bytes": MAX_REPLY_BYTES + 1}
        with tempfile.TemporaryFile() as errors:
            try:
                child = LineProcess(command, stderr=errors, **how)
            except OSError as error:
                raise self._fault(f"cannot be started: {error.strerror}") from error
            try:
                child.send(line, last=True)
                printed = read_all(child, timeout_s)
                if len(printed) > MAX_REPLY_BYTES:
                    raise self._fault(f"printed more than {MAX_REPLY_BYTES:,} bytes")
                code = child.exit_code()
            finally:
                child.kill()
            if code:
                errors.seek(0)
                said = errors.read(MAX_REPLY_BYTES).decode(errors="replace").strip().splitlines()
                raise self._fault(f"{how_it_ended(code)}: {said[-1][:200] if said else 'it said nothing'}")
        return printed

    def _fault(self, what: str) -> InputError:
        hint = 'it must print {"correct": true or false, "detail": "..."} and end with exit code 0'
        return InputError(f"command: {self.command} {what}", hint)
