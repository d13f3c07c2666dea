"""Run directories -> one page: what it shows, that nothing of a run becomes markup, that it needs no network."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from expert_cli.artifacts.html_page import page_part
from expert_cli.artifacts.report import CHARACTERS, MAX_RUNS, write_report
from expert_cli.artifacts.report_data import read_run
from expert_cli.errors import InputError
from expert_cli.runs.metrics import SHARES as ALL_SHARES
from expert_cli.utils.redaction import redact

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{ 7*7 }}"
SHARES = {"data": 0.25, "forward": 0.25, "backward": 0.5}


def run_json(**more: Any) -> dict[str, Any]:
    return {
        "started": "2026-11-21T08:00:00+00:00",
        "config": {
            "expert": "expert-tiny",
            "manifest": "/m/my experts/manifest.json",
            "seed": 42,
            "model": {"name": "tiny"},
            "optim": {"max_steps": 40},
            "data": {"train": [{"path": "/d/rows.jsonl"}], "validation": []},
            "origins": [["rank", "training.config"], ["batch_size", "--set"], ["max_steps", "--max-steps"]],
        },
        "effects": [
            {
                "key": "training.config.batch_size",
                "value": 4,
                "status": "applied",
                "effect": "rows a step",
                "reason": "",
            },
            {"key": "training.config.max_steps", "value": None, "status": "applied", "effect": "", "reason": ""},
        ],
        "kernels": {"attention": {"used": "sdpa", "reason": "PyTorch's fused kernels"}},
        "identity": {"tokenizer": "aa11", "code": "bb22"},
        "data": {
            "files": {"/d/rows.jsonl": "cc33"},
            "train": {
                "rows": 10,
                "tokens": 100,
                "trained_tokens": 40,
                "length": {"p50": 9, "max": 20},
                "histogram": {"counts": [6, 4], "edges": [1, 10, 20]},
            },
        },
        "machine": {"system": "Linux", "cores": 2, "memory_bytes": 8e9, "gpus": [], "versions": [["torch", "2.13.0"]]},
        **more,
    }


def run_folder(folder: Path, run: dict[str, Any] | None = None, steps: int = 20, **more: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(run_json() if run is None else run), encoding="utf-8")
    rows = [
        {
            "step": n,
            "seconds": n,
            "loss": 2 / n,
            "tokens_per_s": 500.0,
            "memory_mb": 100,
            "step_time_shares": SHARES,
            **more,
        }
        for n in range(1, steps + 1)
    ]
    rows.append({"step": steps, "seconds": steps, "eval_loss": 0.5})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(text + '{"step": 99', encoding="utf-8")
    return folder


class Page(HTMLParser):
    """The elements of a page, its scripts, and its visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.words.append(data)

    @property
    def charts(self) -> list[dict[str, Any]]:
        charts: list[dict[str, Any]] = json.loads(self.scripts[0])
        return charts

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page(to: Path, *runs: Path) -> Page:
    write_report(list(runs), to)
    return Page(to.read_text(encoding="utf-8"))


def test_one_run(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", run_json(command="expert-cli train --manifest m.json --seed 42"))
    packing = {"fill": 0.987, "sequences": 3, "max_seq_length": 1024, "truncated_tokens": 5}
    report = {"steps": 20, "loss": {"first": 2.0, "last": 0.1}, "store": {"packing": packing}}
    report |= {"seconds": 7512.4, "peak_memory_mb": 2662.4}
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")
    (folder / "COMPLETE").touch()
    shown = page(tmp_path / "r.html", folder)
    assert {chart["title"]: len(chart["series"][0]["x"]) for chart in shown.charts} == {
        "Loss": 20,
        "Evaluation loss": 1,
        "Real tokens a second": 20,
        "Memory": 20,
    }
    for words in (
        "expert-tiny",
        "finished",
        "2.000 → 0.100",
        "data 25.0%",
        "backward 50.0%",
        "10 documents, 100 tokens, 40 trained; length p50 9, max 20",
        "3 packs, 98.70% full: at most 1,024 tokens a pack (max_seq_length); 5 tokens cut",
        "started 2026-11-21 08:00 UTC",
        "time 2 h 05 min",
        "peak memory 2.6 GB",
        "PyTorch's fused kernels",
        "/d/rows.jsonl cc33",
        "torch 2.13.0",
        "rows a step",
        "Not logged: accuracy of sampled answers, learning rate, GPU utilization, model FLOPs utilization, gradient norm.",
        "expert-cli train --manifest m.json --seed 42",
    ):
        assert words in shown.text
    assert [attributes["title"] for tag, attributes in shown.tags if "height" in (attributes.get("style") or "")] == [
        "1 to 10 tokens: 6 documents",
        "10 to 20 tokens: 4 documents",
    ]


def share(correct: int, cases: int, low: float, high: float) -> dict[str, Any]:
    return {"cases": cases, "correct": correct, "accuracy": correct / cases, "ci95": [low, high]}


def evaluated(folder: Path, **more: Any) -> Path:
    """Give a run an evaluation of its adapter: three of four answers are right, one of the base model's."""
    document = {
        "schema_version": 1,
        "command": "evaluate",
        **share(3, 4, 0.3006, 0.9544),
        "by_category": {"joins": share(1, 2, 0.0945, 0.9055), "groups": share(2, 2, 0.3424, 1.0)},
        "failures": {"wrong": 1},
        "answers": [
            {"id": "shop-1", "category": "joins", "kind": "correct", "detail": "", "answer": "SELECT 1"},
            {
                "id": "shop-2",
                "category": "joins",
                "kind": "wrong",
                "detail": "row 1 is (5)",
                "question": {"prompt": "Which two?", "input": f"{'CREATE TABLE t':300}"},
                "expected": "SELECT 2",
                "answer": "SELECT 2 < 3",
            },
        ],
        "classification": [
            {
                "labels": ["cat", "dog"],
                "cases": 7,
                "macro_f1": 0.775,
                "confusion": [[3, 1, 1], [0, 2, 0]],
                "by_label": {"cat": {"f1": 0.75}, "dog": {"f1": 0.8}},
            }
        ],
        "baseline": {
            **share(1, 4, 0.0456, 0.6994),
            "by_category": {"joins": share(0, 2, 0.0, 0.6576), "groups": share(1, 2, 0.0945, 0.9055)},
            "difference": {"difference": 0.5, "ci95": [0.01, 0.99], "gained": 2, "lost": 0},
        },
        "pass_at": {"1": 0.5, "2": 0.6, "3": 0.7, "4": 0.75, "5": 0.8},
        "pass_at_ci95": {str(k): [0.1 * k, 0.95] for k in range(1, 6)},
        "majority": 0.625,
        "majority_ci95": [0.3, 0.875],
        "majority_by": "result",
        "threshold": 0.95,
        "against": {
            "file": "old.json",
            "cases": 4,
            "lost": 1,
            "gained": 0,
            "drop": 0.25,
            "ci95": [-0.2, 0.7],
            "max_drop": 0.3,
            "held": True,
            "answers": 20,
            "answers_differ": 3,
        },
        "passed": False,
        "extraction": "the last fenced block",
        "expert": {"adapter_sha256": "aa", "quantization": "int4", "dtype": "bf16", "template": "alpaca"},
        "generation": {"temperature": 0.0, "max_new_tokens": 256, "cut_off": 1, "tokens": 1234, "tokens_per_s": 70.2}
        | {"device": "cpu", "threads": 2, "samples": 5, "looping": 2},
        "cases_file": "/home/ada/sql/tests/cases.jsonl",
        "limit": None,
        **more,
    }
    (folder / "evaluation.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "report.json").write_text('{"adapter_sha256": "aa"}', encoding="utf-8")
    return folder


def test_the_evaluation_of_a_runs_adapter(tmp_path: Path) -> None:
    shown = page(tmp_path / "r.html", evaluated(run_folder(tmp_path / "run")))
    for words in (
        "answers that are right 75.0%",
        "all cases expert 75.0% 3 of 4 · 30.1% to 95.4% base model 25.0% 1 of 4 · 4.6% to 69.9%",
        "joins expert 50.0% 1 of 2 · 9.4% to 90.5% base model 0.0% 0 of 2 · 0.0% to 65.8%",
        "the expert gained 2 cases and lost 0: +50.0% (95 % interval +1.0% to +99.0%)",
        "Threshold 95.0%: missed",
        "Against old.json: 4 cases, 1 lost, 0 gained; accuracy fell by 25.0% (95 % interval of the drop -20.0% to 70.0%); "
        "3 of 20 answers are other texts than then; at most 30.0% may be lost: held",
        "5 answers drawn to each case the accuracy is that of the first ones of all answers share 95 % interval "
        "pass@1 50.0% 10.0% to 95.0% pass@2 60.0% 20.0% to 95.0% pass@4 75.0% 40.0% to 95.0% pass@5 80.0% 50.0% to 95.0% "
        "majority by result 62.5% 30.0% to 87.5%",
        "wrong 1 shop-2: row 1 is (5) asked Which two? its input, 300 characters CREATE TABLE t",
        "expected SELECT 2 answer SELECT 2 < 3 correct examples shop-1 answer SELECT 1",
        "cat 3 1 1 0.75 dog 2 0.80 ",
        "file of the cases tests/cases.jsonl tokens chosen greedy",
        "tokens chosen greedy an answer may have 256 tokens answers cut off there 1 answers ended where they looped 2 "
        "tokens written 1,234 tokens a second 70",
        "base model's weights int4 bf16 prompt template alpaca computed on cpu threads 2",
        "How an answer is taken out of a text: the last fenced block",
    ):
        assert words in shown.text
    bars = [attributes["style"] for tag, attributes in shown.tags if tag in ("i", "b")]
    assert bars[:4] == ["width: 75.00%", "left: 30.06%; width: 65.38%", "width: 25.00%", "left: 4.56%; width: 65.38%"]


def test_evaluations_side_by_side(tmp_path: Path) -> None:
    alone = evaluated(run_folder(tmp_path / "a"), baseline=None, threshold=0.75, failures={})
    other = evaluated(run_folder(tmp_path / "b"), by_category={"joins": share(1, 2, 0, 1)}, baseline=None, against=None)
    shown = page(tmp_path / "r.html", alone, other, run_folder(tmp_path / "c"))
    assert "all cases expert-tiny (a) 75.0% 3 of 4" in shown.text
    assert "joins expert-tiny (a) 50.0% 1 of 2 · 9.4% to 90.5% expert-tiny (b) 50.0% 1 of 2" in shown.text
    assert "groups 100.0% 2 of 2 · 34.2% to 100.0%" in shown.text
    assert "Threshold 75.0%: reached" in shown.text
    assert "Every answer is right." in shown.text
    assert "base model 2" not in shown.text


def test_the_evaluation_of_another_adapter_is_not_shown_as_this_runs(tmp_path: Path) -> None:
    shown = page(tmp_path / "r.html", evaluated(run_folder(tmp_path / "run"), expert={"adapter_sha256": "bb"}))
    assert "evaluation.json is of another adapter" in shown.text
    assert "answers that are right" not in shown.text


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"accuracy": None}, "Not logged"),
        ({"cases": 0, "ci95": [0, "x"]}, "Not logged"),
        ({"by_category": [], "failures": {"wrong": "many"}, "answers": {"a": 1}, "baseline": 3}, "75.0% 3 of 4"),
        ({"ci95": [float("nan"), 2]}, "Not logged"),
        ({"generation": {"temperature": 0.7, "top_p": 0.9}, "expert": None}, "drawn, temperature 0.7, top_p 0.9"),
        ({"limit": 4}, "file of the cases tests/cases.jsonl answered of them at most 4 (--limit)"),
        ({"limit": "4", "cases_file": 4}, "75.0% 3 of 4"),
        ({"pass_at": {"1": "x", "3": 1}, "pass_at_ci95": [], "majority": []}, "75.0% 3 of 4"),
        ({"answers": [1, {"kind": "wrong"}], "against": {}, "generation": []}, "wrong 1 None"),
        ({"classification": [3, {"macro_f1": 1, "labels": ["a"], "confusion": [[1]]}, {}]}, "75.0% 3 of 4"),
        ({"answers": [{"kind": "wrong", "answer": "x" * 9999}]}, "x" * (CHARACTERS - 1) + "…"),
    ],
    ids=[
        "no accuracy",
        "no cases",
        "other types",
        "not a number",
        "sampled",
        "a part",
        "torn names",
        "torn samples",
        "torn answers",
        "torn labels",
        "a long answer",
    ],
)
def test_evaluations_of_another_form(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    shown = page(tmp_path / "r.html", evaluated(run_folder(tmp_path / "run"), **more)).text
    assert words in shown
    assert ("Answers that are right" in shown) == (words != "Not logged")
    assert ("macro F1" in shown) == (words != "Not logged" and "classification" not in more)


def test_several_runs_side_by_side(tmp_path: Path) -> None:
    shown = page(tmp_path / "r.html", run_folder(tmp_path / "a"), run_folder(tmp_path / "b", steps=7))
    (loss,) = [chart for chart in shown.charts if chart["title"] == "Loss"]
    assert [(s["label"], s["color"], len(s["x"])) for s in loss["series"]] == [
        ("expert-tiny (a)", "--s1", 20),
        ("expert-tiny (b)", "--s2", 7),
    ]


@pytest.mark.parametrize(
    ("folders", "labels"),
    [
        (["a/small", "b/small"], ["expert-tiny (a/small)", "expert-tiny (b/small)"]),
        (["a/w/small", "b/w/small", "c"], ["expert-tiny (a/w/small)", "expert-tiny (b/w/small)", "expert-tiny (c)"]),
        (["a", "a"], None),
    ],
    ids=["parents", "grandparents", "the same run twice"],
)
def test_labels_tell_runs_apart(tmp_path: Path, folders: list[str], labels: list[str] | None) -> None:
    shown = page(tmp_path / "r.html", *(run_folder(tmp_path / folder) for folder in folders))
    (loss,) = [chart for chart in shown.charts if chart["title"] == "Loss"]
    assert labels in (None, [series["label"] for series in loss["series"]])


@pytest.mark.parametrize("runs", [0, MAX_RUNS + 1])
def test_too_few_and_too_many(tmp_path: Path, runs: int) -> None:
    with pytest.raises(InputError, match=f"{runs} runs: a report shows 1 to 6"):
        write_report([tmp_path] * runs, tmp_path / "r.html")


def test_nothing_of_a_run_becomes_markup(tmp_path: Path) -> None:
    run = run_json()
    run["config"] |= {"expert": EVIL, "manifest": EVIL, "model": {"name": EVIL}}
    run["effects"] = [{"key": EVIL, "value": {EVIL: [EVIL]}, "status": EVIL, "effect": EVIL, "reason": EVIL}]
    run |= {"started": EVIL, "kernels": {EVIL: {"used": EVIL, "reason": EVIL}}, "identity": {"tokenizer": EVIL}}
    run["data"]["train"]["length"] = {EVIL: 1}
    run["machine"] = {"system": EVIL, "gpus": [{"name": EVIL}], "versions": [[EVIL, EVIL]]}
    asked = {"question": {"prompt": EVIL, "input": EVIL * 10}, "expected": EVIL}
    answers = [{"id": EVIL, "kind": kind, "detail": EVIL, "answer": EVIL, **asked} for kind in (EVIL, "correct")]
    labels = {
        "labels": [EVIL, "b"],
        "macro_f1": 1.0,
        "confusion": [[1, 0, 0], [0, 1, 0]],
        "by_label": {EVIL: {"f1": EVIL}},
    }
    evil = {
        "by_category": {EVIL: share(1, 2, 0, 1), "b": share(1, 2, 0, 1)},
        "failures": {EVIL: 1},
        "answers": answers,
        "classification": [labels],
        "against": {"file": EVIL, "cases": 1, "lost": 0, "gained": 0, "drop": 0, "max_drop": 0.1},
        "extraction": EVIL,
        "expert": {"quantization": EVIL, "dtype": EVIL, "template": EVIL},
    }
    runs = [evaluated(run_folder(tmp_path / name, run), **evil) for name in ("a", "b")]
    shown = page(tmp_path / "r.html", *runs)
    plain = page(tmp_path / "p.html", *(evaluated(run_folder(tmp_path / name)) for name in ("c", "d")))
    assert {tag for tag, _ in shown.tags} == {tag for tag, _ in plain.tags}
    assert len(shown.scripts) == len(plain.scripts) == 3
    assert shown.scripts[1:] == plain.scripts[1:]
    assert not any(name.startswith("on") for _, attributes in shown.tags for name in attributes)
    assert shown.text.count("{{ 7*7 }}") > 10
    assert EVIL in shown.charts[0]["series"][0]["label"]


@pytest.mark.parametrize(
    "run",
    [
        {},
        {
            "config": None,
            "effects": {"a": 1},
            "kernels": [1],
            "data": "x",
            "machine": {"gpus": 3, "versions": [1, [2]]},
        },
        {"config": {"origins": [1, ["a"]], "data": {"train": ["x"]}, "optim": 3}, "effects": [1, {}]},
        {"data": {"train": {"histogram": {"counts": [0, 0], "edges": [1, 2, 3]}, "length": [], "rows": "many"}}},
        {"data": {"train": {"histogram": {"counts": ["x"], "edges": [1, 2]}}}, "kernels": {"a": None}},
        {"command": "expert-cli train -m x"},
    ],
)
def test_runs_of_another_form(tmp_path: Path, run: dict[str, Any]) -> None:
    shown = page(tmp_path / "r.html", run_folder(tmp_path / "old run", run))
    assert "old run" in shown.text
    assert ("Make it again" in shown.text) == ("expert-cli train" in shown.text) == ("command" in run)


def test_a_run_without_any_line(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.jsonl").write_bytes(b"\xff\n{")
    assert page(tmp_path / "r.html", folder).charts == []


def test_long_series_become_means(tmp_path: Path) -> None:
    data = read_run(run_folder(tmp_path / "run", steps=100))
    steps, values = data.series(("tokens_per_s",), 10)
    assert steps == [float(n) for n in range(10, 101, 10)]
    assert values == [500.0] * 10
    assert data.series(("loss",), 50)[1][0] == pytest.approx((2 + 1) / 2)
    assert data.series(("nothing",), 50) == ([], [])


def test_the_largest_report_is_small_and_loads_nothing(tmp_path: Path) -> None:
    more = {
        "eval_loss": 0.123456789,
        "learning_rate": 1.23456789e-4,
        "mfu": 0.4,
        "grad_norm": 1.23456789,
        "execution_accuracy": 0.25,
    }
    gpu = {"gpu": {"utilization": 98.7654321}}
    runs = [run_folder(tmp_path / str(n), steps=2000, **more, **gpu) for n in range(MAX_RUNS)]
    to = tmp_path / "r.html"
    shown = page(to, *runs)
    assert to.stat().st_size < 1_500_000
    assert len(shown.charts) == 9
    assert not [tag for tag, attributes in shown.tags if "src" in attributes or "href" in attributes or tag == "link"]
    assert "default-src 'none'" in next(a["content"] or "" for t, a in shown.tags if "http-equiv" in a)
    links = {unescape(link) for link in re.findall(r"https?://[^\s\"')]+", to.read_text(encoding="utf-8"))}
    assert links == {"https://github.com/leeoniya/uPlot"}


def test_what_is_embedded_survives_the_removal_of_secrets() -> None:
    for name in ("uplot.js", "uplot.css", "report.js", "report.css"):
        assert redact(page_part(name)) == page_part(name)
        assert "</script" not in page_part(name)
        assert "</style" not in page_part(name)


def test_every_share_of_a_step_has_a_color() -> None:
    assert [name for name in ALL_SHARES if not re.search(rf"--{name}: #[0-9a-f]{{6}};", page_part("report.css"))] == []


def test_secrets_of_a_run_are_not_shown(tmp_path: Path) -> None:
    run = run_json(command="expert-cli train --dataset hf_abcdefghijklmnopqrstuvwxyzABCDEFGH")
    shown = page(tmp_path / "r.html", run_folder(tmp_path / "run", run))
    assert "--dataset ***" in shown.text
