"""An adapter that was trained on quantized weights, fitted to the same base model in bf16: some dozen steps on its own rows.

An adapter makes up for the rounding of the weights it was trained on; on others that is noise. Added to the adapter as it is,
the rounding would need a high rank (the 16 largest directions hold 12 % of SmolLM2's, 64 hold 34 %): so it is trained on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel

from expert_cli.config.plan import TrainedAdapter
from expert_cli.data.store.documents import Turn, drawn_turns
from expert_cli.errors import InputError, TrainingFailed
from expert_cli.inference.base_model import load_base_of, locate_base
from expert_cli.model.adapter import trained_in_fp32
from expert_cli.utils.reporter import Reporter

STEPS = 48
BATCH = 8
"""Rows a step."""
RATE = 0.2
"""Of the run's highest learning rate, where this starts; it falls to nothing."""
WARMUP = 4
"""Steps until then: the moments of the optimizer are not those of the run."""
LONGEST = 2048


def fit_to_bf16(trained: TrainedAdapter, folder: Path, report: Reporter) -> TrainedAdapter:
    """Train an adapter on, on its base model in bf16, into the empty `folder`; return it with a plan that says so.

    Raises InputError where the rows of its training are not here, TrainingFailed for a loss that is no number.
    """
    run = trained.plan.run
    rows = drawn_turns(trained.origin.store, STEPS * BATCH, run.seed)
    if not rows:
        raise InputError(
            f"--for-base bf16: the rows that {trained.origin.adapter} was trained on are not here",
            "give the run directory, on the machine that trained it",
        )
    held = replace(run, model=replace(run.model, quantization="bf16"))
    base = load_base_of(held, locate_base(held, report).folder)
    device = held.compute.device
    model = PeftModel.from_pretrained(base, trained.origin.adapter, is_trainable=True, torch_device=device)
    trained_in_fp32(model).train()
    torch.manual_seed(run.seed)
    with report.progress("fitting to bf16", STEPS, "steps") as bar:
        _train(model, rows, RATE * run.optim.learning_rate, bar.update)
    model.save_pretrained(str(folder), safe_serialization=True)
    if (trained.origin.adapter / "README.md").is_file():
        shutil.copyfile(trained.origin.adapter / "README.md", folder / "README.md")
    plan, origin = replace(trained.plan, run=held), replace(trained.origin, adapter=folder)
    return replace(trained, plan=plan, origin=origin)


def _train(model: PeftModel, rows: Sequence[Turn], rate: float, on_step: Callable[[float, str], None]) -> None:
    """Take all steps over the rows, in their order, from the start again where they are few; one row at a time."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / WARMUP) * (1 - step / STEPS)
        batch = [rows[(step * BATCH + n) % len(rows)] for n in range(min(BATCH, len(rows)))]
        tokens = sum(len(row.answer) for row in batch)
        loss = sum(_backward(model, row, tokens) for row in batch)
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        if not bool(torch.isfinite(norm)):
            raise TrainingFailed(
                f"--for-base bf16: the gradient of step {step + 1} is no number", "train in bf16 instead"
            )
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        on_step(step + 1, f"loss {loss:.3f}")


def _backward(model: Any, row: Turn, tokens: int) -> float:
    """Add a row's gradient, its loss divided by the batch's trained tokens; return its share of the loss."""
    prompt = row.prompt[-max(1, LONGEST - len(row.answer)) :]
    ids = torch.tensor([prompt + row.answer], device=model.device)
    with torch.autocast(model.device.type, dtype=torch.bfloat16):
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=len(row.answer) + 1).logits[0, :-1]
    loss = torch.nn.functional.cross_entropy(logits.float(), ids[0, -len(row.answer) :], reduction="sum") / tokens
    loss.backward()  # type: ignore[no-untyped-call]
    return float(loss.detach())
