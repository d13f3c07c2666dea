"""What is used of third parties that they do not promise, and work-arounds: why, in which versions, until when.

Overridden private methods stand in their classes: the Trainer's `_clip_grad_norm`, `_get_grad_norm`, `_save_checkpoint`,
`_load_*`, `_determine_best_metric` and `_prepare_for_training` (training/trainer.py, transformers 5.23), accelerate's
`_is_accelerate_prepared` (model/kernels/chunked_loss.py, 1.15). tests/unit/test_compat.py holds their signatures, and the
behavior of all that stands here.
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
"""What transformers 5.23 (utils/chat_template_utils.py) puts around control tokens that a row says, so that they stay text: its
`mark_control_tokens` and `encode_marked_chat` are public, the two characters are not. Remove when they are."""
MARKED = re.compile("\U000f0000[^\U000f0001]*\U000f0001")
MARKED_THOUGHT = re.compile("\U000f0000(</?think>)\U000f0001")


def is_marked(text: str) -> bool:
    """Return whether a text holds such marks."""
    return not text.isascii() and any(mark in text for mark in MARKS)


def unmarked(text: str) -> str:
    """Return a text without such marks."""
    return text.translate(dict.fromkeys(map(ord, MARKS)))


def control_token_pattern(tokenizer: Any, jinja: str) -> re.Pattern[str]:
    """Return what finds the tokens that `apply_chat_template(sanitize_control_tokens=True)` keeps as text in what a row says.

    transformers 5.23 (tokenization_utils_base.py, utils/chat_template_utils.py). Remove when a public function tells them.
    """
    from transformers.utils.chat_template_utils import _get_control_token_patterns

    pattern: re.Pattern[str] = _get_control_token_patterns(tokenizer._get_control_tokens(jinja))[0]
    return pattern


def mark_control_tokens(said: Any, control: re.Pattern[str]) -> Any:
    """Return a value of JSON with marks around the control tokens in its texts. transformers 5.23, as above."""
    from transformers.utils.chat_template_utils import mark_control_tokens as mark

    return mark(said, control)


def template_literals(jinja: str) -> list[str]:
    """Return the texts that a chat template spells. transformers 5.23 keeps them for its own marks; remove as above."""
    from transformers.utils.chat_template_utils import _get_template_literal_text

    return str(_get_template_literal_text(jinja)).split("\0")


def template_variables(jinja: str) -> frozenset[str]:
    """Return the names that a chat template reads from its caller. transformers 5.23; remove when it is public."""
    from transformers.utils.chat_template_utils import _get_template_variables

    return frozenset(_get_template_variables(jinja))


def quiet_imports() -> None:
    """Keep third parties from fetching code and from talking past the console; call it before they are imported.

    bitsandbytes 0.50.2 (backends/cpu/ops.py, backends/mps/ops.py) downloads and runs a kernel from the hub while it is
    imported, wherever the package `kernels` is installed; without it, it logs that it could not. An entry of None makes
    that import fail. peft 0.21.2 asks transformers by an old name. Remove when bitsandbytes asks first.
    """
    sys.modules.setdefault("kernels", None)  # type: ignore[arg-type]
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    # transformers 5.23: early stopping says that it is off at every evaluation without its metric
    logging.getLogger("transformers.trainer_callback").setLevel(logging.ERROR)
    logging.getLogger("liger_kernel").setLevel(logging.ERROR)  # 0.6 to 0.8: what it leaves out; the kernel plan tells
    warnings.filterwarnings("ignore", ".is_gradient_checkpointing. is deprecated", FutureWarning)


def files_of_snapshot(folder: Path) -> list[str]:
    """Return the names of all files of a snapshot in the hub client's cache, those not fetched among them; [] if unknown.

    huggingface_hub 1.x (_tree_cache.py): `snapshot_download(local_files_only=True)` reads it, but fetches all or nothing.
    """
    from huggingface_hub._tree_cache import read_tree_cache

    return sorted(read_tree_cache(str(folder.parents[1]), folder.name) or ())


def default_patterns(resolve: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """Return by split the patterns of the files of a folder without a README; {} where it has none. resolve: pattern -> names.

    datasets 4 to 5.2 (data_files.py): the public `get_data_patterns` lists the folder anew for each of 60 patterns.
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
    """Let transformers read the metadata of a GGUF file and name its tensors once; yield what reads a file, by its path.

    transformers 5.23 (modeling_gguf_pytorch_utils.py): the loader of Llama and Qwen reads them for the configuration and again
    for the tensors, and makes gguf's table of names for each module of the model. gguf 0.19 (gguf_reader.py): slices of its
    memory map, a million of them, take ten times as long as those of a plain array. Remove when neither is so.
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

    peft 0.21.2 (utils/integrations.py, dequantize_module_weight): on a CPU, DoRA rebuilds the weight in every forward, and
    bitsandbytes' next `init_8bit_state` then takes the rebuilt weight's missing scales over. Remove when peft keeps them.
    """
    for module in model.modules():
        if hasattr(module, "init_8bit_state") and getattr(module.weight, "CB", None) is not None:
            module.init_8bit_state()
            module.init_8bit_state = partial(_forget_rebuilt_state, module)


def _forget_rebuilt_state(module: Any) -> None:
    module.weight.CB = module.weight.SCB = None


def attention_name(config: Any) -> str:
    """Return the name of the attention that a model uses.

    transformers 5.23 (configuration_utils.py): `set_attn_implementation` sets it, and nothing public reads it.
    Remove when something does.
    """
    name: str = config._attn_implementation
    return name


def takes_attention(model: Any) -> bool:
    """Whether a model's attention can be one of AttentionInterface.

    transformers 5.23 (modeling_utils.py): its own `set_attn_implementation` asks this. Remove when that is public.
    """
    return bool(getattr(model, "_supports_attention_backend", False))


def train_on_one_card(arguments: Any) -> None:
    """Let a process train on one card, also where it sees several.

    transformers 5.23 (training_args.py): the Trainer would wrap the model in DataParallel. Remove when that is an argument.
    """
    if arguments.device.type == "cuda":
        arguments._n_gpu = 1


def apply_liger(model: Any) -> None:
    """Put Liger's fused norms, rotary embeddings and activations on a model that is loaded; the loss stays.

    liger-kernel 0.6 to 0.8: the function that transformers' Trainer calls (integrations/liger.py). Remove when it is public.
    """
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    _apply_liger_kernel_to_instance(model=model, cross_entropy=False, fused_linear_cross_entropy=False)


def liger_knows(model_type: str) -> bool:
    """Whether Liger has kernels for an architecture; one that it does not know it leaves as it is.

    liger-kernel 0.6 to 0.8 (transformers/monkey_patch.py): the table that `apply_liger` looks into. Remove when it is public.
    """
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    return model_type in MODEL_TYPE_TO_APPLY_LIGER_FN


def fake_tensors() -> Any:
    """Return a context in which tensors have shapes, devices and dtypes, and no contents.

    torch 2.11 to 2.13 (torch/_subclasses): what its compilers trace with. Remove when it is public.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def norms(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the 2-norm of every tensor in one launch, [n].

    torch 2.6 to 2.13: torch.nn.utils.get_total_norm uses it, and tells only the norm of all. Remove when that tells each.
    """
    import torch

    return torch.stack(torch._foreach_norm(tensors))
