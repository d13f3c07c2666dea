"""Evaluate a trained expert, ask it, and audit its data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Literal

from expert_cli.api.call_arguments import require_at_least
from expert_cli.errors import InputError
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.files import require_new_file, require_no_folder
from expert_cli.utils.paths import FilePath
from expert_cli.utils.reporter import NullReporter, Reporter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from expert_cli.evaluation.audit import Audit
    from expert_cli.evaluation.grade import Evaluation
    from expert_cli.inference.chat_session import Chat


@disk_errors()
def evaluate(
    adapter: FilePath | None = None,
    *,
    manifest: FilePath | None = None,
    answers: FilePath | None = None,
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
) -> Evaluation:
    """Let an expert answer its cases, and grade the answers: an adapter, or what a server serves; or answers that are there.

    Of all of the expert's own cases, evaluation.json, model card and report of its run directory are written as well.

    Args:
        adapter: A run directory, or the folder of an adapter or checkpoint. With `endpoint`: what is served there, whose
            prompts are used.
        manifest: The expert's manifest.json; default the one that the adapter was trained from.
        answers: Grade these instead, without a model: one JSON object a line, each a case with its answer; or what an
            evaluation wrote, whose answers are graded again.
        cases: The cases; default tests/cases.jsonl beside the manifest. With `answers` of an evaluation: others of the same
            ids and prompts.
        baseline: Let the base model answer as well, asked in its own chat template, and the expert without its grammar.
        shots: With `baseline`: ask the base model once more, after so many training rows as examples.
        base_model: Default the one that the adapter was trained on.
        base_quantization: How the base model is held; default as in training.
        endpoint: The URL of a server that speaks OpenAI's protocol, which answers instead; OPENAI_API_KEY holds its key.
        model: With `endpoint`: what the server calls the model.
        baseline_endpoint: The URL of a server whose model answers as well.
        baseline_model: With `baseline_endpoint`: what that server calls it.
        samples: Draw so many answers to each case by training.decoding, at a temperature of 0.8 where that names less than
            0.3: pass@k and majority are told. 0: one answer, greedily.
        batch_size: Answers written at once; default 32, on a GPU 64.
        max_new_tokens: Longest answer, in tokens; default that of the adapter's generation_config.json, 256.
        limit: Only so many cases, evenly spread.
        case_timeout_s: Seconds that one answer may run; parsing a program and checking its types may take as long each.
        threshold: The accuracy, 0 to 1; below it the result has `missed`, and the exit code is 5.
        against: An earlier evaluation, compared case by case.
        max_drop: With `against`: the accuracy, 0 to 1, may fall by so much; default 0.05. More is exit code 5.
        output: Write the JSON document here as well.
        write_pairs: Write right and wrong answers to one prompt here, for TRL's DPOTrainer; with `samples` of 2 or more.
        allow_commands: Run the programs that cases name as their judges; they see all that you see.
        without_walls: Run answers that are programs also where nothing keeps them from the network.
        offline: Forbid every network call, but for servers of this machine.
        reporter: Gets progress, words and warnings.

    Returns:
        The graded answers, the base model's beside them, and in `missed` which threshold was missed, "" for none.

    Raises:
        InputError: No adapter there, cases at fault, or arguments that do not go together.
        EnvironmentProblem: The base model, a server, what runs the answers, or what keeps them from the network is missing.
        IntegrityError: The adapter is damaged.
    """
    asked, served = locals(), endpoint is not None
    by_base = baseline or shots or baseline_endpoint or base_quantization or base_model
    by_model = adapter or served or by_base or samples or batch_size or max_new_tokens
    faults = {
        "--answers are written already: all that lets a model answer goes with --adapter": answers and by_model,
        "give --adapter, --answers, or --manifest and --endpoint": not (answers or adapter or (manifest and served)),
        "--shots goes with --baseline: the base model is shown the examples": shots and not baseline,
        "--endpoint goes with --model": served != bool(model),
        "--baseline-endpoint goes with --baseline-model": bool(baseline_endpoint) != bool(baseline_model),
        "--endpoint: a server has its own base model": served and (baseline or base_model or base_quantization),
        "--write-pairs goes with --samples of 2 or more": write_pairs and not answers and samples < 2,
        "--max-drop goes with --against": max_drop is not None and against is None,
    }
    if fault := next((message for message, is_met in faults.items() if is_met), ""):
        raise InputError(fault)
    require_at_least(1, batch_size=batch_size, max_new_tokens=max_new_tokens, limit=limit)
    require_at_least(0, shots=shots, samples=samples)
    if write_pairs is not None:
        require_new_file("--write-pairs", Path(write_pairs))
    require_no_folder("--output", Path(output) if output is not None else None)
    from expert_cli.pipeline import expert_evaluation

    for name in ("adapter", "manifest", "answers", "cases", "against", "output", "write_pairs"):
        asked[name] = None if asked[name] is None else Path(asked[name])
    return expert_evaluation.evaluate_expert(SimpleNamespace(**asked), reporter)


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
    """Run the answers of an expert's training rows and cases, and name those that are wrong or useless.

    Args:
        manifest: An expert's manifest.json.
        dataset: This file, folder, URL or hub id instead of the manifest's.
        cases: Files of cases; repeatable; default tests/cases.jsonl beside the manifest, and unseen.jsonl where it is.
        verifier: By which answers of rows are run; default that of the cases.
        base_model: The base model whose tokenizer counts, as `train` takes it.
        limit: Only so many rows, evenly spread.
        offline: Forbid every network call.
        reporter: Gets progress, words and warnings.

    Raises:
        InputError: No row that can be read, or cases at fault.
        EnvironmentProblem: The rows cannot be had.
    """
    require_at_least(1, limit=limit)
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
        reporter: Gets progress, words and warnings.

    Returns:
        The expert; its base model can be asked beside it. Prompts are written down as in training.

    Raises:
        ExpertError: InputError, EnvironmentProblem, RunLocked or IntegrityError, as `evaluate` does.
    """
    require_at_least(1, max_new_tokens=max_new_tokens)
    from expert_cli.config.plan import trained_adapter
    from expert_cli.utils.process_setup import prepare_process

    trained = trained_adapter(Path(run), Path(manifest) if manifest else None, base_model, offline=offline)
    reporter.info("loading the model")
    prepare_process()
    from expert_cli.evaluation.grade import rows_given
    from expert_cli.inference.chat_session import open_chat

    file = Path(database) if database else None
    chat = open_chat(trained, reporter, max_new_tokens=max_new_tokens, sample=bool(samples), database=file)
    return replace(chat, runs=rows_given(file)) if file else chat
