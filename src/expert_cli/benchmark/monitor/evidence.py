"""The numbers that a verdict rests on, and the form of a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from expert_cli.manifest.keys.compute import DeviceName

VerdictName = Literal[
    "waiting for data",
    "launch-bound",
    "compute-bound",
    "memory spilling to the host",
    "disk",
    "checkpointing",
    "evaluation",
    "thermal or power limit",
    "other programs use this machine",
    "healthy",
    "not enough data",
]


@dataclass(frozen=True)
class GpuFacts:
    """Means over the watched time. `throttles`: share of the samples that named this reason; `top_clock_mhz`: highest seen."""

    utilization: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    clock_mhz: float | None = None
    top_clock_mhz: float | None = None
    temperature_c: float | None = None
    memory_mb: float | None = None
    memory_total_mb: float | None = None
    throttles: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RunSettings:
    """What the run was told to do, by the manifest's names; None = not known."""

    device: DeviceName | None = None
    dataloader_num_workers: int | None = None
    dataloader_pin_memory: bool | None = None
    packing: str | None = None
    batch_size: int | None = None
    gradient_accumulation_steps: int | None = None
    checkpointing: str | None = None
    attention: str | None = None
    torch_compile: bool | None = None
    save_strategy: str | None = None
    save_steps: int | None = None
    eval_strategy: str | None = None
    eval_steps: int | None = None


@dataclass(frozen=True)
class Evidence:
    """What was measured; None or empty = not known.

    shares: of the watched steps' time (data, host_to_device, forward, backward, optimizer, checkpoint, eval, other; sum 1).
    run_shares: the same since the run's loop began, for what happens only now and then. tokens_per_s: one a logged interval,
    oldest first; held_s: how long each of them held, none = all alike. `process_cpu_percent`: 100 = one core, data workers
    included; `machine_cpu_percent`, of all programs, and `stolen_percent`, which a virtual machine's host gave to others: 100 =
    every core. threads: those that the run computes with. `disk_busy`: share of the time in which the busiest disk worked.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    run_shares: Mapping[str, float] = field(default_factory=dict)
    tokens_per_s: tuple[float, ...] = ()
    held_s: tuple[float, ...] = ()
    padding_share: float | None = None
    mfu: float | None = None
    gpu: GpuFacts | None = None
    spilled_mb: float | None = None
    process_cpu_percent: float | None = None
    machine_cpu_percent: float | None = None
    stolen_percent: float | None = None
    threads: int | None = None
    cores: int | None = None
    swap_in_mb_per_s: float | None = None
    disk_busy: float | None = None
    disk_read_mb_per_s: float | None = None
    settings: RunSettings = field(default_factory=RunSettings)

    @property
    def on_gpu(self) -> bool:
        """Whether the steps run on a GPU, as far as is known."""
        return self.gpu is not None if self.settings.device is None else self.settings.device != "cpu"

    @property
    def idle(self) -> float | None:
        """The share of the time in which the GPU had nothing to do."""
        known = self.on_gpu and self.gpu is not None and self.gpu.utilization is not None
        return max(0.0, 1 - self.gpu.utilization / 100) if known else None  # type: ignore[union-attr,operator]

    @property
    def cpu_use(self) -> float | None:
        """The share of this machine's cores that the run keeps busy."""
        if self.process_cpu_percent is None or not self.cores:
            return None
        return min(1.0, self.process_cpu_percent / 100 / self.cores)

    @property
    def others(self) -> float | None:
        """The share of this machine's cores that other programs keep busy, other virtual machines included."""
        if self.machine_cpu_percent is None or self.cpu_use is None:
            return None
        return max(0.0, self.machine_cpu_percent / 100 - self.cpu_use)


@dataclass(frozen=True)
class Advice:
    """One thing to change.

    `changes`: pairs of a manifest key, or an option of `train`, and its new value; empty for what lies outside of both.
    `at_most`: the factor that the whole run can gain, derived from the measured shares; None where these numbers do not say.
    """

    changes: tuple[tuple[str, str], ...]
    why: str
    at_most: float | None

    def __str__(self) -> str:
        """The advice as one line to act on."""
        told = " ".join(f"{key} {value}" if key[:2] == "--" else f"--set {key}={value}" for key, value in self.changes)
        gain = "gain not known from these numbers" if self.at_most is None else f"at most {self.at_most:.2f}x"
        return f"{told}  {gain}: {self.why}" if told else f"{self.why}  {gain}"

    def as_json(self) -> dict[str, Any]:
        """Return `changes`, `why`, `at_most`, and the line as `text`."""
        return {"changes": dict(self.changes), "why": self.why, "at_most": self.at_most, "text": str(self)}


@dataclass(frozen=True)
class Diagnosis:
    """What holds the run back, the numbers that say so, and at most two things to change."""

    name: VerdictName
    evidence: tuple[str, ...]
    advice: tuple[Advice, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the keys `verdict`, `evidence`, `advice`."""
        advice = [one.as_json() for one in self.advice]
        return {"verdict": self.name, "evidence": list(self.evidence), "advice": advice}
