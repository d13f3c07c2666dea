"""Run directories -> one page: what it shows, that nothing of a run becomes markup, that it needs no network."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from expert_cli.artifacts.report import CHARACTERS, MAX_RUNS, page_part, write_report
from expert_cli.errors import InputError
from expert_cli.runs.metrics import SHARES as ALL_SHARES
from expert_cli.utils.redaction import redact

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{ 7*7 }}"
SHARES = {"data": 0.25, "forward": 0.25, "backward": 0.5}
RUN = {
    "started": "2026-11-21T08:00:00+00:00",
    "command": "expert-cli train --manifest m.json --dataset hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
    "config": {"expert": "expert-tiny", "model": {"name": "tiny"}},
    "effects": [{"key": "training.config.batch_size", "value": 4, "status": "applied", "effect": "rows a step"}],
    "kernels": {"attention": {"used": "sdpa", "reason": "PyTorch's fused kernels"}},
    "data": {"files": {"/d/rows.jsonl": "cc33"}, "train": {"rows": 10}},
}
REPORT = {"adapter_sha256": "aa", "steps": 20, "loss": {"first_mean": 2.0, "last_mean": 0.1}, "seconds": 7512.4}


def run_folder(folder: Path, run: dict[str, Any] = RUN, steps: int = 20, **more: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
    rows = [{"step": n, "seconds": n, "loss": 2 / n, "step_time_shares": SHARES, **more} for n in range(1, steps + 1)]
    text = "".join(json.dumps(row) + "\n" for row in [*rows, {"step": steps, "seconds": steps, "eval_loss": 0.5}])
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
    folder = run_folder(tmp_path / "run")
    forgetting = {"texts": 4, "loss_before": 1.0, "loss_after": 1.25, "difference": 0.25, "ci95": [0.2, 0.3]}
    report = {**REPORT, "forgetting": forgetting, "peak_memory_mb": 2662.4, "rft": {"ended": "no round was better"}}
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")
    (folder / "COMPLETE").touch()
    shown = page(tmp_path / "r.html", folder)
    drawn = {chart["title"]: len(chart["series"][0]["x"]) for chart in shown.charts}
    assert drawn == {"loss": 20, "eval loss": 1}
    for words in (
        "expert-tiny",
        "finished",
        "loss, first steps → last 2.000 → 0.100",
        "data 25.0%",
        "backward 50.0%",
        "started 2026-11-21 08:00 UTC",
        "time 2 h 05 min",
        "peak memory 2.6 GB",
        "forgotten (nats) +0.250",
        "Forgotten: +0.250 nats a token (95 % interval +0.200 to +0.300) on 4 neutral texts: loss 1.000 -> 1.250",
        "PyTorch's fused kernels",
        '"/d/rows.jsonl": "cc33"',
        "rows a step",
        "no round was better",
        "expert-cli train --manifest m.json --dataset ***",
    ):
        assert words in shown.text


def share(correct: int, cases: int, low: float, high: float) -> dict[str, Any]:
    return {"cases": cases, "correct": correct, "accuracy": correct / cases, "ci95": [low, high]}


def evaluated(folder: Path, **more: Any) -> Path:
    """Give a run an evaluation of its adapter: three of four answers are right, one of the base model's."""
    wrong = {"id": "shop-2", "kind": "wrong", "detail": "row 1 is (5)", "expected": "SELECT 2", "answer": "S" * 999}
    document = {
        **share(3, 4, 0.3006, 0.9544),
        "by_category": {"joins": share(1, 2, 0.0945, 0.9055), "groups": share(2, 2, 0.3424, 1.0)},
        "failures": {"wrong": 1},
        "answers": [
            {"id": "shop-1", "kind": "correct", "detail": "", "answer": "SELECT 1"},
            {**wrong, "question": {"prompt": "Which two?", "input": "CREATE TABLE t"}},
        ],
        "baseline": {
            **share(1, 4, 0.0456, 0.6994),
            "by_category": {"joins": share(0, 2, 0.0, 0.6576), "groups": share(1, 2, 0.0945, 0.9055)},
            "difference": {"difference": 0.5, "ci95": [0.01, 0.99], "gained": 2, "lost": 0},
        },
        "pass_at": {"1": 0.5, "2": 0.6},
        "pass_at_ci95": {"1": [0.1, 0.95], "2": [0.2, 0.95]},
        "threshold": 0.95,
        "against": {"file": "old.json", "lost": 1, "gained": 0, "max_drop": 0.3, "held": True},
        "expert": {"adapter_sha256": "aa"},
        "cases_file": "/home/ada/sql/tests/cases.jsonl",
        **more,
    }
    (folder / "evaluation.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "report.json").write_text(json.dumps(REPORT), encoding="utf-8")
    return folder


def test_the_evaluation_of_a_runs_adapter(tmp_path: Path) -> None:
    shown = page(tmp_path / "r.html", evaluated(run_folder(tmp_path / "run")))
    for words in (
        "right answers 75.0%",
        "share of the cases of tests/cases.jsonl",
        "all cases expert 75.0% 3 of 4 · 30.1% to 95.4% base model 25.0% 1 of 4 · 4.6% to 69.9%",
        "joins expert 50.0% 1 of 2 · 9.4% to 90.5% base model 0.0% 0 of 2 · 0.0% to 65.8%",
        "the expert gained 2 cases and lost 0: +50.0% (95 % interval 1.0% to 99.0%)",
        "Threshold 95.0%: missed",
        "Against old.json: 1 cases lost, 0 gained, at most 30.0% may be lost: held",
        "pass@1: 50.0% 10.0% to 95.0% pass@2: 60.0% 20.0% to 95.0%",
        f"shop-2: row 1 is (5) asked Which two? input CREATE TABLE t expected SELECT 2 answer {'S' * (CHARACTERS - 1)}…",
        "correct 3 shop-1 answer SELECT 1",
    ):
        assert words in shown.text
    bars = [attributes["style"] for tag, attributes in shown.tags if tag in ("i", "b")]
    assert bars[:4] == ["width: 75.0%", "left: 30.06%; width: 65.38%", "width: 25.0%", "left: 4.56%; width: 65.38%"]


def test_the_evaluation_of_another_adapter_is_not_shown_as_this_runs(tmp_path: Path) -> None:
    shown = page(tmp_path / "r.html", evaluated(run_folder(tmp_path / "run"), expert={"adapter_sha256": "bb"}))
    assert "evaluation.json is of another adapter" in shown.text
    assert "75.0%" not in shown.text


def test_several_runs_stand_below_each_other_with_one_chart(tmp_path: Path) -> None:
    folders = [run_folder(tmp_path / name, steps=steps) for name, steps in (("a/small", 20), ("b/small", 7))]
    shown = page(tmp_path / "r.html", *folders, run_folder(tmp_path / "none", steps=0))
    assert [(s["label"], s["run"], len(s["x"])) for s in shown.charts[0]["series"]] == [
        ("expert-tiny (a/small)", 1, 20),
        ("expert-tiny (b/small)", 2, 7),
    ]
    with pytest.raises(InputError, match="7 runs: a report shows 1 to 6"):
        write_report(folders[:1] * 7, tmp_path / "r.html")


def test_nothing_of_a_run_becomes_markup(tmp_path: Path) -> None:
    run = {**RUN, "started": EVIL, "command": EVIL, "kernels": {EVIL: EVIL}, "effects": [{EVIL: EVIL}]}
    run["config"] = {"expert": EVIL, "model": {"name": EVIL}}
    answer = {"id": EVIL, "detail": EVIL, "answer": EVIL, "question": {"prompt": EVIL, "input": EVIL}, "expected": EVIL}
    evil = {
        "by_category": {EVIL: share(1, 2, 0, 1), "b": share(1, 2, 0, 1)},
        "failures": {EVIL: 1},
        "answers": [{**answer, "kind": kind} for kind in (EVIL, "correct")],
    }
    shown = page(tmp_path / "r.html", *(evaluated(run_folder(tmp_path / name, run), **evil) for name in "ab"))
    plain = page(tmp_path / "p.html", *(evaluated(run_folder(tmp_path / name)) for name in "cd"))
    assert {tag for tag, _ in shown.tags} == {tag for tag, _ in plain.tags}
    assert len(shown.scripts) == len(plain.scripts) == 3
    assert shown.scripts[1:] == plain.scripts[1:]
    assert not any(name.startswith("on") for _, attributes in shown.tags for name in attributes)
    assert shown.text.count("{{ 7*7 }}") > 10
    assert EVIL in shown.charts[0]["series"][0]["label"]


@pytest.mark.parametrize("run", [{}, {"config": None, "machine": None}, {"command": "expert-cli train -m x"}])
def test_a_run_that_says_little(tmp_path: Path, run: dict[str, Any]) -> None:
    folder = run_folder(tmp_path / "old run", run)
    shown = page(tmp_path / "r.html", folder).text
    assert "old run" in shown
    assert ("Make it again" in shown) == ("command" in run)
    (folder / "metrics.jsonl").write_bytes(b"\xff\n{")
    assert page(tmp_path / "r.html", folder).charts == []


def test_a_report_loads_nothing(tmp_path: Path) -> None:
    more = {"eval_loss": 0.123456789, "learning_rate": 1e-4}
    to = tmp_path / "r.html"
    shown = page(to, *(run_folder(tmp_path / str(n), **more) for n in range(MAX_RUNS)))
    assert [chart["title"] for chart in shown.charts] == ["loss", "eval loss"]
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
