"""What an evaluation found, as `evaluate --json` prints it; and against an earlier one of the same cases, case by case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from expert_cli.errors import InputError
from expert_cli.evaluation.baseline import Comparison
from expert_cli.evaluation.extract import RULE
from expert_cli.evaluation.grade import Evaluation
from expert_cli.evaluation.pairs import Pairs
from expert_cli.evaluation.verifiers.sandbox.isolation import standing_walls
from expert_cli.runs.metrics import BASES, WITHOUT_GRAMMAR, items, part, read_json
from expert_cli.utils.statistics import Paired

COMPUTED = {
    "device": "generation",
    "threads": "generation",
    "batch_size": "generation",
    "dtype": "expert",
    "quantization": "expert",
}
"""What decides how sums are rounded, and so which of two tokens comes that are almost as likely; by the key it stands under."""


@dataclass(frozen=True)
class Drop:
    """What changed since the evaluation in `file`, and how much may; `alone`: cases of only one of the two (here, there).

    computed: of COMPUTED, what both say and differ in (there, here). answers: how many were written for the cases of both, of
    samples as many as both drew, and in `answers_differ` how many of them are other texts; `differ`: ids of their cases.
    """

    file: Path
    pairs: Paired
    max_drop: float
    alone: tuple[int, int] = (0, 0)
    computed: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    answers: int = 0
    answers_differ: int = 0
    differ: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        """Whether the accuracy fell by no more than was allowed."""
        return self.pairs.drop <= self.max_drop

    def as_json(self) -> dict[str, Any]:
        """Return the value under "against"."""
        return {
            "file": str(self.file),
            **self.pairs.as_json(),
            "max_drop": self.max_drop,
            "held": self.held,
            "answers": self.answers,
            "answers_differ": self.answers_differ,
            "differ": list(self.differ),
            "computed": {name: list(values) for name, values in self.computed.items()},
        }


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation found; facts, generation: what was evaluated and how, as the document says it.

    bases: other answers to the same cases, by their key of `BASES`. grammar: what held the answers, as the document says it:
    type, held, free; None for nothing.
    cases_file: where the cases stand. limit: how many of them at most were asked for; None: all. threshold: the accuracy
    that was asked for. drop: what changed since an earlier evaluation. pairs: right and wrong answers that were written.
    """

    evaluation: Evaluation
    bases: Mapping[str, Comparison]
    facts: Mapping[str, Any] | None
    generation: Mapping[str, Any] | None
    cases_file: Path = Path()
    limit: int | None = None
    threshold: float | None = None
    drop: Drop | None = None
    grammar: Mapping[str, Any] | None = None
    pairs: Pairs | None = None

    @property
    def missed(self) -> str:
        """Which threshold was missed, in words with both values; "" for none."""
        share, drop = self.evaluation.share, self.drop
        if self.threshold is not None and share.accuracy < self.threshold:
            counts = f"{share.correct} of {share.cases}"
            return f"accuracy {share.accuracy:.4f} ({counts}) is below the threshold {self.threshold:g}"
        if drop is not None and not drop.held:
            return f"accuracy fell by {drop.pairs.drop:.4f} against {drop.file}, more than {drop.max_drop:g}"
        return ""

    @property
    def walls(self) -> tuple[str, ...] | None:
        """The walls that stood around answers that are programs; None where no answer is one."""
        programs = any(one.row.case.starts == "answer" for one in self.evaluation.answers)
        return standing_walls() if programs else None

    @property
    def grammar_json(self) -> dict[str, Any] | None:
        """The value under "grammar"."""
        if self.grammar is None:
            return None
        free = self.bases.get(WITHOUT_GRAMMAR)
        names = {"with": self.evaluation.unknown_names, "without": free.evaluation.unknown_names if free else None}
        return {**self.grammar, "unknown_names": names}

    def as_json(self) -> dict[str, Any]:
        """Return what `evaluate --json` prints (docs/INTERFACE.md)."""
        return {
            **self.evaluation.as_json(),
            **{name: self.bases[name].as_json() if name in self.bases else None for name in BASES},
            "grammar": self.grammar_json,
            "threshold": self.threshold,
            "against": self.drop.as_json() if self.drop else None,
            "passed": not self.missed,
            "extraction": RULE,
            "expert": self.facts,
            "generation": self.generation,
            "cases_file": str(self.cases_file.resolve()),
            "limit": self.limit,
            **({"pairs": self.pairs.as_json()} if self.pairs else {}),
        } | ({"walls": list(self.walls)} if self.walls is not None else {})


def compare_with(path: Path, found: Evaluated, max_drop: float) -> Drop:
    """Pair the answers with those of the evaluation in `path` by id.

    Raises InputError where it is none, where no case is in both, or where a case has changed.
    """
    document, new = read_json(path), found.evaluation
    rows = [row for row in items(document, "answers") if isinstance(row, dict)]
    if not rows:
        raise InputError(f"{path}: not an evaluation", "give a file that evaluate --output wrote")
    old = {row.get("id"): row for row in rows}
    pairs = [(judged, old[judged.row.id]) for judged in new.answers if judged.row.id in old]
    for judged, row in pairs:
        if row.get("case") != judged.row.digest:
            raise InputError(f"{judged.row.where}: case {judged.row.id!r} is not that of {path}", "evaluate it again")
    if not pairs:
        raise InputError(f"{path}: none of its cases is evaluated here", "give an evaluation of the same cases")
    paired = Paired.of((row.get("kind") == "correct" for _, row in pairs), (one.verdict.passed for one, _ in pairs))
    alone = (len(new.answers) - len(pairs), len(old) - len(pairs))
    texts = [
        (judged.row.id, *text)
        for judged, row in pairs
        for text in zip(_texts(judged.as_json()), _texts(row), strict=False)
    ]
    differ = [name for name, new_text, old_text in texts if new_text != old_text]
    computed = _computed_otherwise(document, found)
    return Drop(path, paired, max_drop, alone, computed, len(texts), len(differ), tuple(dict.fromkeys(differ)))


def _texts(row: Mapping[str, Any]) -> list[Any]:
    """Return the answers of a row under "answers"."""
    samples = items(row, "samples")
    return [one.get("answer") for one in samples if isinstance(one, dict)] if samples else [row.get("answer")]


def _computed_otherwise(old: Mapping[str, Any], found: Evaluated) -> dict[str, tuple[Any, Any]]:
    new = {"generation": found.generation or {}, "expert": found.facts or {}}
    both = {name: (part(old, where).get(name), new[where].get(name)) for name, where in COMPUTED.items()}
    return {name: pair for name, pair in both.items() if None not in pair and pair[0] != pair[1]}
