"""The answers of an evaluation, kept as they are made: the same command goes on with them where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class KeptAnswers:
    """A file of JSON lines: what is asked, then an answer a line. Of another evaluation, or not whole, it begins anew."""

    def __init__(self, file: Path, asked: Mapping[str, Any]) -> None:
        """Read what an earlier start left. asked: what two equal evaluations have in common."""
        self._file, self._head = file, json.dumps(asked, sort_keys=True)
        lines = file.read_text(encoding="utf-8").split("\n") if file.is_file() else []
        self._known: list[Any] = []
        if lines[:1] == [self._head]:
            self._known = [
                json.loads(line) for line in lines[1:-1]
            ]  # a last line without its end was not written whole
        self._text = "\n".join([self._head, *map(json.dumps, self._known), ""])
        self._is_begun = False

    def of(self, title: str) -> dict[str, list[Any]]:
        """Return the answers of a pass over the cases, by the cases' digests, each as a list."""
        return {case: answers for of, case, answers in self._known if of == title}

    def add(self, title: str, made: Mapping[str, Sequence[Any]]) -> None:
        """Keep the answers of a batch, all of them or none."""
        lines = [json.dumps([title, case, answers]) for case, answers in made.items()]
        with self._file.open("a" if self._is_begun else "w", encoding="utf-8", newline="\n") as file:
            file.write(("" if self._is_begun else self._text) + "".join(f"{line}\n" for line in lines))
        self._is_begun = True
