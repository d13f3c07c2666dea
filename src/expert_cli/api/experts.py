"""Evaluate a trained expert, and ask it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expert_cli.errors import InputError
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.paths import FilePath, optional_path
from expert_cli.utils.reporter import NullReporter, Reporter

if TYPE_CHECKING:
    from expert_cli.config.plan import TrainedAdapter
    from expert_cli.evaluation.result import Evaluated
    from expert_cli.inference.chat import Chat

MAX_DROP = 0.05
"""How far the accuracy may fall against an earlier evaluation where nothing else is said."""
_LEAST = {"batch_size": 1, "max_new_tokens": 1, "limit": 1, "shots": 0}


@disk_errors()
def evaluate(
    adapter: FilePath,
    *,
    manifest: FilePath | None = None,
    cases: FilePath | None = None,
    baseline: bool = False,
    shots: int = 0,
    base_model: str | None = None,
    sample: bool = False,
    batch_size: int | None = None,
    max_new_tokens: int = 256,
    limit: int | None = None,
    case_timeout_s: float = 2.0,
    threshold: float | None = None,
    against: FilePath | None = None,
    max_drop: float | None = None,
    output: FilePath | None = None,
    offline: bool = False,
    reporter: Reporter = NullReporter(),
) -> Evaluated:
    """Let an expert answer its cases, and grade the answers.

    Of all of the expert's own cases, evaluation.json, model card and report of its run directory are written as well.

    Args:
        adapter: A run directory, or the folder of an adapter or checkpoint.
        manifest: The expert's manifest.json; default the one that the adapter was trained from.
        cases: The cases; default `tests/cases.jsonl` beside the manifest.
        baseline: Let the base model answer as well, asked in its own chat template.
        shots: With `baseline`: ask the base model once more, after so many training rows as examples.
        base_model: Default the one that the adapter was trained on.
        sample: Draw by the manifest's training.decoding, not greedily.
        batch_size: Answers written at once; default 16, on a GPU 64.
        max_new_tokens: Longest answer, in tokens.
        limit: Only so many cases, spread over the categories.
        case_timeout_s: Seconds that one answer may run.
        threshold: The accuracy, 0 to 1, below which `missed` of the result says so.
        against: An earlier evaluation, compared case by case.
        max_drop: With `against`: the accuracy, 0 to 1, may fall by so much; default 0.05.
        output: Write the JSON document here as well.
        offline: Forbid every network call.
        reporter: Is told what happens.

    Returns:
        The graded answers, the base model's beside them, and in `missed` which threshold was missed, "" for none.

    Raises:
        InputError: No adapter there, cases at fault, or arguments that do not go together.
        EnvironmentProblem: The base model, or what runs the answers, is missing.
        IntegrityError: The adapter is damaged.
    """
    _require_sound(locals())
    from expert_cli.config.plan import trained_adapter
    from expert_cli.evaluation.evaluate import answer_settings, cases_of, evaluate_adapter
    from expert_cli.utils.process_setup import prepare_process

    trained = trained_adapter(Path(adapter), optional_path(manifest), base_model, offline=offline)
    settings = answer_settings(trained.plan, max_new_tokens, batch_size, sample=sample)
    asked = cases_of(trained.plan, optional_path(cases), limit)
    reporter.info("loading the model")
    prepare_process()
    found = evaluate_adapter(
        trained, asked, settings, reporter, case_timeout_s=case_timeout_s, baseline=baseline, shots=shots
    )
    file = trained.plan.own_cases if cases is None else Path(cases)
    return _left(replace(found, cases_file=file, limit=limit), trained, locals())


@disk_errors()
def grade_answers(
    answers: FilePath,
    *,
    cases: FilePath | None = None,
    limit: int | None = None,
    case_timeout_s: float = 2.0,
    threshold: float | None = None,
    against: FilePath | None = None,
    max_drop: float | None = None,
    output: FilePath | None = None,
    reporter: Reporter = NullReporter(),
) -> Evaluated:
    """Grade answers that are written already; no model is loaded.

    answers: one JSON object a line, each a case with its answer; or what `evaluate` wrote, whose answers are graded again.
    cases: other cases of the same ids and prompts, for what `evaluate` wrote. The other arguments, and what is returned and
    raised, are those of `evaluate`.
    """
    _require_sound(locals())
    from expert_cli.evaluation.evaluate import grade_kept

    return _left(grade_kept(Path(answers), optional_path(cases), limit, case_timeout_s, reporter), None, locals())


@disk_errors()
def load_expert(
    run: FilePath,
    *,
    manifest: FilePath | None = None,
    base_model: str | None = None,
    sample: bool = False,
    max_new_tokens: int = 256,
    offline: bool = False,
    reporter: Reporter = NullReporter(),
) -> Chat:
    """Load an expert, to ask it: `load_expert(run).ask("...")`.

    Args:
        run: A run directory, or the folder of an adapter or checkpoint.
        manifest: The expert's manifest.json; default the one that the adapter was trained from.
        base_model: Default the one that the adapter was trained on.
        sample: Draw by the manifest's training.decoding, not greedily.
        max_new_tokens: Longest answer, in tokens.
        offline: Forbid every network call.
        reporter: Is told what happens.

    Returns:
        The expert; its base model can be asked beside it. Prompts are written down as in training.

    Raises:
        ExpertError: InputError, EnvironmentProblem, RunLocked or IntegrityError, as `evaluate` does.
    """
    _require_sound(locals())
    from expert_cli.config.plan import trained_adapter
    from expert_cli.utils.process_setup import prepare_process

    trained = trained_adapter(Path(run), optional_path(manifest), base_model, offline=offline)
    reporter.info("loading the model")
    prepare_process()
    from expert_cli.inference.chat import open_chat

    return open_chat(trained, reporter, max_new_tokens=max_new_tokens, sample=sample)


def _left(found: Evaluated, trained: TrainedAdapter | None, asked: Mapping[str, Any]) -> Evaluated:
    """Hold an evaluation against what was asked of it, an earlier one too, and leave it where people look for it."""
    from expert_cli.evaluation.result import compare_with
    from expert_cli.pipeline.publish import leave

    against, max_drop = asked["against"], asked["max_drop"]
    if against is not None:
        drop = compare_with(Path(against), found.evaluation, MAX_DROP if max_drop is None else max_drop)
        found = replace(found, drop=drop)
    found = replace(found, threshold=asked["threshold"])
    leave(found, trained, optional_path(asked["output"]), asked["reporter"])
    return found


def _require_sound(asked: Mapping[str, Any]) -> None:
    """Raise InputError for arguments of a function of this module that are too small, or go with others."""
    if asked.get("shots") and not asked["baseline"]:
        raise InputError("--shots goes with --baseline: the base model is shown the examples")
    for name, least in _LEAST.items():
        value = asked.get(name)
        if value is not None and value < least:
            raise InputError(f"--{name.replace('_', '-')} {value}: must be at least {least}")
    if asked.get("max_drop") is not None and asked["against"] is None:
        raise InputError("--max-drop goes with --against: the accuracy falls from that of an earlier evaluation")
