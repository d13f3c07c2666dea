"""Unusual command lines: what is wrong is named, in words and as JSON, and nothing is written that nobody asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests import manifests
from tests.command_line import run_command
from tests.train.projects import tiny_llama

M = ("-m", "manifest.json")
TRAIN = ("train", *M)
# id -> command line, exit code, what is said
CASES: dict[str, tuple[tuple[str, ...], int, str]] = {
    "an option that there is not": (("train", "--max-step", "3"), 2, "No such option: --max-step .Possible options: --m"),
    "an option without its value": (("train", "--manifest"), 2, "requires an argument"),
    "no manifest named": (("train",), 2, "Missing option '--manifest' / '-m'"),
    "a manifest that is broken": (("train", "-m", "broken.json"), 2, "broken.json:1:14: not JSON: Expecting property name enclosed in double quotes"),
    "an unknown key": (("train", "-m", "typo.json"), 2, "training.config.learning_rte: unknown key, nearest known: learning_rate"),
    "many unknown keys": (("train", "-m", "typos.json"), 2, ".and 2 more: expert-cli validate typos.json"),
    "a GPU that is not there": ((*TRAIN, "--device", "cuda"), 3, "--device cuda: no usable GPU"),
    "validate: a folder": (("validate", "."), 2, "folder"),
    "validate: nothing there": (("validate", "no/such.json"), 2, "No such file"),
    "validate: a device": (("validate", "/dev/zero"), 2, "device"),
    "validate: a name of 300 letters": (("validate", "a" * 300), 2, "aaa"),
    "steps below zero": ((*TRAIN, "--max-steps", "-1"), 2, "--max-steps"),
    "seed of 33 bits": ((*TRAIN, "--seed", str(2**32)), 2, "seed"),
    "epochs that are no number": ((*TRAIN, "--epochs", "nan"), 2, "epochs"),
    "set: nothing behind the sign": ((*TRAIN, "--set", "rank="), 2, "rank"),
    "set: the name of the expert": ((*TRAIN, "--set", "name=x"), 2, "name"),
    "set: a block": ((*TRAIN, "--set", "training.config={}"), 2, "training.config"),
    "data that is not there": ((*TRAIN, "--dataset", "no.jsonl"), 2, "no.jsonl"),
    "data of no name": ((*TRAIN, "--dataset", ""), 2, "data source"),
    "output that is a file": ((*TRAIN, "--output", "notes.txt"), 2, "notes.txt"),
    "output under a file": ((*TRAIN, "--output", "notes.txt/run"), 2, "notes.txt"),
    "a base model that is not listed": ((*TRAIN, "--base-model", "gpt-9"), 3, "gpt-9"),
    "resume from nothing": ((*TRAIN, "--resume", "no/such"), 2, "no/such"),
    "locked to nothing": ((*TRAIN, "--locked", "no.json"), 2, "no.json"),
    "a price of words": ((*TRAIN, "--plan", "--price", "cheap"), 2, "cheap"),
    "drift of a key that is none": ((*TRAIN, "--resume", "auto", "--allow-drift", "hue"), 2, "hue"),
    "probe without plan": ((*TRAIN, "--probe"), 2, "--plan"),
    "show fewer than none": (("pretokenize", *M, "--show", "-1"), 2, "--show"),
    "all of a folder without experts": (("pretokenize", "--all", "empty"), 2, "empty"),
    "pretokenize nothing": (("pretokenize",), 2, "manifest|--all"),
    "experts that are not there": (("find-datasets", "--experts", "no/such"), 2, "no/such"),
    "answers that are not there": (("evaluate", "--answers", "no.jsonl"), 2, "no.jsonl"),
    "answers of words": (("evaluate", "--answers", "notes.txt"), 2, "notes.txt"),
    "answers without a verifier": (("evaluate", "--answers", "unverified.jsonl"), 2, "verifier"),
    "answers of an unknown verifier": (("evaluate", "--answers", "oracle.jsonl"), 2, "oracle"),
    "a threshold above all": (("evaluate", "--answers", "right.jsonl", "--threshold", "2"), 2, "threshold"),
    "an evaluation into a folder": (("evaluate", "--answers", "right.jsonl", "--output", "empty"), 2, "--output empty: is a folder"),
    "an evaluation into no name": (("evaluate", "--answers", "right.jsonl", "--output", ""), 2, "--output .: is a folder"),
    "a report into a folder": (("report", "empty", "--output", "empty"), 2, "--output empty: is a folder"),
    "what was watched into a folder": (("benchmark", "--output", "empty"), 2, "--output empty: is a folder"),
    "a drop from nothing": (("evaluate", "--answers", "right.jsonl", "--max-drop", "0.1"), 2, "--against"),
    "export: a kind of GGUF that is none": (("export", "--adapter", "empty", "--output", "out", "--gguf", "q99"), 2, "q99"),
    "report: nothing there": (("report", "no/such"), 2, "no/such"),
    "report: no run": (("report", "empty"), 2, "empty"),
    "benchmark: no time": (("benchmark", "--duration", "0"), 2, "--duration"),
    "benchmark: a sweep of an unknown key": (("benchmark", *M, "--sweep", "hue=1,2"), 2, "hue"),
    "benchmark: against what is not there": (("benchmark", *M, "--against", "no.json"), 2, "no.json"),
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a manifest, some files, and nothing else."""
    (tmp_path / "empty").mkdir()
    files = {
        "broken.json": '{"name": "x",}',
        "typo.json": json.dumps(manifests.small(learning_rte=1)),
        "typos.json": json.dumps(manifests.small(learning_rte=1, lora_r=2, num_train_epochs=3)),
        "notes.txt": "only words\n",
        "empty.jsonl": "",
        "unverified.jsonl": '{"answer": "1", "expected": "1"}\n',
        "oracle.jsonl": '{"verifier": "oracle", "answer": "1", "expected": "1"}\n',
        "right.jsonl": '{"verifier": "json", "schema": null, "rule": "exact", "answer": "1", "expected": 1}\n',
        "datasets/train.jsonl": '{"instruction": "ask", "output": "say"}\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    manifest = manifests.small()
    manifest["base_models"][0]["name"] = str(tiny_llama())
    manifests.write(tmp_path, manifest)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


def written(place: Path) -> list[Path]:
    """Return what lies in a folder, but for the lock that a run takes before it looks closer."""
    return sorted(path for path in place.rglob("*") if path.is_file() and path.suffix != ".lock")


@pytest.mark.parametrize(("words", "code", "said"), CASES.values(), ids=CASES.keys())
def test_named_and_nothing_written(place: Path, words: tuple[str, ...], code: int, said: str) -> None:
    before = written(place)
    told = run_command(words, place)
    assert told.code == code, told
    assert re.search(said, told.out + told.err)
    assert "Traceback" not in told.err
    if words[0] != "validate":
        assert len(told.err[told.err.rindex("error: ") :].splitlines()) <= 3
    done = run_command((words[0], "--json", *words[1:]), place)
    document = json.loads(done.out)
    assert (done.code, document["command"]) == (code, words[0])
    assert re.search(said, json.dumps(document, ensure_ascii=False))
    assert written(place) == before
