"""A run tells what was forgotten, in every place where it is looked for, and `--max-forget` ends it with exit code 5."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from expert_cli.cli import main
from expert_cli.pipeline.train import RunOptions
from expert_cli.runs.run_paths import RunPaths
from tests import tiny
from tests.train.projects import SEVEN, project, train
from tests.train.test_status import log, short

BREAKS: dict[str, Any] = {"learning_rate": 1.0, "max_steps": 6}
FEW = "evaluation.neutral_texts=4"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose logits are far from even, so that there is something to forget."""
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama", initializer_range=0.3)


def test_a_run_that_broke_its_model_says_so_everywhere(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, SEVEN, seed=2, **BREAKS)
    result = train(manifest, options=RunOptions(max_forget=0.5), settings=(FEW,))
    told, paths = result.document["forgetting"], RunPaths(result.output)
    assert told["texts"] == 4
    assert told["difference"] == pytest.approx(told["loss_after"] - told["loss_before"])
    low, high = told["ci95"]
    assert low < told["difference"] < high
    line = f"{told['difference']:+.3f} nats a token (95 % interval {low:+.3f} to {high:+.3f}) on 4 neutral texts: "
    line += f"loss {told['loss_before']:.3f} -> {told['loss_after']:.3f}"
    assert f"\nforgotten {line}\n" in result.summary()
    assert f"Forgotten: {line.replace('->', '-&gt;')}</p>" in paths.report_html.read_text(encoding="utf-8")
    assert f"## What was forgotten\n\n{line}.\n" in (paths.adapter / "README.md").read_text(encoding="utf-8")
    missed = f"the loss on neutral texts rose by {told['difference']:.4f} nats a token, more than --max-forget 0.5"
    assert result.missed == log(result.output)[-1] == missed
    assert short(result.output) == ("complete", missed, 6, 6, 5)
    assert (paths.adapter / "adapter_model.safetensors").is_file()
    for allowed, is_missed in ((told["difference"], False), (told["difference"] - 0.001, True)):
        again = train(manifest, options=RunOptions(resume="auto", max_forget=allowed), settings=(FEW,))
        assert again.document == result.document
        assert bool(again.missed) == is_missed


def test_where_nothing_is_asked_for_nothing_is_said(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, SEVEN, max_steps=1)
    result = train(manifest)
    assert "forgetting" not in result.document
    assert "forgotten" not in result.summary() + (result.output / "adapter" / "README.md").read_text(encoding="utf-8")
    unknown = train(manifest, options=RunOptions(resume="auto", max_forget=1.0)).missed
    assert unknown == "what was forgotten is not known, and --max-forget allows 1 nats a token"


def test_the_command_ends_with_exit_code_5(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = project(tmp_path, model, SEVEN, **BREAKS)
    words = ["expert-cli", "train", "-m", str(manifest), "--max-forget", "0.5", "--set", FEW]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 5
    assert "more than --max-forget 0.5" in capsys.readouterr().err
