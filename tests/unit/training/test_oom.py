"""A step that does not fit: the copy goes, then smaller micro-batches at the same effective batch, then recomputation."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from expert_cli.training.micro_batch import merged
from expert_cli.training.oom import (
    MARGIN,
    adjust_to_memory,
    fit_memory,
    largest_batch_fits,
    out_of_memory,
    recompute_all,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.config.run_config import RunConfig
from expert_cli.errors import TrainingFailed
from expert_cli.hardware import machine
from expert_cli.hardware.devices import DEVICES
from expert_cli.model.activation_checkpointing import decoder_layers
from expert_cli.model.kernels.dequantize import DequantizedLinear, copy_bytes, dequantize_linears, restore_packed
from expert_cli.model.kernels.fused_lora import fuse
from expert_cli.model.loading.quantize import load_base
from expert_cli.training.checkpointing import checkpoint, resume
from expert_cli.training.checkpointing.resume_compatibility import MICRO_BATCH
from expert_cli.training.trainer import ExpertTrainer
from expert_cli.utils.reporter import NullReporter
from tests import manifests, tiny
from tests.dataset_world import Words
from tests.fake_torch import as_if
from tests.small_trainer import IMPOSSIBLE, OPTIM, small_trainer


def trainer(folder: Path, room: list[int], **settings: int) -> ExpertTrainer:
    """Return a trainer of 12 packs of 8 tokens whose model has memory for `room[0]` tokens. settings: of `small_trainer`."""
    base: Any = tiny.tiny_model()
    forward = base.get_decoder().forward

    def limited(*args: Any, **kwargs: Any) -> Any:
        if kwargs["input_ids"].numel() > room[0]:
            torch.empty(IMPOSSIBLE, dtype=torch.uint8)
        return forward(*args, **kwargs)

    base.get_decoder().forward = limited
    return small_trainer(folder, base, **settings)


FITS = {
    "all of it": (48, 6, 1, []),
    "half": (24, 3, 2, ["6 x 1 -> 3 x 2"]),
    "one": (8, 1, 6, ["6 x 1 -> 3 x 2", "3 x 2 -> 1 x 6"]),
}


@pytest.mark.parametrize("longest", [0, 8], ids=["any shape", "one shape"])
@pytest.mark.parametrize(("tokens", "batch", "accumulation", "adjusted"), FITS.values(), ids=FITS.keys())
def test_the_micro_batch_shrinks_and_the_effective_batch_stays(
    tmp_path: Path, tokens: int, batch: int, accumulation: int, adjusted: list[str], longest: int
) -> None:
    made = trainer(tmp_path, [tokens], longest=longest)
    fit_memory(made, lambda: False, NullReporter(), may_adjust=True)
    schedule = made.batches.schedule
    assert (schedule.batch_size, schedule.accumulation, schedule.packs_per_step) == (batch, accumulation, 6)
    assert made.adjusted == [f"micro-batch {text}" for text in adjusted]
    assert all(p.grad is None for p in made.gradients.parameters)


def test_what_evaluates_shrinks_too_and_is_not_that_of_all_gpus(tmp_path: Path) -> None:
    made = trainer(tmp_path, [24], longest=8)
    made.eval_dataset = made.train_dataset
    made.args._n_gpu = 2  # GPUs that a process sees; it trains on one
    fit_memory(made, lambda: False, NullReporter(), may_adjust=True)
    assert made.args.eval_batch_size > 3
    read: list[int] = []
    decoder = made.model.base.get_decoder()
    decoder.register_forward_hook(
        lambda _module, _args, kwargs, _out: read.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    made.evaluate()
    assert read == [24] * 4, "twelve packs of eight tokens, three at a time"


def test_what_was_compiled_is_for_the_batches_that_fit(tmp_path: Path) -> None:
    """Else a second shape, compiled beside the first one, is compiled for any number of tokens."""
    made = trainer(tmp_path, [48], longest=8)
    kinds: list[type] = []
    torch.compiler.reset()  # what other tests compiled

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        kinds.extend(map(type, inputs))
        return graph.forward

    for layer in decoder_layers(made.model.base):
        layer.compile(backend=backend)

    def runs_out(_module: Any, _args: Any, kwargs: Any, _out: Any) -> None:
        if kwargs["input_ids"].numel() > 24:
            raise torch.OutOfMemoryError("CUDA out of memory")

    made.model.base.get_decoder().register_forward_hook(runs_out, with_kwargs=True)
    fit_memory(made, lambda: False, NullReporter(), may_adjust=True)
    assert torch.Tensor in kinds
    assert torch.SymInt not in kinds


def test_recomputation_comes_after_the_smallest_batch(tmp_path: Path) -> None:
    room = [7]
    made = trainer(tmp_path, room)

    def recompute_all() -> bool:
        room[0] += 1
        return True

    fit_memory(made, recompute_all, NullReporter(), may_adjust=True)
    assert made.adjusted[-1] == "gradient checkpointing on"
    assert made.batches.schedule.batch_size == 1


def test_what_does_not_fit_at_all_ends_with_what_would(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed, match="a full step of 1 packs does not fit") as caught:
        fit_memory(trainer(tmp_path, [7]), lambda: False, NullReporter(), may_adjust=True)
    assert "max_seq_length" in caught.value.hint


def test_on_oom_error_changes_nothing(tmp_path: Path) -> None:
    made = trainer(tmp_path, [24])
    with pytest.raises(TrainingFailed, match="a full step of 6 packs does not fit"):
        fit_memory(made, lambda: True, NullReporter(), may_adjust=False)
    assert made.batches.schedule.batch_size == 6


def test_an_error_of_another_kind_is_none_of_memory(tmp_path: Path) -> None:
    made = small_trainer(tmp_path)
    made.gradients.parameters[0].register_hook(lambda gradient: gradient @ torch.ones(7))
    with pytest.raises(RuntimeError, match="size mismatch"):
        fit_memory(made, lambda: True, NullReporter(), may_adjust=True)


def test_recomputation_is_switched_on_once_and_a_checkpoint_remembers_it(tmp_path: Path) -> None:
    made = trainer(tmp_path, [7])
    with pytest.raises(TrainingFailed, match="a full step of 1 packs does not fit"):
        fit_memory(made, partial(recompute_all, made, "off"), NullReporter(), may_adjust=True)
    assert all(layer.gradient_checkpointing for layer in decoder_layers(made.model.base))
    written = resume.save(made, made.model.model, tmp_path / "checkpoints", {})
    kept = checkpoint.read(written.path).trainer
    assert (kept["recomputes"], kept["adjusted"]) == (True, made.adjusted)


def test_what_the_manifest_recomputes_is_not_switched_on_again(tmp_path: Path) -> None:
    made = trainer(tmp_path, [48])
    assert recompute_all(made, "all") is False
    assert made.recomputes is False


SCALARS = 1024
"""Bytes: losses, AdamW's counts of its steps, batches that wait on the host."""


class Memory(TorchDispatchMode):
    """Counts the bytes of all tensors that operations made and that still live, and the most of them."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.bytes += size
        self.peak = max(self.peak, self.bytes)
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.bytes -= size


def test_what_is_tried_takes_as_much_as_every_later_step(tmp_path: Path) -> None:
    made = small_trainer(tmp_path, batch=2, accumulation=3, rank=32)
    with Memory() as tried:
        assert largest_batch_fits(made)
    with Memory() as trained:
        made.train()
    smallest = min(4 * parameter.numel() for parameter in made.gradients.parameters)
    assert smallest >= 8 * SCALARS
    assert tried.peak >= trained.peak - SCALARS


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A card of 1,000 MB, of which another program has 400; `needs`: MB that the steps that are tried take on it."""
    card: dict[str, Any] = {"needs": [], "peak": 0, "emptied": 0}

    def reset() -> None:
        card["peak"] = card["needs"].pop(0) << 20

    as_if(monkeypatch, "cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (600 << 20, 1000 << 20))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 0)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: card["peak"])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: card.update(emptied=card["emptied"] + 1))
    return card


def test_what_a_driver_moved_to_the_host_did_not_fit(tmp_path: Path, card: dict[str, Any]) -> None:
    """Windows gives out more than there is."""
    made = small_trainer(tmp_path)
    made.timer.device, card["needs"] = DEVICES["cuda"], [900, 500]
    with Memory() as tried:
        fit_memory(made, lambda: False, NullReporter(), may_adjust=True)
    assert made.adjusted == ["micro-batch 6 x 1 -> 3 x 2"]
    assert card["emptied"] == 2
    assert tried.peak > MARGIN * (1000 << 20)


def test_a_run_that_goes_on_is_tried_too(tmp_path: Path, card: dict[str, Any]) -> None:
    first, run = small_trainer(tmp_path / "first"), a_run(tmp_path)
    first.batches.schedule, first.adjusted = replace(first.batches.schedule, batch_size=3), ["3 x 2"]
    before = checkpoint.read(resume.save(first, first.model.model, tmp_path / "checkpoints", asked_as(run)).path)
    made = small_trainer(tmp_path / "second")
    made.timer.device, card["needs"] = DEVICES["cuda"], [900, 500]
    adjust_to_memory(made, run, before, made.batches.schedule, NullReporter())
    assert made.adjusted == ["3 x 2", "micro-batch 3 x 2 -> 1 x 6"]
    assert (made.batches.schedule.batch_size, made.batches.schedule.accumulation) == (1, 6)


def test_a_batch_that_is_now_asked_for_otherwise_is_not_adjusted_as_before(tmp_path: Path) -> None:
    first, run = small_trainer(tmp_path / "first"), a_run(tmp_path)
    first.batches.schedule = replace(first.batches.schedule, batch_size=3)
    asked = {"optim.batch_size": 12, "optim.gradient_accumulation_steps": 1}
    before = checkpoint.read(resume.save(first, first.model.model, tmp_path / "checkpoints", asked).path)
    made = small_trainer(tmp_path / "second")
    adjust_to_memory(made, run, before, made.batches.schedule, NullReporter())
    assert (made.batches.schedule.batch_size, made.batches.schedule.accumulation) == (6, 1)


MERGED = {"all of it": (48, 6, 1), "half": (24, 3, 2), "as asked": (8, 1, 6)}


@pytest.mark.parametrize(("room", "batch", "accumulation"), MERGED.values(), ids=MERGED.keys())
def test_micro_steps_are_merged_as_far_as_they_fit_before_anything_is_given_up(
    tmp_path: Path, card: dict[str, Any], room: int, batch: int, accumulation: int
) -> None:
    made, alone = (trainer(tmp_path / name, [room], batch=1, accumulation=6) for name in ("merged", "alone"))
    asked, made.timer.device, card["needs"] = made.batches.schedule, DEVICES["cuda"], [0] * 4
    words = Words()
    adjust_to_memory(made, a_run(tmp_path), None, merged(asked, 6), words)
    assert (made.batches.schedule.batch_size, made.batches.schedule.accumulation) == (batch, accumulation)
    assert made.adjusted == []
    told = [line.partition(":")[0] for line in words.lines]
    assert told == ([f"micro-batch 1 x 6 -> {batch} x {accumulation}"] if batch > 1 else [])
    for one in (made, alone):
        one.timer.device = DEVICES["cpu"]
        one.train()
    assert made.progress.losses == pytest.approx(alone.progress.losses, rel=1e-6)


def test_a_run_that_goes_on_merges_anew_and_not_where_nothing_may_be_adjusted(
    tmp_path: Path, card: dict[str, Any]
) -> None:
    first, run = small_trainer(tmp_path / "first", batch=1, accumulation=6), a_run(tmp_path)
    first.batches.schedule = merged(first.batches.schedule, 6)
    run = replace(run, optim=first.optim_config)
    before = checkpoint.read(resume.save(first, first.model.model, tmp_path / "checkpoints", asked_as(run)).path)
    for factor, found in ((3, (3, 2)), (1, (1, 6))):  # the card may be another one
        made = small_trainer(tmp_path / str(factor), batch=1, accumulation=6)
        made.timer.device, card["needs"] = DEVICES["cuda"], [0]
        adjust_to_memory(made, run, before, merged(made.batches.schedule, factor), NullReporter())
        assert (made.batches.schedule.batch_size, made.batches.schedule.accumulation) == found


def test_memory_that_runs_out_later_names_how_not_to_merge(tmp_path: Path) -> None:
    made = small_trainer(tmp_path, batch=1, accumulation=6)
    made.batches.schedule = merged(made.batches.schedule, 2)
    assert out_of_memory(made, tmp_path, "COMMAND").hint == "go on: COMMAND --set training.config.on_oom=error"


def asked_as(run: RunConfig) -> dict[str, Any]:
    """Return what an identity says of a run's micro-batch."""
    return {f"optim.{key}": getattr(run.optim, key) for key in MICRO_BATCH}


def a_run(folder: Path) -> RunConfig:
    plan = make_plan(manifests.write(folder, manifests.small()), machine.inspect(), Overrides())
    return replace(plan.run, optim=OPTIM)


@pytest.mark.parametrize("fused", [False, True], ids=["peft", "fused"])
def test_the_copy_of_4_bit_weights_goes_first_and_leaves_no_trace(tmp_path: Path, *, fused: bool) -> None:
    folder = tiny.tiny_model_folder(tmp_path / "model", dtype=torch.bfloat16)
    never, made = (four_bits(tmp_path / name, folder, copy=name == "copy", fused=fused) for name in ("never", "copy"))
    wanted = {n: m.weight.data.clone() for n, m in never.model.named_modules() if isinstance(m, Linear4bit)}
    layers = [module for module in made.model.modules() if isinstance(module, DequantizedLinear)]
    layers[3].register_forward_pre_hook(lambda *_: torch.empty(IMPOSSIBLE, dtype=torch.uint8))  # while it is there
    fit_memory(made, lambda: False, NullReporter(), may_adjust=True)
    assert made.adjusted == ["the unpacked copy of the 4-bit weights is given back"]
    assert made.batches.schedule.batch_size == 6
    found = {n: m.weight.data for n, m in made.model.named_modules() if isinstance(m, Linear4bit)}
    assert len(layers) == len(wanted) == 14
    assert wanted.keys() == found.keys()
    assert all(torch.equal(wanted[name], weight) for name, weight in found.items())
    for one in (never, made):
        one.train()
    assert never.progress.losses == made.progress.losses
    for a, b in zip(never.gradients.parameters, made.gradients.parameters, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("fused", [False, True], ids=["peft", "fused"])
def test_a_copy_that_was_given_back_takes_nothing_and_is_not_given_back_twice(tmp_path: Path, *, fused: bool) -> None:
    """What does not fit without it either shrinks, and trains as a run that never had it."""
    folder = tiny.tiny_model_folder(tmp_path / "model", dtype=torch.bfloat16)
    with Memory() as never:
        plain = four_bits(tmp_path / "never", folder, copy=False, fused=fused)
        needed = copy_bytes(plain.model)
        runs_out(plain.model.base, 24)
        fit_memory(plain, lambda: False, NullReporter(), may_adjust=True)
        before = never.bytes
    with Memory() as had:
        made = four_bits(tmp_path / "copy", folder, copy=True, fused=fused)
        copies = [
            weakref.ref(module.weight) for module in made.model.modules() if isinstance(module, DequantizedLinear)
        ]
        runs_out(made.model.base, 24)
        begun = had.bytes
        fit_memory(made, lambda: False, NullReporter(), may_adjust=True)
        gc.collect()
        assert [copy() for copy in copies] == [None] * 14
        assert begun - had.bytes == needed > 50 * SCALARS
        assert had.bytes == before
    smaller = "micro-batch 6 x 1 -> 3 x 2"
    assert (plain.adjusted, made.adjusted[1:]) == ([smaller], [smaller])
    assert restore_packed(made.model) == 0
    for one in (plain, made):
        one.train()
    assert plain.progress.losses == made.progress.losses
    assert_same_tensors(plain, made)


def runs_out(base: Any, tokens: int) -> None:
    """Let memory run out wherever more than so many tokens are read."""

    def limit(_module: Any, _args: Any, kwargs: Any) -> None:
        if kwargs["input_ids"].numel() > tokens:
            torch.empty(IMPOSSIBLE, dtype=torch.uint8)

    base.get_decoder().register_forward_pre_hook(limit, with_kwargs=True)


def assert_same_tensors(one: ExpertTrainer, other: ExpertTrainer) -> None:
    """Check that two models, trained, hold the same bit for bit: frozen weights and how to unpack them too."""
    known, found = (dict(made.model.state_dict()) for made in (one, other))
    assert known.keys() == found.keys()
    assert any("quant_state" in name for name in known)
    assert all(torch.equal(known[name], found[name]) for name in known)


def four_bits(folder: Path, model: Path, *, copy: bool, fused: bool) -> ExpertTrainer:
    """Return a trainer on NF4 weights, with an unpacked copy of them."""
    base = load_base(model, quantization="int4", dtype=torch.bfloat16, device="cpu", attention="sdpa", rope_scaling={})
    if copy:
        dequantize_linears(base, torch.bfloat16, keep_packed=True)
    made = small_trainer(folder, base)
    if fused:
        fuse(made.model.model)
    return made


def test_the_packed_weights_are_dropped_once_a_step_has_fitted(tmp_path: Path) -> None:
    folder = tiny.tiny_model_folder(tmp_path / "model", dtype=torch.bfloat16)
    made = four_bits(tmp_path / "copy", folder, copy=True, fused=False)
    kept = [module for module in made.model.modules() if isinstance(module, DequantizedLinear)]
    assert all(isinstance(layer.packed, Linear4bit) for layer in kept)
    assert not any(isinstance(module, Linear4bit) for module in made.model.modules())
    fit_memory(made, lambda: False, NullReporter(), may_adjust=True)
    assert made.adjusted == []
    assert [layer.packed for layer in kept] == [None] * 14


def test_the_remedy_of_a_run_that_other_processes_began_is_counted_by_those(tmp_path: Path) -> None:
    """Or `--resume` would refuse it as another effective batch."""
    made = small_trainer(tmp_path, batch=4)
    made.batches.schedule = replace(made.batches.schedule, packs_per_step=16, processes=2)
    settings = "--set training.config.batch_size=2 --set training.config.gradient_accumulation_steps=2"
    assert out_of_memory(made, tmp_path, "COMMAND").hint == f"go on: COMMAND {settings}"
