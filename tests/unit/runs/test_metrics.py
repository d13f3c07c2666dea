"""Metrics as they grow, whole and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from expert_cli.errors import InputError
from expert_cli.runs.fit_result import mean_span
from expert_cli.runs.metrics import MetricsTail, mean_shares, number, padding_share, rates, read_json, require_run


def test_a_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = MetricsTail(path)
    assert tail.read() == []
    path.write_bytes(b'{"step": 1}\n{"st')
    assert tail.read() == [{"step": 1}]
    with path.open("ab") as file:
        file.write(b'ep": 2}\r\n')
    assert tail.read() == [{"step": 2}]
    assert tail.read() == []


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'\n{"step": 1}\nnot json\n[1]\n\xff\xfe\n{"step": 2}\n' + b"[" * 100_000 + b"\n")
    tail = MetricsTail(path)
    assert tail.read() == [{"step": 1}, {"step": 2}]


def test_a_shorter_file_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = MetricsTail(path)
    path.write_text('{"step": 1}\n{"step": 2}\n{"st', encoding="utf-8")
    tail.read()
    path.write_text('{"step": 9}\n', encoding="utf-8")
    assert tail.read() == [{"step": 9}]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        pytest.param({"a": {"b": 2}}, 2.0, id="there"),
        pytest.param({"a": None}, None, id="null block"),
        pytest.param({"a": {"b": float("nan")}}, None, id="not finite"),
        pytest.param({"a": {"b": True}}, None, id="no number"),
    ],
)
def test_number(line: dict[str, Any], value: float | None) -> None:
    assert number(line, "a", "b") == value


def line(seconds: float | None, data: float) -> dict[str, Any]:
    return {"seconds": seconds, "step_time_shares": {"data": data, "forward": 1 - data}}


def evaluated(seconds: float) -> dict[str, Any]:
    return {"seconds": seconds, "eval_loss": 1.0}


@pytest.mark.parametrize(
    ("lines", "before", "data"),
    [
        pytest.param([{"seconds": 1, "loss": 2.0}], None, None, id="an older run's"),
        pytest.param([line(1, 1.0), line(4, 0.0)], None, 0.25, id="weighted with the intervals"),
        pytest.param([line(100, 0.0), line(100, 1.0)], {"seconds": 99.9}, 100 / 100.1, id="a clock that stands still"),
        pytest.param([line(2, 1.0), line(6, 0.0)], {"seconds": 500}, 2 / 6, id="resumed: seconds begin anew"),
        pytest.param(
            [line(100, 0.0), evaluated(150), line(160, 5 / 6)],
            {"seconds": 90},
            50 / 70,
            id="an evaluation's time is the next line's",
        ),
        pytest.param(
            [line(100, 0.0), evaluated(150), line(101, 1.0)],
            {"seconds": 99},
            0.5,
            id="resumed where an evaluation had been logged",
        ),
    ],
)
def test_mean_shares(lines: list[dict[str, Any]], before: dict[str, Any] | None, data: float | None) -> None:
    assert mean_shares(lines, before).get("data") == (None if data is None else pytest.approx(data))


def rate(seconds: float | None, value: float | None) -> dict[str, Any]:
    return {"seconds": seconds, "tokens_per_s": value}


@pytest.mark.parametrize(
    ("lines", "earlier", "values", "held"),
    [
        pytest.param([rate(10, 150.0), rate(40, 50.0)], [], [150.0, 50.0], [10, 30], id="from the start"),
        pytest.param([rate(40, 50.0)], [rate(10, 150.0), evaluated(35)], [50.0], [30], id="from the line before"),
        pytest.param([rate(10, 9.0), evaluated(35), rate(40, 5.0)], [], [9.0, 5.0], [10, 30], id="over an evaluation"),
    ],
)
def test_rates(lines: list[Any], earlier: list[Any], values: list[float], held: list[float]) -> None:
    assert rates(lines, "tokens_per_s", earlier) == (values, held)


def test_padding_share_is_the_newest() -> None:
    lines = [{"tokens_real": 10, "tokens_padded": 0}, {"tokens_real": 60, "tokens_padded": 40}, {"eval_loss": 1.0}]
    assert padding_share(lines) == 0.4
    assert padding_share([{"loss": 1.0}]) is None


def test_json_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "half.json").write_text('{"a": ', encoding="utf-8")
    (tmp_path / "list.json").write_text("[1]", encoding="utf-8")
    (tmp_path / "whole.json").write_text(json.dumps({"a": 1}), encoding="utf-8")
    assert [read_json(tmp_path / f"{n}.json") for n in ("none", "half", "list", "whole")] == [{}, {}, {}, {"a": 1}]


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        require_run(tmp_path / "none")
    with pytest.raises(InputError, match=r"neither run\.json nor metrics\.jsonl"):
        require_run(tmp_path)
    (tmp_path / "metrics.jsonl").touch()
    assert require_run(tmp_path).output == tmp_path.resolve()


@pytest.mark.parametrize(("steps", "span"), [(1, 1), (2, 1), (5, 2), (9, 4), (10, 5), (1000, 5)])
def test_no_loss_is_in_the_means_of_both_ends(steps: int, span: int) -> None:
    assert mean_span(steps) == span
    assert 2 * span <= max(2, steps)
