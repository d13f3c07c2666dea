"""torch_compile compiles what trains: answers in between do not go through it, and its shape follows the schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import TrainerCallback

from expert_cli.pipeline.train import RunOptions
from tests.train.projects import SEVEN, case, logged, project, train
from tests.words import Words

COMPILED: dict[str, Any] = {"torch_compile": True, "torch_compile_backend": "eager"}


class Graphs(TrainerCallback):
    """Counts after every step what the compiler has made by then."""

    def __init__(self) -> None:
        self.after: list[int] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.after.append(counters["stats"]["unique_graphs"])


def four_bit(folder: Path, **config: Any) -> Path:
    """A manifest of a base model in 4 bits, whose cases are asked before, during and after training."""
    settings = {"batch_size": 2, "max_steps": 4, "logging_steps": 1, "bf16": True, "dequantized_copy": "never"}
    asked = {"evaluation": {"every_steps": 2, "sample": 2}, "cases": [case(n, 7) for n in range(2)]}
    # as many documents in every pack
    return project(folder, rows=SEVEN[:8], base={"quantization": "int4"}, **asked, **settings, **config)


def test_four_bit_layers_train_the_same_and_answers_leave_the_compiler_to_training(tmp_path: Path) -> None:
    made, report = Graphs(), Words()
    plain = train(four_bit(tmp_path / "a"))
    done = train(four_bit(tmp_path / "b", **COMPILED), RunOptions(callbacks=(made,)), report)
    losses = [list(logged(one.output, "loss").values()) for one in (plain, done)]
    assert losses[1] == pytest.approx(losses[0], rel=2e-2)
    graphs = made.after[0]
    assert made.after == [graphs] * 4, "what the first step compiled serves all"
    assert graphs > 0
    line = done.document["kernels"]["compile"]
    assert line == {"used": "eager", "reason": f"every decoder layer; {graphs} graphs compiled"}
    assert any(text.startswith(f"compile   {graphs} graphs in ") for text in report.lines)


def test_a_compiler_that_compiled_nothing_is_told(tmp_path: Path) -> None:
    with torch.compiler.set_stance("force_eager"):
        done = train(project(tmp_path, rows=SEVEN, **COMPILED, max_steps=1))
    assert done.document["kernels"]["compile"]["reason"] == "eager was asked for, but nothing was compiled"
