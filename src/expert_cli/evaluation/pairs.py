"""Right and wrong answers to one prompt become pairs, in the form that TRL's DPOTrainer reads: JSON lines.

{"id": case, "prompt": [{"role": "user", "content": ...}], "chosen": [{"role": "assistant", ...}], "rejected": [...]}

Conversations, not texts: the tokenizer in `adapter/` writes them down as training did, with the system prompt and the end of
the turn. To texts TRL adds the tokenizer's own end token, which need not be the one that ends a turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expert_cli.errors import InputError
from expert_cli.evaluation.cases import Question
from expert_cli.evaluation.grade import Evaluation, GradedAnswer
from expert_cli.evaluation.verifiers.case import plain
from expert_cli.utils.files import require_new_file
from expert_cli.utils.json_lines import write_json_lines

MOST_PAIRS = 4
"""Pairs of one prompt. K answers, half of them right, make K²/4: prompts that are won half the time would be all there is."""
OPTION = "--write-pairs"


@dataclass(frozen=True)
class Pairs:
    """What was written: pairs, of how many prompts; how many prompts gave none: all answers right, or none."""

    file: Path
    pairs: int
    prompts: int
    all_right: int
    none_right: int

    def as_json(self) -> dict[str, Any]:
        """Return the value under "pairs"."""
        return {
            "file": str(self.file),
            "pairs": self.pairs,
            "prompts": self.prompts,
            "all_right": self.all_right,
            "none_right": self.none_right,
        }

    def in_words(self) -> str:
        """Return a line."""
        return (
            f"{self.pairs} pairs of {self.prompts} prompts, at most {MOST_PAIRS} each; none of {self.all_right} whose answers "
            f"are all right, and of {self.none_right} where no right one came to its end: {self.file}"
        )


def write_pairs(path: Path, found: Evaluation, input_separator: str | None) -> Pairs:
    """Write the pairs of an evaluation with samples, case by case in its order; the same answers give the same file.

    input_separator: stands between a row's prompt and its input in the user's turn; None where nothing tells.
    Raises InputError where there are no samples, or prompts cannot be written down, and where the file is there.
    """
    require_new_file(OPTION, path)
    if not all(len(one.samples) > 1 for one in found.answers):
        raise InputError(f"{OPTION}: a pair needs several answers to a case", "draw them: --samples 8")
    of_cases = [list(_pairs(one.samples)) for one in found.answers]
    rows = [
        _row(one, pair, input_separator) for one, pairs in zip(found.answers, of_cases, strict=True) for pair in pairs
    ]
    write_json_lines(path, rows)
    with_some = sum(bool(pairs) for pairs in of_cases)
    all_right = sum(all(one.verdict.passed for one in answer.samples) for answer in found.answers)
    return Pairs(path, len(rows), with_some, all_right, len(of_cases) - with_some - all_right)


def _pairs(samples: Sequence[GradedAnswer]) -> Iterator[tuple[str, str]]:
    """Yield (chosen, rejected), each answer as seldom as can be. What only could be parsed here may be right: it is neither."""
    right = _different(one for one in samples if one.verdict.passed and one.row.stop not in ("length", "looping"))
    wrong = _different(one for one in samples if not one.verdict.passed and one.verdict.kind != "parsed_only")
    if right and wrong:
        for place in range(min(MOST_PAIRS, max(len(right), len(wrong)))):
            yield right[place % len(right)], wrong[place % len(wrong)]


def _different(answers: Iterator[GradedAnswer]) -> list[str]:
    """Return texts in the order in which they were drawn, of those that answer the same the first."""
    texts: dict[str, str] = {}
    for one in answers:
        texts.setdefault(plain(one.row.extracted or one.row.answer), one.row.answer)
    return list(texts.values())


def _row(answer: GradedAnswer, pair: tuple[str, str], input_separator: str | None) -> dict[str, Any]:
    chosen, rejected = ([{"role": "assistant", "content": text}] for text in pair)
    asked = [{"role": "user", "content": _user_turn(answer, answer.row.asked or Question("", ""), input_separator)}]
    return {"id": answer.row.id, "prompt": asked, "chosen": chosen, "rejected": rejected}


def _user_turn(answer: GradedAnswer, asked: Question, input_separator: str | None) -> str:
    if not asked.input:
        return asked.prompt
    if input_separator is None:
        raise InputError(
            f"{answer.row.where}: the evaluation does not say how a prompt and its input were joined",
            f"evaluate the adapter again: --adapter DIR --samples K {OPTION} FILE",
        )
    return f"{asked.prompt}{input_separator}{asked.input}"
