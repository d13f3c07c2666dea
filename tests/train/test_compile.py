"""torch_compile compiles what trains: answers in between do not go through it, and its shape follows the schedule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import TrainerCallback

from expert_cli.pipeline.train import RunOptions
from expert_cli.utils.reporter import NullReporter
from tests import tiny
from tests.train.projects import SEVEN, case, project, train

COMPILED: dict[str, Any] = {"torch_compile": True, "torch_compile_backend": "eager", "batch_size": 2}


class Graphs(TrainerCallback):
    """Counts after every step what the compiler has made by then."""

    def __init__(self) -> None:
        self.after: list[int] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.after.append(counters["stats"]["unique_graphs"])


class Told(NullReporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def warning(self, text: str) -> None:
        self.lines.append(text)

    info = warning


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny")


def answering(folder: Path, model: Path, **config: Any) -> Path:
    """A manifest that compiles, whose cases are asked before, during and after training."""
    manifest = project(folder, model, SEVEN, **{**COMPILED, "max_steps": 5, **config})
    (folder / "tests").mkdir()
    rows = "".join(json.dumps(case(n, 7)) + "\n" for n in range(2))
    (folder / "tests" / "cases.jsonl").write_text(rows, encoding="utf-8")
    written = json.loads(manifest.read_text(encoding="utf-8"))
    written["evaluation"] = {"every_steps": 2, "sample": 2}
    manifest.write_text(json.dumps(written), encoding="utf-8")
    return manifest


def test_answers_leave_the_compiler_to_training(tmp_path: Path, model: Path) -> None:
    alone, between, report = Graphs(), Graphs(), Told()
    train(project(tmp_path / "a", model, SEVEN, **COMPILED, max_steps=5), RunOptions(callbacks=(alone,)))
    done = train(answering(tmp_path / "b", model), RunOptions(callbacks=(between,)), report)
    assert between.after == alone.after
    graphs = between.after[0]
    assert between.after == [graphs] * 5, "what the first step compiled serves all"
    assert graphs > 0
    line = done.document["kernels"]["compile"]
    assert line == {"used": "eager", "reason": f"every decoder layer; {graphs} graphs compiled"}
    assert any(text.startswith(f"compile   {graphs} graphs in ") for text in report.lines)


def test_a_compiler_that_compiled_nothing_is_told(tmp_path: Path, model: Path) -> None:
    with torch.compiler.set_stance("force_eager"):
        done = train(project(tmp_path, model, SEVEN, **COMPILED, max_steps=1))
    line = done.document["kernels"]["compile"]
    assert line == {"used": "off", "reason": "eager was asked for, but nothing was compiled"}
