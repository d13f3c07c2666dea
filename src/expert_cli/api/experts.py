"""Evaluate a trained expert, and ask it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from expert_cli.errors import InputError
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.paths import FilePath, optional_path
from expert_cli.utils.reporter import NullReporter, Reporter

if TYPE_CHECKING:
    from expert_cli.evaluation.result import Evaluated
    from expert_cli.inference.chat import Chat
    from expert_cli.inference.vote import Given

MAX_DROP = 0.05
"""How far the accuracy may fall against an earlier evaluation where nothing else is said."""


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
    samples: int = 0,
    batch_size: int | None = None,
    max_new_tokens: int | None = None,
    limit: int | None = None,
    case_timeout_s: float = 2.0,
    threshold: float | None = None,
    against: FilePath | None = None,
    max_drop: float | None = None,
    output: FilePath | None = None,
    write_pairs: FilePath | None = None,
    allow_commands: bool = False,
    without_walls: bool = False,
    offline: bool = False,
    reporter: Reporter = NullReporter(),
) -> Evaluated:
    """Let an expert answer its cases, and grade the answers.

    Of all of the expert's own cases, evaluation.json, model card and report of its run directory are written as well.

    Args:
        adapter: A run directory, or the folder of an adapter or checkpoint.
        manifest: The expert's manifest.json; default the one that the adapter was trained from.
        cases: The cases; default `tests/cases.jsonl` beside the manifest.
        baseline: Let the base model answer as well, asked in its own chat template, and the expert without its grammar.
        shots: With `baseline`: ask the base model once more, after so many training rows as examples.
        base_model: Default the one that the adapter was trained on.
        sample: The same as samples=1.
        samples: Draw so many answers to each case by the manifest's training.decoding, at a temperature of 0.8 where that names
            none or less than 0.3: pass@k and majority are told. 0: one answer, greedily.
        batch_size: Answers written at once; default 32, on a GPU 64.
        max_new_tokens: Longest answer, in tokens; default that of the adapter's generation_config.json, 256.
        limit: Only so many cases, spread over the categories.
        case_timeout_s: Seconds that one answer may run; to parse a program and to check its types have as long each.
        threshold: The accuracy, 0 to 1, below which `missed` of the result says so.
        against: An earlier evaluation, compared case by case.
        max_drop: With `against`: the accuracy, 0 to 1, may fall by so much; default 0.05.
        output: Write the JSON document here as well.
        write_pairs: Write right and wrong answers to one prompt here, for TRL's DPOTrainer; with `samples` of 2 or more.
        allow_commands: Run the programs that cases name as their judges.
        without_walls: Run answers that are programs also where nothing keeps them from the network.
        offline: Forbid every network call.
        reporter: Is told what happens.

    Returns:
        The graded answers, the base model's beside them, and in `missed` which threshold was missed, "" for none.

    Raises:
        InputError: No adapter there, cases at fault, or arguments that do not go together.
        EnvironmentProblem: The base model, what runs the answers, or what keeps them from the network is missing.
        IntegrityError: The adapter is damaged.
    """
    if shots and not baseline:
        raise InputError("--shots goes with --baseline: the base model is shown the examples")
    _require_at_least(1, batch_size=batch_size, max_new_tokens=max_new_tokens, limit=limit)
    _require_at_least(0, shots=shots, samples=samples)
    if sample and samples:
        raise InputError("--sample is --samples 1", "give one of the two")
    _require_room(write_pairs, samples)
    _require_company(against, max_drop)
    from expert_cli.config.plan import trained_adapter
    from expert_cli.evaluation.evaluate import answer_settings, cases_of, evaluate_adapter
    from expert_cli.evaluation.permissions import Permissions
    from expert_cli.inference.expert_config import decoding_for
    from expert_cli.inference.generation_config import drawn
    from expert_cli.pipeline.publish import leave
    from expert_cli.utils.process_setup import prepare_process

    trained = trained_adapter(Path(adapter), optional_path(manifest), base_model, offline=offline)
    decoding = decoding_for(trained, reporter)
    settings = answer_settings(trained.plan, decoding, max_new_tokens, batch_size, samples=samples or int(sample))
    if settings.samples:
        reporter.info(drawn(settings, decoding))
    asked = cases_of(trained.plan, optional_path(cases), limit)
    reporter.info("loading the model")
    prepare_process()
    found = evaluate_adapter(
        trained,
        asked,
        settings,
        reporter,
        case_timeout_s=case_timeout_s,
        shots=shots if baseline else None,
        allowed=Permissions(allow_commands, without_walls),
        keep=_beside(optional_path(output) or (trained.origin.run or trained.origin.adapter) / "evaluation.json"),
    )
    file = trained.plan.own_cases if cases is None else Path(cases)
    found = _compared(replace(found, cases_file=file, limit=limit, threshold=threshold), against, max_drop)
    found = _paired(found, optional_path(write_pairs), reporter)
    leave(found, trained, optional_path(output), reporter)
    return found


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
    write_pairs: FilePath | None = None,
    allow_commands: bool = False,
    without_walls: bool = False,
    reporter: Reporter = NullReporter(),
) -> Evaluated:
    """Grade answers that are written already; no model is loaded.

    answers: one JSON object a line, each a case with its answer; or what `evaluate` wrote, whose answers are graded again.
    cases: other cases of the same ids and prompts, for what `evaluate` wrote. The other arguments, and what is returned and
    raised, are those of `evaluate`.
    """
    _require_at_least(1, limit=limit)
    _require_company(against, max_drop)
    _require_room(write_pairs)
    from expert_cli.evaluation.evaluate import grade_kept
    from expert_cli.evaluation.permissions import Permissions
    from expert_cli.pipeline.publish import leave

    allowed = Permissions(allow_commands, without_walls)
    found = grade_kept(Path(answers), optional_path(cases), limit, case_timeout_s, reporter, allowed)
    found = _compared(replace(found, threshold=threshold), against, max_drop)
    found = _paired(found, optional_path(write_pairs), reporter)
    leave(found, None, optional_path(output), reporter)
    return found


@disk_errors()
def load_expert(
    run: FilePath,
    *,
    manifest: FilePath | None = None,
    base_model: str | None = None,
    sample: bool = False,
    max_new_tokens: int | None = None,
    database: FilePath | None = None,
    offline: bool = False,
    reporter: Reporter = NullReporter(),
) -> Chat:
    """Load an expert, to ask it: `load_expert(run).ask("...")`.

    Args:
        run: A run directory, or the folder of an adapter or checkpoint.
        manifest: The expert's manifest.json; default the one that the adapter was trained from.
        base_model: Default the one that the adapter was trained on.
        sample: Draw by the manifest's training.decoding, not greedily.
        max_new_tokens: Longest answer, in tokens; default that of the adapter's generation_config.json, 256.
        database: The SQLite file that questions are about, where the expert was trained with `training.dataset.schema_prompt`:
            what a question is shown of it stands in the place of its input, values of the file among it. Votes go by the
            rows that answers give of a copy of it.
        offline: Forbid every network call.
        reporter: Is told what happens.

    Returns:
        The expert; its base model can be asked beside it. Prompts are written down as in training.

    Raises:
        ExpertError: InputError, EnvironmentProblem, RunLocked or IntegrityError, as `evaluate` does.
    """
    _require_at_least(1, max_new_tokens=max_new_tokens)
    from expert_cli.config.plan import trained_adapter
    from expert_cli.utils.process_setup import prepare_process

    trained = trained_adapter(Path(run), optional_path(manifest), base_model, offline=offline)
    reporter.info("loading the model")
    prepare_process()
    from expert_cli.inference.chat import open_chat

    file = optional_path(database)
    runs = partial(_runs, file, reporter)
    return open_chat(trained, reporter, max_new_tokens=max_new_tokens, sample=sample, database=file, runs=runs)


def _runs(database: Path | None, report: Reporter) -> Callable[[str], Given] | None:
    if database is None:
        return None
    from expert_cli.evaluation.rows_given import rows_given

    return rows_given(database, report)


def _compared(found: Evaluated, against: FilePath | None, max_drop: float | None) -> Evaluated:
    """Pair the answers with those of an earlier evaluation, if there is one."""
    if against is None:
        return found
    from expert_cli.evaluation.result import compare_with

    allowed = MAX_DROP if max_drop is None else max_drop
    return replace(found, drop=compare_with(Path(against), found, allowed))


def _paired(found: Evaluated, write_to: Path | None, report: Reporter) -> Evaluated:
    """Write the pairs, if they are asked for."""
    if write_to is None:
        return found
    from expert_cli.evaluation.pairs import write_pairs

    pairs = write_pairs(write_to, found.evaluation, (found.facts or {}).get("input_separator"))
    report.info(f"written   {pairs.in_words()}")
    return replace(found, pairs=pairs)


def _require_room(write_pairs: FilePath | None, samples: int | None = None) -> None:
    """Raise InputError before anything is loaded or judged. samples: those to be drawn; None: they are there or not."""
    if write_pairs is None:
        return
    if samples is not None and samples < 2:
        raise InputError(
            "--write-pairs goes with --samples of 2 or more: a pair is a right and a wrong answer to one prompt"
        )
    from expert_cli.evaluation.pairs import OPTION
    from expert_cli.utils.files import require_new_file

    require_new_file(OPTION, Path(write_pairs))


def _require_company(against: FilePath | None, max_drop: float | None) -> None:
    if max_drop is not None and against is None:
        raise InputError("--max-drop goes with --against: the accuracy falls from that of an earlier evaluation")


def _beside(result: Path) -> Path:
    """Return the file of the answers as they are made, beside that of the result."""
    return result.with_suffix(".answers.jsonl")


def _require_at_least(least: int, **values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < least:
            raise InputError(f"--{name.replace('_', '-')} {value}: must be at least {least}")
