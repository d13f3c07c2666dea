"""Private APIs of other libraries that we use, and workarounds for them, each with reason, versions and condition for removal.

Private members that we override are in our classes: the Trainer's `_clip_grad_norm`, `_get_grad_norm`, `_save_checkpoint`,
`_load_*`, `_determine_best_metric` and `_prepare_for_training` (training/trainer.py, transformers 5.23), accelerate's
`_is_accelerate_prepared` (model/kernels/chunked_loss.py, 1.15). tests/unit/test_compat.py checks their signatures, and the
behavior of everything in this module.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


MARKS = "\U000f0000\U000f0001"
"""The marks that transformers 5.23 (utils/chat_template_utils.py) puts around control tokens in a row, so that they stay text.
Its `mark_control_tokens` and `encode_marked_chat` are public, the two characters are not. Remove when they are."""
MARKED = re.compile("\U000f0000[^\U000f0001]*\U000f0001")
MARKED_THOUGHT = re.compile("\U000f0000(</?think>)\U000f0001")


def is_marked(text: str) -> bool:
    """Return whether a text contains these marks."""
    return not text.isascii() and any(mark in text for mark in MARKS)


def unmarked(text: str) -> str:
    """Return a text without these marks."""
    return text.translate(dict.fromkeys(map(ord, MARKS)))


def control_token_pattern(tokenizer: Any, jinja: str) -> re.Pattern[str]:
    """Return the pattern of the tokens that `apply_chat_template(sanitize_control_tokens=True)` keeps as text in a row.

    transformers 5.23 (tokenization_utils_base.py, utils/chat_template_utils.py). Remove when a public function returns them.
    """
    from transformers.utils.chat_template_utils import _get_control_token_patterns

    pattern: re.Pattern[str] = _get_control_token_patterns(tokenizer._get_control_tokens(jinja))[0]
    return pattern


def mark_control_tokens(said: Any, control: re.Pattern[str]) -> Any:
    """Return a JSON value with marks around the control tokens in its texts. transformers 5.23, as above."""
    from transformers.utils.chat_template_utils import mark_control_tokens as mark

    return mark(said, control)


def template_literals(jinja: str) -> list[str]:
    """Return the literal texts of a chat template. transformers 5.23 uses them for its own marks; remove as above."""
    from transformers.utils.chat_template_utils import _get_template_literal_text

    return str(_get_template_literal_text(jinja)).split("\0")


def template_variables(jinja: str) -> frozenset[str]:
    """Return the names of the variables that a chat template reads. transformers 5.23; remove when it is public."""
    from transformers.utils.chat_template_utils import _get_template_variables

    return frozenset(_get_template_variables(jinja))


def quiet_imports() -> None:
    """Prevent other libraries from downloading code and from printing messages; to be called before they are imported.

    If the package `kernels` is installed, bitsandbytes 0.50.2 (backends/cpu/ops.py, backends/mps/ops.py) downloads a kernel
    from the hub and runs it when it is imported; otherwise it logs that it could not. None in `sys.modules` makes the import
    of `kernels` fail. peft 0.21.2 uses a deprecated name of transformers. Remove when bitsandbytes asks first.
    """
    sys.modules.setdefault("kernels", None)  # type: ignore[arg-type]
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    # transformers 5.23: at every evaluation without its metric, early stopping logs that it is off
    logging.getLogger("transformers.trainer_callback").setLevel(logging.ERROR)
    logging.getLogger("liger_kernel").setLevel(logging.ERROR)  # 0.6 to 0.8: what it omits; the kernel plan shows it
    warnings.filterwarnings("ignore", ".is_gradient_checkpointing. is deprecated", FutureWarning)


def files_of_snapshot(folder: Path) -> list[str]:
    """Return the names of all files of a snapshot in the hub client's cache, also those not downloaded; [] if unknown.

    huggingface_hub 1.x (_tree_cache.py): `snapshot_download(local_files_only=True)` reads it, but accepts only whole snapshots.
    """
    from huggingface_hub._tree_cache import read_tree_cache

    return sorted(read_tree_cache(str(folder.parents[1]), folder.name) or ())


def default_patterns(resolve: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """Return {split: file patterns} of a folder without a README; {} if no pattern matches. resolve: pattern -> file names.

    datasets 4 to 5.2 (data_files.py): the public `get_data_patterns` lists the folder again for each of 60 patterns.
    Remove when it takes names.
    """
    from datasets.data_files import _get_data_files_patterns

    try:
        found: dict[str, list[str]] = _get_data_files_patterns(resolve)
    except FileNotFoundError:
        return {}
    return {str(split): patterns for split, patterns in found.items()}


@contextmanager
def gguf_read_once() -> Iterator[Callable[[str], Any]]:
    """Let transformers read a GGUF file's metadata and build its name map only once; yield a function: path -> reader.

    transformers 5.23 (modeling_gguf_pytorch_utils.py): the loader of Llama and Qwen reads the metadata for the configuration
    and again for the tensors, and builds gguf's name map for each module of the model. gguf 0.19 (gguf_reader.py): a million
    slices of its memory map take ten times as long as slices of a plain array. Remove when both are fixed.
    """
    import gguf
    import numpy as np

    class Reader(gguf.GGUFReader):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, np.asarray(value) if name == "data" else value)

    before = gguf.GGUFReader, gguf.get_tensor_name_map
    gguf.GGUFReader, gguf.get_tensor_name_map = cache(Reader), cache(before[1])
    try:
        yield gguf.GGUFReader
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map = before


def keep_autograd_on_cpu(model: Any) -> None:
    """Stop bitsandbytes from repacking 4-bit weights on CPUs with AVX512-BF16.

    bitsandbytes 0.50.2 (nn/modules.py, Linear4bit.forward): the first forward in evaluation mode repacks the weights for
    inference, and every later forward, in training too, takes a path without autograd: adapters on such layers get
    gradients of exactly 0.0. Remove when Linear4bit undoes the packing in `train()`.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def keep_8bit_scales(model: Any) -> None:
    """Keep the scales of 8-bit weights where the forward pass reads them.

    peft 0.21.2 (utils/integrations.py, dequantize_module_weight): on a CPU, DoRA rebuilds the weight in every forward. The
    rebuilt weight has no scales, and bitsandbytes' next `init_8bit_state` copies them as None. Remove when peft keeps them.
    """
    for module in model.modules():
        if hasattr(module, "init_8bit_state") and getattr(module.weight, "CB", None) is not None:
            module.init_8bit_state()
            module.init_8bit_state = partial(_forget_rebuilt_state, module)


def _forget_rebuilt_state(module: Any) -> None:
    module.weight.CB = module.weight.SCB = None


def attention_name(config: Any) -> str:
    """Return the name of the attention implementation that a model uses.

    transformers 5.23 (configuration_utils.py): `set_attn_implementation` sets it, and nothing public reads it.
    Remove when something does.
    """
    name: str = config._attn_implementation
    return name


def takes_attention(model: Any) -> bool:
    """Return whether a model can use attention functions that are registered in AttentionInterface.

    transformers 5.23 (modeling_utils.py): its own `set_attn_implementation` checks this. Remove when that is public.
    """
    return bool(getattr(model, "_supports_attention_backend", False))


def train_on_one_card(arguments: Any) -> None:
    """Let a process train on one GPU, even if it sees several.

    transformers 5.23 (training_args.py): the Trainer would wrap the model in DataParallel. Remove when an argument prevents it.
    """
    if arguments.device.type == "cuda":
        arguments._n_gpu = 1


def apply_liger(model: Any) -> None:
    """Apply Liger's fused norms, rotary embeddings and activations to a loaded model; its loss is not replaced.

    liger-kernel 0.6 to 0.8: the function that transformers' Trainer calls (integrations/liger.py). Remove when it is public.
    """
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    _apply_liger_kernel_to_instance(model=model, cross_entropy=False, fused_linear_cross_entropy=False)


def liger_knows(model_type: str) -> bool:
    """Return whether Liger has kernels for an architecture; it leaves other architectures unchanged.

    liger-kernel 0.6 to 0.8 (transformers/monkey_patch.py): the table that `apply_liger` uses. Remove when it is public.
    """
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    return model_type in MODEL_TYPE_TO_APPLY_LIGER_FN


def fake_tensors() -> Any:
    """Return a context in which tensors have shapes, devices and dtypes, but no data.

    torch 2.11 to 2.13 (torch/_subclasses): the mode in which its compilers trace. Remove when it is public.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def norms(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the 2-norms of n tensors, computed in one launch, [n].

    torch 2.6 to 2.13: torch.nn.utils.get_total_norm uses it, but returns only the total norm. Remove when it returns each norm.
    """
    import torch

    return torch.stack(torch._foreach_norm(tensors))
