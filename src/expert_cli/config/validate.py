"""Whether a manifest is right, for every base model it names."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from expert_cli.config.init_adapter import missing_adapter
from expert_cli.config.plan import Plan, make_plan
from expert_cli.config.resolve import Overrides, decide, missing_data
from expert_cli.errors import ExpertError, ManifestError, ManifestIssue
from expert_cli.hardware.machine import Machine

FOR_EVERY_BASE = (
    'an adapter that is trained on int4 is right on int4 alone: "quantization": "none" gives one for every base'
)
SMALL_SHARE = 0.25
"""Of a GPU's memory: weights that take no more leave room for the rest of training, whatever it is."""
_SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)([bBmM])(?![a-zA-Z0-9])")
"""Parameters, as names of models tell them: Qwen3-0.6B, SmolLM2-135M."""


@dataclass(frozen=True)
class Validation:
    """One manifest, looked at."""

    path: Path
    errors: list[ManifestIssue]
    plan: Plan | None
    warnings: list[str]

    def as_json(self) -> dict[str, Any]:
        """Return the entry under "manifests"."""
        return {
            "path": str(self.path),
            "valid": not self.errors,
            "errors": [asdict(fault) for fault in self.errors],
            "effects": [asdict(effect) for effect in self.plan.effects] if self.plan else [],
            "defaults": [asdict(default) for default in self.plan.defaults] if self.plan else [],
            "warnings": self.warnings,
        }


def validate(path: Path, facts: Machine, base_model: str | None) -> Validation:
    """Read a manifest and decide everything for each of its base models; `base_model` (None: the first) is the plan's."""
    plan: Plan | None = None
    errors: list[ManifestIssue] = []
    try:
        plan = make_plan(path, facts, Overrides(base_model=base_model))
    except ExpertError as error:
        errors = _faults(path, error)
    if plan is not None:
        for index in range(len(plan.loaded.manifest.bases)):
            try:
                decide(plan.loaded, facts, index=index)
            except ExpertError as error:
                errors += _faults(path, error)
    errors = list(dict.fromkeys(errors))  # what base models have in common is told once
    warnings = (
        [*map(str, plan.warnings), *missing_data(plan.run), *missing_adapter(plan.run), *needless_int4(plan, facts)]
        if plan
        else []
    )
    return Validation(path, errors, plan, warnings)


def _faults(path: Path, error: ExpertError) -> list[ManifestIssue]:
    if isinstance(error, ManifestError):
        return error.faults
    return [ManifestIssue(str(path), 1, 1, "", error.message, error.hint)]


def needless_int4(plan: Plan, facts: Machine) -> list[str]:
    """Return one sentence where 4-bit weights save no memory that is needed, by what is known without the model.

    A CPU unpacks them where there is room; of a GPU the model's name tells whether its weights in bf16 would be small.
    """
    run = plan.run
    if run.model.quantization != "int4":
        return []
    if run.compute.device == "cpu":
        if run.compute.dequantized_copy == "never":
            return []
        return [f"int4: a CPU with room for it keeps these weights unpacked, in {run.compute.dtype}; {FOR_EVERY_BASE}"]
    bf16_bytes = 2 * named_weights(run.model.name)
    if not 0 < bf16_bytes <= SMALL_SHARE * facts.gpus[0].memory_bytes:
        return []
    return [
        f"int4: in bf16 these weights take about {bf16_bytes / 1e9:.1f} GB of {facts.gpus[0].name}'s "
        f"{facts.gpus[0].memory_bytes / 1e9:.0f} GB; {FOR_EVERY_BASE}"
    ]


def named_weights(model: str) -> float:
    """Return the number of weights that a model's name tells, as Qwen3-0.6B does; 0 where it tells none."""
    size = _SIZE.search(model)
    return float(size[1]) * (1e9 if size[2] in "bB" else 1e6) if size else 0.0
