"""Evaluate a trained expert, and ask it; look for what is wrong with its data."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from expert_cli.errors import InputError
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.files import require_new_file
from expert_cli.utils.paths import FilePath, optional_path
from expert_cli.utils.reporter import NullReporter, Reporter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from expert_cli.evaluation.audit import Audit
    from expert_cli.evaluation.grade import Evaluated
    from expert_cli.inference.chat_session import Chat
    from expert_cli.inference.vote import Given

MAX_DROP = 0.05
"""How far the accuracy may fall against an earlier evaluation where nothing else is said."""


@disk_errors()
def evaluate(
    adapter: FilePath | None = None,
    *,
    manifest: FilePath | None = None,
    cases: FilePath | None = None,
    baseline: bool = False,
    shots: int = 0,
    base_model: str | None = None,
    base_quantization: Literal["none", "bf16", "int8", "int4"] | None = None,
    endpoint: str | None = None,
    model: str | None = None,
    baseline_endpoint: str | None = None,
    baseline_model: str | None = None,
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
    """Let an expert answer its cases, and grade the answers: an adapter, or what a server serves.

    Of all of the expert's own cases, evaluation.json, model card and report of its run directory are written as well.

    Args:
        adapter: A run directory, or the folder of an adapter or checkpoint. With `endpoint`: what is served there, whose
            prompts are used, and whose evaluation.json is compared with.
        manifest: The expert's manifest.json; default the one that the adapter was trained from.
        cases: The cases; default `tests/cases.jsonl` beside the manifest.
        baseline: Let the base model answer as well, asked in its own chat template, and the expert without its grammar.
        shots: With `baseline`: ask the base model once more, after so many training rows as examples.
        base_model: Default the one that the adapter was trained on.
        base_quantization: How the base model is held; default as in training.
        endpoint: The URL of a server that speaks OpenAI's protocol, which answers instead; OPENAI_API_KEY holds its key.
        model: What the server calls the model.
        baseline_endpoint: The URL of a server whose model answers as well.
        baseline_model: What that server calls it.
        samples: Draw so many answers to each case by training.decoding, at a temperature of 0.8 where that names less than
            0.3: pass@k and majority are told. 0: one answer, greedily.
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
        offline: Forbid every network call, but for servers of this machine.
        reporter: Is told what happens.

    Returns:
        The graded answers, the base model's beside them, and in `missed` which threshold was missed, "" for none.

    Raises:
        InputError: No adapter there, cases at fault, or arguments that do not go together.
        EnvironmentProblem: The base model, a server, what runs the answers, or what keeps them from the network is missing.
        IntegrityError: The adapter is damaged.
    """
    is_served = endpoint is not None
    own_base = baseline or base_model or base_quantization
    faults = (
        (not adapter and not (manifest and is_served), "nothing to evaluate: --adapter, or --manifest and --endpoint"),
        (shots and not baseline, "--shots goes with --baseline: the base model is shown the examples"),
        (is_served != bool(model), "--endpoint goes with --model"),
        (bool(baseline_endpoint) != bool(baseline_model), "--baseline-endpoint goes with --baseline-model"),
        (is_served and own_base, "--endpoint: a server has its own base model"),
        (write_pairs and samples < 2, "--write-pairs goes with --samples of 2 or more: right and wrong ones are pairs"),
    )
    if fault := next((message for is_wrong, message in faults if is_wrong), ""):
        raise InputError(fault)
    _require_at_least(1, batch_size=batch_size, max_new_tokens=max_new_tokens, limit=limit)
    _require_at_least(0, shots=shots, samples=samples)
    _require_company(against, max_drop, write_pairs)
    from expert_cli.config.plan import make_plan, trained_adapter
    from expert_cli.config.resolve import Overrides
    from expert_cli.evaluation import endpoint as servers
    from expert_cli.evaluation import evaluate as of_cases
    from expert_cli.evaluation.grade import Permissions
    from expert_cli.hardware.machine import inspect
    from expert_cli.inference.expert_config import decoding_for, decoding_of
    from expert_cli.pipeline.publish import leave
    from expert_cli.utils.process_setup import prepare_process

    held: dict[str, Any] = {"offline": offline, "quantization": base_quantization}
    named = optional_path(manifest)
    trained = trained_adapter(Path(adapter), named, base_model, **held) if adapter else None
    plan = trained.plan if trained else make_plan(named or Path(), inspect(), Overrides(offline=offline))
    decoding = decoding_for(trained) if trained else decoding_of(plan.loaded.manifest)
    settings = of_cases.answer_settings(plan, decoding, max_new_tokens, batch_size, samples=samples)
    if settings.samples:
        reporter.info(f"{settings.samples} answers a case, drawn at temperature {settings.temperature:g}")
    asked = of_cases.cases_of(plan, optional_path(cases), limit)
    run = (trained.origin.run or trained.origin.adapter) if trained else None
    place = optional_path(output) or (run / ("served.json" if endpoint else "evaluation.json") if run else None)
    keep, keep_other = (place.with_suffix(f"{of}.answers.jsonl") if place else None for of in ("", ".baseline"))
    how: dict[str, Any] = {"case_timeout_s": case_timeout_s, "allowed": Permissions(allow_commands, without_walls)}
    prepare_process()
    with servers.key_of_environment() if endpoint or baseline_endpoint else nullcontext("") as key:
        server, other = (
            servers.Server(url, name, key, reporter, offline=offline) if url and name else None
            for url, name in ((endpoint, model), (baseline_endpoint, baseline_model))
        )
        beside = servers.answers_beside(other, plan, asked, settings, keep=keep_other, **how) if other else None
        if server:
            found = servers.evaluate_served(server, trained, plan, asked, settings, keep=keep, **how)
        elif trained:
            reporter.info("loading the model")
            how |= {"shots": shots if baseline else None, "keep": keep}
            found = of_cases.evaluate_adapter(trained, asked, settings, reporter, **how)
    found = servers.with_beside(found, beside) if beside else found
    file = plan.own_cases if cases is None else Path(cases)
    found = replace(found, cases_file=file, limit=limit, threshold=threshold)
    if server and run and against is None:
        found = _compared_with_own(found, run, reporter)
    found = _finished(found, against, max_drop, write_pairs, reporter)
    leave(found, None if server or base_quantization else trained, optional_path(output), reporter)
    for kept in filter(None, (keep, keep_other)):
        kept.unlink(missing_ok=True)
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
    _require_company(against, max_drop, write_pairs)
    from expert_cli.evaluation.evaluate import grade_kept
    from expert_cli.evaluation.grade import Permissions
    from expert_cli.pipeline.publish import leave

    allowed = Permissions(allow_commands, without_walls)
    found = grade_kept(Path(answers), optional_path(cases), limit, case_timeout_s, reporter, allowed)
    found = _finished(replace(found, threshold=threshold), against, max_drop, write_pairs, reporter)
    leave(found, None, optional_path(output), reporter)
    return found


@disk_errors()
def audit(
    manifest: FilePath,
    *,
    dataset: str | None = None,
    cases: Sequence[FilePath] = (),
    verifier: str = "",
    base_model: str | None = None,
    limit: int | None = None,
    offline: bool = False,
    reporter: Reporter = NullReporter(),
) -> Audit:
    """Run the answers of an expert's training rows and cases, and look for rows that harm.

    Args:
        manifest: An expert's manifest.json.
        dataset: This file, folder, URL or hub id instead of the manifest's.
        cases: Files of cases; default tests/cases.jsonl beside the manifest, and unseen.jsonl where it is.
        verifier: By which answers of rows are run; default that of the cases.
        base_model: The base model whose tokenizer counts, as `train` takes it.
        limit: Only so many rows, evenly spread.
        offline: Forbid every network call.
        reporter: Is told what happens.

    Returns:
        What was found, by check, with examples.

    Raises:
        InputError: No row that can be read, cases at fault, or arguments that do not go together.
        EnvironmentProblem: The rows cannot be had.
    """
    _require_at_least(1, limit=limit)
    from expert_cli.config.plan import make_plan
    from expert_cli.config.resolve import Overrides
    from expert_cli.evaluation.audit import audit_data
    from expert_cli.evaluation.verifiers.registry import known_verifiers
    from expert_cli.hardware.machine import inspect
    from expert_cli.utils.process_setup import prepare_process

    if verifier and verifier not in known_verifiers():
        raise InputError(f"--verifier {verifier}: there is none", f"verifiers: {', '.join(known_verifiers())}")
    changed = Overrides(dataset=dataset, base_model=base_model, offline=offline)
    plan = make_plan(Path(manifest), inspect(), changed)
    prepare_process()
    own = [plan.own_cases, plan.own_cases.with_name("unseen.jsonl")]
    files = [Path(path) for path in cases] or [path for path in own if path.is_file()]
    return audit_data(plan, files, verifier, limit, reporter)


@disk_errors()
def load_expert(
    run: FilePath,
    *,
    manifest: FilePath | None = None,
    base_model: str | None = None,
    samples: int = 0,
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
        samples: Draw by the manifest's training.decoding where this is not 0; else greedily.
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
    from expert_cli.inference.chat_session import open_chat

    file = optional_path(database)

    def runs() -> Callable[[str], Given] | None:
        from expert_cli.evaluation.grade import rows_given

        return rows_given(file, reporter) if file else None

    return open_chat(trained, reporter, max_new_tokens=max_new_tokens, sample=bool(samples), database=file, runs=runs)


def _finished(
    found: Evaluated, against: FilePath | None, max_drop: float | None, write_to: FilePath | None, report: Reporter
) -> Evaluated:
    """Pair the answers with those of an earlier evaluation, and write right and wrong ones, where that is asked for."""
    from expert_cli.evaluation.grade import compare_with
    from expert_cli.evaluation.trl import write_pairs

    if against is not None:
        allowed = MAX_DROP if max_drop is None else max_drop
        found = replace(found, drop=compare_with(Path(against), found, allowed, report))
    if write_to is None:
        return found
    pairs = write_pairs(Path(write_to), found.evaluation, (found.facts or {}).get("input_separator"))
    told = "written   {pairs} pairs of {prompts} prompts; none of {all_right} whose answers are all right, and of {none_right} "
    report.info((told + "where no right one came to its end: {file}").format(**pairs))
    return replace(found, pairs=pairs)


def _compared_with_own(found: Evaluated, run: Path, report: Reporter) -> Evaluated:
    """Pair what a server answered with what the adapter itself did, where that was evaluated on these cases: no gate."""
    from expert_cli.evaluation.grade import compare_with

    try:
        return replace(found, drop=compare_with(run / "evaluation.json", found, 1.0, report))
    except InputError as error:
        report.warning(f"not compared with the adapter's own answers: {error.message}")
        return found


def _require_company(against: FilePath | None, max_drop: float | None, write_pairs: FilePath | None) -> None:
    """Raise InputError before anything is loaded or judged, for what is missing or is in the way."""
    if max_drop is not None and against is None:
        raise InputError("--max-drop goes with --against: the accuracy falls from that of an earlier evaluation")
    if write_pairs is not None:
        require_new_file("--write-pairs", Path(write_pairs))


def _require_at_least(least: int, **values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < least:
            raise InputError(f"--{name.replace('_', '-')} {value}: must be at least {least}")
