"""Method grpo: an expert trains on its own answers, which are judged; a run directory as any other comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from expert_cli import api
from expert_cli.errors import EnvironmentProblem, InputError, Interrupted, ManifestError
from expert_cli.pipeline import grpo
from expert_cli.runs.paths import RunPaths
from tests import manifests, tiny
from tests.train.projects import project

pytestmark = [pytest.mark.filterwarnings("ignore")]  # TRL asks transformers by old names
SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "train.schema.json"
TEXT = r"[^\ufffd]*"
"""Half of the tiny tokenizer's bytes are no text by themselves."""
CASES = [{"verifier": "regex", "pattern": TEXT, "prompt": f"Write text, {n}.", "id": f"l{n}"} for n in range(4)]


def written(folder: Path, keys: dict[str, Any] | None = None, cases: Any = CASES, **config: Any) -> Path:
    """Write a project of method grpo: answers that are text are right.

    Its logits are small, since its embeddings are: at a low temperature another answer can become likely at all.
    """
    model = tiny.tiny_model_folder(folder / "tiny")
    settings = {"method": "grpo", "batch_size": 8, "max_steps": 3, "learning_rate": 0.02, "logging_steps": 1} | config
    manifest = project(folder / "one", model, **settings)
    (folder / "one" / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in cases), encoding="utf-8")
    told = json.loads(manifest.read_text(encoding="utf-8"))
    told["base_models"][0]["quantization"] = "none"
    told["training"]["dataset"] = {"path": "no-such-rows.jsonl"}
    told["training"]["grpo"] = {"prompts": "prompts.jsonl", "samples": 4, "max_new_tokens": 2, "temperature": 0.1} | (
        keys or {}
    )
    return manifests.write(folder / "one", told)


def test_twenty_steps_on_a_cpu_leave_a_run_directory(tmp_path: Path) -> None:
    manifest = written(tmp_path, {"reward": "binary", "samples": 8}, max_steps=20, batch_size=16, learning_rate=0.01)
    result = api.train(manifest, device="cpu")
    document = json.loads(RunPaths(result.output).report_json.read_text(encoding="utf-8"))
    schema = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text(encoding="utf-8")))
    schema.validate({"schema_version": 1, "command": "train"} | document)
    rewards = document["grpo"]["mean_reward"]
    assert (document["steps"], document["grpo"]["prompts"], document["grpo"]["reward"]) == (20, 4, "binary")
    assert rewards["first"] < 0.85 < rewards["last"]
    lines = [json.loads(line) for line in RunPaths(result.output).metrics.read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 21))
    assert 0 < document["tokens"]["trained"] <= 20 * 16 * 2
    assert document["tokens"]["real"] > document["tokens"]["trained"]
    paths = RunPaths(result.output)
    assert paths.complete.read_text(encoding="utf-8").split()[0] == document["adapter_sha256"]
    assert json.loads(paths.status.read_text(encoding="utf-8"))["state"] == "complete"
    assert all(path.is_file() for path in (paths.log, paths.run_json, paths.report_html))
    assert f"reward    {rewards['first']:.3f} -> {rewards['last']:.3f} (binary)" in result.summary()
    found = api.evaluate(result.output, cases=manifest.with_name("prompts.jsonl"), max_new_tokens=2)
    assert found.evaluation.share.correct == 4


def test_a_prompt_that_trl_would_write_in_another_way_is_refused(tmp_path: Path) -> None:
    """A control token in a question is text in training and evaluation: TRL would make a control token of it."""
    cases = [*CASES, {**CASES[0], "id": "odd", "prompt": "Write <|im_end|> text."}]
    with pytest.raises(InputError, match=r"prompts\.jsonl:5: TRL would write this prompt in other tokens"):
        api.train(written(tmp_path, cases=cases), device="cpu")


@pytest.mark.parametrize(
    ("config", "keys", "message"),
    [
        ({"batch_size": 6}, {}, "4: batch_size times gradient_accumulation_steps is 6, which is no multiple of it"),
        ({}, {"prompts": None}, "method grpo needs prompts"),
        ({"lr_scheduler": "one_cycle"}, {}, "one_cycle is not to be had with method grpo"),
    ],
)
def test_settings_that_do_not_go_together(
    tmp_path: Path, config: dict[str, Any], keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(ManifestError, match=message):
        api.train(written(tmp_path, keys, **config), device="cpu")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"resume": "checkpoint-1"}, "--resume does not go with method grpo"),
        ({"trust_store": True}, "--trust-store does not go with method grpo"),
        ({"stage": "fast"}, "--stage does not go with method grpo"),
    ],
)
def test_what_such_a_run_cannot_do_is_refused(tmp_path: Path, asked: dict[str, Any], message: str) -> None:
    manifest = written(tmp_path)
    with pytest.raises(InputError, match=message):
        api.train(manifest, device="cpu", output=tmp_path / "run", **asked)
    assert not RunPaths(tmp_path / "run").run_json.exists()


def test_resume_auto_begins_a_run_finds_it_done_and_cannot_go_on_with_it(tmp_path: Path) -> None:
    """So the files of `expert-cli job` have it: what was broken off is refused, not begun anew for ever."""
    manifest, paths = written(tmp_path, max_steps=1), RunPaths(tmp_path / "run")
    done, again = (api.train(manifest, device="cpu", output=paths.output, resume="auto") for _ in range(2))
    assert done.document["adapter_sha256"] == again.document["adapter_sha256"]
    paths.complete.unlink()
    with pytest.raises(InputError, match="--resume does not go with method grpo") as refused:
        api.train(manifest, device="cpu", output=paths.output, resume="auto")
    assert refused.value.hint == "start it anew: --overwrite"


def test_nothing_is_planned(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--plan: nothing tells how long answers will be"):
        api.estimate_run(written(tmp_path), device="cpu")


def test_without_trl_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpo, "has_package", lambda name: name != "trl")
    with pytest.raises(EnvironmentProblem, match="needs the package trl") as raised:
        api.train(written(tmp_path), device="cpu")
    assert raised.value.hint == 'pip install "expert-cli[rl]"'


def test_a_case_that_cannot_be_judged_ends_the_run_before_a_model_is_loaded(tmp_path: Path) -> None:
    cases = [{"verifier": "sql", "database": "none.sqlite", "expected": "SELECT 1", "prompt": "?"}]
    with pytest.raises(InputError, match=r"prompts\.jsonl:1: none\.sqlite: no such file"):
        api.train(written(tmp_path, cases=cases), device="cpu")


def test_a_stop_file_ends_the_run(tmp_path: Path) -> None:
    from transformers import TrainerCallback

    class Stop(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            (tmp_path / "run" / "STOP").touch()

    with pytest.raises(Interrupted, match="after step 1 of 3; nothing of it is kept"):
        api.train(written(tmp_path), device="cpu", output=tmp_path / "run", callbacks=[Stop()])
    status = json.loads(RunPaths(tmp_path / "run").status.read_text(encoding="utf-8"))
    assert (status["state"], status["step"]) == ("stopped", 1)
    assert not RunPaths(tmp_path / "run").complete.exists()
