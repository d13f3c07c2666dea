"""Method grpo: what of `training.grpo` is used, and what of the other blocks is not where answers train the expert."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from expert_cli.config.places import place_of
from expert_cli.config.settings import Settings
from expert_cli.manifest.key import not_used
from expert_cli.manifest.keys.grpo import Grpo, GrpoConfig
from expert_cli.manifest.training_config import TrainingConfig

METHOD = "grpo"
UNUSED = {
    "answers are drawn and trained as they come, rows of no store": (
        *("max_seq_length", "packing", "overflow", "group_by_length", "completion_only_loss", "pretokenized_cache"),
        *("roles_to_train", "mask_history"),
    ),
    "the mean reward of a step's answers is logged; evaluate judges the adapter": (
        *("eval_strategy", "eval_steps", "metric_for_best_model", "greater_is_better", "early_stopping_patience"),
        "load_best_model_at_end",
    ),
    "such a run does not go on from the middle": ("save_strategy", "save_steps", "save_every", "save_total_limit"),
    "TRL's trainer computes the steps": (
        *("fused_kernels", "dequantized_copy", "on_oom", "activation_checkpointing"),
        *("torch_compile", "torch_compile_backend", "torch_compile_mode"),
    ),
}
"""Keys of `training.config`, by why they have no effect."""
OF_ROWS = ("databases", "gold_in_training")
"""Keys of `training.dataset.schema_prompt` that training rows alone heed; prompts are shown their databases by the others."""


def grpo(
    written: Grpo, config: Settings[TrainingConfig], folders: Sequence[Path]
) -> tuple[Settings[Grpo], GrpoConfig | None]:
    """Return the block with what became of its keys, and what a run takes of it; None for another method.

    To be asked once all other blocks are decided: it tells which of their keys change nothing. folders: where the
    prompts are looked for, as `place_of` does.
    """
    keys = Settings(written)
    if config["method"] != METHOD:
        keys.leave(f"method is {config['method']}", *Grpo.model_fields)
        return keys, None
    for reason, names in UNUSED.items():
        config.leave(f"method {METHOD}: {reason}", *names)
    return keys, keys.block(GrpoConfig, prompts=place_of(keys.use("prompts") or "", folders))


def leave_rows(*blocks: Settings[Any]) -> None:
    """Note that blocks which say what rows train and evaluate change nothing."""
    for block in blocks:
        for path, outcome in block.outcomes.items():
            is_shown = path[0] == "schema_prompt" and path[-1] not in OF_ROWS
            if outcome.status in ("applied", "adjusted") and not is_shown:
                block.outcomes[path] = not_used(f"method {METHOD}: training.grpo.prompts decides")
