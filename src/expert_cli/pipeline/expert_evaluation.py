"""The stages of an evaluation: find the expert, let it answer its cases, judge, compare, leave the result where it belongs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from expert_cli.config.plan import Plan, TrainedAdapter, make_plan, trained_adapter
from expert_cli.config.resolve import Overrides
from expert_cli.evaluation import endpoint as servers
from expert_cli.evaluation import evaluate as of_cases
from expert_cli.evaluation.cases import EvalCase
from expert_cli.evaluation.grade import Evaluated, Permissions, compare_with
from expert_cli.evaluation.trl import write_pairs
from expert_cli.hardware.machine import inspect
from expert_cli.inference.expert_config import GenerationConfig, decoding_for, decoding_of, drawn_in_words
from expert_cli.pipeline.publish import leave
from expert_cli.utils.process_setup import prepare_process
from expert_cli.utils.reporter import Reporter

MAX_DROP = 0.05
"""How far the accuracy may fall against an earlier evaluation where nothing else is said."""


@dataclass(frozen=True)
class EvaluationOptions:
    """What is asked of an evaluation: the arguments of `api.evaluate`, which explains them."""

    cases: Path | None
    limit: int | None
    case_timeout_s: float
    threshold: float | None
    against: Path | None
    max_drop: float | None
    output: Path | None
    write_pairs: Path | None
    allow_commands: bool
    without_walls: bool
    adapter: Path | None = None
    manifest: Path | None = None
    baseline: bool = False
    shots: int = 0
    base_model: str | None = None
    base_quantization: str | None = None
    endpoint: str | None = None
    model: str | None = None
    baseline_endpoint: str | None = None
    baseline_model: str | None = None
    samples: int = 0
    batch_size: int | None = None
    max_new_tokens: int | None = None
    offline: bool = False

    @property
    def permissions(self) -> Permissions:
        """What judging may do."""
        return Permissions(self.allow_commands, self.without_walls)


def evaluate_expert(asked: EvaluationOptions, report: Reporter) -> Evaluated:
    """Let an expert answer its cases; raises what `api.evaluate` says."""
    trained = _trained(asked)
    plan = trained.plan if trained else make_plan(asked.manifest or Path(), inspect(), Overrides(offline=asked.offline))
    decoding = decoding_for(trained, report) if trained else decoding_of(plan.loaded.manifest)
    settings = of_cases.answer_settings(plan, decoding, asked.max_new_tokens, asked.batch_size, samples=asked.samples)
    if settings.samples:
        report.info(drawn_in_words(settings, decoding))
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


def judge_kept(answers: Path, asked: EvaluationOptions, report: Reporter) -> Evaluated:
    """Judge answers that are written already; raises what `api.grade_answers` says."""
    found = of_cases.grade_kept(answers, asked.cases, asked.limit, asked.case_timeout_s, report, asked.permissions)
    found = _compared(found, asked, report)
    leave(found, None, asked.output, report)
    return found


def _trained(asked: EvaluationOptions) -> TrainedAdapter | None:
    if asked.adapter is None:
        return None
    held: dict[str, Any] = {"offline": asked.offline, "quantization": asked.base_quantization}
    return trained_adapter(asked.adapter, asked.manifest, asked.base_model, **held)


def _answered(
    asked: EvaluationOptions,
    trained: TrainedAdapter | None,
    plan: Plan,
    cases: Sequence[EvalCase],
    settings: GenerationConfig,
    keep: Sequence[Path | None],
    report: Reporter,
) -> Evaluated:
    """Let the adapter, or the server of it, answer; and the server of another model beside it, first."""
    how: dict[str, Any] = {"case_timeout_s": asked.case_timeout_s, "allowed": asked.permissions}
    named = ((asked.endpoint, asked.model), (asked.baseline_endpoint, asked.baseline_model))
    beside = None
    with servers.key_of_environment() if any(url for url, _ in named) else nullcontext("") as key:
        server, other = (
            servers.Server(url, name, key, report, offline=asked.offline) if url and name else None
            for url, name in named
        )
        if other:
            beside = servers.answers_beside(other, plan, cases, settings, keep=keep[1], **how)
        if server:
            found = servers.evaluate_served(server, trained, plan, cases, settings, keep=keep[0], **how)
        elif trained:
            report.info("loading the model")
            how |= {"shots": asked.shots if asked.baseline else None, "keep": keep[0]}
            found = of_cases.evaluate_adapter(trained, cases, settings, report, **how)
    return servers.with_beside(found, beside) if beside else found


def _compared(found: Evaluated, asked: EvaluationOptions, report: Reporter) -> Evaluated:
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
