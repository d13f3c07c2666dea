"""Decides the settings of training, logging, saving, evaluating, rft and decoding, with defaults that depend on other keys."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn, get_args

from expert_cli.config.run_config import ModelConfig
from expert_cli.config.settings import Settings, place_of, read_chat_template
from expert_cli.manifest.key import GrammarType, Strategy, declared, informational
from expert_cli.manifest.keys.compute import DeviceName
from expert_cli.manifest.keys.loader import OVERFLOWS, LoaderConfig, Packing
from expert_cli.manifest.keys.log_save_eval import EVAL_LOSS, EXECUTION_ACCURACY, LogSaveEvalConfig, seconds_of
from expert_cli.manifest.keys.optim import BY_EVALUATIONS, OLD_OPTIMIZERS, OptimConfig
from expert_cli.manifest.keys.peft import AdapterConfig
from expert_cli.manifest.keys.rft import Rft, RftConfig
from expert_cli.manifest.schema import Base, Decoding, EvaluationBlock
from expert_cli.manifest.training_config import TrainingConfig

Config = Settings[TrainingConfig]


def model(base: Settings[Base], config: Config, folders: Sequence[Path] = (Path(),)) -> ModelConfig:
    """Return the base model to load. folders: where a relative `chat_template_path` is searched, in this order."""
    written = config.use("chat_template_path")
    base.use("alias")
    template = base.use("prompt_template") or ""
    if written and not template:
        base.leave("chat_template_path is used", "prompt_template")
    return base.block(
        ModelConfig,
        sha256=_sha256(base),
        template=template,
        system_prompt=config.use("system_prompt"),
        rope_scaling=_rope(base),
        chat_template=read_chat_template(place_of(written, folders)) if written else "",
        chat_template_kwargs=tuple(sorted((config.use("chat_template_kwargs") or {}).items())),
    )


def _sha256(base: Settings[Base]) -> str:
    """Return the expected hash of the weights, "" for none: published manifests contain placeholders like "abc123..."."""
    digest = (base.written.sha256 or "").strip().lower().removeprefix("sha256:")
    if re.fullmatch(r"[0-9a-f]{64}", digest):
        base.use("sha256")
        return digest
    base.leave("no SHA-256 hash: nothing to verify against", "sha256")
    return ""


def _rope(base: Settings[Base]) -> tuple[tuple[str, float | str], ...]:
    scaling, kind = base.use("rope_scaling"), base.written.rope_type
    if not isinstance(scaling, dict) or not kind:
        base.outcomes[("rope_scaling",)] = informational("not a form that transformers knows; the model keeps its own")
        return ()
    rest = {key: value for key, value in scaling.items() if key not in ("type", "rope_type")}
    return (("rope_type", kind), *sorted(rest.items()))


def adapter(config: Config, folders: Sequence[Path] = (Path(),)) -> AdapterConfig:
    """Return the adapter to train. folders: where a relative `init_adapter` is searched, in this order."""
    config.use("method")
    kind, modules = config.use("adapter_type"), config.use("target_modules")
    rank = config.use("rank")
    rows, start = config.use("trainable_token_indices"), config["init_adapter"]
    return config.block(
        AdapterConfig,
        type=kind,
        rank=rank,
        alpha=config.put("alpha", config.written.alpha or 2.0 * rank),
        target_modules=(modules,) if isinstance(modules, str) else tuple(modules),
        init_adapter=config.put("init_adapter", start and place_of(start, folders)),
        trainable_token_indices=rows if isinstance(rows, str) else tuple(rows),
    )


def optim(config: Config) -> OptimConfig:
    """Return the optimizer's settings."""
    epochs, max_steps = config.use("epochs"), config.written.max_steps
    if max_steps is None:
        config.leave("not written", "max_steps")
    else:
        config.use("max_steps")
        config.leave(f"max_steps {max_steps} decides", "epochs")
    steps, share = config.use("warmup_steps"), config.use("warmup_ratio")
    if steps:
        config.leave(f"warmup_steps {steps} wins", "warmup_ratio")
    elif share:
        config.put("warmup_steps", 0, f"{share:g} of all steps", "0 means not set; warmup_ratio decides")
    kind = "constant_with_warmup"
    if config.use("lr_scheduler") == "constant" and (steps or share):
        config.put("lr_scheduler", kind, kind, "transformers' constant has no warm-up")
    else:
        kind = config["lr_scheduler"]
    if kind in BY_EVALUATIONS:
        steps = share = 0
        config.leave(f"lr_scheduler {kind} has no warm-up by steps", "warmup_steps", "warmup_ratio")
    name = OLD_OPTIMIZERS.get(config["optim"], config["optim"])
    return config.block(
        OptimConfig,
        optim=config.put("optim", name, reason="" if name == config["optim"] else "AdEMAMix is no longer offered"),
        epochs=epochs,
        max_steps=max_steps or -1,
        scheduler=kind,
        scheduler_kwargs=tuple(sorted((config.use("lr_scheduler_kwargs") or {}).items())),
        warmup=float(steps or share),  # steps if 1 or more, else a share of all steps
    )


def loader(config: Config, device: DeviceName) -> LoaderConfig:
    """Return how rows are packed and batches are loaded."""
    written = config["packing"]
    packing: Packing = config.put("packing", {True: "random", False: "off"}.get(written, written))
    workers, prefetch = config.use("dataloader_num_workers"), config.use("dataloader_prefetch_factor")
    if not workers:
        config.leave("there are 0 workers", "dataloader_prefetch_factor")
    pins, groups = config.use("dataloader_pin_memory"), config.use("group_by_length")
    is_gpu = device != "cpu"
    if not is_gpu:
        config.leave("no GPU", "dataloader_pin_memory")
    if packing != "off":
        config.leave("packed rows all have about the same length", "group_by_length")
    overflow, length = config.use("overflow"), config.use("max_seq_length")
    if packing == "concat":
        config.leave("concat cuts every document where a row ends", "overflow")
    else:
        config.put("max_seq_length", length, f"a row holds {length} tokens; {OVERFLOWS[overflow]}")
    return config.block(
        LoaderConfig,
        num_workers=workers,
        pin_memory=pins and is_gpu,
        prefetch_factor=prefetch if workers else None,
        packing=packing,
        overflow=overflow,
        group_by_length=groups and packing == "off",
    )


LEAST_KEPT = 2
"""Least number of checkpoints to keep: a crash of the machine may damage the newest one."""


def log_save_eval(config: Config, evaluation: Settings[EvaluationBlock]) -> LogSaveEvalConfig:
    """Return when a run logs, evaluates and saves."""
    written = config.written
    wants_best = bool(written.load_best_model_at_end)
    default: Strategy = "epoch" if wants_best and written.save_strategy == "epoch" else "steps"
    of_loss: Strategy = (written.eval_strategy or default) if written.evaluates_loss else "no"
    every, answers = evaluation.written.every_steps, 0
    if every:
        every, answers = evaluation.use("every_steps"), evaluation.use("sample")
    else:
        evaluation.leave("evaluation.every_steps is not written", "every_steps", "sample")
    differs = every and (written.eval_strategy not in (None, "steps") or written.eval_steps not in (None, every))
    reason = "evaluation.every_steps decides" if differs else ""
    eval_strategy: Strategy = config.put("eval_strategy", "steps" if every else of_loss, reason=reason)
    save_strategy, save_every_s = _saving(config, eval_strategy)
    save_steps, eval_steps = _steps(config, save_strategy, eval_strategy, every, reason)
    # every checkpoint is evaluated, as transformers' `load_best_model_at_end` requires
    if wants_best and save_strategy == "steps" and save_steps % eval_steps:
        save_steps += eval_steps - save_steps % eval_steps
        reason = f"load_best_model_at_end needs a multiple of {eval_steps}, the steps between evaluations"
        config.put("save_steps", save_steps, f"a checkpoint every {save_steps} steps", reason)
    report_to = written.report_to or ()
    by_loss = written.goes_by_loss if written.compares_steps else written.evaluates_loss or not every
    targets = () if report_to == "none" else (report_to,) if isinstance(report_to, str) else tuple(report_to)
    return config.block(
        LogSaveEvalConfig,
        save_strategy=save_strategy,
        save_steps=save_steps,
        save_every_s=save_every_s,
        save_total_limit=_limit(config, writes=save_strategy != "no" or save_every_s > 0),
        eval_strategy=eval_strategy,
        eval_steps=eval_steps,
        validates=written.evaluates_loss,
        answers=answers,
        **_best(config, by_loss=by_loss),
        report_to=config.put("report_to", targets),
    )


def _saving(config: Config, evaluates: Strategy) -> tuple[Strategy, float]:
    """Return (strategy, seconds between two checkpoints; 0: not by time).

    evaluates: when the value that chooses the best step is measured. Checkpoints are written then, too, as transformers'
    `load_best_model_at_end` requires, unless they are written by time alone.
    """
    written, wants_best = config.written, bool(config.written.load_best_model_at_end)
    asked: Strategy = written.save_strategy or (evaluates if wants_best else "steps" if written.save_steps else "no")
    strategy = evaluates if wants_best and asked != "no" else asked
    better = ", and one after each better evaluation" if wants_best else ""
    reason = "load_best_model_at_end needs a checkpoint at each evaluation" if strategy != asked else ""
    config.put("save_strategy", strategy, better and f'checkpoints: "{strategy}"{better}', reason)
    if (written.save_strategy or asked != "no") and not written.save_every:
        config.leave(f'not written, and the strategy is "{strategy}"', "save_every")
        return strategy, 0.0
    return strategy, seconds_of(config.use("save_every"))


def _steps(config: Config, save: Strategy, evaluate: Strategy, every: int | None, reason: str) -> tuple[int, int]:
    """Return the steps between checkpoints and between evaluations; if one key is missing it takes the other's value.

    every: evaluation.every_steps; reason: why it replaces what is written.
    """
    written, default = config.written, declared(TrainingConfig, "save_steps").default
    save_steps = config.put("save_steps", written.save_steps or every or written.eval_steps or default)
    eval_steps = config.put("eval_steps", every or written.eval_steps or config["save_steps"], reason=reason)
    if save != "steps":
        config.leave(f'the strategy is "{save}"', "save_steps")
    if evaluate != "steps":
        config.leave(f'the strategy is "{evaluate}"', "eval_steps")
    if save == "steps" and evaluate != "steps" and not written.save_steps:
        config.put("eval_steps", save_steps, f"a checkpoint every {save_steps} steps: save_steps is not written")
    if evaluate == "steps" and save != "steps" and not (every or written.eval_steps):
        config.put("save_steps", eval_steps, f"an evaluation every {eval_steps} steps: eval_steps is not written")
    return save_steps if save == "steps" else default, eval_steps if evaluate == "steps" else default


def sample_answers(config: Config, evaluation: Settings[EvaluationBlock]) -> int:
    """Return the number of prompts answered before and after training."""
    if config["fsdp"]:
        evaluation.leave("fsdp: no process has the whole model", "sample_answers")
        return 0
    return int(evaluation.use("sample_answers"))


def _limit(config: Config, *, writes: bool) -> int | None:
    limit: int | None = config.use("save_total_limit")
    if not writes and not config.written.load_best_model_at_end:
        config.leave("no checkpoints are written", "save_total_limit")
        return None
    if limit is not None and limit < LEAST_KEPT:
        reason = "the newest checkpoint may be damaged if the machine crashes"
        return int(config.put("save_total_limit", LEAST_KEPT, f"{LEAST_KEPT}", reason))
    return limit


def _best(config: Config, *, by_loss: bool) -> dict[str, Any]:
    """Return the metric that chooses the best step, and the settings that depend on it."""
    loads, patience = config.use("load_best_model_at_end"), config.written.early_stopping_patience or 0
    config.put("metric_for_best_model", EVAL_LOSS if by_loss else EXECUTION_ACCURACY)
    config.put("greater_is_better", not by_loss)
    if not (loads or patience):
        config.leave("no key asks for the best model", "metric_for_best_model", "greater_is_better")
    patience = config.put("early_stopping_patience", patience)
    metric = EVAL_LOSS if by_loss else f"eval_{EXECUTION_ACCURACY}"
    return {"metric": metric, "load_best_model_at_end": loads, "early_stopping_patience": patience}


METHOD = "rft"


def rft(keys: Settings[Rft], method: str, folders: Sequence[Path]) -> RftConfig | None:
    """Return the settings of rft; None for another method."""
    if method != METHOD:
        keys.leave(f"method is {method}", *Rft.model_fields)
        return None
    held_back = keys.use("held_back")
    is_share = isinstance(held_back, float)
    return keys.block(
        RftConfig,
        prompts=place_of(keys.use("prompts"), folders),
        start=keys.use("from"),
        held_back=held_back if is_share else 0.0,
        held_back_cases=None if is_share else place_of(held_back, folders),
    )


JSON_GRAMMARS = ("json", "json-schema")


def decoding(written: Decoding) -> Settings[Decoding]:
    """Return the block, with the effect of each key noted."""
    keys = Settings(written)
    if not keys.use("use_grammar"):
        keys.leave("use_grammar is not true", "grammar_type", "json_schema")
    elif reason := unknown_grammar(written):
        keys.leave(reason, "use_grammar", "grammar_type", "json_schema")
    else:
        keys.use("grammar_type")
        if written.grammar_type in JSON_GRAMMARS:
            keys.use("json_schema")
        else:
            keys.leave(f"grammar_type {written.grammar_type} takes none", "json_schema")
    return keys


def known_grammar(written: Decoding) -> GrammarType | None:
    """Return the grammar that answers must follow; None for free text."""
    known: tuple[GrammarType, ...] = get_args(GrammarType)
    return next((name for name in known if written.use_grammar and name == written.grammar_type), None)


def unknown_grammar(written: Decoding) -> str:
    """Return why no grammar is used although `use_grammar` is true; "" if one is."""
    if not written.use_grammar or known_grammar(written):
        return ""
    if written.grammar_type is None:
        return "grammar_type is not written"
    return f"{written.grammar_type} is not a grammar of this tool"


def schema_fault(schema: Mapping[str, Any]) -> str:
    """Return why an object is no valid JSON Schema; "" if it is valid, or the package to check it is not installed."""
    if find_spec("jsonschema_rs") is None:
        return ""
    import jsonschema_rs

    try:
        jsonschema_rs.validator_for(dict(schema), retriever=_retrieve)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        return f"is no JSON Schema: {str(error).splitlines()[0]}"
    return ""


def _retrieve(address: str) -> NoReturn:
    raise ValueError(f"{address} is not fetched: put its schema under $defs")
