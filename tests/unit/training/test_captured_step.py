"""The recorded step is the eager one to the bit, and a recording that is anything else is found out and left alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from expert_cli.data.packing.batches import Batch, Collator, FixedShape
from expert_cli.model.flat_parameters import FlatParameters
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.model.layers import decoder_layers, enable_activation_checkpointing
from expert_cli.training.captured_step import CapturedAdamW, CapturedStep, Recorded
from tests import tiny
from tests.packs import packed
from tests.recorders import BROKEN, BrokenRecorder, Recorder, raising
from tests.small_trainer import small_trainer
from tests.varlen_kernel import varlen_on_cpu

SHAPE = FixedShape(tokens=24, longest=12, borders=7, targets=9)


pytestmark = pytest.mark.usefixtures("_varlen")


@pytest.fixture
def _varlen() -> Iterator[None]:
    with varlen_on_cpu():
        yield


def model_of(seed: int = 0, **lora: Any) -> tuple[CausalLoss, FlatParameters]:
    """A model whose adapter changes it, with dropout."""
    base: Any = tiny.tiny_model().bfloat16()
    attention.use(base, "varlen")
    torch.manual_seed(seed)
    settings = {"r": 2, "lora_dropout": 0.2, "init_lora_weights": False, "target_modules": ["q_proj", "up_proj"]}
    model = CausalLoss(get_peft_model(base, LoraConfig(**settings | lora)), autocast=torch.bfloat16).train()
    return model, FlatParameters(model.named_parameters())


def batches_of(folder: Path) -> list[Batch]:
    """Batches with up to 9 targets."""
    data = packed(folder, (5, 4), (3, 5), (4, 3), (6, 6), (7, 2), (2, 1), capacity=12, packing="off")
    collate = Collator(0, shape=SHAPE)
    batches = [collate([data[0, n] for n in numbers]) for numbers in ([0, 1], [2], [3], [5, 4], [1, 2], [5])]
    return [{name: batch[name] for name in batch if not name.endswith("_tokens")} for batch in batches]


@pytest.mark.parametrize("lora", [{}, {"use_dora": True}, {"use_rslora": True}], ids=["lora", "dora", "rslora"])
def test_replays_are_the_eager_steps_to_the_bit_over_buffers_that_stay_where_they_are(
    tmp_path: Path, lora: dict[str, Any]
) -> None:
    (eager, mine), (model, flat) = model_of(**lora), model_of(**lora)
    batches, graphs = batches_of(tmp_path), Recorder()
    captured = CapturedStep(model, flat.gradient, batches[0], graphs, 5)
    assert graphs.recorded == 1
    assert not flat.gradient.any()
    assert torch.equal(flat.flat, mine.flat)
    where = {name: buffer.data_ptr() for name, buffer in captured.buffers.items()}
    assert set(where) == set(batches[0]) - {"max_seqlen"}
    for step in range(2):
        for number, batch in enumerate(batches[3 * step : 3 * step + 3]):  # three are accumulated
            scale = 0.5 / (number + 1)
            torch.manual_seed(number)
            wanted = eager(**batch) * scale
            wanted.backward()
            torch.manual_seed(number)
            captured.take(batch, scale)
            assert torch.equal(captured.replay(), wanted)
        assert mine.gradient.any()
        assert torch.equal(flat.gradient, mine.gradient)
        for one in (flat, mine):
            one.gradient.zero_()
    assert {name: buffer.data_ptr() for name, buffer in captured.buffers.items()} == where


@pytest.mark.parametrize("settings", [{}, {"neftune_noise_alpha": 5.0}], ids=["plain", "neftune"])
def test_a_run_by_replays_is_the_eager_run_to_the_bit(tmp_path: Path, settings: dict[str, Any]) -> None:
    asked = {"batch": 2, "accumulation": 2, "epochs": 2.0, "optim": "sgd", "adapter": {"lora_dropout": 0.1}}
    eager = small_trainer(tmp_path / "eager", fixed=True, **asked, **settings)
    made = small_trainer(tmp_path / "made", graphs=Recorder(), **asked, **settings)
    made.try_step()
    assert made.captured is not None
    assert not made.model.get_input_embeddings()._forward_hooks
    for one in (eager, made):
        one.train()
    assert made.progress == eager.progress
    assert torch.equal(made.flat.flat, eager.flat.flat)
    made.timer.lap()
    assert made.timer.totals["captured"] > 0 == made.timer.totals["forward"]


@pytest.mark.parametrize(("how", "said"), BROKEN.values(), ids=BROKEN.keys())
def test_a_run_goes_on_eagerly_from_untouched_values(tmp_path: Path, how: Any, said: str) -> None:
    made = small_trainer(tmp_path / "made", batch=2, accumulation=3, graphs=BrokenRecorder(how))
    eager = small_trainer(tmp_path / "eager", batch=2, accumulation=3, fixed=True)
    made.try_step()
    assert torch.equal(made.flat.flat, eager.flat.flat)
    assert (made.captured, made.graphs) == (None, None)
    assert made.not_captured.startswith(said)
    assert "\n" not in made.not_captured
    for one in (eager, made):
        one.train()
    assert made.progress.losses == eager.progress.losses
    assert torch.equal(made.flat.flat, eager.flat.flat)


RECOMPUTED: dict[str, tuple[float, Recorder, bool, bool]] = {
    "recorded with it": (0.0, Recorder(), True, True),
    "with dropout recorded without": (0.1, Recorder(), True, False),
    "which is refused, without dropout": (0.0, raising(RuntimeError("no")), False, True),
    "which is refused": (0.1, raising(RuntimeError("no")), False, True),
    "for which there is no memory": (0.1, raising(torch.OutOfMemoryError("CUDA out of memory")), False, True),
}


@pytest.mark.parametrize(("dropout", "graphs", "recorded", "recomputes"), RECOMPUTED.values(), ids=RECOMPUTED.keys())
def test_recomputation_with_dropout_is_given_up_for_a_recording_that_fits(
    tmp_path: Path, dropout: float, graphs: Recorder, *, recorded: bool, recomputes: bool
) -> None:
    base: Any = tiny.tiny_model()
    enable_activation_checkpointing(base, "all", reentrant=False)
    made = small_trainer(tmp_path, base, batch=2, graphs=graphs, adapter={"lora_dropout": dropout})
    made.try_step()
    assert (made.captured is not None) == recorded
    assert all(layer.gradient_checkpointing == recomputes for layer in decoder_layers(base))
    assert len(made.adjusted) == (not recomputes)


def test_work_is_done_once_a_call_and_recorded_after_the_first_where_it_can_be() -> None:
    for graphs in (Recorder(), raising(RuntimeError("no")), None):
        done: list[int] = []
        work = Recorded(lambda: done.append(1), graphs)  # noqa: B023
        for calls in range(1, 4):
            work()
            assert len(done) == calls
        assert graphs is None or graphs.recorded == 1


class Watching(Recorder):
    """Notes which learning rate the work reads, and where that and the state lie."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: list[float] = []
        self.places: set[tuple[int, ...]] = set()

    def __call__(self, work: Any) -> Any:
        def replay() -> None:
            (group,) = self.optimizer.param_groups
            state = self.optimizer.state[group["params"][0]]
            self.rates.append(float(group["lr"]))
            self.places.add((group["lr"].data_ptr(), *(state[name].data_ptr() for name in sorted(state))))
            work()

        return replay

    optimizer: CapturedAdamW


def test_the_recorded_adamw_is_torchs_and_follows_the_schedule() -> None:
    graphs, mine, theirs = Watching(), *(torch.nn.Parameter(torch.linspace(-1, 1, 7)) for _ in range(2))
    settings: dict[str, Any] = {"lr": 0.1, "betas": (0.9, 0.95), "weight_decay": 0.01}
    graphs.optimizer = CapturedAdamW([mine], graphs=graphs, **settings)  # type: ignore[arg-type]
    both = (graphs.optimizer, torch.optim.AdamW([theirs], **settings))
    schedules = [torch.optim.lr_scheduler.LinearLR(one, 1.0, 0.0, total_iters=4) for one in both]
    rates = []
    for step in range(4):
        for parameter, optimizer, schedule in zip((mine, theirs), both, schedules, strict=True):
            parameter.grad = torch.cos(torch.arange(7.0) + step)
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
    torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)
    assert all(type(rate) is float for rate in rates)
    assert graphs.rates == pytest.approx([0.075, 0.05, 0.025])  # the first step is the warm-up
    assert len(graphs.places) == 1


def test_adamw_alone_is_recorded_and_only_where_the_step_is(tmp_path: Path) -> None:
    found = {}
    for optim in ("adamw_torch", "adamw_torch_fused", "sgd", "adafactor"):
        made = small_trainer(tmp_path / optim, graphs=Recorder(), optim=optim)
        made.try_step()
        found[optim] = isinstance(made.create_optimizer(), CapturedAdamW)
    assert found == {"adamw_torch": True, "adamw_torch_fused": True, "sgd": False, "adafactor": False}
    assert not isinstance(small_trainer(tmp_path / "eager").create_optimizer(), CapturedAdamW)
