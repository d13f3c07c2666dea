"""One rule a key of `training.config`: what it does in a given run, and why not, where it does not.

A rule looks at the value that `config.resolve` decided and says so; it decides nothing itself. How a step is computed
has its rules in `compute_rules.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from expert_cli.manifest.compute_rules import COMPUTE_RULES
from expert_cli.manifest.rule import Facts, Outcome, Rule, adjusted, applied, not_used


def _always(effect: str) -> Rule:
    return lambda _: applied(effect)


def _adapter(effect: str) -> Rule:
    """A setting of low-rank adapters, which IA3 does not have."""
    return lambda f: not_used("ia3 has no such setting") if f.run.adapter.type == "ia3" else applied(effect)


def _feedforward(f: Facts) -> Outcome:
    return applied("IA3 scales these at their input") if f.run.adapter.type == "ia3" else not_used("only ia3 has it")


def _epochs(f: Facts) -> Outcome:
    if f.run.optim.max_steps > 0:
        return not_used(f"max_steps {f.run.optim.max_steps} decides ({f.origins.get('max_steps', 'training.config')})")
    return applied(f"{f.run.optim.epochs:g} passes over the data")


def _scheduler(f: Facts) -> Outcome:
    if f.run.optim.scheduler != f.config.lr_scheduler:
        return adjusted(f.run.optim.scheduler, "a warm-up is asked for, which transformers' constant drops")
    return applied("how the learning rate runs")


def _warmup_steps(f: Facts) -> Outcome:
    if f.config.warmup_steps:
        return applied(f"the learning rate rises for {f.config.warmup_steps} steps")
    if f.config.warmup_ratio:
        return adjusted(f"{f.config.warmup_ratio:g} of all steps", "0 means not set; warmup_ratio decides")
    return applied("no warm-up")


def _warmup_ratio(f: Facts) -> Outcome:
    if f.config.warmup_steps:
        return not_used(f"warmup_steps {f.config.warmup_steps} wins")
    return applied(f"the learning rate rises over {f.config.warmup_ratio or 0:.0%} of all steps")


def _batch(f: Facts) -> Outcome:
    optim = f.run.optim
    return applied(f"{optim.batch_size} x {optim.gradient_accumulation_steps} rows an optimizer step")


def _packing(f: Facts) -> Outcome:
    names = {
        "random": "each row is filled with whole documents drawn at random, anew for every epoch; they do not see each other",
        "best_fit": "each row is filled with whole documents of like length, the same in every epoch, which do not see each "
        "other: rows of one database or template meet in a step, up to 50 times as often as by chance",
        "concat": "documents are laid end to end and cut; for comparison only",
        "off": "one document a row, padded to the longest of its batch",
    }
    return applied(names[f.run.loader.packing])


def _max_seq_length(f: Facts) -> Outcome:
    limit = f.run.data.max_seq_length
    what = {
        "truncate": "longer documents lose the middle of their prompt",
        "drop": "longer documents are left out",
        "split": "longer documents are split",
        "error": "a longer document is an error",
    }
    return applied(f"a row holds {limit} tokens; {what[f.run.loader.overflow]}")


def _group_by_length(f: Facts) -> Outcome:
    if f.config.group_by_length and f.run.loader.packing != "off":
        return not_used("packed rows all have about the same length")
    return applied(
        "rows of similar length share a batch, by seed: they are often alike otherwise, too"
        if f.run.loader.group_by_length
        else "rows are shuffled"
    )


def _workers_only(effect: str) -> Rule:
    def rule(f: Facts) -> Outcome:
        return applied(effect) if f.run.loader.num_workers else not_used("there are 0 workers")

    return rule


def _save_every(f: Facts) -> Outcome:
    return applied(f"a checkpoint every {f.run.watch.save_every_s:g} s of training, at a step's end")


def _evaluates(effect: str) -> Rule:
    def rule(f: Facts) -> Outcome:
        return (
            applied(effect) if f.run.watch.eval_strategy != "no" else not_used("nothing is evaluated during training")
        )

    return rule


def _in_steps(of: Literal["save", "eval"]) -> Rule:
    def rule(f: Facts) -> Outcome:
        watch = f.run.watch
        strategy = watch.save_strategy if of == "save" else watch.eval_strategy
        steps = watch.save_steps if of == "save" else watch.eval_steps
        what = "a checkpoint" if of == "save" else "an evaluation"
        return (
            applied(f"{what} every {steps} steps") if strategy == "steps" else not_used(f'the strategy is "{strategy}"')
        )

    return rule


def _writes_checkpoints(f: Facts) -> bool:
    watch = f.run.watch
    return watch.save_strategy != "no" or watch.save_every_s > 0 or watch.load_best_model_at_end


def _save_strategy(f: Facts) -> Outcome:
    watch = f.run.watch
    better = ", and one after each better evaluation" if watch.load_best_model_at_end else ""
    return applied(f'checkpoints: "{watch.save_strategy}"{better}')


def _limit(f: Facts) -> Outcome:
    limit = f.run.watch.save_total_limit
    if not _writes_checkpoints(f):
        return not_used("no checkpoints are written")
    if limit == 1:
        return adjusted("2", "the newest checkpoint may be damaged when the machine fails")
    return applied("every checkpoint is kept" if limit is None else f"the newest {limit} checkpoints are kept")


def _best(effect: str) -> Rule:
    def rule(f: Facts) -> Outcome:
        watch = f.run.watch
        if watch.load_best_model_at_end or watch.early_stopping_patience:
            return applied(effect)
        return not_used("nothing asks for the best model")

    return rule


RULES: Mapping[str, Rule] = {
    **COMPUTE_RULES,
    "method": _always("supervised fine-tuning"),
    "adapter_type": lambda f: applied(f"a {f.run.adapter.type} adapter is trained"),
    "rank": _adapter("rank of the adapter's matrices"),
    "alpha": _adapter("scale of the adapter"),
    "dropout": _adapter("dropout inside the adapter"),
    "target_modules": _always("the layers that get an adapter"),
    "feedforward_modules": _feedforward,
    "epochs": _epochs,
    "max_steps": lambda f: applied(f"{f.run.optim.max_steps} optimizer steps"),
    "learning_rate": _always("peak learning rate"),
    "lr_scheduler": _scheduler,
    "lr_scheduler_kwargs": _always("passed to the scheduler"),
    "warmup_steps": _warmup_steps,
    "warmup_ratio": _warmup_ratio,
    "weight_decay": _always("decoupled weight decay"),
    "max_grad_norm": lambda f: applied(
        "gradient clipping" if f.run.optim.max_grad_norm else "gradients are not clipped"
    ),
    "batch_size": _batch,
    "gradient_accumulation_steps": _batch,
    "max_seq_length": _max_seq_length,
    "packing": _packing,
    "overflow": lambda f: applied(f"documents longer than max_seq_length: {f.run.loader.overflow}"),
    "group_by_length": _group_by_length,
    "pretokenized_cache": lambda f: applied(f"token stores lie in {f.run.store}"),
    "dataloader_num_workers": lambda f: applied(f"{f.run.loader.num_workers} processes prepare batches"),
    "dataloader_prefetch_factor": _workers_only("batches prepared ahead by each worker"),
    "dataloader_persistent_workers": _workers_only("the same workers serve every epoch, whatever this says"),
    "save_every": _save_every,
    "optim": lambda f: applied(f"optimizer {f.run.optim.optim}"),
    "logging_steps": lambda f: applied(f"a log line every {f.run.watch.logging_steps} steps"),
    "save_strategy": _save_strategy,
    "save_steps": _in_steps("save"),
    "save_total_limit": _limit,
    "eval_strategy": lambda f: applied(f'evaluation: "{f.run.watch.eval_strategy}"'),
    "eval_steps": _in_steps("eval"),
    "load_best_model_at_end": lambda f: applied(
        "the best checkpoint becomes the adapter"
        if f.run.watch.load_best_model_at_end
        else "the last step becomes the adapter"
    ),
    "metric_for_best_model": _best("what the best model is chosen by"),
    "greater_is_better": _best("whether larger is better"),
    "early_stopping_patience": _evaluates("training stops when evaluations no longer improve"),
    "use_unsloth": lambda _: not_used("the training step here is the tool's own; it needs no patched model"),
    "system_prompt": lambda f: applied(
        "the system message of every prompt"
        if f.run.model.system_prompt
        else "no system message, no default one either"
    ),
    "seed": lambda f: applied(f"seed {f.run.seed} for data order, adapter and dropout"),
    "report_to": lambda f: applied(f"metrics go to {', '.join(f.run.watch.report_to) or 'metrics.jsonl alone'}"),
    "neftune_noise_alpha": _always("noise on the embeddings"),
    "completion_only_loss": lambda f: applied(
        "only answers are trained" if f.run.data.completion_only else "prompts are trained too"
    ),
}
