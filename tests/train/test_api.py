"""The Python API on a tiny model: it returns what the commands print, says nothing, and its notebook runs."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any, ClassVar

import pytest
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

import expert_cli
from expert_cli.errors import Interrupted
from tests import tiny
from tests.train.projects import project
from tests.unit.test_api import document

MEASURED = {"seconds", "tokens_per_s", "mb_per_s", "step_time_shares", "peak_memory_mb", "mfu", "output"}
MEASURED |= {"vram_mb", "seconds_error_pct", "seconds_source", "cards"}


def exact(value: Any) -> Any:
    """Return a document without what is measured anew each time."""
    if isinstance(value, dict):
        return {key: exact(one) for key, one in value.items() if key not in MEASURED}
    return [exact(one) for one in value] if isinstance(value, list | tuple) else value


def test_train_returns_what_the_command_prints(tmp_path: Path) -> None:
    manifest = project(tmp_path)
    store = expert_cli.pretokenize(manifest, documents=2)
    assert exact(store.as_json()) | {"status": "hit", "reason": ""} == exact(
        document("pretokenize", "-m", manifest, "--show", "2")["stores"][0]
    ) | {"reason": ""}
    runs = [list(one.runs()) for one in store.shown]
    assert [some[-1] for some in runs] == [("trained", [text, "<|im_end|>"]) for text in ("2", "3")]
    explained = expert_cli.explain_store(manifest)
    assert explained.as_json() == document("pretokenize", "-m", manifest, "--explain")["stores"][0]
    estimate = expert_cli.estimate_run(manifest, max_steps=3, seed=1)
    planned = document("train", "-m", manifest, "--plan", "--max-steps", "3", "--seed", "1")
    assert exact(estimate.as_json()) == exact(planned)
    result = expert_cli.train(manifest, max_steps=3, seed=1, output=tmp_path / "a")
    printed = document("train", "-m", manifest, "--max-steps", "3", "--seed", "1", "--output", tmp_path / "b")
    assert exact(result.document) == exact(printed)
    assert (result.output, printed["output"]) == (tmp_path / "a", str(tmp_path / "b"))


class StepCounter(TrainerCallback, ExportableState):
    """Counts steps, and presses Ctrl-C after one of them. A run that goes on makes it anew, as the Trainer does."""

    ended: ClassVar[list[int]] = []

    def __init__(self, ctrl_c: int = 0) -> None:
        self.ctrl_c, self.steps = ctrl_c, 0

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.steps += 1
        if self.steps == self.ctrl_c:
            signal.raise_signal(signal.SIGINT)

    def on_log(self, *_: Any, logs: dict[str, float], **__: Any) -> None:
        assert "step_time_shares/forward" in logs or "loss" not in logs

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.ended.append(self.steps)

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"steps": self.steps}}


def test_callbacks_of_ones_own_are_called_and_go_on_where_the_run_does(tmp_path: Path) -> None:
    manifest, output = project(tmp_path, max_steps=5), tmp_path / "run"
    with pytest.raises(Interrupted, match="stopped by SIGINT after step 3 of 5"):
        expert_cli.train(manifest, output=output, callbacks=[StepCounter(ctrl_c=2)])
    expert_cli.train(manifest, output=output, callbacks=[StepCounter()], resume="auto")
    assert StepCounter.ended == [3, 5]


def test_evaluate_and_ask_return_what_the_commands_print(expert: Path) -> None:
    found = expert_cli.evaluate(expert, max_new_tokens=4, baseline=True, offline=True)
    printed = document("evaluate", "--adapter", expert, "--max-new-tokens", "4", "--baseline")
    assert exact(found.as_json()) == exact(printed)
    assert found.evaluation.share["correct"] == 6
    asked = expert_cli.load_expert(expert, max_new_tokens=4)
    prompts = ["Which number is 3?", "Which number is 5?"]
    said = [document("chat", "--adapter", expert, "--prompt", prompt, "--max-new-tokens", "4") for prompt in prompts]
    assert [asked.ask(prompt) for prompt in prompts] == [one["expert"] for one in said] == ["7", "7"]
    assert asked._said == [], "what is asked is not remembered"


ROOT = Path(__file__).parents[2]


def test_the_notebook_runs(tmp_path: Path) -> None:
    folder, model = tmp_path / "orders", tiny.tiny_model_folder(tmp_path / "tiny-llama")
    shutil.copytree(ROOT / "examples" / "orders", folder)
    notebook = json.loads((ROOT / "docs" / "api.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    values: dict[str, Any] = {}
    for cell in cells:
        exec(compile("".join(cell["source"]), "api.ipynb", "exec"), values)  # noqa: S102  our own notebook
        if "parameters" in cell["metadata"].get("tags", ()):
            values |= {"MANIFEST": folder / "manifest.json", "BASE_MODEL": str(model), "OUTPUT": tmp_path / "run"}
            values |= {"MAX_STEPS": 2, "CASES": 3}
    assert values["result"].document["steps"] == 2
    assert values["evaluated"].evaluation.share["cases"] == 3
    assert isinstance(values["answer"], str)
