"""The Python API: what it offers, that it returns what the commands print and raises what they would, and its notebook."""

from __future__ import annotations

import inspect
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState
from typer.testing import CliRunner

import expert_cli
from expert_cli import api
from expert_cli.cli import app
from expert_cli.config.resolve import Overrides
from expert_cli.errors import EnvironmentProblem, InputError, Interrupted
from expert_cli.pipeline.options import RunOptions
from expert_cli.runs.metrics import read_json
from tests import manifests, tiny
from tests.train.projects import project

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
    assert [some[-1] for some in runs] == [(True, [text, "<|im_end|>"]) for text in ("2", "3")]
    explained = expert_cli.explain_store(manifest)
    assert explained == document("pretokenize", "-m", manifest, "--explain")["stores"][0]
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
        assert "tokens_per_s" in logs or "loss" not in logs

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


ROOT = Path(__file__).parents[2]


def test_the_notebook_runs(tmp_path: Path) -> None:
    folder, model = tmp_path / "orders", tiny.tiny_model_folder(tmp_path / "tiny-llama")
    shutil.copytree(ROOT / "examples" / "orders", folder)
    notebook = read_json(ROOT / "docs" / "api.ipynb")
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    values: dict[str, Any] = {}
    for cell in cells:
        exec(compile("".join(cell["source"]), "api.ipynb", "exec"), values)  # noqa: S102  our own notebook
        if "parameters" in cell["metadata"].get("tags", ()):
            values |= {"MANIFEST": folder / "manifest.json", "BASE_MODEL": str(model), "OUTPUT": tmp_path / "run"}
            values |= {"MAX_STEPS": 2, "CASES": 3}
    assert values["result"].document["steps"] == 2
    assert values["evaluated"].share["cases"] == 3
    assert isinstance(values["answer"], str)


ANSWERS = [
    {"verifier": "json", "schema": None, "expected": n, "rule": "exact", "id": f"n{n}", "answer": str(min(n, 2))}
    for n in range(4)
]


def test_the_package_offers_the_api() -> None:
    for name in api.__all__:
        assert getattr(expert_cli, name) is getattr(api, name)
    with pytest.raises(AttributeError, match="has no attribute 'fit'"):
        expert_cli.fit  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import json, sys; before = set(sys.modules); import expert_cli; print(json.dumps([*set(sys.modules) - before]))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=600, check=True)
    assert [name for name in json.loads(ran.stdout) if name.split(".")[0] not in sys.stdlib_module_names] == [
        "expert_cli"
    ]


@pytest.mark.parametrize("fields_of", [Overrides, RunOptions])
def test_every_setting_of_a_run_is_a_parameter(fields_of: Any) -> None:
    parameters = inspect.signature(api.train).parameters
    for field in fields(fields_of):
        if field.name not in ("command", "stored_at", "written"):  # they follow from others
            assert parameters[field.name].default == field.default


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        pytest.param(lambda m: api.train(m.parent / "none.json"), InputError, "none.json", id="no manifest"),
        pytest.param(lambda m: api.train(m, device="tpu"), InputError, "--device: must be", id="device"),
        pytest.param(lambda m: api.train(m, allow_drift=["x"]), InputError, "goes with --resume", id="drift"),
        pytest.param(api.train, InputError, "train.jsonl", id="no rows"),
        pytest.param(lambda m: api.evaluate(m.parent), InputError, "no adapter there", id="no adapter"),
        pytest.param(lambda m: api.load_expert(m.parent), InputError, "no adapter there", id="load_expert"),
        pytest.param(
            lambda m: api.evaluate(answers=m.parent / "none.jsonl"), InputError, "none.jsonl", id="no answers"
        ),
    ],
)
def test_errors_are_raised_and_nothing_is_printed(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    call: Callable[[Path], Any],
    error: type[InputError],
    message: str,
) -> None:
    manifest = manifests.write(tmp_path, manifests.small())
    with pytest.raises(error, match=message):
        call(manifest)
    assert capfd.readouterr() == ("", "")


def test_a_path_that_cannot_be_written_is_an_expert_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    answers = write_answers(tmp_path)
    with pytest.raises(EnvironmentProblem, match="file"):
        api.evaluate(answers=answers, output=tmp_path / "file" / "evaluation.json")


def write_answers(folder: Path) -> Path:
    path = folder / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ANSWERS), encoding="utf-8")
    return path


def document(*words: str | Path) -> dict[str, Any]:
    """Return what a command prints with --json, without its head."""
    printed = json.loads(CliRunner().invoke(app, [*map(str, words), "--json", "--quiet"]).stdout)
    return {key: value for key, value in printed.items() if key not in ("schema_version", "command")}


def test_graded_answers_are_what_the_command_prints(tmp_path: Path) -> None:
    answers = write_answers(tmp_path)
    found = api.evaluate(answers=answers, threshold=0.9, output=tmp_path / "a.json")
    assert found.as_json() == document("evaluate", "--answers", answers, "--threshold", "0.9")
    assert found.missed == "accuracy 0.7500 (3 of 4) is below the threshold 0.9"
    again = api.evaluate(answers=answers, threshold=0.5, against=tmp_path / "a.json")
    assert again.as_json() == document(
        "evaluate", "--answers", answers, "--threshold", "0.5", "--against", tmp_path / "a.json"
    )
    assert (again.missed, again.told["against"]["max_drop"]) == ("", 0.05)


CALLS: dict[str, tuple[Callable[..., Any], ...]] = {
    "train": (api.train, api.estimate_run),
    "pretokenize": (api.pretokenize, api.explain_store),
    "evaluate": (api.evaluate,),
    "audit": (api.audit,),
    "chat": (api.load_expert,),
    "validate": (api.validate,),
}
OF_THE_COMMAND = {
    "train": {"plan_only"},
    "pretokenize": {"every", "experts", "explain"},
    "evaluate": {"sample"},
    "audit": set(),
    "chat": {"adapter", "prompt", "input_", "compare", "samples"},
    "validate": {"manifests", "verbose"},
}
"""Options that say what is done, or with which of several; the rest is handed on as it is."""
OF_PYTHON = {"arguments", "reporter", "callbacks", "own_folder", "run", "manifest"}


@pytest.mark.parametrize("command", CALLS)
def test_options_are_parameters_of_the_same_name_and_default(command: str) -> None:
    options = inspect.signature(getattr(import_module(f"expert_cli.commands.{command}"), command)).parameters
    parameters = {name: one for call in CALLS[command] for name, one in inspect.signature(call).parameters.items()}
    assert set(options) - OF_THE_COMMAND[command] - {"console"} <= set(parameters)
    assert set(parameters) - OF_PYTHON <= set(options)
    for name in set(options) & set(parameters) - {"manifest"}:
        default = parameters[name].default
        if default is not inspect.Parameter.empty:
            assert options[name].default == (None if default == () else default), name
