"""Answers to held-out cases before, during and after training, which a run shows beside its losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from expert_cli.config.plan import Plan
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.inference.expert_config import GenerationConfig, generation_config
from expert_cli.pipeline.options import RunOptions
from expert_cli.utils.reporter import NullReporter, Reporter
from expert_cli.utils.text import plural

if TYPE_CHECKING:
    from expert_cli.evaluation.cases import Cases, EvalCase
    from expert_cli.evaluation.grade import GradedAnswer
    from expert_cli.inference.prompts import PromptRenderer

    Answers = Sequence[GradedAnswer]

NEW_TOKENS = 64
"""max_new_tokens of these answers: enough to see whether training worked."""


def choose(plan: Plan, report: Reporter, options: RunOptions) -> list[EvalCase]:
    """Return cases to answer before and after training, drawn by the seed; none if some cannot be judged here."""
    from expert_cli.evaluation.evaluate import check_gradable, drawn_cases

    try:
        drawn = drawn_cases(plan, plan.run.sample_answers)
        check_gradable(drawn, report, options.permissions)
    except (InputError, EnvironmentProblem) as error:
        report.warning(f"cases are not asked after training: {error.message}; {error.hint}")
        return []
    return drawn


def ask(model: Any, cases: Cases, renderer: PromptRenderer, decoding: GenerationConfig, report: Reporter) -> Answers:
    """Let the model answer greedily in one batch, and judge the answers."""
    if not cases:
        return []
    from expert_cli.evaluation.evaluate import Answering, write_answers

    report.info(f"answering {plural(len(cases), 'prompt')}")
    settings = generation_config(decoding, NEW_TOKENS, len(cases))
    return write_answers(model, renderer, Answering("", cases, settings, NullReporter())).answers


def cases_while_training(plan: Plan, report: Reporter, options: RunOptions) -> list[EvalCase]:
    """Return the cases for `evaluation.every_steps`. Raises InputError, EnvironmentProblem if they cannot be judged here."""
    from expert_cli.evaluation.evaluate import cases_of, check_gradable

    cases = cases_of(plan, None, plan.run.watch.answers) if plan.run.watch.answers else []
    check_gradable(cases, report, options.permissions)
    return cases


def accuracy(
    model: Any,
    cases: Cases,
    renderer: PromptRenderer,
    decoding: GenerationConfig,
    report: Reporter,
    options: RunOptions,
) -> float:
    """Let the model in its current state answer cases, and return the share of right answers."""
    from expert_cli.evaluation.evaluate import Answering, write_answers

    device = model.device.type  # a training step fills its memory
    settings = generation_config(decoding, batch=4 if device == "cuda" else None, device=device)
    answering = Answering("", cases, settings, NullReporter())
    share = write_answers(model, renderer, answering, options.permissions).share
    report.info("answers   {correct} of {cases} are right".format(**share))
    return float(share["accuracy"])


def samples(cases: Cases, before: Answers, after: Answers) -> list[dict[str, Any]]:
    """Return the cases with their answers; right_before and right_after are None if an answer could only be parsed."""
    found = []
    for case, *both in zip(cases, before, after, strict=True):
        (old, new), kinds = (one.row.answer.strip() for one in both), [one.verdict.kind for one in both]
        was_right, is_right = (None if kind == "parsed_only" else kind == "correct" for kind in kinds)
        asked = {"prompt": case.turn("\n"), "expected": case.case.expected_text or "its tests pass"}
        found.append({**asked, "before": old, "after": new, "right_before": was_right, "right_after": is_right})
    return found
