"""What became of every key in the run as it was: the plan's rows, held against what was really used.

Only what a run can tell is told anew: a key that nothing here names keeps its planned row. A row that comes out another way
than planned is a fault of the plan, or a machine that could not do what was planned; `differences` names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from expert_cli.config.data_sources import parse_source
from expert_cli.config.effects import Decided, Effect
from expert_cli.config.plan import Plan
from expert_cli.config.run_config import SourceSpec
from expert_cli.config.settings import Outcomes
from expert_cli.data.store.build import TokenStore
from expert_cli.errors import InputError
from expert_cli.manifest.json_parser import Path_
from expert_cli.manifest.key import Outcome, adjusted, applied, not_used
from expert_cli.manifest.keys.dataset import Dataset
from expert_cli.model.kernels.attention_backends import attention_backend
from expert_cli.model.kernels.select import KernelPlan
from expert_cli.pipeline.pretokenize import DataInputs
from expert_cli.training.used import Used
from expert_cli.utils.files import redact


def used_keys(plan: Plan, used: Used, kernels: KernelPlan, inputs: DataInputs, store: TokenStore) -> Outcomes:
    """Return what the parts of a run tell, by path as in `Decided.outcomes`."""
    told = {
        **_adapter(used),
        **_optimizer(plan.decided, used),
        **_loader(used),
        **_precision(plan.decided, used),
        **_layers(plan.decided, used),
        **_kernels(plan, kernels),
        **_watch(plan.decided, used),
        "completion_only_loss": applied(_trained(store)),
    }
    now: dict[Path_, Outcome] = {("config", key): outcome for key, outcome in told.items()}
    now |= {("dataset", *path): outcome for path, outcome in _rows(plan, inputs, store).items()}
    if used.answered:
        now["evaluation", "every_steps"] = applied(f"answers were run {used.answered} times")
    return now


def effect_changes(planned: Sequence[Effect], now: Sequence[Effect]) -> list[str]:
    """Return one sentence for every key that came out another way than planned."""
    return [
        f"{after.key}: planned as {_words(before)}, but {_words(after)}"
        for before, after in zip(planned, now, strict=True)
        if before.status != after.status
    ]


def _words(row: Effect) -> str:
    return f"{row.status.replace('_', ' ')} ({row.reason or row.effect})"


def _adapter(used: Used) -> dict[str, Outcome]:
    adapter = used.adapter
    told = {
        "adapter_type": applied(f"a {adapter.kind} adapter was trained"),
        "target_modules": applied(f"adapters on {', '.join(adapter.modules)}"),
    }
    if adapter.kind == "ia3":
        no_rank = not_used("ia3 has no such setting")
        scaled = applied(f"scaled at their input: {', '.join(adapter.feedforward) or 'none'}")
        return told | {"rank": no_rank, "alpha": no_rank, "dropout": no_rank, "feedforward_modules": scaled}
    return told | {
        "rank": applied(f"matrices of rank {adapter.rank}"),
        "alpha": applied(f"scale of the adapter: alpha {adapter.alpha:g}"),
        "dropout": applied(f"dropout {adapter.dropout:g} inside the adapter"),
        "feedforward_modules": not_used("only ia3 has it"),
    }


def _optimizer(decided: Decided, used: Used) -> dict[str, Outcome]:
    asked = (decided.values.batch_size or 1, decided.values.gradient_accumulation_steps or 1)
    rows = f"{used.batch_size} x {used.accumulation} rows an optimizer step"
    fits = asked == (used.batch_size, used.accumulation)
    batch = applied(rows) if fits else adjusted(rows, "the micro-batch did not fit the GPU's memory")
    by_steps = used.max_steps > 0
    return {
        "epochs": not_used(f"max_steps {used.max_steps} decided")
        if by_steps
        else applied(f"{used.epochs:g} passes over the data"),
        "max_steps": applied(f"{used.steps} optimizer steps") if by_steps else not_used("not written"),
        "learning_rate": applied(f"peak learning rate {used.learning_rate:g}"),
        "weight_decay": applied(f"decoupled weight decay {used.weight_decay:g}"),
        "max_grad_norm": applied(
            f"gradients clipped to {used.max_grad_norm:g}" if used.max_grad_norm else "gradients were not clipped"
        ),
        "batch_size": batch,
        "gradient_accumulation_steps": batch,
        "optim": applied(f"optimizer {used.optimizer}"),
        "neftune_noise_alpha": applied("noise on the embeddings") if used.noise else not_used("no noise was added"),
        "seed": applied(f"seed {used.seed} for data order, adapter and dropout"),
        **_warmup(decided, used),
    }


def _warmup(decided: Decided, used: Used) -> dict[str, Outcome]:
    rose = f"the learning rate rose for {used.warmup} steps" if used.warmup else "no warm-up"
    if decided.values.warmup_steps:
        return {"warmup_steps": applied(rose), "warmup_ratio": not_used("warmup_steps decided")}
    by_ratio = adjusted(rose, "0 means not set; warmup_ratio decided")
    return {
        "warmup_steps": by_ratio if decided.values.warmup_ratio else applied(rose),
        "warmup_ratio": applied(rose),
    }


def _loader(used: Used) -> dict[str, Outcome]:
    loader = used.loader
    longest = applied(f"the longest row had {loader.longest_row} tokens")
    cut = not_used("concat cuts every document where a row ends")
    return {
        "max_seq_length": longest,
        "overflow": cut if loader.too_long is None else applied(f"{loader.too_long} documents were too long"),
        "dataloader_num_workers": applied(f"{loader.workers} processes prepared batches"),
        "dataloader_prefetch_factor": applied(f"{loader.prefetch} batches prepared ahead by each worker")
        if loader.prefetch is not None
        else not_used("there were 0 workers"),
    }


def _precision(decided: Decided, used: Used) -> dict[str, Outcome]:
    told = {}
    for key, asked in (("fp16", decided.values.fp16), ("bf16", decided.values.bf16)):
        why = decided.outcomes["config", key].reason or "this machine does not train so"
        if decided.outcomes["config", key].status == "not_used":
            continue
        wrong = asked and used.compute.precision != key
        told[key] = adjusted(used.compute.precision, why) if wrong else applied(f"trained in {used.compute.precision}")
    return told


def _layers(decided: Decided, used: Used) -> dict[str, Outcome]:
    """What was recomputed, and what was compiled."""
    compute = used.compute
    count = compute.recomputed or compute.recomputed_attention
    what = "attention blocks" if compute.recomputed_attention else "layers"
    effect = f"{what} of {count} layers were recomputed" if compute.recomputed_attention else ""
    effect = effect or (f"{count} of {compute.layers} layers were recomputed" if count else "no layer was recomputed")
    narrowed = decided.values.activation_checkpointing
    asked = decided.values.gradient_checkpointing
    switched = adjusted(effect, "a full step did not fit the GPU's memory")
    whole = (
        adjusted(effect, "activation_checkpointing narrowed it") if compute.recomputed_attention else applied(effect)
    )
    attention = applied(effect) if compute.recomputed_attention else not_used(f"gradient_checkpointing: {effect}")
    off = not_used("torch_compile was off")
    compiled = applied(f"{compute.compiled} decoder layers were compiled")
    parts = decided.outcomes["config", "torch_compile_mode"] if compute.compiled else off
    return {
        "gradient_checkpointing": switched if count and not (asked or narrowed) else whole,
        "activation_checkpointing": attention,
        "gradient_checkpointing_kwargs": applied("settings of the recomputation")
        if count
        else not_used("nothing was recomputed"),
        "torch_compile": compiled if compute.compiled else applied("nothing was compiled"),
        "torch_compile_backend": applied("compiler back end") if compute.compiled else off,
        "torch_compile_mode": parts,
    }


def _kernels(plan: Plan, kernels: KernelPlan) -> dict[str, Outcome]:
    """What the kernel plan came to on the model, line by line."""
    told = {}
    fused, copy = kernels.lines["fused"], kernels.lines.get("copy")
    if plan.run.compute.fused_kernels != "off":
        told["fused_kernels"] = not_used(fused.reason) if fused.used == "off" else applied(fused.reason)
    told["dequantized_copy"] = applied(copy.reason) if copy else not_used("no weights in 4 bits")
    attention = kernels.lines["attention"]
    words = f"{attention.used}: {attention.reason}"
    used = attention_backend(kernels.attention).asked_by
    for key in ("use_sdpa", "flash_attention_2", "memory_efficient_attention"):
        if plan.decided.outcomes["config", key].status == "applied":
            fits = used == plan.run.compute.attention
            told[key] = applied(words) if fits else adjusted(attention.used, attention.reason)
    return told


def _watch(decided: Decided, used: Used) -> dict[str, Outcome]:
    written = decided.values
    told = {
        "eval_strategy": applied(f"{used.evaluations} evaluations of the validation rows"),
        "save_strategy": applied(f"{used.checkpoints} checkpoints were written"),
        "report_to": applied(f"metrics went to {', '.join(used.reports) or 'metrics.jsonl alone'}"),
    }
    if written.early_stopping_patience and used.best_step:
        end = f"training stopped after step {used.steps}" if used.stopped_early else "never came to it"
        told["early_stopping_patience"] = applied(f"{end}: the best evaluation was that of step {used.best_step}")
    elif written.early_stopping_patience:
        told["early_stopping_patience"] = not_used("the run ended before anything was evaluated")
    if written.load_best_model_at_end:
        told["load_best_model_at_end"] = applied(f"the adapter is that of step {used.best_step or used.steps}")
    return told


def _trained(store: TokenStore) -> str:
    stats = store.stats["train"]
    return f"{stats['trained_tokens']:,} of {stats['tokens']:,} tokens were trained"


def _rows(plan: Plan, inputs: DataInputs, store: TokenStore) -> dict[Path_, Outcome]:
    """Which of the manifest's sources were read, and which columns and filters."""
    written = plan.loaded.manifest.training.dataset
    folders = (plan.loaded.path.resolve().parent, plan.run.root)
    read = {
        "train": [at.spec for at in inputs.located.train],
        "validation": [at.spec for at in inputs.located.validation],
    }
    told: dict[Path_, Outcome] = {}
    for path, source, split in _sources(written):
        found = any(_same(source, spec, folders) for spec in read[split])
        count = store.stats.get(split, {}).get("rows", 0)
        planned = plan.decided.outcomes.get(("dataset", *path))
        if found:
            told[path] = applied(f"{count:,} documents of all sources")
        elif planned is not None and planned.status != "not_used":  # else the row says why already
            told[path] = not_used("its rows were not read")
    return told | _columns(written, store)


def _sources(written: Dataset) -> list[tuple[Path_, str, str]]:
    """Return (path of the key, source, split it is for) of all sources that the manifest names."""
    tasks = (written.tasks or {}).items()
    named = [
        (("path",), written.path, "train"),
        (("validation_path",), written.validation_path, "validation"),
        *((("tasks", name, "train"), task.train, "train") for name, task in tasks),
        *((("tasks", name, "valid"), task.valid, "validation") for name, task in tasks),
    ]
    return [(path, source, split) for path, source, split in named if source]


def _same(source: str, spec: SourceSpec, folders: Sequence[Path]) -> bool:
    try:
        named = parse_source(source, folders)
    except InputError:  # one that was set aside
        return False
    return (named.path, named.split, named.config) == (spec.path, spec.split, spec.config)


def _columns(written: Dataset, store: TokenStore) -> dict[Path_, Outcome]:
    mapping = store.stats["train"]["mapping"]
    columns = dict(part.split(" <- ", 1) for line in mapping.split("; ") for part in line.split(", ") if " <- " in part)
    told: dict[Path_, Outcome] = {}
    named: dict[Path_, tuple[str, str]] = {
        ("field_mapping", role): (role, column) for role, column in written.field_mapping or () if column
    }
    if written.text_field and ("field_mapping", "text") not in named:
        named["text_field",] = ("text", written.text_field)
    for path, (role, column) in named.items():
        read = columns.get(role, "")
        fits = read.casefold() == redact(column).casefold()  # as the store notes its name
        if mapping:
            told[path] = (
                applied(f"{role} was read from {read}") if fits else not_used(f"{role} was read from {read or '-'}")
            )
    return told
