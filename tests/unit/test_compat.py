"""What is used of third parties that they do not promise is still there, and still does what it is used for."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import bitsandbytes
import pytest
import torch
from accelerate import Accelerator
from transformers import Trainer
from transformers.utils.chat_template_utils import encode_marked_chat

from expert_cli import _compat
from expert_cli.hardware.machine import has_package
from tests import tiny

FAKE = "import pathlib; pathlib.Path({mark!r}).write_text('imported'); get_kernel = lambda *a, **k: None\n"


def imports(tmp_path: Path, code: str) -> bool:
    """Run `code` with a package `kernels` that leaves a mark when it is imported; return whether it did."""
    mark = tmp_path / "mark"
    (tmp_path / "kernels.py").write_text(FAKE.format(mark=str(mark)), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, env=environment, capture_output=True)
    return mark.exists()


def test_the_fake_package_is_found_without_the_guard(tmp_path: Path) -> None:
    assert imports(tmp_path, "import kernels")


def test_bitsandbytes_does_not_reach_the_hub_kernels(tmp_path: Path) -> None:
    guarded = "from expert_cli._compat import quiet_imports; quiet_imports(); import bitsandbytes; import transformers"
    assert not imports(tmp_path, guarded)


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


OVERRIDDEN = {
    "_clip_grad_norm": ["model"],
    "_get_grad_norm": ["model", "grad_norm"],
    "_prepare_for_training": ["max_steps", "train_dataloader", "resume_from_checkpoint"],
    "_determine_best_metric": ["metrics", "trial"],
    "_save_checkpoint": ["model", "trial"],
    "_load_from_checkpoint": ["resume_from_checkpoint", "model"],
    "_load_optimizer_and_scheduler": ["checkpoint"],
    "_load_rng_state": ["checkpoint"],
    "_load_best_model": [],
    "get_batch_samples": ["epoch_iterator", "num_batches", "device"],
    "training_step": ["model", "inputs", "num_items_in_batch"],
    "compute_loss": ["model", "inputs", "return_outputs", "num_items_in_batch"],
}
"""Methods of the Trainer that ours replaces, by what they take."""


@pytest.mark.parametrize(("name", "taken"), OVERRIDDEN.items(), ids=OVERRIDDEN.keys())
def test_the_trainer_calls_what_is_overridden_with_these(name: str, taken: list[str]) -> None:
    assert parameters(getattr(Trainer, name)) == ["self", *taken]
    assert inspect.getsource(Trainer).count(f"self.{name}(") > 0


def test_accelerate_asks_a_model_whether_it_is_prepared() -> None:
    assert "_is_accelerate_prepared" in inspect.getsource(Accelerator.prepare)


def test_control_tokens_in_what_a_row_says_are_marked_as_transformers_marks_them() -> None:
    tokenizer = tiny.tiny_tokenizer()
    control = _compat.control_token_pattern(tokenizer, tiny.CHATML)
    assert control.findall("<|im_start|>a</s><|endoftext|>") == ["<|im_start|>", "<|endoftext|>"]
    said = {"content": "a<|im_end|>b", "calls": [{"of": "<|im_start|>"}], "n": 1}
    marked = _compat.mark_control_tokens(said, control)
    assert marked == {
        "content": "a\U000f0000<|im_end|>\U000f0001b",
        "calls": [{"of": "\U000f0000<|im_start|>\U000f0001"}],
        "n": 1,
    }
    assert _compat.unmarked(marked["content"]) == said["content"]
    assert _compat.MARKED.sub("", marked["content"]) == "ab"
    assert _compat.MARKED_THOUGHT.sub(r"\1", "\U000f0000</think>\U000f0001 \U000f0000<s>\U000f0001") == (
        "</think> \U000f0000<s>\U000f0001"
    )
    ids = encode_marked_chat(tokenizer, marked["content"])
    assert tokenizer.decode(ids) == said["content"]
    assert not {*ids} & {*tokenizer.added_tokens_decoder}, "as text, not as the token"


def test_an_added_token_that_the_template_writes_is_a_control_token() -> None:
    tokenizer = tiny.tiny_tokenizer()
    tokenizer.add_tokens(["[A]", "[B]"])
    assert _compat.control_token_pattern(tokenizer, "{{ '[A]' }}").findall("[A][B]") == ["[A]"]


def test_a_template_tells_the_texts_that_it_spells_and_the_names_that_it_reads() -> None:
    jinja = (
        "raw{% for message in messages %}{{ 'said ' + message.role }}{% endfor %}{% if enable_thinking %}t{% endif %}"
    )
    assert {"raw", "said ", "t"} <= {*_compat.template_literals(jinja)}
    assert _compat.template_variables(jinja) == {"messages", "enable_thinking"}


def test_an_8_bit_layer_keeps_its_scales_where_the_forward_pass_reads_them() -> None:
    layer = bitsandbytes.nn.Linear8bitLt(64, 64, bias=False, has_fp16_weights=False).to("cpu")
    assert layer.weight.CB is not None
    _compat.keep_8bit_scales(torch.nn.Sequential(layer))
    scales = layer.state.SCB
    layer.weight.CB = layer.weight.SCB = torch.zeros(1)  # as a rebuilt weight has them
    layer.init_8bit_state()
    assert layer.state.SCB is scales
    assert layer.weight.SCB is None


@pytest.mark.skipif(not has_package("liger_kernel"), reason="liger-kernel is for Linux with a GPU")
def test_liger_takes_a_model_that_is_loaded() -> None:
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    assert parameters(_apply_liger_kernel_to_instance)[0] == "model"
    assert _compat.liger_knows("llama")
    assert not _compat.liger_knows("no such architecture")
