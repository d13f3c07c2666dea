"""Other answers to an expert's cases, beside its own: those of its base model, and its own without the grammar that holds them.

The base model, the same weights with the adapter switched off, is asked as anyone would ask it who has no adapter: in its own
chat template, held to nothing, without examples, and with some of the training rows before the question. Its answers may be
longer than the expert's: a chat model explains itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from expert_cli.evaluation.answer import Generations, longest_right_answer, write_answers
from expert_cli.evaluation.cases import EvalCase
from expert_cli.evaluation.few_shot import NO_SHOTS, Shots
from expert_cli.evaluation.grade import Evaluation, grade
from expert_cli.evaluation.kept_answers import KeptAnswers
from expert_cli.inference.generation_config import GenerationConfig
from expert_cli.runs.metrics import WITHOUT_GRAMMAR, base_title
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.statistics import Paired

if TYPE_CHECKING:
    from expert_cli.inference.expert import Expert
    from expert_cli.inference.prompt_renderer import PromptRenderer

NEW_TOKENS = 512
"""What an answer of the base model may have at least; where right answers are long, twice as much as the longest."""


@dataclass(frozen=True)
class Comparison:
    """Other answers to the same cases, the base model's for one, and the pairs (first: these, second: the expert's).

    asked: how, as the document says it: shots, examples, template, generation; generation alone for the expert itself.
    """

    evaluation: Evaluation
    pairs: Paired
    asked: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return the value under a key of `BASES`; the difference is the expert's accuracy minus that of these answers."""
        rise = self.pairs.reversed
        difference = {
            "difference": rise.drop,
            "ci95": list(rise.ci95),
            "gained": self.pairs.gained,
            "lost": self.pairs.lost,
        }
        return {**self.evaluation.as_json(), "difference": difference, **self.asked}


@dataclass(frozen=True)
class Asked:
    """An expert and the cases that it is asked. kept: the answers of an earlier start."""

    expert: Expert
    cases: Sequence[EvalCase]
    settings: GenerationConfig
    report: Reporter
    case_timeout_s: float
    kept: KeptAnswers | None = None

    def answers(
        self, title: str, settings: GenerationConfig, renderer: PromptRenderer | None = None, shots: Shots = NO_SHOTS
    ) -> Generations:
        """Let the model answer as it is now; renderer: default the expert's."""
        expert = self.expert
        return write_answers(
            expert.model, renderer or expert.renderer, self.cases, settings, self.report, title, shots, self.kept
        )


def ask_base(asked: Asked, renderer: PromptRenderer, shots: Shots, of_expert: Evaluation) -> Comparison:
    """Let the base model answer, once, and pair its answers with the expert's.

    It stops at its own end token alone, and no grammar holds it.
    """
    need = longest_right_answer(renderer, asked.cases)
    longest = max(asked.settings.max_new_tokens, NEW_TOKENS, 2 * need)
    settings = replace(asked.settings, stops=(), grammar=None, samples=0, max_new_tokens=longest)
    with asked.expert.model.disable_adapter():
        written = asked.answers(base_title("", {"shots": shots.count}), settings, renderer, shots)
    found = grade(written.answers, asked.report, asked.case_timeout_s)
    how = {
        "shots": shots.count,
        "examples": [row.where for row in shots.before(asked.cases[0])],
        "template": renderer.template.name,
        "generation": {**settings.as_json(), **written.as_json()},
    }
    return Comparison(found, Paired.of(found.passed, of_expert.passed), how)


def ask_freely(asked: Asked, of_expert: Evaluation) -> Comparison:
    """Let the expert answer once without its grammar, and pair these answers with those that were held to it."""
    settings = replace(asked.settings, grammar=None)
    written = asked.answers(base_title(WITHOUT_GRAMMAR, {}), settings)
    found = grade(written.answers, asked.report, asked.case_timeout_s)
    return Comparison(
        found,
        Paired.of(found.passed, of_expert.passed),
        {"generation": {**settings.as_json(), **written.as_json()}},
    )
