"""The stages of an evaluation: find the expert, let it answer its cases, judge, compare, leave the result where it belongs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from expert_cli.artifacts.model_card import put_evaluation
from expert_cli.artifacts.report import write_report
from expert_cli.config.plan import Plan, TrainedAdapter, make_plan, trained_adapter
from expert_cli.config.resolve import Overrides
from expert_cli.console.terminal import SCHEMA_VERSION
from expert_cli.evaluation import endpoint as servers
from expert_cli.evaluation import evaluate as of_cases
from expert_cli.evaluation.cases import EvalCase
from expert_cli.evaluation.grade import Evaluated, Permissions, compare_with
from expert_cli.evaluation.trl import write_pairs
from expert_cli.hardware.machine import inspect
from expert_cli.inference.expert_config import GenerationConfig, decoding_for, decoding_of, generation_config
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.files import write_json
from expert_cli.utils.process_setup import prepare_process
from expert_cli.utils.reporter import Reporter

MAX_DROP = 0.05
"""How far the accuracy may fall against an earlier evaluation where nothing else is said."""


def evaluate_expert(asked: Any, report: Reporter) -> Evaluated:
    """Let an expert answer its cases, or judge answers that are there. asked: the arguments of `api.evaluate`."""
    allowed = Permissions(asked.allow_commands, asked.without_walls)
    if asked.answers is not None:
        how = (asked.case_timeout_s, report, allowed)
        found = _compared(of_cases.grade_kept(asked.answers, asked.cases, asked.limit, *how), asked, report)
        leave(found, None, asked.output, report)
        return found
    held: dict[str, Any] = {"offline": asked.offline, "quantization": asked.base_quantization}
    trained = trained_adapter(asked.adapter, asked.manifest, asked.base_model, **held) if asked.adapter else None
    plan = trained.plan if trained else make_plan(asked.manifest or Path(), inspect(), Overrides(offline=asked.offline))
    decoding = decoding_for(trained) if trained else decoding_of(plan.loaded.manifest)
    device, longest = plan.run.compute.device, asked.max_new_tokens
    settings = generation_config(decoding, longest, asked.batch_size, samples=asked.samples, device=device)
    if settings.samples:
        report.info(f"{settings.samples} answers a case, drawn at temperature {settings.temperature:g}")
    cases = of_cases.cases_of(plan, asked.cases, asked.limit)
    run = (trained.origin.run or trained.origin.adapter) if trained else None
    place = asked.output or (run / ("served.json" if asked.endpoint else "evaluation.json") if run else None)
    keep = [place.with_suffix(f"{of}.answers.jsonl") if place else None for of in ("", ".baseline")]
    prepare_process()
    found = _answered(asked, trained, plan, cases, settings, keep, report)
    found = _compared(replace(found, cases_file=asked.cases or plan.own_cases, limit=asked.limit), asked, report)
    leave(found, None if asked.endpoint or asked.base_quantization else trained, asked.output, report)
    for kept in filter(None, keep):
        kept.unlink(missing_ok=True)
    return found


def _answered(
    asked: Any,
    trained: TrainedAdapter | None,
    plan: Plan,
    cases: Sequence[EvalCase],
    settings: GenerationConfig,
    keep: Sequence[Path | None],
    report: Reporter,
) -> Evaluated:
    """Let the adapter, or the server of it, answer; and the server of another model beside it, first."""
    allowed = Permissions(asked.allow_commands, asked.without_walls)
    how: dict[str, Any] = {"case_timeout_s": asked.case_timeout_s, "allowed": allowed}
    named = ((asked.endpoint, asked.model), (asked.baseline_endpoint, asked.baseline_model))
    beside = None
    with servers.key_of_environment() if any(url for url, _ in named) else nullcontext("") as key:
        server_of = partial(servers.Server, key=key, report=report, offline=asked.offline)
        server, other = (server_of(url, name) if url and name else None for url, name in named)
        if other:
            beside = servers.answers_beside(other, plan, cases, settings, keep=keep[1], **how)
        if server:
            found = servers.evaluate_served(server, trained, plan, cases, settings, keep=keep[0], **how)
        elif trained:
            report.info("loading the model")
            how |= {"shots": asked.shots if asked.baseline else None, "keep": keep[0]}
            found = of_cases.evaluate_adapter(trained, cases, settings, report, **how)
    return servers.with_beside(found, beside) if beside else found


def _compared(found: Evaluated, asked: Any, report: Reporter) -> Evaluated:
    """Pair the answers with those of an earlier evaluation, and write right and wrong ones, where that is asked for."""
    found = replace(found, threshold=asked.threshold)
    if asked.against is not None:
        allowed = MAX_DROP if asked.max_drop is None else asked.max_drop
        found = replace(found, drop=compare_with(asked.against, found, allowed, report))
    if asked.write_pairs is None:
        return found
    pairs = write_pairs(asked.write_pairs, found.evaluation, (found.facts or {}).get("input_separator"))
    told = "written   {pairs} pairs of {prompts} prompts; none of {all_right} whose answers are all right, and of {none_right} "
    report.info((told + "where no right one came to its end: {file}").format(**pairs))
    return replace(found, pairs=pairs)


def leave(found: Evaluated, trained: TrainedAdapter | None, output: Path | None, report: Reporter) -> None:
    """Write the document where it is asked for, and where it belongs: the adapter's run and card, and the run's report.

    Of a part of the expert's cases, or of others than its own, it goes only where it is asked for. A checkpoint's evaluation is
    not its run's: its card alone tells of it.
    """
    document = {"schema_version": SCHEMA_VERSION, "command": "evaluate", **found.as_json()}
    if output is not None:
        write_json(output, document)
        report.info(f"written   {output}")
    if trained is None:
        return
    own = trained.plan.own_cases
    if document["limit"] is not None or (own.is_file() and own.resolve() != Path(document["cases_file"])):
        report.info("not the expert's own cases, or not all: evaluation.json, model card and report stay as they are")
        return
    adapter, run = trained.origin.adapter, trained.origin.run
    card = adapter / "README.md"
    if card.is_file():
        put_evaluation(card, document)
    if run is None or RunPaths(run).adapter.resolve() != adapter:
        return
    paths = RunPaths(run)
    write_json(paths.evaluation, document)
    write_report([run], paths.report_html)
    report.info(f"written   {paths.evaluation}, {paths.report_html}")
