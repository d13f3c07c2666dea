"""The base model on an expert's cases: the same weights, the adapter switched off, asked in its own chat template.

It is asked as anyone would ask it who has no adapter: without examples, and with some of the training rows before the
question. Its answers may be longer than the expert's: a chat model explains itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from expert_cli.evaluation.answer import longest_right_answer, write_answers
from expert_cli.evaluation.cases import EvalCase
from expert_cli.evaluation.few_shot import Shots
from expert_cli.evaluation.grade import Evaluation, grade
from expert_cli.inference.generation_config import GenerationConfig
from expert_cli.runs.metrics import base_title
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.statistics import Paired

if TYPE_CHECKING:
    from expert_cli.inference.expert import Expert, PromptRenderer

NEW_TOKENS = 512
"""What an answer of the base model may have at least; where right answers are long, twice as much as the longest."""


@dataclass(frozen=True)
class BaselineComparison:
    """The base model alone on the same cases, and the pairs (first: base model, second: expert).

    asked: how, as the document says it: shots, examples, template, generation.
    """

    evaluation: Evaluation
    pairs: Paired
    asked: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return the value under "baseline" or "few_shot"; the difference is expert minus base model."""
        rise = self.pairs.reversed
        difference = {
            "difference": rise.drop,
            "ci95": list(rise.ci95),
            "gained": self.pairs.gained,
            "lost": self.pairs.lost,
        }
        return {**self.evaluation.as_json(), "difference": difference, **self.asked}


def ask_base(
    expert: Expert,
    renderer: PromptRenderer,
    cases: Sequence[EvalCase],
    settings: GenerationConfig,
    shots: Shots,
    of_expert: Evaluation,
    report: Reporter,
    case_timeout_s: float,
) -> BaselineComparison:
    """Let the base model answer, and pair its answers with the expert's; it stops at its own end token alone."""
    need = longest_right_answer(renderer, cases)
    settings = replace(settings, stops=(), max_new_tokens=max(settings.max_new_tokens, NEW_TOKENS, 2 * need))
    with expert.model.disable_adapter():
        written = write_answers(
            expert.model, renderer, cases, settings, report, base_title({"shots": shots.count}), shots
        )
    found = grade(written.answers, report, case_timeout_s)
    asked = {
        "shots": shots.count,
        "examples": [row.where for row in shots.before(cases[0])],
        "template": renderer.template.name,
        "generation": {**settings.as_json(), **written.as_json()},
    }
    return BaselineComparison(found, Paired.of(found.passed, of_expert.passed), asked)
