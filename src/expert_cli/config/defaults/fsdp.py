"""Processes that share the base model out: what does not go with it."""

from __future__ import annotations

from collections.abc import Iterator

from expert_cli.config.defaults.rft import METHOD as RFT
from expert_cli.config.settings import Settings
from expert_cli.manifest.schema import Base, EvaluationBlock
from expert_cli.manifest.training_config import TrainingConfig

FSDP_OFF = "leave fsdp out: every process then holds the base model"


def sharding_conflicts(
    config: Settings[TrainingConfig], base: Settings[Base], evaluation: EvaluationBlock
) -> Iterator[tuple[str, str, str]]:
    """Yield what cannot be where no process holds the base model whole: (key, what does not go together, remedy)."""
    if not config["fsdp"]:
        return
    if base["quantization"] == "int8":
        message = "does not go with quantization int8: bitsandbytes keeps these weights where FSDP2 does not find them"
        yield "fsdp", message, f'for {base["name"]} write "quantization": "int4" or "bf16"'
    if config["method"] == RFT:
        message = f"does not go with method {RFT}, whose answers one process draws from the whole model"
        yield "fsdp", message, FSDP_OFF
    if evaluation.every_steps:
        message = "does not go with evaluation.every_steps: the first process has no whole model to answer with"
        yield "fsdp", message, "choose the best step by metric_for_best_model: eval_loss"
