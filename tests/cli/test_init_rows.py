"""init --from: rows are looked at, and the manifest that is written for them is valid and says what was seen."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from tests import tiny

Cli = Callable[..., Any]
PAIRS = [(f"What is {n} plus {n}?", f"It is {2 * n}.") for n in range(300)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama")


def lines(rows: Sequence[Mapping[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_csv(path: Path, heads: Sequence[str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([heads, *PAIRS])


def made(cli: Cli, *words: str | Path) -> dict[str, Any]:
    """Make the expert "one" offline, check that it is valid without a warning, and return what was told of it."""
    done = cli("init", "one", "--offline", "--json", *words)
    assert done.code == 0, done.err
    told: dict[str, Any] = json.loads(done.out)
    checked = cli("validate", told["manifest"])
    assert (checked.code, checked.err) == (0, "")
    return told


def chat(asked: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]}


FORMS: dict[str, tuple[str, str, str, str]] = {
    "alpaca": (
        "rows.json",
        json.dumps([{"instruction": a, "input": "", "output": b} for a, b in PAIRS]),
        "pair",
        "instruction <- instruction, input <- input, response <- output",
    ),
    "messages": ("rows.jsonl", lines([chat(*pair) for pair in PAIRS]), "messages", "messages <- messages"),
    "text": ("rows.jsonl", lines([{"text": f"{a} {b}"} for a, b in PAIRS]), "text", "text <- text"),
    "question and answer": (
        "rows.csv",
        "question,answer\n" + "".join(f"{a},{b}\n" for a, b in PAIRS),
        "pair",
        "instruction <- question, response <- answer",
    ),
}


@pytest.mark.parametrize(("name", "text", "form", "columns"), FORMS.values(), ids=FORMS.keys())
def test_the_form_is_found(
    cli: Cli, tmp_path: Path, model: Path, name: str, text: str, form: str, columns: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    told = made(cli, "--from", name, "--base-model", model)
    assert told["rows"] == f"../{name}"
    found = told["found"]
    assert (found["form"], found["columns"], found["read"], found["good"]) == (form, columns, 300, 300)


def test_lengths_are_those_of_the_store_that_training_takes(cli: Cli, tmp_path: Path, model: Path) -> None:
    rows = [{"question": asked, "answer": answer, "id": "1"} for asked, answer in PAIRS]
    (tmp_path / "rows.jsonl").write_text(lines([*rows, {"question": "No answer?"}]), encoding="utf-8")
    told = made(cli, "--from", "rows.jsonl", "--base-model", model)
    (fingerprint,) = tmp_path.rglob("fingerprint.json")
    store: Any = datasets.load_from_disk(fingerprint.parent)
    tokens = sorted(map(len, store["train"]["input_ids"]))
    found = told["found"]
    assert found["length"] == {
        "p50": int(np.percentile(tokens, 50, method="higher")),
        "p99": int(np.percentile(tokens, 99, method="higher")),
        "max": tokens[-1],
        "by": "tokenizer",
    }
    assert (found["read"], found["good"], found["not_read"]) == (301, 300, ["id"])
    assert found["validation_split"] == 0.067, "20 of 300"
    assert abs(len(store["validation"]) - 20) <= 1
    written = json.loads(Path(tmp_path, told["manifest"]).read_text(encoding="utf-8"))
    assert written["training"]["config"]["max_seq_length"] == found["max_seq_length"] == 512
    explained = cli("pretokenize", "--manifest", told["manifest"], "--explain", "--json", "--offline")
    assert json.loads(explained.out)["stores"][0]["status"] == "hit"


def test_without_a_tokenizer_lengths_are_estimated_and_told_so(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(lines([{"question": "a" * 60, "answer": "b" * 10}] * 250), encoding="utf-8")
    done = cli("init", "one", "--from", "rows.jsonl", "--base-model", "org/Not-Here-0.1B", "--offline")
    assert done.code == 0, done.err
    length = next(line for line in done.out.splitlines() if line.startswith("length "))
    assert length.split(None, 1)[1] == ("20 tokens at half of the documents, 20 at 99 %, 20 at most, by estimate")
    written = json.loads((tmp_path / "one" / "manifest.json").read_text(encoding="utf-8"))
    assert written["training"]["config"]["learning_rate"] == 1e-3, "a small model, by its name"


def test_columns_that_do_not_tell_are_asked_for_and_nothing_is_left(cli: Cli, tmp_path: Path, model: Path) -> None:
    write_csv(tmp_path / "rows.csv", ["mail", "label"])
    named = ("--from", "rows.csv", "--base-model", model)
    done = cli("init", "one", *named)
    assert done.code == 2
    assert done.err.splitlines()[0].endswith("no column is recognized as the response; columns: mail, label")
    assert "--column instruction=NAME --column response=NAME" in done.err
    assert not (tmp_path / "one").exists()
    told = made(cli, *named, "--column", "instruction=mail", "--column", "response=label")
    assert told["found"]["columns"] == "instruction <- mail, response <- label"


def test_the_validation_rows_of_a_folder_evaluate(cli: Cli, tmp_path: Path, model: Path) -> None:
    (tmp_path / "rows").mkdir()
    write_csv(tmp_path / "rows" / "train.csv", ["question", "answer"])
    write_csv(tmp_path / "rows" / "validation.csv", ["question", "answer"])
    found = made(cli, "--from", "rows", "--base-model", model)["found"]
    assert (found["validation_path"], found["validation_split"]) == ("../rows::validation", None)


def test_few_rows_are_all_trained(cli: Cli, tmp_path: Path, model: Path) -> None:
    write_csv(tmp_path / "rows.csv", ["question", "answer"])
    told = made(cli, "--from", "rows.csv::train[:100]", "--base-model", model)
    assert told["rows"] == "../rows.csv::train[:100]"
    found = told["found"]
    assert (found["read"], found["validation_split"], found["epochs"]) == (100, None, 5)


REFUSED = {
    "a kind, too": (("--from", "rows.csv", "--kind", "sql"), "--kind and --from: each brings a manifest of its own"),
    "a column without rows": (("--column", "text=a"), "--column goes with --from ROWS"),
    "no such role": (
        ("--from", "rows.csv", "--column", "answer=a"),
        '--column "answer=a" is not of the form ROLE=NAME',
    ),
    "no such file": (("--from", "nowhere.csv"), "nowhere.csv: no such file or folder; looked for at: "),
    "no such column": (
        ("--from", "rows.csv", "--column", "text=b", "--base-model", "org/a"),
        'the column "b" of "field_mapping.text" is not there',
    ),
}


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused_leaves_nothing(cli: Cli, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    write_csv(tmp_path / "rows.csv", ["question", "answer"])
    done = cli("init", "one", "--offline", *words)
    assert done.code == 2
    assert message in done.err.splitlines()[0]
    assert not (tmp_path / "one").exists()
