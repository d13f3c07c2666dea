"""Method grpo: prompts and what judges their answers go to TRL's GRPOTrainer, and a run directory comes out.

Base model, adapter, seeds and optimizer are those of any run; the steps are TRL's. A run ends whole or not at all: TRL's
checkpoints are not ours, and answers that were drawn are not kept.
"""

from __future__ import annotations

import copy
import importlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState
from peft import PeftModel
from transformers import PreTrainedTokenizerBase, PrinterCallback, TrainerCallback, set_seed

from expert_cli.artifacts.adapter import save_adapter
from expert_cli.config.plan import Plan
from expert_cli.config.run_config import AUTO, RunConfig
from expert_cli.data.rows.columnar import Message
from expert_cli.errors import EnvironmentProblem, InputError, Interrupted, TrainingFailed
from expert_cli.evaluation.cases import EvalCase, read_cases, shown_databases
from expert_cli.evaluation.evaluate import CASE_TIMEOUT_S, answer_settings, check_gradable
from expert_cli.evaluation.permissions import Permissions
from expert_cli.evaluation.rewards import REWARDS, WHOLE_CASE, grades, text_of
from expert_cli.hardware.devices import DEVICES
from expert_cli.hardware.machine import Machine, has_package
from expert_cli.inference.base_model import load_base_of, locate_base, prompt_template
from expert_cli.inference.expert import PromptRenderer
from expert_cli.inference.expert_config import decoding_of
from expert_cli.manifest.keys.grpo import GrpoConfig
from expert_cli.model.adapter import add_adapter
from expert_cli.model.loading.sources import LocalModel
from expert_cli.model.tokenizer import load_tokenizer
from expert_cli.pipeline.beginning import begin_run
from expert_cli.pipeline.ending import finish
from expert_cli.pipeline.forgetting import choose_texts, measure
from expert_cli.pipeline.grpo_callback import GrpoCallback
from expert_cli.pipeline.options import RunOptions
from expert_cli.pipeline.result import RunResult
from expert_cli.pipeline.run_json import run_facts
from expert_cli.pipeline.token_rows import choose_token_rows
from expert_cli.runs.log import RunLog
from expert_cli.runs.paths import RunPaths
from expert_cli.runs.status import RunStatus
from expert_cli.training.arguments import training_arguments
from expert_cli.training.fit import run_callbacks
from expert_cli.training.result import mean_span
from expert_cli.training.signals import StopRequest
from expert_cli.utils.files import sha256_of, write_json
from expert_cli.utils.out_of_memory import is_out_of_memory
from expert_cli.utils.reporter import Reporter


def _require_possible(options: RunOptions, processes: int, output: Path) -> None:
    """Raise InputError for what such a run cannot do, EnvironmentProblem without TRL; before anything is loaded."""
    goes_on = options.resume if options.resume != AUTO or RunPaths(output).run_json.is_file() else ""
    for option, asked in (
        ("--resume", goes_on),
        ("--locked", options.locked),
        ("--stage", options.stage),
        ("--stage-limit", options.stage_limit),
        ("--trust-store", options.trust_store),
    ):
        if asked:
            hint = "start it anew: --overwrite" if option == "--resume" else f"leave {option} out"
            raise InputError(f"{option} does not go with method grpo", hint)
    if processes > 1:
        raise InputError(f"method grpo in {processes} processes was never tried", "start it in one, without torchrun")
    if not has_package("trl"):
        raise EnvironmentProblem("method grpo needs the package trl", 'pip install "expert-cli[rl]"')


def train_grpo(
    plan: Plan,
    machine: Machine,
    report: Reporter,
    options: RunOptions,
    job: PartialState,
    status: RunStatus,
    log: RunLog,
) -> RunResult:
    """Train an expert on its own judged answers, and leave its run directory; what `train` raises."""
    started = time.monotonic()
    _require_possible(options, job.num_processes, plan.run.output)
    run, paths, asked = plan.run, RunPaths(plan.run.output), _asked(plan.run)
    cases = shown_databases(read_cases(asked.prompts), run.data.schema_prompt)
    check_gradable(cases, report, remedy='train on rows: "method": "sft"', allowed=options.permissions)
    texts = choose_texts(run, options.max_forget, report)
    source = locate_base(run, report)
    tokenizer = load_tokenizer(source.folder)
    renderer = PromptRenderer(tokenizer, prompt_template(run, tokenizer, run.data.mapping.input or "input"))
    writer = _writer(renderer, cases)
    begin_run(run, report, options, status, log)
    write_json(paths.run_json, _run_json(plan, machine, source, renderer, cases, status))
    set_seed(run.seed)
    DEVICES[run.compute.device].set_flags(tf32=run.compute.tf32)
    base = load_base_of(run, source.folder)
    rows = choose_token_rows(base, run, renderer)
    model = add_adapter(base, run.adapter, rows.indices)
    report.info(f"model     {source.name}: a {run.adapter.type} adapter, {asked.samples} answers to a prompt")
    rows.tell(report)
    callback = _fit(model, plan, cases, renderer, writer, options, status, report)
    sha256 = save_adapter(model, source, renderer, plan, None, paths)
    found = _document(run, callback, len(cases), sha256, time.monotonic() - started)
    forgot = measure(model, tokenizer, texts, paths, report)
    found |= {"forgetting": forgot.as_json()} if forgot else {}
    return finish(paths, found, sha256, found["stop_reason"], options.max_forget, status)


def _asked(run: RunConfig) -> GrpoConfig:
    assert run.grpo is not None  # noqa: S101  who calls has looked
    return run.grpo


def _writer(renderer: PromptRenderer, cases: Sequence[EvalCase]) -> PreTrainedTokenizerBase:
    """Return the tokenizer by which TRL writes prompts. Raises InputError for one that it would write in another way.

    A control token in a question is text to us, and a control token to TRL.
    """
    writer: PreTrainedTokenizerBase = copy.deepcopy(renderer.tokenizer.hf)  # TRL gives it a pad token
    writer.chat_template = renderer.template.chat_template
    for case in cases:
        asked = _conversation(renderer, case)
        told: Any = writer.apply_chat_template(asked, add_generation_prompt=True, return_dict=True)
        ours = renderer.encode_messages([Message("user", renderer.format_user_turn(*case.asked))])
        if list(told["input_ids"]) != ours:
            raise InputError(
                f"{case.where}: TRL would write this prompt in other tokens than training and evaluation do",
                "take control tokens out of it, or the case out of the prompts",
            )
    return writer


def _conversation(renderer: PromptRenderer, case: EvalCase) -> list[dict[str, str]]:
    return [{"role": "user", "content": renderer.format_user_turn(*case.asked)}]


def _reward(
    asked: GrpoConfig, until_stop: Callable[[str], str], allowed: Permissions, callback: GrpoCallback
) -> Callable[..., list[float]]:
    """Return the reward function: answers end at the manifest's stop sequences, as everywhere."""
    worth = REWARDS[asked.reward]

    def reward(completions: Sequence[Any], completion_ids: Sequence[Sequence[int]], **columns: Any) -> list[float]:
        callback.answer_tokens += sum(map(len, completion_ids))
        texts = [until_stop(text_of(completion)) for completion in completions]
        cases = {WHOLE_CASE: columns[WHOLE_CASE]}
        return [worth(grade) for grade in grades(texts, cases, asked.prompts.parent, CASE_TIMEOUT_S, allowed)]

    reward.__name__ = asked.reward
    return reward


def _fit(
    model: PeftModel,
    plan: Plan,
    cases: Sequence[EvalCase],
    renderer: PromptRenderer,
    writer: PreTrainedTokenizerBase,
    options: RunOptions,
    status: RunStatus,
    report: Reporter,
) -> GrpoCallback:
    """Train the adapter in place behind a bar. Raises TrainingFailed, Interrupted."""
    run, asked, stop = plan.run, _asked(plan.run), StopRequest(plan.run.output)
    # TRL ends answers at what the model's own configuration names, and at the tokenizer's own end token
    model.generation_config.eos_token_id = sorted(renderer.stop_token_ids)
    with stop, report.progress("training", None, "steps") as bar:
        callback = GrpoCallback(RunPaths(run.output).metrics, bar, status, stop.asked, asked.reward)
        callbacks = run_callbacks(run, RunPaths(run.output))
        until_stop = answer_settings(plan, decoding_of(plan.loaded.manifest)).until_stop
        reward = _reward(asked, until_stop, options.permissions, callback)
        trainer = _trainer(
            model, run, reward, _rows(renderer, cases), writer, [*callbacks, callback, *options.callbacks]
        )
        try:
            trainer.train()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            hint = "lower batch_size and raise gradient_accumulation_steps, or lower max_new_tokens"
            raise TrainingFailed(f"out of memory {status.how_far}", hint) from error
    if stop.exit_code and callback.step < callback.steps:
        told = f"stopped by {stop.reason} after step {callback.step} of {callback.steps}; nothing of it is kept"
        raise Interrupted(told, f"start anew: {status.command} --overwrite", stop.exit_code, by_signal=stop.by_signal)
    if not callback.losses or not all(map(math.isfinite, callback.losses)):
        raise TrainingFailed("the loss is not finite", "lower learning_rate")
    return callback


def _rows(renderer: PromptRenderer, cases: Sequence[EvalCase]) -> list[dict[str, Any]]:
    return [
        {"prompt": _conversation(renderer, case), WHOLE_CASE: json.dumps(case.case.model_dump(by_alias=True))}
        for case in cases
    ]


def _trainer(
    model: PeftModel,
    run: RunConfig,
    reward: Callable[..., list[float]],
    rows: list[dict[str, Any]],
    writer: PreTrainedTokenizerBase,
    callbacks: list[TrainerCallback],
) -> Any:
    from datasets import Dataset

    trl: Any = importlib.import_module("trl")  # it exports lazily, and no checker sees what
    trainer = trl.GRPOTrainer(
        model,
        reward,
        args=_arguments(run, trl.GRPOConfig),
        train_dataset=Dataset.from_list(rows),
        processing_class=writer,
        callbacks=callbacks,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _arguments(run: RunConfig, kind: Any) -> Any:
    """Return TRL's arguments: those of any run, and what answers are drawn."""
    asked = _asked(run)
    watch = replace(run.watch, eval_strategy="no", save_strategy="no")
    return training_arguments(
        replace(run, watch=watch),
        RunPaths(run.output).checkpoints,
        kind,
        num_generations=asked.samples,
        temperature=asked.temperature,
        max_completion_length=asked.max_new_tokens,
        beta=asked.beta,
        gradient_checkpointing=run.compute.checkpointing != "off",
        gradient_checkpointing_kwargs={"use_reentrant": run.compute.reentrant},
    )


def _run_json(
    plan: Plan,
    machine: Machine,
    source: LocalModel,
    renderer: PromptRenderer,
    cases: Sequence[EvalCase],
    status: RunStatus,
) -> dict[str, Any]:
    """Return what the run is."""
    prompts = _asked(plan.run).prompts
    return {
        **run_facts(plan, machine, source, status.command),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "template": renderer.template.name,
        "prompts": {"path": str(prompts), "sha256": sha256_of(prompts), "cases": len(cases)},
    }


def _document(run: RunConfig, done: GrpoCallback, prompts: int, sha256: str, seconds: float) -> dict[str, Any]:
    """Return what `train --json` prints; null: not measured in such a run."""
    asked, mean = _asked(run), partial(_mean_ends, span=mean_span(len(done.losses)))
    first, last = mean(done.losses)
    return {
        "output": str(run.output),
        "steps": done.step,
        "epochs": done.epoch,
        "loss": {"first": done.losses[0], "last": done.losses[-1], "first_mean": first, "last_mean": last},
        "eval_loss": None,
        "tokens": {"real": done.tokens, "trained": done.answer_tokens, "padded": 0},
        "tokens_per_s": done.tokens / max(1e-9, done.seconds),
        "mfu": None,
        "mfu_peak": "",
        "step_time_shares": None,
        "store": None,
        "kernels": {},
        "adjusted": [],
        "resumed_from": None,
        "adapter_sha256": sha256,
        "seconds": seconds,
        "peak_memory_mb": done.peak_memory_mb,
        "samples": [],
        "stop_reason": f"all {done.steps} steps are done",
        "grpo": {
            "prompts": prompts,
            "samples": asked.samples,
            "reward": asked.reward,
            "mean_reward": dict(zip(("first", "last"), mean(done.rewards), strict=True)),
        },
    }


def _mean_ends(values: Sequence[float], span: int) -> tuple[float, float]:
    return sum(values[:span]) / span, sum(values[-span:]) / span
