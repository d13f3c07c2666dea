"""A base model that two processes share out gives the loss and the gradients of the whole one, in every way to them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from expert_cli.errors import InputError
from expert_cli.model.fsdp import require_processes
from tests import run_blocks
from tests.train.test_distributed import together

SHARED_OUT = """
import json, sys
from pathlib import Path
import torch
from accelerate import PartialState
from torch.distributed.tensor import DTensor
from expert_cli.data.packing.batches import Collator
from expert_cli.model.fsdp import shard_base
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.model.kernels.lora import fuse
from expert_cli.model.vocabulary_rows import spare_copies
from expert_cli.utils.distributed import leave
from tests import tiny
from tests.adapted import adapted
from tests.packs import model_inputs, pack

batch = model_inputs(Collator(0, "padded"), pack(8), pack(7))
batch["input_ids"][0, :2] = torch.tensor([3, 5])  # whose rows are trained
case = json.loads(Path(sys.argv[1], "case").read_text())


def loss_and_gradients(share):
    base = tiny.tiny_model(tie_word_embeddings=case["tied"]).requires_grad_(False)
    names = ["model.embed_tokens"] if case["tied"] else ["model.embed_tokens", "lm_head"]
    model = adapted("lora", base, token_rows=dict.fromkeys(names, [3, 5]) if case["rows"] else None)
    spare_copies(model)
    fuse(model)
    whole = sum(one.nbytes for one in base.parameters() if not one.requires_grad)
    if share:
        shard_base(model, "cpu", full_logits=case["full"])
    loss = CausalLoss(model, full_logits=case["full"])
    for _ in range(2):  # what a pass leaves behind must not be in the way of the next
        model.zero_grad()
        value = loss(**batch)
        with torch.no_grad():
            assert torch.equal(loss(**batch), value)
        value.backward()
    frozen = {id(one): (name, one) for name, one in base.named_parameters() if not one.requires_grad}.values()
    held = sum((one.to_local() if isinstance(one, DTensor) else one).nbytes for _, one in frozen)
    kept = [name for name, one in frozen if not isinstance(one, DTensor)]
    gradients = {name: one.grad.clone() for name, one in model.named_parameters() if one.requires_grad}
    return value, gradients, held / whole, kept


PartialState(cpu=True)
value, gradients, *_ = loss_and_gradients(False)
shared, of_shared, held, kept = loss_and_gradients(True)
off = max(float((gradients[name] - of_shared[name]).abs().max()) for name in gradients)
found = [float(value), float(shared), off, min(float(one.norm()) for one in gradients.values()) > 0, held, kept]
Path(sys.argv[1], str(PartialState().process_index)).write_text(json.dumps(found))
leave()
"""


@pytest.mark.parametrize("tied", [False, True], ids=["own head", "tied head"])
@pytest.mark.parametrize(("full", "rows"), [(True, False), (False, True)], ids=["full logits", "chunked, token rows"])
def test_loss_and_gradients_are_those_of_the_whole_model(tmp_path: Path, tied: bool, full: bool, rows: bool) -> None:
    (tmp_path / "case").write_text(json.dumps({"tied": tied, "full": full, "rows": rows}))
    for value, shared, off, has_gradients, held, kept in together(tmp_path, SHARED_OUT):
        assert shared == pytest.approx(value, rel=1e-6)
        assert off < 1e-6
        assert has_gradients
        if tied and full:  # its backward pass reads the head, which is no module of its own
            assert kept == ["model.embed_tokens.weight"]
        else:
            assert (held, kept) == (0.5, [])


def test_a_single_process_has_nobody_to_share_with() -> None:
    compute = replace(run_blocks.COMPUTE, fsdp=True)
    with pytest.raises(InputError, match="nobody to share") as refused:
        require_processes(compute, 1)
    assert "torchrun" in refused.value.hint
    require_processes(compute, 2)
    require_processes(run_blocks.COMPUTE, 1)


@pytest.mark.parametrize("variable", ["ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"])
def test_what_accelerate_would_share_out_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "true")
    with pytest.raises(InputError, match=r"accelerate's .* does not work with expert-cli"):
        require_processes(run_blocks.COMPUTE, 2)
