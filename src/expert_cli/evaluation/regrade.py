"""Answers that an evaluation kept, judged again: by stricter cases, or by a stricter judge, without the model.

evaluation.json   "answers", and under "baseline", "few_shot" and "without_grammar": id, prompt (a hash), answer, samples
cases.jsonl       the same ids and prompts; what is right may have become another thing
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from expert_cli.errors import InputError
from expert_cli.evaluation.baseline import Comparison
from expert_cli.evaluation.cases import CaseAnswer, EvalCase, read_cases, stratified_sample
from expert_cli.evaluation.grade import Evaluation, grade
from expert_cli.evaluation.permissions import Permissions
from expert_cli.inference.generation_config import Stop
from expert_cli.runs.metrics import BASES, items, number, part, read_json
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.statistics import Paired

_ASKED = ("shots", "examples", "template")
_WRITTEN = ("max_new_tokens", "tokens", "seconds", "tokens_per_s", "cut_off")


@dataclass(frozen=True)
class KeptAnswers:
    """An evaluation's document, and the file of its cases."""

    path: Path
    document: Mapping[str, Any]
    cases: Path

    def judged(
        self, report: Reporter, case_timeout_s: float, limit: int | None, allowed: Permissions
    ) -> tuple[Evaluation, dict[str, Comparison]]:
        """Judge the answers, or `limit` of them, spread over the categories, and the others to the same cases.

        Raises InputError where an answer has no case any more, or its case asks something else now.
        """
        cases = {case.id: case for case in read_cases(self.cases)}
        allowed.require([*cases.values()], report)
        answered = {str(row.get("id")) for row in items(self.document, "answers") if isinstance(row, dict)}
        unanswered = [name for name in cases if name not in answered]
        if unanswered and self.limit(limit) is None:
            shown = ", ".join(unanswered[:3]) + (", ..." if len(unanswered) > 3 else "")
            report.warning(f"{len(unanswered)} of {len(cases)} cases have no answer and are left out: {shown}")
        expert = grade(stratified_sample(self._answered(self.document, cases), limit), report, case_timeout_s)
        bases = {}
        for name in BASES:
            told = part(self.document, name)
            if told:
                again = grade(stratified_sample(self._answered(told, cases), limit), report, case_timeout_s)
                asked = {key: told[key] for key in _ASKED if key in told} | {"generation": generation(told)}
                bases[name] = Comparison(again, Paired.of(again.passed, expert.passed), asked)
        return expert, bases

    def limit(self, asked: int | None) -> int | None:
        """Return how many answers at most are judged where `asked` are asked for: there may be no more; None: all."""
        known = number(self.document, "limit")
        return min((int(one) for one in (asked, known) if one), default=None)

    def _answered(self, document: Mapping[str, Any], cases: Mapping[str, EvalCase]) -> Sequence[CaseAnswer]:
        return [self._one(row, cases) for row in items(document, "answers")]

    def _one(self, row: Any, cases: Mapping[str, EvalCase]) -> CaseAnswer:
        if not isinstance(row, dict) or not isinstance(row.get("answer"), str):
            raise InputError(f"{self.path}: an answer is missing", "give a file that evaluate --output wrote")
        case = cases.get(str(row.get("id")))
        if case is None:
            raise InputError(
                f"{self.cases}: no case {row.get('id')!r}, which {self.path} has an answer to",
                "give the cases that were answered: --cases FILE",
            )
        if row.get("prompt") != case.question.digest:
            raise InputError(
                f"{case.where}: case {case.id!r} asks something else than what was answered in {self.path}",
                "evaluate the adapter again: --adapter",
            )
        samples = items(row, "samples")
        return replace(_kept(case, row), samples=tuple(self._sample(case, one) for one in samples))

    def _sample(self, case: EvalCase, row: Any) -> CaseAnswer:
        if not isinstance(row, dict) or not isinstance(row.get("answer"), str):
            raise InputError(
                f"{self.path}: a sample of {case.id!r} is missing", "give a file that evaluate --output wrote"
            )
        return _kept(case, row)


def _kept(case: EvalCase, row: Mapping[str, Any]) -> CaseAnswer:
    stop: Stop | Literal[""] = next((known for known in get_args(Stop) if known == row.get("stop")), "")
    answered = case.answered(row["answer"], stop, str(row.get("raw") or ""))
    return replace(answered, shown=str(row.get("schema_prompt") or ""))


def generation(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return how answers were written; None where that was not kept whole."""
    found = part(document, "generation")
    return found if all(number(found, key) is not None for key in _WRITTEN) else None


def held_to(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what held the answers: type, held, free; None for nothing."""
    told = part(document, "grammar")
    known = {name: told.get(name) for name in ("type", "held", "free")}
    return None if None in known.values() else known


def read_kept(path: Path, cases: Path | None) -> KeptAnswers | None:
    """Return the evaluation in a file; None where it holds rows of answers. cases: default, those that it names.

    Raises InputError where the cases are gone.
    """
    document = read_json(path)
    if not items(document, "answers"):
        return None
    file = cases or Path(str(document.get("cases_file") or ""))
    if not file.is_file():
        raise InputError(f"{file}: the cases that {path} answers are not there", "name them: --cases FILE")
    return KeptAnswers(path, document, file)
