"""What to change for each cause, from the settings of the run; gains are bounds derived from measured shares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from expert_cli.benchmark.monitor.evidence import Evidence

NOTABLE = 0.10
"""Below a tenth of the time no single cause is worth a change: it could bring 1.11x at most."""
FEWER = 4
"""How many times rarer saving or evaluating is proposed: it takes three quarters of the cost away."""
RARER = 1 - 1 / FEWER
ROOM = 0.5
"""The share of the GPU's memory that must be free before anything that takes more of it is proposed."""


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


def sooner_data(e: Evidence, share: float, *, slow_disk: bool, copying: bool) -> Iterator[Advice]:
    """Data that is there when the step wants it."""
    settings, workers, cores = e.settings, e.settings.dataloader_num_workers, e.cores or 0
    if slow_disk:
        yield Advice((("--stage", "DIR"),), "DIR on a faster disk", gain(share))
    if copying and settings.dataloader_pin_memory is False:
        yield _set("dataloader_pin_memory", "true", "copies overlap with work", share)
    if workers is not None and not copying and workers < cores - 1:
        wanted = min(2 * workers or 2, cores - 1)
        why = f"{wanted} instead of {workers} workers prepare batches ahead"
        yield _set("dataloader_num_workers", wanted, why, share)
    if settings.packing == "off":
        yield from _packing(e)


def fewer_saves(e: Evidence, share: float) -> Iterator[Advice]:
    """Checkpoints that come less often."""
    if e.settings.save_strategy == "steps" and e.settings.save_steps:
        yield _rarer("save_steps", e.settings.save_steps, share)
    else:
        yield _set("save_strategy", "no", "the adapter is saved at the end", share)


def fewer_evaluations(e: Evidence, share: float) -> Iterator[Advice]:
    """Evaluations that come less often, or look at fewer rows; without any, it is answers that are run."""
    if e.settings.eval_strategy == "no":
        yield Advice((), "four times the steps in evaluation.every_steps", gain(share * RARER))
        yield Advice((), "half of the cases in evaluation.sample", gain(share / 2))
        return
    if e.settings.eval_strategy == "steps" and e.settings.eval_steps:
        yield _rarer("eval_steps", e.settings.eval_steps, share)
    yield Advice((("--validation", "PATH"),), "half of the rows take half of the time", gain(share / 2))


def less_memory(e: Evidence, why: str) -> Iterator[Advice]:
    """A step that needs less memory at the same effective batch."""
    if e.settings.batch_size is not None and e.settings.batch_size > 1:
        yield _batch(e, e.settings.batch_size // 2, why, None)
    if e.settings.checkpointing == "off":
        yield _set("gradient_checkpointing", "true", f"{why}; a forward pass more a step", None)


def fuller_steps(e: Evidence, share: float | None) -> Iterator[Advice]:
    """More work in each launch. share None: these numbers give no bound."""
    settings = e.settings
    if settings.attention == "eager":
        yield _set("use_sdpa", "true", "one kernel in place of many", share)
    if settings.batch_size is not None and _has_room(e) and (settings.gradient_accumulation_steps or 1) > 1:
        yield _batch(e, settings.batch_size * 2, "fewer, larger launches", share)
    if settings.torch_compile is False and e.on_gpu:
        yield _set("torch_compile", "true", "fused kernels, fewer launches", share)


def cheaper_work(e: Evidence) -> list[Advice]:
    """Work of a busy device that the result does not need, the largest bound first, unknown ones last."""
    advice = [*_packing(e)] if e.settings.packing in ("off", None) else []
    forward = e.shares.get("forward", 0.0)
    if e.settings.checkpointing not in ("off", None) and forward and _has_room(e):
        why = "the backward pass repeats the forward one, and half of the memory is free"
        advice.append(_set("gradient_checkpointing", "false", why, forward))
    if e.settings.attention == "eager":
        advice.append(_set("use_sdpa", "true", "eager attention keeps every score in memory", None))
    return sorted(advice, key=lambda one: -(one.at_most or 0.0))


def quieter_machine(share: float, stolen: float) -> Iterator[Advice]:
    """Cores that the run has for itself. stolen: the share of what others take that another virtual machine has."""
    programs = "end or move the other programs (top lists them), or start those with nice -n 19"
    machines = "a host with fewer virtual machines, or cores that are this one's alone: nothing here gives them back"
    for of, why in sorted([(1 - stolen, programs), (stolen, machines)], reverse=True):
        if of >= NOTABLE:
            yield Advice((), why, 1 + (1 / (1 - share) - 1) * of)


def cooler(share: float | None) -> Iterator[Advice]:
    """A GPU whose clock is not held down."""
    why = "better cooling, or a higher power limit: nvidia-smi -q -d POWER,TEMPERATURE says which"
    yield Advice((), why, gain(share))


def gain(share: float | None) -> float | None:
    """Return the factor by which a run can get faster when this share of its time goes away; None: not known."""
    return None if share is None or not 0 <= share < 1 else 1 / (1 - share)


def _set(key: str, value: object, why: str, share: float | None, *more: tuple[str, str]) -> Advice:
    return Advice(((f"training.config.{key}", str(value)), *more), why, gain(share))


def _rarer(key: str, steps: int, share: float) -> Advice:
    return _set(key, steps * FEWER, f"every {steps} steps now", share * RARER)


def _packing(e: Evidence) -> Iterator[Advice]:
    padding = e.padding_share or 0.0
    if padding >= NOTABLE:
        yield _set("packing", "true", f"{padding:.0%} of the positions are padding", padding)


def _batch(e: Evidence, batch: int, why: str, share: float | None) -> Advice:
    """Another batch size, and the accumulation that keeps the effective batch, where there is a whole one."""
    now, accumulation = e.settings.batch_size or 1, e.settings.gradient_accumulation_steps or 1
    kept, rest = divmod(now * accumulation, batch)
    more = () if rest else (("training.config.gradient_accumulation_steps", str(kept)),)
    return _set("batch_size", batch, f"{why}; batch_size is {now} now", share, *more)


def _has_room(e: Evidence) -> bool:
    if e.gpu is None or not e.gpu.memory_total_mb:
        return False
    return (e.gpu.memory_used_mb or 0.0) / e.gpu.memory_total_mb <= 1 - ROOM
