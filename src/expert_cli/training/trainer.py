"""The one subclass of the Hugging Face Trainer; each override says why it is there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR
from torch.utils.data import Sampler
from transformers import Trainer

from expert_cli.data.loader import IGNORED, LengthGroupedSampler, SeededSampler
from expert_cli.runconfig import OptimConfig


@dataclass
class StepRecord:
    """What every micro-step leaves behind, as tensors on the device, so that keeping it waits for nothing.

    losses: one scalar an optimizer step, the mean loss per trained token. Tokens so far: real (no padding), trained,
    padded (all positions, padding among them).
    """

    losses: list[torch.Tensor] = field(default_factory=list)
    real: torch.Tensor | int = 0
    trained: torch.Tensor | int = 0
    padded: int = 0


class ExpertTrainer(Trainer):  # type: ignore[misc]  # transformers is not typed
    """A Trainer that writes no pickle, orders rows by a seed, knows one_cycle, and keeps every step's loss."""

    def __init__(self, *, optim_config: OptimConfig, group_by_length: bool, **kwargs: Any) -> None:
        """Take what the Trainer's own arguments have no place for."""
        super().__init__(**kwargs)
        self.optim_config = optim_config
        self.group_by_length = group_by_length
        self.record = StepRecord()
        self._step_loss: torch.Tensor | None = None

    def training_step(
        self, model: Any, inputs: dict[str, torch.Tensor], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Run one micro-step and keep its loss and token counts: the Trainer keeps only a sum over `logging_steps`."""
        self.record.real = self.record.real + inputs["real_tokens"]
        self.record.trained = self.record.trained + (inputs["labels"][:, 1:] != IGNORED).sum()
        self.record.padded += inputs["input_ids"].numel()
        loss: torch.Tensor = super().training_step(model, inputs, num_items_in_batch)
        self._step_loss = loss if self._step_loss is None else self._step_loss + loss
        if self.accelerator.sync_gradients:
            self.record.losses.append(self._step_loss)
            self._step_loss = None
        return loss

    def compute_loss(self, model: Any, inputs: dict[str, torch.Tensor], **settings: Any) -> Any:
        """Take the count that is not for the model out of the batch."""
        return super().compute_loss(model, {k: v for k, v in inputs.items() if k != "real_tokens"}, **settings)

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LRScheduler:
        """Make the learning-rate schedule; transformers has no one_cycle."""
        if self.optim_config.scheduler != "one_cycle":
            standard: LRScheduler = super().create_scheduler(num_training_steps, optimizer)
            return standard
        settings: dict[str, Any] = dict(self.optim_config.scheduler_kwargs)
        warmup = self.args.get_warmup_steps(num_training_steps) / max(1, num_training_steps)
        settings.setdefault("pct_start", min(1.0, warmup) or 0.3)
        schedule = OneCycleLR(
            optimizer or self.optimizer,
            max_lr=self.args.learning_rate,
            total_steps=num_training_steps + 1,
            cycle_momentum=False,
            **settings,
        )
        self.lr_scheduler = schedule
        self._created_lr_scheduler = True
        return schedule

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int] | None:
        """Order the packs by (seed, epoch), computed place by place; the Trainer's own order must be drawn to be found."""
        dataset = self.train_dataset if train_dataset is None else train_dataset
        if self.group_by_length:
            return LengthGroupedSampler(dataset.lengths, self.args.train_batch_size, self.args.seed)
        return SeededSampler(len(dataset), self.args.seed)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Write the adapter alone: the Trainer would add training_args.bin, a pickle that holds the hub token."""
        self.model.save_pretrained(output_dir or self.args.output_dir, state_dict=state_dict, safe_serialization=True)
