"""The Python API: what it offers, what importing it costs, and that it raises what a command would print."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import expert_cli
from expert_cli import api
from expert_cli.cli import app
from expert_cli.config.resolve import Overrides
from expert_cli.errors import EnvironmentProblem, InputError, ManifestError
from expert_cli.pipeline.options import RunOptions
from tests import manifests

ANSWERS = [
    {"verifier": "json", "schema": None, "expected": n, "rule": "exact", "id": f"n{n}", "answer": str(min(n, 2))}
    for n in range(4)
]


def test_the_package_offers_the_api_to_programs_and_to_type_checkers() -> None:
    body = ast.parse(Path(expert_cli.__file__).read_text(encoding="utf-8")).body
    checked = next(node for node in body if isinstance(node, ast.If)).body[0]
    assert isinstance(checked, ast.ImportFrom)
    assert sorted(alias.name for alias in checked.names) == sorted(expert_cli.__all__) == sorted(api.__all__)
    for name in api.__all__:
        assert getattr(expert_cli, name) is getattr(api, name)
    with pytest.raises(AttributeError, match="module 'expert_cli' has no attribute 'fit'"):
        expert_cli.fit  # noqa: B018


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import json, sys; before = set(sys.modules); import expert_cli; print(json.dumps([*set(sys.modules) - before]))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=600, check=True)
    assert [name for name in json.loads(ran.stdout) if name.split(".")[0] not in sys.stdlib_module_names] == [
        "expert_cli"
    ]


@pytest.mark.parametrize(
    ("function", "fields_of"),
    [
        (api.train, Overrides),
        (api.estimate_run, Overrides),
        (api.train, RunOptions),
    ],
)
def test_every_setting_of_a_run_is_a_parameter(function: Callable[..., Any], fields_of: Any) -> None:
    parameters = inspect.signature(function).parameters
    for field in fields(fields_of):
        if field.name not in ("command", "stored_at", "written"):  # they follow from others
            assert parameters[field.name].default == field.default


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        pytest.param(lambda m: api.train(m.parent / "none.json"), InputError, "none.json", id="no manifest"),
        pytest.param(lambda m: api.train(m, device="tpu"), InputError, "--device tpu: must be", id="device"),
        pytest.param(lambda m: api.train(m, epochs=0), InputError, "--epochs 0: must be", id="epochs"),
        pytest.param(lambda m: api.train(m, allow_drift=["x"]), InputError, "goes with --resume", id="drift"),
        pytest.param(lambda m: api.train(m, overwrite=True, resume="auto"), InputError, "give one", id="overwrite"),
        pytest.param(api.train, InputError, "train.jsonl", id="no rows"),
        pytest.param(lambda m: api.train(m, settings=["training.config.rnk=1"]), InputError, "rnk", id="settings"),
        pytest.param(lambda m: api.estimate_run(m, price="dear"), InputError, "--price dear", id="price"),
        pytest.param(lambda m: api.pretokenize(m.parent / "none.json"), ManifestError, "none.json", id="pretokenize"),
        pytest.param(lambda m: api.evaluate(m.parent), InputError, "no adapter there", id="no adapter"),
        pytest.param(lambda m: api.evaluate(m.parent, shots=1), InputError, "with --baseline", id="shots"),
        pytest.param(lambda m: api.evaluate(m.parent, limit=0), InputError, "--limit 0: must be", id="limit"),
        pytest.param(lambda m: api.evaluate(m.parent, max_drop=0.1), InputError, "with --against", id="max drop"),
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


@pytest.mark.parametrize("key", ["learning_rate", "learning_rte"])
def test_validate_returns_what_the_command_prints(tmp_path: Path, key: str) -> None:
    manifest = manifests.write(tmp_path, manifests.small(**{key: 1e-4}))
    found = api.validate(manifest)
    printed = document("validate", manifest)
    assert printed == {"valid": key == "learning_rate", "manifests": [json.loads(json.dumps(found.as_json()))]}


def test_graded_answers_are_what_the_command_prints(tmp_path: Path) -> None:
    answers = write_answers(tmp_path)
    found = api.evaluate(answers=answers, threshold=0.9, output=tmp_path / "a.json")
    assert found.as_json() == document("evaluate", "--answers", answers, "--threshold", "0.9")
    assert found.missed == "accuracy 0.7500 (3 of 4) is below the threshold 0.9"
    again = api.evaluate(answers=answers, threshold=0.5, against=tmp_path / "a.json")
    assert again.as_json() == document(
        "evaluate", "--answers", answers, "--threshold", "0.5", "--against", tmp_path / "a.json"
    )
    assert (again.missed, again.drop["max_drop"] if again.drop else None) == ("", 0.05)
