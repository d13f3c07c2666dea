"""What became of every key in the run as it was: the plan's rows, held against what was really used.

Only what a run can tell is told anew: a key that nothing here names keeps its planned row. A row that comes out another way
than planned is a fault of the plan, or a machine that could not do what was planned; `differences` names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from expert_cli.config.data_sources import named_sources
from expert_cli.config.effects import Decided, Effect
from expert_cli.config.plan import Plan
from expert_cli.config.run_config import OF_TURNS, SourceSpec
from expert_cli.config.settings import Outcomes
from expert_cli.config.source_names import parse_source
from expert_cli.data.store.build import TokenStore
from expert_cli.errors import InputError
from expert_cli.manifest.json_parser import Path_
from expert_cli.manifest.key import Outcome, adjusted, applied, declared, not_used
from expert_cli.manifest.keys.dataset import Dataset
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.model.kernels.attention_backends import attention_backend
from expert_cli.model.kernels.select import KernelPlan
from expert_cli.pipeline.pretokenize import DataInputs
from expert_cli.pipeline.token_rows import outcomes_of
from expert_cli.training.micro_batch import MERGED
from expert_cli.training.used import Used
from expert_cli.utils.redaction import redact
from expert_cli.utils.text import plural

OTHER_PROCESSES = "other processes went on with the run than began it"


def used_keys(plan: Plan, used: Used, kernels: KernelPlan, inputs: DataInputs, store: TokenStore) -> Outcomes:
    """Return what the parts of a run tell, by path as in `Decided.outcomes`."""
    told = {
        **_adapter(used),
        **_optimizer(plan, used),
        **_loader(used),
        **_precision(plan.decided, used),
        **_layers(plan.decided, used),
        **_kernels(plan, kernels),
        **_watch(plan.decided, used),
        "completion_only_loss": applied(_trained(store)),
    }
    now: dict[Path_, Outcome] = {("config", key): outcome for key, outcome in told.items()}
    now |= {("dataset", *path): outcome for path, outcome in _rows(plan, inputs, store).items()}
    tokens = used.adapter.tokens
    now |= outcomes_of(plan.run, inputs.renderer.spelled(tokens) if tokens else ())
    if used.answered:
        now["evaluation", "every_steps"] = applied(f"answers were run {used.answered} times")
    return now


def effect_changes(planned: Sequence[Effect], now: Sequence[Effect]) -> list[str]:
    """Return one sentence for every key that came out another way than planned; what was said when training began is not."""
    return [
        f"{after.key}: planned as {_words(before)}, but {_words(after)}"
        for before, after in zip(planned, now, strict=True)
        if before.status != after.status and after.reason not in (MERGED, OTHER_PROCESSES)
    ]


def _words(row: Effect) -> str:
    return f"{row.status.replace('_', ' ')} ({row.reason or row.effect})"


def _when(happened: object, effect: str, reason: str) -> Outcome:
    """The key did this, or nothing for that reason."""
    return applied(effect) if happened else not_used(reason)


def _declared(key: str, value: object, keys: object = None) -> Outcome:
    """The key did what is declared of this value."""
    return applied(declared(TrainingConfig, key).effect_of(value, keys))


def _adapter(used: Used) -> dict[str, Outcome]:
    adapter, no_such = used.adapter, "ia3 has no such setting"
    is_ia3 = adapter.kind == "ia3"
    scaled = f"scaled at their input: {', '.join(adapter.feedforward) or 'none'}"
    return {
        "adapter_type": applied(f"a {adapter.kind} adapter was trained"),
        "target_modules": applied(f"adapters on {', '.join(adapter.modules)}"),
        "rank": _when(not is_ia3, f"matrices of rank {adapter.rank}", no_such),
        "alpha": _when(not is_ia3, f"scale of the adapter: alpha {adapter.alpha:g}", no_such),
        "dropout": _when(not is_ia3, f"dropout {adapter.dropout:g} inside the adapter", no_such),
        "feedforward_modules": _when(is_ia3, scaled, "only ia3 has it"),
    }


def _optimizer(plan: Plan, used: Used) -> dict[str, Outcome]:
    planned, by_steps = plan.run.optim, used.max_steps > 0
    sizes = {"batch_size": used.batch_size, "gradient_accumulation_steps": used.accumulation}
    batch = accumulation = _declared("batch_size", used.batch_size, sizes)
    if planned.batch_size != used.batch_size:
        merged = used.batch_size > planned.batch_size
        batch = adjusted(batch.effect, MERGED if merged else "the micro-batch did not fit the GPU's memory")
        accumulation = batch
    elif planned.gradient_accumulation_steps != used.accumulation:
        accumulation = adjusted(f"{used.accumulation} micro-batches a step in each process", OTHER_PROCESSES)
    clipped = f"gradients clipped to {used.max_grad_norm:g}"
    return {
        "epochs": not_used(f"max_steps {used.max_steps} decided") if by_steps else _declared("epochs", used.epochs),
        "max_steps": _declared("max_steps", used.steps) if by_steps else not_used("not written"),
        "learning_rate": applied(f"peak learning rate {used.learning_rate:g}"),
        "weight_decay": applied(f"decoupled weight decay {used.weight_decay:g}"),
        "max_grad_norm": applied(clipped if used.max_grad_norm else "gradients were not clipped"),
        "batch_size": batch,
        "gradient_accumulation_steps": accumulation,
        "optim": _declared("optim", used.optimizer),
        "neftune_noise_alpha": _when(used.noise, "noise on the embeddings", "no noise was added"),
        "seed": _declared("seed", used.seed),
        **_warmup(plan.decided, used),
    }


def _warmup(decided: Decided, used: Used) -> dict[str, Outcome]:
    rose = applied(f"the learning rate rose for {used.warmup} steps" if used.warmup else "no warm-up")
    if decided.values.warmup_steps:
        return {"warmup_steps": rose, "warmup_ratio": not_used("warmup_steps decided")}
    by_ratio = adjusted(rose.effect, "0 means not set; warmup_ratio decided")
    return {"warmup_steps": by_ratio if decided.values.warmup_ratio else rose, "warmup_ratio": rose}


def _loader(used: Used) -> dict[str, Outcome]:
    loader = used.loader
    cut_alike, ahead = loader.too_long is None, f"{loader.prefetch} batches prepared ahead by each worker"
    return {
        "max_seq_length": applied(f"the longest row had {loader.longest_row} tokens"),
        "overflow": _when(
            not cut_alike,
            f"{loader.too_long} documents were too long",
            "concat cuts every document where a row ends",
        ),
        "dataloader_num_workers": applied(f"{loader.workers} processes prepared batches"),
        "dataloader_prefetch_factor": _when(loader.prefetch is not None, ahead, "there were 0 workers"),
    }


def _precision(decided: Decided, used: Used) -> dict[str, Outcome]:
    told, precision = {}, used.compute.precision
    for key in ("fp16", "bf16"):
        planned, wrong = decided.outcomes["config", key], getattr(decided.values, key) and precision != key
        if planned.status != "not_used":
            why = planned.reason or "this machine does not train so"
            told[key] = adjusted(precision, why) if wrong else applied(f"trained in {precision}")
    return told


def _layers(decided: Decided, used: Used) -> dict[str, Outcome]:
    """What was recomputed, and what was compiled."""
    compute, written = used.compute, decided.values
    blocks = compute.recomputed_attention
    count = compute.recomputed or blocks
    effect = f"{count} of {compute.layers} layers were recomputed" if count else "no layer was recomputed"
    whole = applied(effect)
    if blocks:
        effect = f"attention blocks of {count} layers were recomputed"
        whole = adjusted(effect, "activation_checkpointing narrowed it")
    if count and not (written.gradient_checkpointing or written.activation_checkpointing):
        whole = adjusted(effect, "a full step did not fit the GPU's memory")
    compiled = applied("nothing was compiled")
    if compute.compiled:
        effect = f"{compute.compiled} decoder layers were compiled: {plural(compute.graphs, 'graph')}"
        compiled = _when(compute.graphs, effect, "nothing was compiled")
    told = {
        "gradient_checkpointing": whole,
        "activation_checkpointing": _when(blocks, effect, f"gradient_checkpointing: {effect}"),
        "gradient_checkpointing_kwargs": _when(count, "settings of the recomputation", "nothing was recomputed"),
        "torch_compile": compiled,
    }
    if compute.shared:
        told["fsdp"] = applied(f"each process held a share of {plural(compute.shared, 'tensor')} of the base model")
    if not compute.compiled:  # else as planned
        told |= dict.fromkeys(("torch_compile_backend", "torch_compile_mode"), not_used("torch_compile was off"))
    return told


def _kernels(plan: Plan, kernels: KernelPlan) -> dict[str, Outcome]:
    """What the kernel plan came to on the model, line by line."""
    told = {}
    fused, copy, attention = kernels.lines["fused"], kernels.lines.get("copy"), kernels.lines["attention"]
    if plan.run.compute.fused_kernels != "off":
        told["fused_kernels"] = _when(fused.used != "off", fused.reason, fused.reason)
    told["dequantized_copy"] = applied(copy.reason) if copy else not_used("no weights in 4 bits")
    outcome = applied(f"{attention.used}: {attention.reason}")
    if attention_backend(kernels.attention).asked_by != plan.run.compute.attention:
        outcome = adjusted(attention.used, attention.reason)
    for key in ("use_sdpa", "flash_attention_2", "memory_efficient_attention"):
        if plan.decided.outcomes["config", key].status == "applied":
            told[key] = outcome
    return told


def _watch(decided: Decided, used: Used) -> dict[str, Outcome]:
    written = decided.values
    told = {
        "eval_strategy": applied(f"{used.evaluations} evaluations of the validation rows"),
        "save_strategy": applied(f"{used.checkpoints} checkpoints were written"),
        "report_to": applied(f"metrics went to {', '.join(used.reports) or 'metrics.jsonl alone'}"),
    }
    if written.early_stopping_patience:
        end = f"training stopped after step {used.steps}" if used.stopped_early else "never came to it"
        best = f"{end}: the best evaluation was that of step {used.best_step}"
        told["early_stopping_patience"] = _when(used.best_step, best, "the run ended before anything was evaluated")
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
    told: dict[Path_, Outcome] = {}
    for split, read, named in (
        ("train", inputs.located.train, named_sources(written, "train")),
        ("validation", inputs.located.validation, named_sources(written, "valid")),
    ):
        for path, sources in named.items():
            planned = plan.decided.outcomes.get(("dataset", *path))
            if any(_same(source, at.spec, folders) for source in sources for at in read):
                told[path] = applied(f"{store.stats.get(split, {}).get('rows', 0):,} documents of all sources")
            elif planned is not None and planned.status != "not_used":  # else the row says why already
                told[path] = not_used("its rows were not read")
    return told | _columns(written, store.stats["train"]["mapping"])


def _same(source: str, spec: SourceSpec, folders: Sequence[Path]) -> bool:
    try:
        named = parse_source(source, folders)
    except InputError:  # one that was set aside
        return False
    return (str(named), named.split) == (str(spec), spec.split)


def _columns(written: Dataset, mapping: str) -> dict[Path_, Outcome]:
    """Which columns were read. mapping: as the store notes it, "ROLE <- COLUMN, ...; ..."; "" where it has noted none."""
    columns = dict(part.split(" <- ", 1) for line in mapping.split("; ") for part in line.split(", ") if " <- " in part)
    named: dict[Path_, str | None] = {
        ("field_mapping", role): column for role, column in written.field_mapping or () if role not in OF_TURNS
    }
    if not named.get(("field_mapping", "text")):
        named["text_field",] = written.text_field
    told: dict[Path_, Outcome] = {}
    for path, column in named.items():
        if mapping and column:
            role = "text" if path[0] == "text_field" else str(path[-1])
            words = f"{role} was read from {columns.get(role) or '-'}"
            fits = columns.get(role, "").casefold() == redact(column).casefold()  # as the store notes its name
            told[path] = _when(fits, words, words)
    return told
