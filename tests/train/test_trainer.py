"""The Trainer's own loop around our step: what it computes, what it asks the host, what callbacks of other people see."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState

from expert_cli.data.packing.batches import Collator, PackedBatchSampler, Schedule, fixed_shape
from expert_cli.data.packing.random_fit import epoch_order
from expert_cli.manifest.keys.log_save_eval import LogSaveEvalConfig
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.training.arguments import training_arguments
from expert_cli.training.callbacks import StepCallback
from expert_cli.training.trainer import ExpertTrainer
from tests import run_blocks, tiny
from tests.kernel_counts import KernelCounter
from tests.packs import packed

OPTIM = replace(run_blocks.OPTIM, epochs=2.0, learning_rate=1e-2, scheduler="cosine", optim="adamw_torch_fused")
OPTIM = replace(OPTIM, batch_size=1, gradient_accumulation_steps=3, max_grad_norm=0.05, weight_decay=0.1, max_steps=-1)
WATCH = replace(run_blocks.LOG_SAVE_EVAL, logging_steps=100, save_every_s=0.0, save_strategy="no", eval_strategy="no")
PACKS = 12

Act = Callable[[str, TrainerState, TrainerControl], None]


class Recorder(TrainerCallback):
    """Notes every event and the switches as this callback finds them; `act` may then change them."""

    def __init__(self, act: Act = lambda *_: None) -> None:
        self.act = act
        self.seen: list[tuple[str, int]] = []
        self.handed: dict[str, Any] = {}

    def steps(self, event: str) -> list[int]:
        return [step for name, step in self.seen if name == event]


def _event(name: str) -> Callable[..., None]:
    def on_event(self: Recorder, args: Any, state: Any, control: Any, **handed: Any) -> None:
        self.seen.append((name, state.global_step))
        self.handed = handed
        self.act(name, state, control)

    return on_event


for _name in [name for name in vars(TrainerCallback) if name.startswith("on_")]:
    setattr(Recorder, _name, _event(_name))


def model() -> PeftModel:
    torch.manual_seed(0)
    base = tiny.tiny_model()
    attention.use(base, "documents")
    return get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False))


def trainer(
    folder: Path, recorder: Recorder, watch: LogSaveEvalConfig = WATCH, *, epochs: float = 2.0, **settings: Any
) -> ExpertTrainer:
    optim = replace(OPTIM, epochs=epochs)
    loader = SimpleNamespace(num_workers=0, pin_memory=False, prefetch_factor=None)
    compute = replace(run_blocks.COMPUTE, dtype="fp32")
    run: Any = SimpleNamespace(optim=optim, watch=watch, loader=loader, compute=compute, seed=0)
    schedule = Schedule(PACKS, 3, 1, 1, epochs, -1)
    made = ExpertTrainer(
        optim_config=optim,
        watch=watch,
        batches=PackedBatchSampler(schedule, lambda epoch: epoch_order(PACKS, 1, epoch)),
        model=CausalLoss(model()),
        args=training_arguments(run, folder / "checkpoints"),
        train_dataset=packed(folder / "train", *[(n % 4 + 4, 3 + n % 2) for n in range(PACKS)], packing="off"),
        eval_dataset={"": packed(folder / "eval", (4, 4), packing="off")},
        data_collator=Collator(0),
        callbacks=[StepCallback(watch, schedule.steps_per_epoch, lambda: False), recorder],
        **settings,
    )
    made.remove_callback(PrinterCallback)
    return made


def by_hand(made: ExpertTrainer) -> tuple[list[float], torch.Tensor]:
    """Train the same packs as PyTorch's documents do it; return the loss of each step, and the adapter."""
    adapted = CausalLoss(model()).train()
    parameters = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=OPTIM.learning_rate, weight_decay=OPTIM.weight_decay)
    losses, steps = [], made.batches.schedule.steps
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = OPTIM.learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps))
        epoch, numbers = made.batches.packs_of(step)
        batches = [Collator(0)([made.train_dataset[epoch, number]]) for number in numbers.tolist()]
        trained = sum(batch.pop("trained_tokens") for batch in batches)
        loss = sum(adapted(**{k: v for k, v in batch.items() if k != "real_tokens"}) for batch in batches) / trained
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, OPTIM.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, torch.cat([parameter.detach().flatten() for parameter in parameters])


def test_it_trains_what_a_loop_by_hand_trains(tmp_path: Path) -> None:
    made = trainer(tmp_path, Recorder())
    made.train()
    losses, adapter = by_hand(made)
    assert len(losses) == 8
    assert made.progress.losses == pytest.approx(losses, rel=1e-6)
    torch.testing.assert_close(made.flat.flat.detach(), adapter, rtol=1e-5, atol=1e-7)
    assert made.progress.trained == sum((3 + n % 2) for n in range(PACKS)) * 2


class AsIs:
    """Records work as the work itself: what is done around a recorded step, on a CPU."""

    def warm_up(self, work: Any) -> Any:
        return work()

    def __call__(self, work: Any) -> Any:
        return work


def captured(folder: Path, *, epochs: float = 2.0) -> ExpertTrainer:
    made = trainer(folder, Recorder(), epochs=epochs, graphs=AsIs())
    packs, order_of = made.train_dataset, made.batches.order_of
    made._shape_of = lambda schedule: fixed_shape(packs, schedule, order_of, 16, 0.3)
    made.use(made.batches.schedule)
    made.try_step()
    return made


def test_nothing_in_a_step_asks_the_device(tmp_path: Path) -> None:
    """The first and the last log line, the loader and the end do: a run that is twice as long asks as often."""
    asked = []
    for epochs in (0.5, 1.0):
        made = captured(tmp_path / str(epochs), epochs=epochs)
        with KernelCounter() as counter:
            made.train()
        asked.append(counter.names["_local_scalar_dense"])
    assert asked[0] == asked[1] > 0


def test_a_captured_step_trains_what_an_eager_one_trains(tmp_path: Path) -> None:
    eager, replayed = trainer(tmp_path / "eager", Recorder()), captured(tmp_path / "captured")
    eager.train()
    replayed.train()
    assert replayed.progress.losses == pytest.approx(eager.progress.losses, rel=1e-6)
    torch.testing.assert_close(replayed.flat.flat, eager.flat.flat, rtol=1e-5, atol=1e-7)
    _, shares = replayed.timer.lap()
    assert shares["captured"] > 0
    assert shares["forward"] == shares["backward"] == 0


def test_buffers_are_written_to_and_never_replaced(tmp_path: Path) -> None:
    made = trainer(tmp_path, Recorder())
    tensors = [made.flat.flat, made.flat.gradient, *made.flat.parameters]
    before = [(tensor.data_ptr(), tensor.grad.data_ptr() if tensor.grad is not None else 0) for tensor in tensors]
    made.train()
    assert before == [
        (tensor.data_ptr(), tensor.grad.data_ptr() if tensor.grad is not None else 0) for tensor in tensors
    ]


def test_callbacks_are_handed_the_model_that_people_know(tmp_path: Path) -> None:
    seen = Recorder()
    made = trainer(tmp_path, seen)
    made.train()
    assert isinstance(seen.handed["model"], PeftModel)
    assert seen.handed["optimizer"] is made.optimizer
    assert seen.steps("on_substep_end") == [step for step in range(8) for _ in range(2)]


def at(event: str, step: int, **switches: bool) -> Act:
    def act(name: str, state: TrainerState, control: TrainerControl) -> None:
        if (name, state.global_step) == (event, step):
            for switch, on in switches.items():
                setattr(control, switch, on)

    return act


def test_switches_are_obeyed(tmp_path: Path) -> None:
    evaluated = Recorder(at("on_step_end", 3, should_evaluate=True))
    trainer(tmp_path / "evaluate", evaluated).train()
    assert evaluated.steps("on_evaluate") == [3]
    stopped = Recorder(at("on_step_end", 5, should_training_stop=True))
    trainer(tmp_path / "stop", stopped).train()
    assert stopped.steps("on_step_end")[-1] == 5
    ended = Recorder(at("on_step_end", 2, should_epoch_stop=True))
    trainer(tmp_path / "epoch", ended).train()
    assert ended.steps("on_epoch_begin") == [0, 2]


def test_a_stop_within_a_step_drops_its_gradients(tmp_path: Path) -> None:
    whole, broken = trainer(tmp_path / "a", Recorder(at("on_step_end", 3, should_training_stop=True))), Recorder()
    broken.act = at("on_substep_end", 3, should_training_stop=True)
    cut = trainer(tmp_path / "b", broken)
    whole.train()
    cut.train()
    assert torch.equal(whole.flat.flat, cut.flat.flat)
    assert cut.state.global_step == len(cut.progress.losses) == 3
    assert (whole.progress.real, whole.progress.trained) == (cut.progress.real, cut.progress.trained)


def test_answers_are_evaluated_when_they_are_due(tmp_path: Path) -> None:
    seen: dict[int, set[str]] = {}
    note = Recorder(
        lambda name, state, _: (
            seen.setdefault(state.global_step, set(note.handed["metrics"])) if name == "on_evaluate" else None
        )
    )
    watch = replace(WATCH, eval_strategy="steps", eval_steps=2, execution_eval_steps=3)
    trainer(tmp_path, note, watch, run_answers=lambda: 0.5).train()
    both, answers = {"eval_loss", "eval_execution_accuracy", "epoch"}, {"eval_loss", "epoch"}
    assert seen == {2: answers, 3: both, 4: answers, 6: both, 8: both}
