"""One run directory as a report shows it: figures, series, tables, the command that makes it again."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expert_cli.artifacts.report_evaluation import evaluation_shown, headline, is_of
from expert_cli.runs.metrics import (
    SHARES,
    MetricsTail,
    items,
    mean_shares,
    number,
    padding_share,
    part,
    read_json,
    require_run,
)
from expert_cli.runs.status import Ending, standing
from expert_cli.utils.text import duration, moment

CELL = 300
SHARE_COLORS = {
    "data": "#d9611c",
    "host_to_device": "#e0a52e",
    "forward": "#4a90e2",
    "backward": "#2460b0",
    "optimizer": "#8a5cd6",
    "checkpoint": "#12906a",
    "eval": "#4fbfa8",
    "other": "#8f8e86",
}


@dataclass(frozen=True)
class RunData:
    """What a run directory says; what it does not say is empty."""

    folder: Path
    lines: tuple[dict[str, Any], ...]
    run: dict[str, Any]
    report: dict[str, Any]
    evaluation: dict[str, Any]
    ending: Ending

    @property
    def judged(self) -> dict[str, Any]:
        """The evaluation of this run's adapter; {} where there is none, or one of another adapter."""
        return self.evaluation if is_of(self.evaluation, self.report.get("adapter_sha256")) else {}

    @property
    def expert(self) -> str:
        """The expert's name; the folder's where run.json is not there."""
        return str(part(self.run, "config").get("expert") or self.folder.name)

    def series(self, keys: tuple[str, ...], points: int) -> tuple[list[float], list[float]]:
        """Return steps and values of a metric, longer series as means of at most `points` equal stretches."""
        pairs = [
            (step, value)
            for line in self.lines
            if (step := number(line, "step")) is not None and (value := number(line, *keys)) is not None
        ]
        pairs.sort(key=lambda pair: pair[0])
        size = -(-len(pairs) // points)
        chunks = [pairs[start : start + size] for start in range(0, len(pairs), size)] if size > 1 else []
        thinned = [(chunk[-1][0], sum(value for _, value in chunk) / len(chunk)) for chunk in chunks] or pairs
        return [step for step, _ in thinned], [float(f"{value:.6g}") for _, value in thinned]

    def shown(self, name: str, color: str) -> dict[str, Any]:
        """Return what the page's template asks of a run."""
        stats = part(self.run, "data", "train")
        packing = part(self.report, "store", "packing")
        fill = number(packing, "fill")
        return {
            "name": name,
            "color": color,
            "model": self.base_model,
            "state": self._state(),
            "ended": self.ending.words,
            "go_on": self.ending.go_on,
            "facts": self._facts(),
            "shares": self._shares(),
            "lengths": _bars(part(stats, "histogram")),
            "documents": _documents(stats),
            "fill": None if fill is None else round(100 * fill, 2),
            "packing": "" if fill is None else _packing(packing, fill),
            "command": self._command(),
            "locked": f"With --locked {self.folder / 'run.json'} it is refused where data, model, settings or code differ.",
            "tables": self._tables(),
            "evaluation": evaluation_shown(self.judged),
            "evaluation_of_another": bool(self.evaluation) and not self.judged,
        }

    @property
    def base_model(self) -> str:
        """The base model's name."""
        return str(part(self.run, "config", "model").get("name") or "")

    def _state(self) -> str:
        started = str(self.run.get("started") or "")
        return " · ".join(filter(None, [f"started {moment(started)}" if started else "", str(self.folder)]))

    def _facts(self) -> list[tuple[str, str]]:
        report = self.report
        losses = [number(report, "loss", "first_mean"), number(report, "loss", "last_mean")]
        logged = [value for line in self.lines if (value := number(line, "loss")) is not None]
        first, last = (
            losses if all(v is not None for v in losses) else (logged[0], logged[-1]) if logged else (None, None)
        )
        steps = number(report, "steps") or max((number(line, "step") or 0 for line in self.lines), default=0)
        padding, seconds, memory = (
            padding_share(self.lines),
            number(report, "seconds"),
            number(report, "peak_memory_mb"),
        )
        known = [
            ("steps", f"{steps:,.0f}" if steps else None),
            ("epochs", _text(number(report, "epochs"), "{:,.2f}")),
            ("loss, first steps → last", None if first is None or last is None else f"{first:.3f} → {last:.3f}"),
            ("answers that are right", headline(self.judged)),
            ("evaluation loss", _text(number(report, "eval_loss"), "{:.3f}")),
            ("real tokens a second", _text(number(report, "tokens_per_s"), "{:,.0f}")),
            ("model FLOPs utilization", _text(number(report, "mfu"), "{:.1%}")),
            ("peak memory", None if memory is None else f"{memory / 1024:,.1f} GB"),
            ("padding", _text(padding, "{:.1%}")),
            ("time", None if seconds is None else duration(seconds)),
        ]
        return [(name, value) for name, value in known if value is not None]

    def _shares(self) -> list[dict[str, Any]]:
        logged = part(self.report, "step_time_shares")
        shares = {name: number(logged, name) or 0.0 for name in SHARES} if logged else mean_shares(self.lines)
        return [
            {
                "name": name.replace("_", " "),
                "value": f"{value:.4f}",
                "text": f"{value:.1%}",
                "color": SHARE_COLORS[name],
            }
            for name, value in shares.items()
            if value >= 0.0005
        ]

    def _command(self) -> str:
        """Return the command line: as it was recorded, else put together from what was set beside the manifest."""
        if isinstance(self.run.get("command"), str):
            return str(self.run["command"])
        config = part(self.run, "config")
        words: list[str] = ["expert-cli", "train", "--manifest", str(config.get("manifest") or "MANIFEST")]
        words += ["--base-model", self.base_model] if self.base_model else []
        words += self._other_rows()
        values = {str(row.get("key")): row.get("value") for row in self._effects()}
        optim = part(config, "optim")
        for origin in items(config, "origins"):
            key, place = (str(word) for word in origin) if isinstance(origin, list) and len(origin) == 2 else ("", "")
            if place == "--set":
                words += ["--set", f"training.config.{key}={json.dumps(values.get(f'training.config.{key}'))}"]
            elif place.startswith("--") and key in optim:
                words += [place, str(optim[key])]
        words += ["--seed", str(config["seed"])] if number(config, "seed") is not None else []
        return shlex.join(words)

    def _effects(self) -> list[dict[str, Any]]:
        return [row for row in items(self.run, "effects") if isinstance(row, dict)]

    def _other_rows(self) -> list[str]:
        """Return the options that name rows where the manifest's own were replaced, as the effects tell."""
        data = part(self.run, "config", "data")
        train, held_out = (
            [str(part(source).get("path")) for source in items(data, key)] for key in ("train", "validation")
        )
        reasons = [
            str(row.get("reason")) for row in self._effects() if str(row.get("key")).startswith("training.dataset")
        ]
        if not train or not any(train[0] in reason or reason.startswith("--dataset") for reason in reasons):
            return []
        return ["--dataset", train[0], *(["--validation", held_out[0]] if held_out else [])]

    def _tables(self) -> list[dict[str, Any]]:
        kernels = [
            [name, _cell(part(k).get("used")), _cell(part(k).get("reason"))]
            for name, k in part(self.run, "kernels").items()
        ]
        effects = [_effect(row) for row in self._effects()]
        tables = [
            {"title": "Kernels", "columns": ["what", "used", "because"], "rows": kernels, "open": True, "code": False},
            {"title": "Hashes", "columns": ["of", "SHA-256"], "rows": self._hashes(), "open": False, "code": True},
            {
                "title": "Versions and machine",
                "columns": ["", ""],
                "rows": self._machine(),
                "open": False,
                "code": False,
            },
            {
                "title": f"Effects of the manifest: {len(effects)} keys",
                "columns": ["key", "value", "status", "effect and reason"],
                "rows": effects,
                "open": False,
                "code": False,
            },
        ]
        return [table for table in tables if table["rows"]]

    def _hashes(self) -> list[list[str]]:
        identity = part(self.run, "identity")
        named = {
            "adapter": self.report.get("adapter_sha256"),
            "base model": part(self.run, "model").get("sha256"),
            "tokenizer": identity.get("tokenizer"),
            "code": identity.get("code"),
            "token store": part(self.run, "store").get("key"),
            **part(self.run, "data", "files"),
        }
        return [[_cell(name), _cell(value)] for name, value in named.items() if value]

    def _machine(self) -> list[list[str]]:
        machine = part(self.run, "machine")
        memory = number(machine, "memory_bytes")
        rows = [["system", machine.get("system")], ["cores", machine.get("cores")]]
        rows += [["memory", f"{memory / 1e9:,.0f} GB"]] if memory else []
        rows += [["GPU", part(gpu).get("name")] for gpu in items(machine, "gpus")]
        rows += [pair for pair in items(machine, "versions") if isinstance(pair, list) and len(pair) == 2]
        return [[_cell(name), _cell(value)] for name, value in rows if value]


def read_run(folder: Path) -> RunData:
    """Read a run directory, whole or not. Raises InputError: there is none."""
    paths = require_run(folder)
    lines = tuple(MetricsTail(paths.metrics).read())
    run, report, evaluation = (read_json(path) for path in (paths.run_json, paths.report_json, paths.evaluation))
    command = str(run.get("command") or "")
    ending = standing(paths.status, is_complete=paths.complete.exists(), command=command)
    return RunData(paths.output, lines, run, report, evaluation, ending)


def _effect(row: dict[str, Any]) -> list[str]:
    outcome = " ".join(filter(None, (_cell(row.get("effect")), _cell(row.get("reason")))))
    return [_cell(row.get("key")), _json(row.get("value")), _cell(row.get("status")).replace("_", " "), outcome]


def _bars(histogram: dict[str, Any]) -> list[dict[str, Any]]:
    counts, edges = items(histogram, "counts"), items(histogram, "edges")
    numbers = all(isinstance(value, (int, float)) for value in (*counts, *edges))
    if not counts or len(edges) != len(counts) + 1 or not numbers or max(counts) <= 0:
        return []
    return [
        {
            "height": round(100 * count / max(counts), 1),
            "low": f"{low:,.0f}",
            "high": f"{high:,.0f}",
            "text": f"{low:,.0f} to {high:,.0f} tokens: {count:,} documents",
        }
        for count, low, high in zip(counts, edges, edges[1:], strict=False)
    ]


def _documents(stats: dict[str, Any]) -> str:
    rows, tokens, trained = (number(stats, key) for key in ("rows", "tokens", "trained_tokens"))
    if rows is None or tokens is None or trained is None:
        return ""
    lengths = ", ".join(f"{name} {value:,}" for name, value in part(stats, "length").items())
    return f"{rows:,.0f} documents, {tokens:,.0f} tokens, {trained:,.0f} trained; length {lengths}"


def _packing(packing: dict[str, Any], fill: float) -> str:
    rows, length, cut = (number(packing, key) or 0 for key in ("sequences", "max_seq_length", "truncated_tokens"))
    return (
        f"{rows:,.0f} rows, {fill:.2%} full: at most {length:,.0f} tokens a row (max_seq_length); {cut:,.0f} tokens cut"
    )


def _text(value: float | None, form: str) -> str | None:
    return None if value is None else form.format(value)


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= CELL else f"{text[: CELL - 1]}…"


def _json(value: Any) -> str:
    return _cell(json.dumps(value, ensure_ascii=False))
