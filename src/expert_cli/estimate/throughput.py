"""How fast a run will go: from this machine's earlier runs, or from arithmetic and the speed of one matrix product."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from expert_cli.config import recorded
from expert_cli.config.run_config import RunConfig
from expert_cli.hardware.devices import DEVICES
from expert_cli.hardware.machine import Machine
from expert_cli.model.flops import Flops
from expert_cli.model.loading.quantize import DTYPES
from expert_cli.runs.metrics import items, number, part, read_json
from expert_cli.runs.paths import RunPaths

EFFICIENCY: Mapping[str, float] = {"cpu": 0.5, "gpu": 0.3}
"""Share of a large matrix product's speed that a training step reaches: 0.40 to 0.58 on two CPU cores (benchmarks/check_plan);
on a GPU it is assumed."""
OVERHEAD_S = 0.04
"""What a micro-step takes beside arithmetic: 0.05 s for a model of two tiny layers on such a machine."""
ERROR_PCT = {"probe": 15, "same settings": 15, "other settings": 40, "formula": 60}
"""How far off each source may be. The formula's is from benchmarks/check_plan.py, and too small for models of a few MB; the
others are assumed, and widened by the spread of what was measured."""
_SIZE = 1024
_REPEATS = 5


@dataclass(frozen=True)
class Throughput:
    """Real tokens a second, how far off that may be, and where it comes from."""

    tokens_per_s: float
    error_pct: float
    source: str


def earlier_runs(folders: Iterable[Path], run: RunConfig, base_sha256: str, machine: Machine) -> Throughput | None:
    """Return the pace of this machine's finished runs of the same base model, the newest of those that come nearest."""
    mine = json.loads(json.dumps({"config": recorded.block(run), "machine": asdict(machine)}, default=str))
    mine |= {"identity": {"base model": base_sha256}, "torch_threads": torch.get_num_threads()}
    finished = [pair for folder in folders for pair in _finished(folder)]
    alike = [pair for pair in finished if _per_token(pair[0]) == _per_token(mine)]
    same = [pair for pair in alike if _per_step(pair[0]) == _per_step(mine)]
    chosen = max(same or alike, key=lambda pair: str(pair[0].get("started")), default=None)
    if chosen is None:
        return None
    kind = "same settings" if same else "other settings"
    rates = [_pace(document) for _, document in (same or alike)]
    spread = 100 * (max(rates) / min(rates) - 1) / 2
    words = f"{len(rates)} earlier run{'s' if len(rates) > 1 else ''} on this machine, {kind}"
    return Throughput(_pace(chosen[1]), max(ERROR_PCT[kind], round(spread)), words)


def by_formula(cost: Flops, trained_share: float, micro_tokens: float, device: str, dtype: str) -> Throughput:
    """Return the pace that arithmetic gives: operations a token over what a matrix product reaches here.

    micro_tokens: real tokens of a micro-step.
    """
    speed, efficiency = matmul_flops(device, dtype), EFFICIENCY[DEVICES[device].kind]
    per_token = cost.per_token + trained_share * cost.per_trained_token
    words = (
        f"formula: {per_token / 1e9:.2f} GFLOP a token; a {dtype} matrix product here makes {speed / 1e9:,.0f} GFLOP/s, "
        f"{efficiency:.0%} of it assumed"
    )
    seconds_per_token = per_token / (efficiency * speed) + OVERHEAD_S / micro_tokens
    return Throughput(1 / seconds_per_token, ERROR_PCT["formula"], words)


def matmul_flops(device: str, dtype: str) -> float:
    """Measure the operations a second of a matrix product of 1024 x 1024 (GPU: 8192), the best of a few."""
    size, place = _SIZE if device == "cpu" else _SIZE * 8, DEVICES[device].type
    left, right = (torch.randn(size, size, device=place, dtype=DTYPES[dtype]) for _ in range(2))
    best = float("inf")
    for _ in range(_REPEATS):
        started = time.perf_counter()
        (left @ right)[0, 0].item()
        best = min(best, time.perf_counter() - started)
    return 2.0 * size**3 / best


def _finished(folder: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return (run.json, report.json) of the run in a folder if it is complete and can be read."""
    paths = RunPaths(folder)
    try:
        if not paths.complete.is_file():
            return []
    except OSError:
        return []
    record, document = read_json(paths.run_json), read_json(paths.report_json)
    return [(record, document)] if record and (number(document, "tokens_per_s") or 0) > 0 else []


def _per_token(record: Mapping[str, Any]) -> list[Any]:
    """Return what decides how fast a token is: base model, machine, adapter, how a step is computed."""
    config, machine = part(record, "config"), part(record, "machine")
    gpus = [(gpu.get("name"), gpu.get("memory_bytes")) for gpu in items(machine, "gpus")]
    here = (machine.get("system"), machine.get("cores"), gpus, record.get("torch_threads"))
    model = (part(record, "identity").get("base model"), part(config, "model").get("quantization"))
    return [*here, *model, part(config, "adapter"), part(config, "compute")]


def _per_step(record: Mapping[str, Any]) -> list[Any]:
    """Return what decides how many tokens a step has, and what it does beside them."""
    data, optim, loader = (part(record, "config", name) for name in ("data", "optim", "loader"))
    return [data.get("max_seq_length"), optim.get("batch_size"), optim.get("optim"), loader.get("packing")]


def _pace(document: Mapping[str, Any]) -> float:
    """Return a run's real tokens a second of training alone."""
    others = sum(number(document, "step_time_shares", name) or 0.0 for name in ("eval", "checkpoint"))
    return float(document["tokens_per_s"]) / max(0.1, 1 - others)
