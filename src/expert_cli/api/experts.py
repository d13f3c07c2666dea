"""Evaluate a trained expert, ask it questions, and check its data."""

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
    """Let an expert answer test cases and grade its answers: a trained adapter, a served model, or saved answers.

    If all of the expert's own cases are answered, evaluation.json, the model card and the report of its run are updated too.

    Args:
        adapter: A run directory, or the folder of an adapter or checkpoint. With `endpoint`: the adapter that the server
            runs; its prompts are used.
        manifest: The expert's manifest.json. Default: the one the adapter was trained from.
        answers: Grade saved answers, without a model: JSON lines, each a case with its answer; or the output of an earlier
            evaluation.
        cases: The test cases. Default: tests/cases.jsonl beside the manifest. With `answers` from an evaluation: other cases
            with the same ids and prompts.
        baseline: Also ask the base model, in its own chat template, and (a second time) the expert without its grammar.
        shots: With `baseline`: also ask the base model with this many training rows as examples.
        base_model: Default: the one the adapter was trained on.
        base_quantization: Load the base model with this quantization. Default: the one used in training.
        endpoint: URL of an OpenAI-compatible server that answers instead. Its key is read from OPENAI_API_KEY.
        model: With `endpoint`: the model's name on the server.
        baseline_endpoint: URL of a server whose model answers the same cases.
        baseline_model: With `baseline_endpoint`: the model's name on that server.
        samples: Draw this many answers to each case, with the manifest's training.decoding (temperature 0.8 if it sets less
            than 0.3), and report pass@k and the majority vote. 0: one greedy answer.
        batch_size: Answers generated at once. Default: 32, on a GPU 64.
        max_new_tokens: Longest answer in tokens. Default: from the adapter's generation_config.json, else 256.
        limit: Use only this many cases, evenly spread.
        case_timeout_s: Seconds that an answer may run. Parsing and type checking of programs have the same limit each.
        threshold: Accuracy from 0 to 1. Below it the result has `missed`, and the exit code is 5.
        against: An earlier evaluation to compare with, case by case.
        max_drop: With `against`: how far the accuracy may fall, from 0 to 1. Default: 0.05. More gives exit code 5.
        output: Also write the JSON document to this file.
        write_pairs: Write pairs of a right and a wrong answer to this file, for TRL's DPOTrainer. Needs `samples` of 2 or more.
        allow_commands: Run the programs that cases name as judges. They run with your rights.
        without_walls: Run answers that are programs even if this system cannot sandbox them.
        offline: Use no network, except servers on this machine.
        reporter: Receives progress, messages and warnings.

    Returns:
        The graded answers, those of the base model, and in `missed` the threshold that was missed, "" for none.

    Raises:
        InputError: There is no adapter, a case is invalid, or arguments exclude each other.
        EnvironmentProblem: The base model, a server, a program that runs answers, or the sandbox is missing.
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
    from expert_cli.evaluation.grade import earlier_answers
    from expert_cli.pipeline import expert_evaluation

    for name in ("adapter", "manifest", "answers", "cases", "against", "output", "write_pairs"):
        asked[name] = None if asked[name] is None else Path(asked[name])
    if asked["against"] is not None:
        earlier_answers(asked["against"])  # before a model is loaded
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
    """Check an expert's training rows and test cases, and report those that are wrong or useless; queries are run.

    Args:
        manifest: The expert's manifest.json.
        dataset: Use this file, folder, URL or hub id instead of the manifest's rows.
        cases: Files of test cases, repeatable. Default: tests/cases.jsonl beside the manifest, and unseen.jsonl if it exists.
        verifier: The verifier that judges the rows' answers. Default: that of the cases.
        base_model: The base model whose tokenizer counts tokens, as for `train`.
        limit: Check only this many rows, evenly spread.
        offline: Use no network.
        reporter: Receives progress, messages and warnings.

    Raises:
        InputError: No row can be read, or a case is invalid.
        EnvironmentProblem: The rows are not available.
    """
    require_at_least(1, limit=limit)
    from expert_cli.config.plan import make_plan
    from expert_cli.config.resolve import Overrides
    from expert_cli.evaluation.audit import audit_data
    from expert_cli.evaluation.verifiers.registry import known_verifiers
    from expert_cli.hardware.machine import inspect
    from expert_cli.utils.process_setup import prepare_process

    if verifier and verifier not in known_verifiers():
        raise InputError(f"--verifier {verifier}: no such verifier", f"verifiers: {', '.join(known_verifiers())}")
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
    """Load an expert and ask it questions: `load_expert(run).ask("...")`.

    Args:
        run: A run directory, or the folder of an adapter or checkpoint.
        manifest: The expert's manifest.json. Default: the one the adapter was trained from.
        base_model: Default: the one the adapter was trained on.
        samples: 0: greedy answers. More: answers are drawn with the manifest's training.decoding.
        max_new_tokens: Longest answer in tokens. Default: from the adapter's generation_config.json, else 256.
        database: The SQLite file that questions are about, for an expert trained with `training.dataset.schema_prompt`. The
            tables, columns and values that fit a question are shown to the model as its input. Votes compare the rows that
            answers return from a copy of the file.
        offline: Use no network.
        reporter: Receives progress, messages and warnings.

    Returns:
        The expert, with its base model. Prompts are formatted as in training.

    Raises:
        ExpertError: InputError, EnvironmentProblem, RunLocked or IntegrityError, as for `evaluate`.
    """
    require_at_least(1, max_new_tokens=max_new_tokens)
    from expert_cli.config.plan import trained_adapter
    from expert_cli.utils.process_setup import prepare_process

    trained = trained_adapter(Path(run), Path(manifest) if manifest else None, base_model, offline=offline)
    reporter.info(trained.plan.loading)
    prepare_process()
    from expert_cli.evaluation.grade import rows_given
    from expert_cli.inference.chat_session import open_chat

    file = Path(database) if database else None
    chat = open_chat(trained, reporter, max_new_tokens=max_new_tokens, sample=bool(samples), database=file)
    return replace(chat, runs=rows_given(file)) if file else chat
