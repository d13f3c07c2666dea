"""`training.config` as written: the keys of all groups, and those that several groups need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from expert_cli.manifest.key import NotNegative, Seed, Text, key, unused
from expert_cli.manifest.keys.compute import ComputeKeys
from expert_cli.manifest.keys.loader import LoaderKeys
from expert_cli.manifest.keys.log_save_eval import LogSaveEvalKeys
from expert_cli.manifest.keys.optim import OptimKeys
from expert_cli.manifest.keys.peft import AdapterKeys


class TrainingConfig(LogSaveEvalKeys, ComputeKeys, LoaderKeys, OptimKeys, AdapterKeys):
    """`training.config`: how the expert is trained."""

    # pydantic puts the fields of the last class first: the adapter's, in the order of the documents

    old_names: ClassVar[Mapping[str, str]] = {"num_epochs": "epochs", "evaluation_strategy": "eval_strategy"}

    pretokenized_cache: Text | None = key(None, "token stores are in {}")
    """Folder of the token store, relative to the project root; or a URL (`s3://`, `gs://`) from which it is read."""
    system_prompt: Text | None = key(None, "the system message of every prompt; whole texts stay as they are")
    """System message of every prompt, in training and after it."""
    chat_template_path: Text | None = key(
        None,
        "{} is the template of rows and prompts; whole texts stay as they are",
        off="prompt_template, else the tokenizer's own chat template, is used",
    )
    """Jinja file with the chat template for rows and prompts, relative to the manifest, then to the project root."""
    chat_template_kwargs: dict[str, Any] | None = key(
        None,
        lambda given: (
            f"variables of the chat template: {', '.join(f'{name} {value!r}' for name, value in given.items())}"
        ),
        off="no variables, except enable_thinking false if the template has it",
    )
    """Variables of the chat template, in rows and prompts: `{"enable_thinking": true}`; a row's column of this name takes
    precedence."""
    seed: Seed | None = key(42, "seed {} for data order, adapter and dropout", why="one manifest gives one adapter")
    """Seed of everything random."""
    completion_only_loss: bool | None = key(
        True, "only answers are trained", off="prompts are trained, too", why="an expert writes answers"
    )
    """Train only the answers; false: prompts, too."""
    use_unsloth: bool | None = unused("the training step of this tool replaces it")
    """Not used here."""
    memory_clear_every: NotNegative | None = unused("PyTorch reuses freed memory by itself; clearing takes time")
    """Not used here."""
