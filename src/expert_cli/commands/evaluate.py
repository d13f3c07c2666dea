"""`expert-cli evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from expert_cli.commands.options import evaluate as ask
from expert_cli.commands.options.common import (
    AdapterIfAny,
    Debug,
    Json,
    MaxNewTokens,
    Offline,
    Quiet,
    TrainedBase,
    TrainedManifest,
)
from expert_cli.commands.tables import show_drop, show_evaluation, show_generation
from expert_cli.console.terminal import SCHEMA_VERSION, Console
from expert_cli.errors import ThresholdNotMet

if TYPE_CHECKING:
    from expert_cli.config.plan import TrainedAdapter
    from expert_cli.evaluation.evaluate import Evaluated
    from expert_cli.evaluation.grade import Accuracy
    from expert_cli.evaluation.regression import Drop


def evaluate(
    manifest: TrainedManifest = None,
    adapter: AdapterIfAny = None,
    answers: ask.Answers = None,
    cases: ask.Cases = None,
    baseline: ask.Baseline = False,
    shots: ask.Shots = 0,
    base_model: TrainedBase = None,
    sample: ask.Sample = False,
    batch_size: ask.BatchSize = None,
    max_new_tokens: MaxNewTokens = 256,
    limit: ask.Limit = None,
    case_timeout: ask.CaseTimeout = 2.0,
    threshold: ask.Threshold = None,
    against: ask.Against = None,
    max_drop: ask.MaxDrop = None,
    output: ask.Output = None,
    offline: Offline = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001  read by cli.main
) -> None:
    """Let an expert answer its cases, and judge the answers: SQL, Cypher and TypeScript by running them, JSON by comparing it.

    A case: {"verifier": "sql", "database": "shop.sqlite", "expected": "SELECT ...", "prompt": "...", "input": "..."}; a row
    of --answers has "answer" instead of prompt and input. Paths are relative to the file. Answers can change nothing: they
    run on copies, within limits of time and memory.

    What --output writes keeps every answer; --answers judges them again, by the cases that they were given to or by other
    ones of the same ids and prompts (--cases).

    Examples:

        expert-cli evaluate --manifest experts/expert-sql/manifest.json --adapter runs/sql --baseline --shots 3

        expert-cli evaluate --adapter runs/sql --threshold 0.95 --against old.json --max-drop 0.02 --json

        expert-cli evaluate --answers answers.jsonl --output evaluation.json

        expert-cli evaluate --answers runs/sql/evaluation.json --cases stricter.jsonl
    """
    from expert_cli.evaluation.regression import compare_with

    console = Console("evaluate", as_json=as_json, quiet=quiet)
    ask.check_evaluate_options(answers, adapter, shots, against, max_drop, baseline=baseline, sample=sample)
    trained: TrainedAdapter | None = None
    if adapter is not None:
        from expert_cli.config.plan import trained_adapter as find_trained

        trained = find_trained(adapter, manifest, base_model, offline=offline)
        numbers = (max_new_tokens, batch_size, case_timeout, shots)
        found = _evaluated(trained, console, numbers, cases, limit, sample=sample, baseline=baseline)
        file = _file(cases, trained)
    else:
        found, file, limit = _judged(answers or Path(), cases, limit, case_timeout, console)
    evaluation = found.evaluation
    drop = compare_with(against, evaluation, ask.MAX_DROP if max_drop is None else max_drop) if against else None
    missed = _missed(evaluation.share, threshold, drop)
    document = {
        "schema_version": SCHEMA_VERSION,
        "command": "evaluate",
        **_document(found, threshold, drop, passed=not missed),
        "cases_file": str(file.resolve()),
        "limit": limit,
    }
    _leave(document, trained, output, console)
    if as_json:
        console.document(document)
    else:
        show_evaluation(console, evaluation)
        show_generation(console, found)
        if drop:
            show_drop(console, drop)
    if missed:
        raise (
            ThresholdNotMet(missed, "see the failures above") if not as_json else typer.Exit(ThresholdNotMet.exit_code)
        )


def _judged(
    answers: Path, cases: Path | None, limit: int | None, case_timeout: float, console: Console
) -> tuple[Evaluated, Path, int | None]:
    """Return what became of the answers, the file of their cases, and of how many of them at most they are."""
    from expert_cli.evaluation.cases import read_answers, stratified_sample
    from expert_cli.evaluation.evaluate import Evaluated
    from expert_cli.evaluation.grade import grade
    from expert_cli.evaluation.regrade import generation, read_kept
    from expert_cli.runs.metrics import part

    kept = read_kept(answers, cases)
    if kept is not None:
        evaluation, bases = kept.judged(console, case_timeout, limit)
        facts = part(kept.document, "expert") or None
        return Evaluated(evaluation, bases, facts, generation(kept.document)), kept.cases, kept.limit(limit)
    if cases is not None:
        raise typer.BadParameter(
            "--cases go with --adapter, or with --answers of a file that evaluate --output wrote: rows of answers are cases"
        )
    evaluation = grade(stratified_sample(read_answers(answers), limit), console, case_timeout)
    return Evaluated(evaluation, {}, None, None), answers, limit


def _file(cases: Path | None, trained: TrainedAdapter) -> Path:
    """Return where the cases were read."""
    from expert_cli.evaluation.evaluate import own_cases

    return cases or own_cases(trained.plan)


def _evaluated(
    trained: TrainedAdapter,
    console: Console,
    numbers: tuple[int, int | None, float, int],
    cases: Path | None,
    limit: int | None,
    *,
    sample: bool,
    baseline: bool,
) -> Evaluated:
    from expert_cli.evaluation.evaluate import BATCH, cases_of, evaluate_adapter
    from expert_cli.inference.generation_config import generation_config

    max_new_tokens, batch_size, case_timeout_s, shots = numbers
    batch_size = batch_size or BATCH[trained.plan.run.compute.device]
    settings = generation_config(trained.plan.loaded.manifest, max_new_tokens, batch_size, sample=sample)
    asked = cases_of(trained.plan, cases, limit)
    console.info("loading the model")
    from expert_cli._compat import quiet_imports

    quiet_imports()
    return evaluate_adapter(
        trained, asked, settings, console, case_timeout_s=case_timeout_s, baseline=baseline, shots=shots
    )


def _leave(document: dict[str, Any], trained: TrainedAdapter | None, output: Path | None, console: Console) -> None:
    """Write the document where it is asked for, and where it belongs: the adapter's run and card, and the run's report.

    Of a part of the expert's cases, or of others than its own, it goes only where it is asked for.
    """
    if output is not None:
        from expert_cli.utils.files import write_json

        write_json(output, document)
        console.info(f"written   {output}")
    if trained is None:
        return
    from expert_cli.artifacts.report import write_report
    from expert_cli.evaluation.evaluate import is_whole, publish
    from expert_cli.runs.paths import RunPaths

    if not is_whole(document, trained.plan):
        console.info("not the expert's own cases, or not all: evaluation.json, model card and report stay as they are")
        return
    run = publish(document, trained.origin)
    if run is not None:
        write_report([run], RunPaths(run).report_html)
        console.info(f"written   {RunPaths(run).evaluation}")
        console.info(f"report    {RunPaths(run).report_html}")


def _document(found: Evaluated, threshold: float | None, drop: Drop | None, *, passed: bool) -> dict[str, Any]:
    from expert_cli.evaluation.extract import RULE
    from expert_cli.runs.metrics import BASES

    return {
        **found.evaluation.as_json(),
        **{name: found.bases[name].as_json() if name in found.bases else None for name in BASES},
        "threshold": threshold,
        "against": drop.as_json() if drop else None,
        "passed": passed,
        "extraction": RULE,
        "expert": found.facts,
        "generation": found.generation,
    }


def _missed(share: Accuracy, threshold: float | None, drop: Drop | None) -> str:
    """Return which gate was missed, in words with both values, or ""."""
    if threshold is not None and share.accuracy < threshold:
        return f"accuracy {share.accuracy:.4f} ({share.correct} of {share.cases}) is below the threshold {threshold:g}"
    if drop is not None and not drop.held:
        return f"accuracy fell by {drop.pairs.drop:.4f} against {drop.file}, more than {drop.max_drop:g}"
    return ""
