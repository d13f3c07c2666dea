"""A run tells what was forgotten, in every place where it is looked for, and `--max-forget` ends it with exit code 5."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from expert_cli.artifacts.report import write_report
from expert_cli.cli import main
from expert_cli.errors import EnvironmentProblem
from expert_cli.inference import forgetting
from expert_cli.pipeline.train import RunOptions
from expert_cli.runs.paths import RunPaths
from tests import tiny
from tests.train.projects import SEVEN, Told, project, train
from tests.train.test_status import log, short

BREAKS: dict[str, Any] = {"learning_rate": 1.0, "max_steps": 6}
KEEPS: dict[str, Any] = {"learning_rate": 1e-30, "max_steps": 1}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose logits are far from even, so that there is something to forget."""
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama", initializer_range=0.3)


def test_a_run_that_broke_its_model_says_so_everywhere(tmp_path: Path, model: Path) -> None:
    result = train(project(tmp_path, model, SEVEN, seed=2, **BREAKS), options=RunOptions(max_forget=0.5))
    told, paths = result.document["forgetting"], RunPaths(result.output)
    assert (told["texts"], told["tokens"]) == (200, 200 * (forgetting.TOKENS - 1))
    assert told["difference"] > 1
    assert told["difference"] == pytest.approx(told["loss_after"] - told["loss_before"])
    low, high = told["ci95"]
    assert 0 < low < told["difference"] < high
    line = f"{told['difference']:+.3f} nats a token (95 % interval {low:+.3f} to {high:+.3f}) on 200 neutral texts: "
    line += f"loss {told['loss_before']:.3f} -> {told['loss_after']:.3f}"
    assert f"\nforgotten {line}\n" in result.summary()
    assert f"<dt>forgotten</dt><dd>{line.replace('->', '-&gt;')}</dd>" in paths.report_html.read_text(encoding="utf-8")
    assert f"## What was forgotten\n\n{line}.\n" in (paths.adapter / "README.md").read_text(encoding="utf-8")
    missed = f"the loss on neutral texts rose by {told['difference']:.4f} nats a token, more than --max-forget 0.5"
    assert result.missed == missed
    assert short(result.output) == ("complete", missed, 6, 6, 5)
    assert log(result.output)[-1] == missed
    assert paths.complete.exists()
    assert (paths.adapter / "adapter_model.safetensors").is_file()


def test_the_gate_is_asked_anew_of_a_complete_run(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, SEVEN, **BREAKS)
    few = ("evaluation.neutral_texts=4",)
    first = train(manifest, settings=few)
    assert first.missed == ""
    rose = first.document["forgetting"]["difference"]
    for allowed, is_missed in ((rose, False), (rose - 0.001, True)):
        again = train(manifest, options=RunOptions(resume="auto", max_forget=allowed), settings=few)
        assert again.document == first.document
        assert bool(again.missed) == is_missed


def test_where_nothing_is_asked_for_nothing_is_said(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, SEVEN, **KEEPS)
    result = train(manifest)
    assert "forgetting" not in result.document
    assert "forgotten" not in result.summary()
    assert "forgotten" not in (result.output / "adapter" / "README.md").read_text(encoding="utf-8")
    assert "<dt>forgotten</dt>" not in RunPaths(result.output).report_html.read_text(encoding="utf-8")
    unknown = train(manifest, options=RunOptions(resume="auto", max_forget=1.0)).missed
    assert unknown == "what was forgotten is not known, and --max-forget allows 1 nats a token"


def test_fewer_texts_are_those_that_were_asked_for(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, SEVEN, **KEEPS)
    written = json.loads(manifest.read_text(encoding="utf-8"))
    manifest.write_text(json.dumps({**written, "evaluation": {"neutral_texts": 3}}), encoding="utf-8")
    result = train(manifest)
    assert result.document["forgetting"]["texts"] == 3
    (row,) = [
        row
        for row in json.loads(RunPaths(result.output).run_json.read_text(encoding="utf-8"))["effects"]
        if row["key"] == "evaluation.neutral_texts"
    ]
    assert (row["status"], row["effect"]) == ("applied", "what was forgotten is measured on 3 neutral texts")


def test_a_python_without_texts_trains_unless_they_are_asked_for(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> tuple[str, ...]:
        raise EnvironmentProblem("there are none")

    monkeypatch.setattr(forgetting, "_paragraphs", none)
    manifest, report = project(tmp_path, model, SEVEN, **KEEPS), Told()
    with pytest.raises(EnvironmentProblem):
        train(manifest, options=RunOptions(max_forget=1.0))
    assert "forgetting" not in train(manifest, report=report, settings=("evaluation.neutral_texts=4",)).document
    assert "what is forgotten is not measured: there are none" in report.warnings


def test_the_command_ends_with_exit_code_5(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = project(tmp_path, model, SEVEN, **BREAKS)
    words = ["expert-cli", "train", "-m", str(manifest), "--max-forget", "0.5"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 5
    out, err = capsys.readouterr()
    assert "forgotten +" in out
    assert "more than --max-forget 0.5" in err
    assert "the adapter is saved" in err
    write_report([tmp_path / "weights" / model.name], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "finished: the loss on neutral texts rose by" in page
