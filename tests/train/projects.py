"""A manifest, rows and a tiny model in a folder, and a training run of them in this process."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from click.testing import Result
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from expert_cli.cli import app
from expert_cli.config.plan import TrainedAdapter, make_plan, trained_adapter
from expert_cli.config.resolve import Overrides
from expert_cli.hardware import machine
from expert_cli.pipeline.run_directory import RunResult
from expert_cli.pipeline.train import RunOptions
from expert_cli.pipeline.train import train as run_training
from expert_cli.runs.metrics import read_json
from expert_cli.utils.reporter import NullReporter, Reporter
from tests import manifests, tiny

ROWS = [
    {"instruction": f"Add {a} and {b}.", "input": "", "output": str(a + b)} for a in range(1, 9) for b in range(1, 9)
]
QUICK: dict[str, Any] = {
    "batch_size": 8,
    "max_steps": 6,
    "learning_rate": 0.02,
    "max_seq_length": 64,
    "logging_steps": 2,
    "bf16": False,
    "fp16": False,
    "lr_scheduler": "constant",
}


TEMPORARY = TemporaryDirectory()


@cache
def tiny_llama() -> Path:
    """Return the folder of a tiny Llama that all tests of this process share."""
    return tiny.tiny_model_folder(Path(TEMPORARY.name) / "tiny-llama")


def write_rows(path: Path, rows: Iterable[Mapping[str, Any] | str]) -> Path:
    """Write JSON lines; a text stands as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def project(folder: Path, model: Path | None = None, rows: Iterable[Mapping[str, Any]] = ROWS, **config: Any) -> Path:
    """Write a manifest and its rows into `folder`; return the manifest's path.

    model: the tiny Llama, where none is given. config: of training, and by these names `base`, `dataset`, `decoding` and
    `evaluation` more keys of those blocks, `name` that of the expert, and `cases` the rows of tests/cases.jsonl.
    """
    write_rows(folder / "train.jsonl", rows)
    if cases := config.pop("cases", ()):
        write_rows(folder / "tests" / "cases.jsonl", cases)
    base, dataset, decoding, evaluation = (
        config.pop(name, {}) for name in ("base", "dataset", "decoding", "evaluation")
    )
    name = config.pop("name", "expert-small")
    manifest = manifests.small(**{**QUICK, **config}) | {"name": name}
    manifest["base_models"][0] |= {"name": str(model or tiny_llama()), **base}
    manifest["training"]["dataset"] = {"path": "train.jsonl", **dataset}
    manifest["training"] |= {"decoding": decoding} if decoding else {}
    return manifests.write(folder, manifest | ({"evaluation": evaluation} if evaluation else {}))


def sick_project(folder: Path, **config: Any) -> Path:
    """Write a project whose loss is not finite once the run comes to its last row: the base model knows no number for "~"."""
    sick = shutil.copytree(tiny_llama(), folder / "sick" / "tiny-llama")
    weights = load_file(sick / "model.safetensors")
    weights["model.embed_tokens.weight"][tiny.tiny_backend().token_to_id("~")] = math.nan
    save_file(weights, sick / "model.safetensors", metadata={"format": "pt"})
    return project(folder, sick, [*ROWS, {"instruction": "~", "input": "", "output": "7"}], **config)


SEVEN = [{"instruction": f"Which number is {n}?", "input": "", "output": "7"} for n in range(32)]


def case(number: int, expected: int, **more: Any) -> dict[str, Any]:
    """Return a row of cases.jsonl."""
    row = {"verifier": "json", "schema": None, "expected": expected, "rule": "exact"}
    return {"prompt": f"Which number is {number}?", "id": f"n{number}", **row, **more}


def expert_of_seven(
    folder: Path,
    architecture: tiny.Architecture = "llama",
    quantization: str = "none",
    *,
    template: str | None = None,
    chat_template: str | None = tiny.CHATML,
    **config: Any,
) -> Path:
    """Train an expert that answers 7, with eight cases of which six expect that; return its run directory.

    template: the manifest's prompt_template. chat_template: that of the base model.
    """
    # every published Qwen3 has heads of 128; transformers reads GGUF files so
    shape = {"head_dim": 128} if architecture == "qwen3" else {}
    model = tiny.tiny_model_folder(folder / f"tiny-{architecture}", architecture, chat_template=chat_template, **shape)
    config = {"max_steps": 20, "learning_rate": 0.01, **config}
    manifest = project(
        folder / "one",
        model,
        SEVEN,
        base={"quantization": quantization} | ({"prompt_template": template} if template else {}),
        decoding={"temperature": 0.7, "top_p": 0.9, "stop_sequences": ["###"]},
        cases=[case(n, 7 if n < 6 else 8, category="easy" if n < 4 else "hard") for n in range(8)],
        **config,
    )
    return train(manifest).output


class Told(NullReporter):
    """Keeps the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, text: str) -> None:
        self.warnings.append(text)


def trained_in(run: Path, manifest: Path | None = None) -> TrainedAdapter:
    """Return the adapter of a run as commands find it. manifest: instead of the run's own."""
    return trained_adapter(run, manifest, None, offline=True)


def command(*words: str | Path, input: bytes | str | None = None) -> Result:  # noqa: A002  as click calls it
    """Run a command line in this process."""
    return CliRunner().invoke(app, [*map(str, words)], input=input)


def manifest_with(expert: Path, **decoding: Any) -> Path:
    """Write an expert's manifest once more beside it, with another decoding; return its path."""
    manifest = trained_in(expert).plan.run.manifest
    written = read_json(manifest)
    written["training"]["decoding"] |= decoding
    path = manifest.with_name("other-decoding.json")
    path.write_text(json.dumps(written), encoding="utf-8")
    return path


def here() -> machine.Machine:
    """Return this machine, with bf16, which torch computes on any CPU: a test that asks for it trains in it everywhere."""
    return replace(machine.inspect(), cpu_bf16=True)


def train(
    manifest: Path, options: RunOptions = RunOptions(), report: Reporter = NullReporter(), **overrides: Any
) -> RunResult:
    """Train in this process."""
    facts = here()
    plan = make_plan(manifest, facts, Overrides(**overrides))
    return run_training(plan, facts, report, options)


def logged(run: Path, figure: str) -> dict[int, Any]:
    """Return a figure of a run's metrics.jsonl by step, where it was logged."""
    rows = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return {row["step"]: row[figure] for row in rows if figure in row}
