"""What people plug into a transformers Trainer works here: the same events, in its order, and switches that are obeyed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.utils.data import Dataset
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from expert_cli.data.packing.batches import Collator, PackedBatchSampler
from expert_cli.data.packing.order import epoch_order
from expert_cli.data.packing.step_schedule import Schedule
from expert_cli.manifest.keys.log_save_eval import LogSaveEvalConfig
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.training.trainer import ExpertTrainer
from tests import run_blocks, tiny
from tests.packs import packed

# peft before 0.21, when the stock Trainer saves an adapter whose base model has no folder.
pytestmark = pytest.mark.filterwarnings("ignore:Could not find a config file:UserWarning")

EVENTS = sorted(name for name in vars(TrainerCallback) if name.startswith("on_"))
OPTIM = replace(run_blocks.OPTIM, epochs=2.0, learning_rate=1e-3, scheduler="constant", optim="adamw_torch")
OPTIM = replace(OPTIM, gradient_accumulation_steps=2)
WATCH = replace(run_blocks.LOG_SAVE_EVAL, logging_steps=3, save_every_s=0.0)
WATCH = replace(WATCH, save_strategy="steps", save_steps=4, eval_strategy="steps", eval_steps=4)
OFTEN = replace(WATCH, logging_steps=2, eval_steps=2)
PACKS, EVAL_PACKS = 12, 1

Act = Callable[[str, TrainerState, TrainerControl], None]


class Recorder(TrainerCallback):
    """Notes every event, with the switches as this callback finds them; `act` may then change them."""

    def __init__(self, act: Act = lambda *_: None) -> None:
        self.act = act
        self.seen: list[dict[str, Any]] = []
        self.handed: dict[str, dict[str, Any]] = {}
        self.states: dict[str, dict[str, Any]] = {}

    @property
    def order(self) -> list[tuple[str, int]]:
        return [(one["event"], one["step"]) for one in self.seen]

    def steps(self, event: str) -> list[int]:
        return [step for name, step in self.order if name == event]

    def note(self, event: str, state: TrainerState, control: TrainerControl, kwargs: dict[str, Any]) -> None:
        self.handed[event] = kwargs
        self.states[event] = dict(vars(state))
        names = {name for name, value in kwargs.items() if value is not None}
        self.seen.append(
            {
                "event": event,
                "step": state.global_step,
                "judged": state.best_metric is not None,
                "epoch": round(float(state.epoch), 6),
                "switches": {name: on for name, on in vars(control).items() if on},
                "handed": sorted(names - {"processing_class"}),
                "logs": sorted(
                    set(kwargs.get("logs") or ())
                    & {"loss", "grad_norm", "learning_rate", "eval_loss", "epoch", "train_loss"}
                ),
                "metrics": sorted(set(kwargs.get("metrics") or ()) & {"eval_loss", "epoch"}),
            }
        )
        self.act(event, state, control)


def _forward(event: str) -> Callable[..., None]:
    def on_event(self: Recorder, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.note(event, state, control, kwargs)

    return on_event


for _event in EVENTS:
    setattr(Recorder, _event, _forward(_event))


class Rows(Dataset[dict[str, torch.Tensor]]):
    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        ids = torch.arange(100, 108)
        return {"input_ids": ids, "labels": ids}


def model() -> PeftModel:
    torch.manual_seed(0)
    return get_peft_model(tiny.tiny_model(), LoraConfig(r=2, target_modules=["q_proj"]))


def arguments(folder: Path, watch: LogSaveEvalConfig) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(folder / "checkpoints"),
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        num_train_epochs=OPTIM.epochs,
        per_device_train_batch_size=1,
        per_device_eval_batch_size=1,
        gradient_accumulation_steps=2,
        logging_steps=watch.logging_steps,
        logging_first_step=True,
        eval_strategy=watch.eval_strategy,
        eval_steps=watch.eval_steps,
        save_strategy=watch.save_strategy,
        save_steps=watch.save_steps,
        metric_for_best_model=watch.metric_for_best_model,
        greater_is_better=watch.greater_is_better,
    )


def stock(folder: Path, recorder: Recorder, watch: LogSaveEvalConfig = WATCH) -> Trainer:
    trainer = Trainer(
        model=model(),
        args=arguments(folder, watch),
        train_dataset=Rows(PACKS),
        eval_dataset=Rows(EVAL_PACKS),
        callbacks=[recorder],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return trainer


def prepared(
    folder: Path, recorder: Recorder, watch: LogSaveEvalConfig = WATCH, packs: int = PACKS, **settings: Any
) -> ExpertTrainer:
    adapted = model()
    attention.use(adapted.get_base_model(), "documents")
    data = packed(folder / "train", *[(4, 4)] * packs, packing="off")
    trainer = ExpertTrainer(
        optim_config=OPTIM,
        watch=watch,
        batches=PackedBatchSampler(
            Schedule(data.packs.count, 2, 1, 1, OPTIM.epochs, -1), lambda epoch: epoch_order(packs, 1, epoch)
        ),
        model=CausalLoss(adapted),
        args=arguments(folder, watch),
        train_dataset=data,
        eval_dataset=packed(folder / "eval", *[(4, 4)] * EVAL_PACKS, packing="off"),
        data_collator=Collator(0),
        callbacks=[recorder],
        **settings,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.prepare()
    return trainer


def ours(folder: Path, recorder: Recorder, watch: LogSaveEvalConfig = WATCH, packs: int = PACKS) -> ExpertTrainer:
    trainer = prepared(folder, recorder, watch, packs)
    trainer.train()
    return trainer


STRATEGIES = {
    "steps": WATCH,
    "epochs": replace(WATCH, save_strategy="epoch", eval_strategy="epoch"),
    "saved by steps within epochs": replace(WATCH, save_steps=5, eval_strategy="no"),
}


@pytest.mark.parametrize("watch", STRATEGIES.values(), ids=STRATEGIES.keys())
def test_events_come_in_the_order_of_the_stock_trainer(tmp_path: Path, watch: LogSaveEvalConfig) -> None:
    theirs, mine = Recorder(), Recorder()
    stock(tmp_path / "stock", theirs, watch)
    ours(tmp_path / "ours", mine, watch)
    assert [one["event"] for one in mine.seen].count("on_step_end") == 12
    for n, (wanted, got) in enumerate(zip(theirs.seen, mine.seen, strict=False)):
        assert (n, got) == (n, wanted)
    assert len(mine.seen) == len(theirs.seen)


def test_callbacks_are_handed_the_model_that_is_trained(tmp_path: Path) -> None:
    mine = Recorder()
    trainer = ours(tmp_path, mine)
    handed = mine.handed["on_step_end"]
    assert isinstance(handed["model"], PeftModel)
    assert handed["model"] is trainer.model.model
    assert handed["optimizer"] is trainer.optimizer
    assert handed["lr_scheduler"] is trainer.lr_scheduler


def test_the_state_is_that_of_the_stock_trainer(tmp_path: Path) -> None:
    theirs, mine = Recorder(), Recorder()
    stock(tmp_path / "stock", theirs)
    ours(tmp_path / "ours", mine)
    # The best checkpoint is told where it is sure to stay (load_best_model_at_end); checkpoints hold no state of callbacks.
    differs = {"log_history", "total_flos", "best_metric", "best_global_step", "best_model_checkpoint"}
    differs |= {"stateful_callbacks"}
    for event in ("on_train_begin", "on_epoch_begin", "on_substep_end", "on_save", "on_evaluate", "on_train_end"):
        for name in set(theirs.states[event]) - differs:
            assert (event, name, mine.states[event][name]) == (event, name, theirs.states[event][name])
    mine_logged, logged = (one.states["on_train_end"]["log_history"] for one in (mine, theirs))
    assert [log["step"] for log in mine_logged] == [log["step"] for log in logged]


def at(event: str, step: int, **switches: bool) -> Act:
    def act(name: str, state: TrainerState, control: TrainerControl) -> None:
        if (name, state.global_step) == (event, step):
            for switch, on in switches.items():
                setattr(control, switch, on)

    return act


ASKED = {
    "save": at("on_step_end", 3, should_save=True),
    "do not save": at("on_step_end", 4, should_save=False),
    "evaluate": at("on_step_end", 3, should_evaluate=True),
    "stop": at("on_step_end", 5, should_training_stop=True),
    "stop before the optimizer's step": at("on_pre_optimizer_step", 5, should_training_stop=True),
    "stop the epoch": at("on_step_end", 2, should_epoch_stop=True),
    "stop the epoch in an evaluation": at("on_evaluate", 2, should_epoch_stop=True),
}


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    mine = Recorder()
    ours(tmp_path_factory.mktemp("untouched"), mine, OFTEN)
    return mine


@pytest.mark.parametrize("act", ASKED.values(), ids=ASKED.keys())
def test_switches_are_obeyed_as_the_stock_trainer_obeys_them(tmp_path: Path, act: Act, untouched: Recorder) -> None:
    theirs, mine = Recorder(act), Recorder(act)
    stock(tmp_path / "stock", theirs, OFTEN)
    ours(tmp_path / "ours", mine, OFTEN)
    assert mine.order == theirs.order
    assert [one["switches"] for one in mine.seen] == [one["switches"] for one in theirs.seen]
    assert mine.order != untouched.order


@pytest.mark.parametrize("event", ["on_epoch_begin", "on_substep_end"])
def test_a_stop_within_a_step_waits_until_it_is_whole(tmp_path: Path, event: str) -> None:
    theirs, mine = Recorder(at(event, 6, should_training_stop=True)), Recorder(at(event, 6, should_training_stop=True))
    stock(tmp_path / "stock", theirs)
    trainer = ours(tmp_path / "ours", mine)
    assert (theirs.steps("on_step_end")[-1], mine.steps("on_step_end")[-1]) == (6, 7)
    assert len(trainer.progress.losses) == 7
    assert trainer.flow.stop_reason == "a callback stopped training after step 7 of 12"


def test_an_epoch_that_was_ended_early_is_over_in_a_checkpoint(tmp_path: Path) -> None:
    mine = Recorder(at("on_step_end", 2, should_epoch_stop=True, should_save=True))
    saved: list[tuple[int, tuple[int, int]]] = []

    def save(trainer: ExpertTrainer) -> None:
        saved.append((trainer.progress.step, trainer.batches.schedule.position(trainer.progress.schedule_step)))

    trainer = prepared(tmp_path, mine, save=save)
    trainer.train()
    assert saved == [(2, (1, 0)), (4, (1, 2)), (8, (2, 0))]
    assert trainer.flow.stop_reason == "all epochs are done in 8 of 12 steps: a callback ended epochs early"
    second = [pack for step in range(6, 12) for pack in trainer.batches.packs_of(step)[1].tolist()]
    assert sorted(second) == list(range(PACKS))


def test_a_checkpoint_holds_the_evaluation_of_its_step(tmp_path: Path) -> None:
    mine = Recorder()
    ours(tmp_path, mine, replace(WATCH, save_steps=6, eval_strategy="epoch"))
    wanted = ["on_epoch_end", "on_prediction_step", "on_log", "on_evaluate", "on_save"]
    after = [event for event, step in mine.order if step == 6]
    assert after[after.index("on_epoch_end") :][: len(wanted)] == wanted


def test_a_trainer_that_was_stopped_within_a_step_leaves_nothing_behind(tmp_path: Path) -> None:
    stock(tmp_path / "stock", Recorder(at("on_substep_end", 2, should_training_stop=True)))
    trainer = prepared(tmp_path / "ours", Recorder())
    before = [parameter.detach().clone() for parameter in trainer.gradients.parameters]
    trainer.train()
    assert not all(map(torch.equal, before, trainer.gradients.parameters))


def test_without_validation_rows_an_evaluation_that_is_asked_for_runs_answers(tmp_path: Path) -> None:
    mine = Recorder(at("on_step_end", 3, should_evaluate=True))
    trainer = prepared(tmp_path, mine, replace(WATCH, eval_strategy="no"), run_answers=lambda: 0.5)
    trainer.eval_dataset = None
    trainer.train()
    assert mine.steps("on_evaluate") == [3]
    assert mine.handed["on_evaluate"]["metrics"]["execution_accuracy"] == 0.5


def test_early_stopping_of_transformers_works(tmp_path: Path) -> None:
    mine = Recorder()
    trainer = prepared(tmp_path, mine, OFTEN)
    trainer.args.load_best_model_at_end = True  # it says so otherwise
    trainer.add_callback(EarlyStoppingCallback(1, early_stopping_threshold=1e9))
    trainer.train()
    assert mine.steps("on_step_end")[-1] == 4
