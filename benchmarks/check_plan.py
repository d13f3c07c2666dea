"""Hold `train --plan` against real runs: the memory and speed that were foretold, what the run took, the error.

    python -m benchmarks.check_plan --results runs.jsonl             # runs the settings that runs.jsonl does not have yet
    python -m benchmarks.check_plan --results runs.jsonl --again     # plans once more, keeps what the runs took
    python -m benchmarks.check_plan --results runs.jsonl --table     # Markdown, and how many intervals held what was measured

Plan and run are processes of their own. Measured is the run's largest resident set, loading and its two answers included;
with --device cuda what PyTorch allocated at most, and the context that the plan assumes. The base models have random weights
in the forms of lib/plan_settings.py; smollm2 is fetched. A load above 5 makes speeds mean little; memory is not affected.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.lib.plan_settings import FITTED, JUDGED, Trial, model_folder, write_rows

STEPS = 8
MB = 2**20


def main() -> int:
    """Run what is missing or print the table; the exit code is 1 if more than one interval in 20 missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="a line a setting is added to this file")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--again", action="store_true", help="plan every setting once more")
    parser.add_argument("--table", action="store_true", help="print what is there")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="these settings alone")
    options = parser.parse_args()
    text = options.results.read_text(encoding="utf-8") if options.results.is_file() else ""
    known = {row["name"]: row for row in map(json.loads, text.splitlines())}
    if options.table:
        return table(known)
    chosen = [trial for trial in (*FITTED, *JUDGED) if not options.only or trial.name in options.only]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        for trial in chosen:
            row = known.setdefault(trial.name, {"name": trial.name})
            if "measured" in row and "plan" in row and not options.again:
                continue
            measure(trial, Path(scratch), options.device, row)
            options.results.write_text("".join(json.dumps(row) + "\n" for row in known.values()), encoding="utf-8")
            print(line(row), flush=True)
    return 0


def measure(trial: Trial, scratch: Path, device: str, row: dict[str, Any]) -> None:
    """Add to a row of the results what the plan says of a setting now, and what a run takes if that is not known."""
    folder = scratch / trial.name
    folder.mkdir()
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps(written(trial, scratch)), encoding="utf-8")
    told, _ = command(manifest, device, "--plan", "--max-steps", str(STEPS))
    row |= {"plan": told["vram_mb"], "plan_tokens_per_s": told["tokens_per_s"]}
    if "measured" in row:
        return
    done, resident = command(manifest, device, "--max-steps", str(STEPS), "--output", str(folder / "run"))
    context = told["vram_mb"]["process"] * MB if device == "cuda" else 0
    bytes_ = done["peak_memory_mb"] * MB + context if device == "cuda" else resident
    row |= {"measured": bytes_ / MB, "at_step_end": done["peak_memory_mb"], "tokens_per_s": done["tokens_per_s"]}


def command(manifest: Path, device: str, *more: str) -> tuple[Any, int]:
    """Run `train`; return what it printed and its largest resident set in bytes."""
    words = ["train", "--manifest", str(manifest), "--device", device, "--json", "--quiet", *more]
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen([sys.executable, "-m", "expert_cli", *words], stdout=out)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    if child.returncode:
        sys.exit(f"{' '.join(words)} ended with exit code {child.returncode}: {text.decode()}")
    return json.loads(text), usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def written(trial: Trial, scratch: Path) -> dict[str, Any]:
    """Return a setting's manifest; models and rows are made once for all settings."""
    return {
        "name": "expert-check",
        "schema_version": "2.0",
        "base_models": [{"name": model_folder(trial.model, scratch), "quantization": trial.quantization}],
        "training": {
            "dataset": {"path": str(write_rows(trial.rows, scratch))},
            "config": {
                "adapter_type": "lora",
                "rank": 16,
                "alpha": 32,
                "learning_rate": 2e-4,
                "pretokenized_cache": "stores",
                "report_to": "none",
                "save_strategy": "no",
                **dict(trial.config),
            },
        },
    }


def line(row: dict[str, Any]) -> str:
    """Return a setting's row of the table."""
    told, measured = row["plan"], row["measured"]
    off = told["total"] / measured - 1
    held = "yes" if is_held(row) else "**no**"
    speed = f"{row['plan_tokens_per_s']:,.0f} / {row['tokens_per_s']:,.0f}"
    return f"| {row['name']} | {told['total']:,.0f} / {measured:,.0f} | {off:+.1%} | {held} | {speed} |"


def is_held(row: dict[str, Any]) -> bool:
    """Whether the plan's interval, total -+ error_pct of it, holds what was measured."""
    told = row["plan"]
    return bool(abs(row["measured"] - told["total"]) <= told["total"] * told["error_pct"] / 100)


def table(known: dict[str, dict[str, Any]]) -> int:
    """Print both groups; return 1 if more than one in 20 of those that judge was missed."""
    missed = 0
    for title, trials in (("settings that set the width", FITTED), ("settings that judge it", JUDGED)):
        rows = [known[trial.name] for trial in trials if trial.name in known]
        print(
            f"\n| {title} | memory told / measured, MB | error | held | tokens/s told / measured |\n|---|---|---|---|---|"
        )
        print("\n".join(map(line, rows)))
        held = sum(map(is_held, rows))
        print(f"\n{held} of {len(rows)} held")
        missed = len(rows) - held
    return int(20 * missed > len(JUDGED))


if __name__ == "__main__":
    sys.exit(main())
