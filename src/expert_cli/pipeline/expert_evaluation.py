"""The stages of an evaluation: find the expert, let it answer its cases, judge, compare, write the result."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from expert_cli.artifacts.model_card import put_evaluation
from expert_cli.artifacts.report import write_report
from expert_cli.config.plan import TrainedAdapter, make_plan, trained_adapter
from expert_cli.config.resolve import Overrides
from expert_cli.console.terminal import SCHEMA_VERSION
from expert_cli.evaluation import evaluate as of_cases
from expert_cli.evaluation.cases import digest_of
from expert_cli.evaluation.endpoint import KEY, Server, evaluate_served
from expert_cli.evaluation.grade import Evaluation, Permissions, compare_with
from expert_cli.evaluation.trl import write_pairs
from expert_cli.hardware.machine import inspect
from expert_cli.inference.expert_config import decoding_for, decoding_of, generation_config
from expert_cli.runs.metrics import ENDPOINT
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.files import write_json
from expert_cli.utils.process_setup import prepare_process
from expert_cli.utils.reporter import Reporter

MAX_DROP = 0.05
"""Default of `--max-drop`: how far the accuracy may fall below that of an earlier evaluation."""
_APART = {"against", "case_timeout_s", "max_drop", "offline", "reporter", "threshold", "without_walls", "write_pairs"}
"""Arguments that may differ when a command continues an interrupted evaluation."""


def evaluate_expert(asked: Any, report: Reporter) -> Evaluation:
    """Let an expert answer its cases, or judge existing answers. asked: the arguments of `api.evaluate`."""
    allowed = Permissions(asked.allow_commands, asked.without_walls, asked.case_timeout_s)
    if asked.answers is not None:
        found = of_cases.grade_kept(asked.answers, asked.cases, asked.limit, report, allowed)
        return leave(_compared(found, asked, report), None, asked.output, report)
    held: dict[str, Any] = {"offline": asked.offline, "quantization": asked.base_quantization}
    trained = trained_adapter(asked.adapter, asked.manifest, asked.base_model, **held) if asked.adapter else None
    plan = trained.plan if trained else make_plan(asked.manifest or Path(), inspect(), Overrides(offline=asked.offline))
    decoding = decoding_for(trained) if trained else decoding_of(plan.loaded.manifest)
    device, longest = plan.run.compute.device, asked.max_new_tokens
    settings = generation_config(decoding, longest, asked.batch_size, samples=asked.samples, device=device)
    if settings.samples:
        report.info(f"{settings.samples} answers to each case, drawn at temperature {settings.temperature:g}")
    cases = of_cases.cases_of(plan, asked.cases, asked.limit)
    run = (trained.origin.run or trained.origin.adapter) if trained else None
    place = asked.output or (run / ("served.json" if asked.endpoint else "evaluation.json") if run else None)
    place = None if place and place.exists() and not place.is_file() else place  # no answers are saved beside a device
    decisive = {name: str(value) for name, value in vars(asked).items() if name not in _APART}
    keep = place.with_name(f".{place.name}.{digest_of(decisive)}.answers") if place else None
    if place:
        place.parent.mkdir(parents=True, exist_ok=True)
    prepare_process()
    other = None
    with _key_of_environment() if asked.endpoint or asked.baseline_endpoint else nullcontext("") as key:
        if asked.baseline_endpoint:
            server = Server(asked.baseline_endpoint, asked.baseline_model, key, report, offline=asked.offline)
            other = evaluate_served(server, plan, cases, of_cases.free(settings), allowed, keep)
        if asked.endpoint:
            server = Server(asked.endpoint, asked.model, key, report, offline=asked.offline)
            found = evaluate_served(server, trained or plan, cases, settings, allowed, keep)
        elif trained:
            report.info(trained.plan.loading)
            shots = asked.shots if asked.baseline else None
            found = of_cases.evaluate_adapter(trained, cases, settings, report, allowed, shots=shots, keep=keep)
    if other:
        told = {"shots": 0, "examples": [], "template": "its server's"}
        found = found.telling(**{ENDPOINT: other.beside(found, told)})
    found = found.telling(cases_file=str((asked.cases or plan.own_cases).resolve()), limit=asked.limit)
    is_own = trained and not asked.endpoint and not asked.base_quantization
    found = leave(_compared(found, asked, report), trained if is_own else None, asked.output, report)
    if keep:
        keep.unlink(missing_ok=True)
    return found


@contextmanager
def _key_of_environment() -> Iterator[str]:
    """Yield the API key; in the block it is removed from the environment, so that no child process gets it."""
    key = os.environ.pop(KEY, "")
    try:
        yield key
    finally:
        os.environ.update({KEY: key} if key else {})


def _compared(found: Evaluation, asked: Any, report: Reporter) -> Evaluation:
    """If requested, pair the answers with an earlier evaluation, and write preference pairs."""
    found = found.telling(threshold=asked.threshold)
    if asked.against is not None:
        allowed = MAX_DROP if asked.max_drop is None else asked.max_drop
        found = found.telling(against=compare_with(asked.against, found, allowed, report))
    if asked.write_pairs is None:
        return found
    pairs = write_pairs(asked.write_pairs, found, (found.told.get("expert") or {}).get("input_separator"))
    told = "written   {pairs} pairs of {prompts} prompts; none of {all_right} whose answers are all right, and of {none_right} "
    report.info((told + "where no right one came to its end: {file}").format(**pairs))
    return found.telling(pairs=pairs)


def leave(found: Evaluation, trained: TrainedAdapter | None, output: Path | None, report: Reporter) -> Evaluation:
    """Write the document to `output`, if given, and to the adapter's run, its model card, and the run's report.

    If only a part of the expert's cases, or other cases, were evaluated, it is written only to `output`. The evaluation of a
    checkpoint is written into the checkpoint's card, not into the run.
    """
    document = {"schema_version": SCHEMA_VERSION, "command": "evaluate", **found.as_json()}
    if output is not None:
        write_json(output, document)
        report.info(f"written   {output}")
    if trained is None:
        return found
    own = trained.plan.own_cases
    if document["limit"] is not None or (own.is_file() and own.resolve() != Path(document["cases_file"])):
        report.info("evaluation.json, model card and report are not updated: these are not all of its own cases")
        return found
    adapter, run = trained.origin.adapter, trained.origin.run
    if (card := adapter / "README.md").is_file():
        put_evaluation(card, document)
    if run and RunPaths(run).adapter.resolve() == adapter:
        paths = RunPaths(run)
        write_json(paths.evaluation, document)
        write_report([run], paths.report_html)
        report.info(f"written   {paths.evaluation}, {paths.report_html}")
    return found
