"""Compares a manifest with another one, or with stock layers, in pairs of fresh processes: speed and losses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from expert_cli.benchmark.measured_run import (
    Curve,
    Run,
    RunCounts,
    Variant,
    figures_json,
    figures_text,
    run_in_turn,
    run_once,
)
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides, require_data
from expert_cli.config.run_config import RunConfig
from expert_cli.errors import InputError
from expert_cli.hardware.machine import Machine
from expert_cli.pipeline.options import with_settings
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.statistics import paired_ratio
from expert_cli.utils.text import aligned

_PLAIN = ("fused_kernels=off", "dequantized_copy=never", "use_cuda_graphs=false", "torch_compile=false")
_PADDED = (*_PLAIN, "pad_documents=true")
_UNCHANGED = ("fp16=true", "bf16=false", "use_tf32=false", "gradient_checkpointing=true", "optim=adamw_torch")
_PRESETS = {"padded": _PADDED, "flattening": _PLAIN, "unoptimized": (*_PADDED, *_UNCHANGED, "dataloader_num_workers=0")}
PRESETS = {name: tuple(f"training.config.{setting}" for setting in preset) for name, preset in _PRESETS.items()}
"""Settings that train the same packs with stock layers. padded: documents are padded to the longest of their batch. flattening:
they are concatenated, but isolated. unoptimized: as padded, with the settings of untuned scripts.
"""
TOLERANCE = 0.02
"""Losses within this share count as equal: precision and the order of additions differ."""


@dataclass(frozen=True)
class Parity:
    """Whether A and B have equal losses after equal trained tokens.

    a, b: mean losses between `tokens`, None if not finite. difference: a - b, 0 if not finite.
    """

    verdict: Literal["equal", "higher", "lower", "not finite"]
    a: float | None
    b: float | None
    difference: float
    tokens: tuple[int, int]

    @property
    def holds(self) -> bool:
        """Whether the losses are equal: a lower one is no better sign than a higher one."""
        return self.verdict == "equal"

    def __str__(self) -> str:
        """The words after "the loss is"."""
        start, stop = self.tokens
        where = f"over trained tokens {start:,} to {stop:,}"
        if self.a is None or self.b is None:
            return f"not finite {where}"
        apart = f"{self.a:.4f} against {self.b:.4f}, {abs(self.difference):.4f} apart"
        return f"{self.verdict}: {apart} ({TOLERANCE:.0%} allowed) {where}"


def mean_loss(curve: Curve, start: float, stop: float) -> float:
    """Return the mean loss per trained token between two counts of trained tokens; a step at the edge counts partly."""
    total, end = 0.0, 0
    for tokens, loss in curve:
        end += tokens
        if share := max(0.0, min(stop, end) - max(start, end - tokens)):
            total += share * loss
    return total / (stop - start)


def parity(a: Sequence[Curve], b: Sequence[Curve]) -> Parity:
    """Compare losses of pairs of runs with the same initial adapter and the same rows in the same order.

    Steps may have different numbers of tokens, so losses are compared over the same trained tokens: the second half of those
    that every run reached, since little is learned in the first half.
    """
    stop = min(sum(tokens for tokens, _ in curve) for curve in (*a, *b))
    window = (stop // 2, stop)
    mean_a, mean_b = (fmean(mean_loss(curve, *window) for curve in side) for side in (a, b))
    difference = mean_a - mean_b
    if not math.isfinite(difference):
        known = [mean if math.isfinite(mean) else None for mean in (mean_a, mean_b)]
        return Parity("not finite", known[0], known[1], 0.0, window)
    is_equal = abs(difference) <= TOLERANCE * mean_b
    verdict: Literal["equal", "higher", "lower"] = "equal" if is_equal else "higher" if difference > 0 else "lower"
    return Parity(verdict, mean_a, mean_b, difference, window)


def measure_against(
    manifest: Path,
    against: str,
    overrides: Overrides,
    counts: RunCounts,
    machine: Machine,
    report: Reporter,
    gate: float | None = None,
    run: Run = run_once,
) -> dict[str, Any]:
    """Return the document of `benchmark --json`, kind "experiment": A is the manifest, B one of `PRESETS` or another manifest.

    gate: the smallest accepted ratio of speeds, None = any. Raises ManifestError, InputError, EnvironmentProblem before
    anything runs, and the error of a failing run with its variant's name.
    """
    plan = decided(manifest, overrides, machine)
    preset = PRESETS.get(against)
    b = Variant(against, Path(against)) if preset is None else Variant(against, manifest, preset)
    if not b.manifest.is_file():
        raise InputError(f"--against {against}: no such manifest", f"name a manifest, or {', '.join(PRESETS)}")
    decided(b.manifest, with_settings(overrides, *b.settings), machine)
    sides = (Variant(str(manifest), manifest), b)
    (runs_a, runs_b), _ = run_in_turn(sides, plan.seed, overrides, counts, report, run)
    same = parity([one.curve for one in runs_a], [one.curve for one in runs_b])
    ratio = paired_ratio([one.tokens_per_s for one in runs_a], [one.tokens_per_s for one in runs_b])
    missed = ""
    if gate is not None and not same.holds:
        missed = f"broken: the loss is {same}"
    elif gate is not None and ratio.mean < gate:
        missed = f"the ratio {ratio.mean:.2f} is below {gate:g}"
    return {
        "kind": "experiment",
        "machine": asdict(machine),
        **asdict(counts),
        "a": {"name": sides[0].name, **figures_json(runs_a), "loss": same.a},
        "b": {"name": b.name, **figures_json(runs_b), "loss": same.b},
        "ratio": ratio.as_json(),
        "loss_parity": {"holds": same.holds, **asdict(same), "text": str(same)},
        "gate": None if gate is None else {"ratio": gate, "passed": not missed, "reason": missed},
    }


def as_text(document: Mapping[str, Any]) -> str:
    """Return an experiment's document as text."""
    a, b, ratio, parity, gate = (document[key] for key in ("a", "b", "ratio", "loss_parity", "gate"))
    shown = [figures_text(side) for side in (a, b)]
    rows = [[label, *(side[label] for side in shown)] for label in shown[0]]
    between = "" if ratio["ci95"] is None else " (95 %: {:.2f} to {:.2f})".format(*ratio["ci95"])
    after = f"{document['steps']} steps after {document['warmup']} of warm-up"
    lines = [f"A  {a['name']}", f"B  {b['name']}"]
    lines += aligned(["", "A", "B"], [row for row in rows if set(row[1:]) != {"0%"}])
    lines.append(f"A is {ratio['mean']:.2f}x{between} as fast as B ({document['repeats']} pairs of {after})")
    lines.append(f"the loss is {'' if parity['holds'] else 'BROKEN, '}{parity['text']}")
    if gate:
        lines.append(f"gate {gate['ratio']:g}: " + ("passed" if gate["passed"] else f"missed, {gate['reason']}"))
    return "\n".join(lines)


def decided(manifest: Path, overrides: Overrides, machine: Machine) -> RunConfig:
    """Return the settings of a manifest's run, whose data must exist. Raises ManifestError, InputError, EnvironmentProblem."""
    run = make_plan(manifest, machine, overrides).run
    require_data(run)
    return run
