"""A step that does not fit: smaller micro-batches at the same effective batch, then recomputation, then the copy goes."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from expert_cli.errors import TrainingFailed
from expert_cli.hardware.devices import DEVICES
from expert_cli.model.kernels.dequantize import DequantizedLinear, dequantize_linears, restore_packed
from expert_cli.model.layers import decoder_layers
from expert_cli.model.loading.quantize import load_base
from expert_cli.training.memory import MARGIN, fit_memory, out_of_memory, recompute
from expert_cli.training.trainer import ExpertTrainer
from expert_cli.utils.reporter import NullReporter
from tests import run_blocks, tiny
from tests.fake_torch import Clock, as_if
from tests.live_memory import Alive
from tests.recorders import Recorder
from tests.small_trainer import IMPOSSIBLE, small_trainer
from tests.words import Words

SHRUNK = ["micro-batch 6 x 1 -> 3 x 2", "micro-batch 3 x 2 -> 1 x 6"]
RECOMPUTES, NO_COPY = "gradient checkpointing on", "the dequantized copy of the 4-bit weights is dropped"


def a_run(made: ExpertTrainer, *, on_oom: str = "fit", checkpointing: str = "off") -> Any:
    compute = replace(run_blocks.COMPUTE, on_oom=on_oom, checkpointing=checkpointing)  # type: ignore[arg-type]
    return SimpleNamespace(compute=compute, optim=made.optim_config)


def fitted(made: ExpertTrainer, **settings: str) -> ExpertTrainer:
    fit_memory(made, a_run(made, **settings), NullReporter())
    return made


def split_of(made: ExpertTrainer) -> tuple[int, int]:
    schedule = made.batches.schedule
    return schedule.batch_size, schedule.accumulation


def limited(tokens: int, recomputed: int = 0, copied: int = 1 << 30, base: Any = None) -> Any:
    """A base model with memory for so many tokens; so many where it recomputes, and so many with a copy of its weights."""
    base = tiny.tiny_model() if base is None else base

    def limit(_module: Any, _args: Any, kwargs: Any) -> None:
        room = recomputed if decoder_layers(base)[0].gradient_checkpointing else tokens
        if any(isinstance(module, DequantizedLinear) for module in base.modules()):
            room = min(room, copied)
        if kwargs["input_ids"].numel() > room:
            torch.empty(IMPOSSIBLE, dtype=torch.uint8)

    base.get_decoder().register_forward_pre_hook(limit, with_kwargs=True)
    return base


FITS = {"all of it": (48, (6, 1), []), "half": (24, (3, 2), SHRUNK[:1]), "one": (8, (1, 6), SHRUNK)}


@pytest.mark.parametrize("how", [{}, {"fixed": True}, {"graphs": Recorder()}], ids=["eager", "one shape", "recorded"])
@pytest.mark.parametrize(("tokens", "split", "adjusted"), FITS.values(), ids=FITS.keys())
def test_the_micro_batch_shrinks_and_the_effective_batch_stays(
    tmp_path: Path, tokens: int, split: tuple[int, int], adjusted: list[str], how: dict[str, Any]
) -> None:
    made = fitted(small_trainer(tmp_path / "made", limited(tokens), **how))
    asked = small_trainer(tmp_path / "asked", batch=split[0], accumulation=split[1], fixed=bool(how))
    assert (split_of(made), made.adjusted) == (split, adjusted)
    assert (made.captured is not None) == ("graphs" in how)
    assert not made.flat.gradient.any()
    for one in (made, asked):
        one.train()
    assert made.progress.losses == asked.progress.losses


def test_each_thing_is_given_up_in_turn_and_leaves_no_trace(tmp_path: Path) -> None:
    folder = tiny.tiny_model_folder(tmp_path / "model", dtype=torch.bfloat16)
    made = small_trainer(tmp_path / "made", limited(7, 8, 7, four_bits(folder, copy=True)))
    plain = small_trainer(tmp_path / "plain", four_bits(folder, copy=False), batch=1, accumulation=6)
    copies = [weakref.ref(module.weight) for module in made.model.modules() if isinstance(module, DequantizedLinear)]
    fitted(made)
    recompute(plain, a_run(plain))
    assert made.adjusted == [*SHRUNK, RECOMPUTES, NO_COPY]
    gc.collect()
    assert [copy() for copy in copies] == [None] * 14
    assert restore_packed(made.model) == 0
    for one in (plain, made):
        one.train()
    assert plain.progress.losses == made.progress.losses
    known, found = (dict(one.model.state_dict()) for one in (plain, made))
    assert known.keys() == found.keys()
    frozen = [name for name in known if "lora_" not in name]
    assert sum("quant_state" in name for name in frozen) >= 14
    assert all(torch.equal(known[name], found[name]) for name in frozen)


def four_bits(folder: Path, *, copy: bool) -> Any:
    """Return a base model of NF4 weights, with an unpacked copy of them."""
    base = load_base(folder, quantization="int4", dtype=torch.bfloat16, device="cpu", attention="sdpa", rope_scaling={})
    if copy:
        dequantize_linears(base, torch.bfloat16, keep_packed=True)
    return base


def test_what_does_not_fit_at_all_and_what_may_not_be_adjusted_end_with_what_would_help(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed, match="a full step of 1 packs does not fit") as caught:
        fitted(small_trainer(tmp_path / "at all", limited(7, 7)))
    assert "max_seq_length" in caught.value.hint
    made = small_trainer(tmp_path / "error", limited(24))
    with pytest.raises(TrainingFailed, match="a full step of 6 packs does not fit") as caught:
        fitted(made, on_oom="error")
    assert "on_oom" in caught.value.hint
    assert (split_of(made), made.adjusted) == ((6, 1), [])


def test_an_error_of_another_kind_is_none_of_memory(tmp_path: Path) -> None:
    made = small_trainer(tmp_path)
    made.flat.parameters[0].register_hook(lambda gradient: gradient @ torch.ones(7))
    with pytest.raises(RuntimeError, match="size mismatch"):
        fitted(made)


def test_what_is_tried_takes_as_much_as_every_later_step(tmp_path: Path) -> None:
    made = small_trainer(tmp_path, batch=2, accumulation=3, adapter={"r": 32})
    with Alive() as tried:
        made.model.zero_grad()  # so that gradients are counted
        fitted(made)
    with Alive() as trained:
        made.train()
    assert made.flat.flat.nbytes > 30 << 10
    assert tried.peak >= trained.peak - 1024, "losses, AdamW's count of its steps, batches that wait on the host"


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A card of 1,000 MB, `free` of them; `needs`: MB that the steps that are tried take on it, 0 where there are no more."""
    card: dict[str, Any] = {"needs": [], "peak": 0, "emptied": 0, "free": 600}

    def reset() -> None:
        card["peak"] = card["needs"].pop(0) << 20 if card["needs"] else 0

    as_if(monkeypatch, "cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (card["free"] << 20, 1000 << 20))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 0)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: card["peak"])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: card.update(emptied=card["emptied"] + 1))
    monkeypatch.setattr(torch.cuda, "Event", Clock)
    return card


def test_what_a_driver_moved_to_the_host_did_not_fit(tmp_path: Path, card: dict[str, Any]) -> None:
    """Windows gives out more than there is."""
    made = small_trainer(tmp_path)
    made.timer.device, card["needs"] = DEVICES["cuda"], [900, 500]
    with Alive() as tried:
        fitted(made)
    assert (made.adjusted, card["emptied"]) == (SHRUNK[:1], 2)
    assert tried.peak > MARGIN * (1000 << 20)


MERGED: dict[str, tuple[float, dict[str, Any], dict[str, str], tuple[int, int]]] = {
    "launches alone take time": (0.0, {}, {}, (4, 1)),
    "12 % are": (0.76, {}, {}, (2, 2)),
    "twice the packs take too much": (0.0, {"needs": [0, 0, 950]}, {}, (2, 2)),
    "the card is not roomy": (0.0, {"free": 790}, {}, (1, 4)),
    "nothing may be adjusted": (0.0, {}, {"on_oom": "error"}, (1, 4)),
}


@pytest.mark.parametrize(("share", "found", "asked", "split"), MERGED.values(), ids=MERGED.keys())
def test_micro_steps_are_merged_while_the_recorded_step_is_measured_as_faster(
    tmp_path: Path, card: dict[str, Any], share: float, found: dict[str, Any], asked: dict[str, str], split: Any
) -> None:
    """share: of a micro-step's time, what grows with its tokens."""
    base: Any = tiny.tiny_model()

    def passes(_module: Any, _args: Any, kwargs: Any) -> None:
        Clock.now += 1 - share + share * kwargs["input_ids"].numel() / 8

    base.get_decoder().register_forward_pre_hook(passes, with_kwargs=True)
    made = small_trainer(tmp_path / "made", base, batch=1, accumulation=4, graphs=Recorder())
    alone, words = small_trainer(tmp_path / "alone", batch=1, accumulation=4), Words()
    card |= {"free": 900, **found}
    made.timer.device = DEVICES["cuda"]
    fit_memory(made, a_run(made, **asked), words)
    assert split_of(made) == split
    told = f"micro-batch 1 x 4 -> {split[0]} x {split[1]}: measured as faster, at the same effective batch"
    assert words.lines == made.adjusted == [told] * (split[0] > 1)
    assert made.captured is not None
    made.timer.device = DEVICES["cpu"]
    for one in (made, alone):
        one.train()
    assert made.progress.losses == pytest.approx(alone.progress.losses, rel=1e-6)


HINTS = {
    "a smaller micro-batch": ({"batch": 6}, "batch_size=3 --set training.config.gradient_accumulation_steps=2"),
    "as the manifest counts": (
        {"batch": 4, "accumulation": 2},
        "batch_size=2 --set training.config.gradient_accumulation_steps=4",
    ),
    "recomputation": ({"batch": 1}, "gradient_checkpointing=true"),
}


@pytest.mark.parametrize(("made", "settings"), HINTS.values(), ids=HINTS.keys())
def test_memory_that_runs_out_later_names_how_to_go_on(tmp_path: Path, made: dict[str, int], settings: str) -> None:
    error = out_of_memory(small_trainer(tmp_path, **made), tmp_path, "COMMAND")
    assert error.message == "out of memory at step 1"
    assert error.hint == f"continue: COMMAND --set training.config.{settings.format('training.config')}"


def test_then_the_copy_goes_and_then_rows_are_too_long(tmp_path: Path) -> None:
    folder = tiny.tiny_model_folder(tmp_path / "model", dtype=torch.bfloat16)
    fits = fitted(small_trainer(tmp_path / "fits", four_bits(folder, copy=True))).model.modules()
    copies = [module for module in fits if isinstance(module, DequantizedLinear)]
    assert [copy.packed for copy in copies] == [None] * 14, "what it is a copy of is needed no more"
    made = small_trainer(tmp_path / "made", four_bits(folder, copy=True), batch=1)
    recompute(made, a_run(made))
    (tmp_path / "checkpoint-3").mkdir()
    error = out_of_memory(made, tmp_path, "COMMAND")
    assert error.message == f"out of memory at step 1; the checkpoints in {tmp_path} are safe"
    assert error.hint == "continue: COMMAND --set training.config.dequantized_copy=never"
    assert not recompute(made, a_run(made)), "it is on"
    assert not recompute(small_trainer(tmp_path), a_run(made, checkpointing="all"))
    restore_packed(made.model)
    assert out_of_memory(made, tmp_path, "COMMAND").hint.startswith("lower max_seq_length")


def test_the_remedy_of_a_run_that_other_processes_began_is_counted_by_those(tmp_path: Path) -> None:
    """Or `--resume` would refuse it as another effective batch."""
    made = small_trainer(tmp_path, batch=4)
    made.batches.schedule = replace(made.batches.schedule, packs_per_step=16, processes=2)
    settings = "--set training.config.batch_size=2 --set training.config.gradient_accumulation_steps=2"
    assert out_of_memory(made, tmp_path, "COMMAND").hint == f"continue: COMMAND {settings}"
