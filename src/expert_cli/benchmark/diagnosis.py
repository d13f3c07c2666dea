"""Decides from measurements what slows a run down, and what to change; pure functions.

Each rule gives the share of time that its cause costs. The largest share is reported if it is at least NOTABLE: removing its
cause speeds the run up by at most 1 / (1 - share), and no other factor is ever printed. Spilled memory is checked first, as it
slows everything else. Without a notable cause the device works all the time: "compute-bound" if settings waste some of its work
or its load is unknown, else "healthy".

Waiting only costs time while the device is idle: of 20 % waiting for data on a GPU that is 95 % busy, 5 % are lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from expert_cli.benchmark.evidence import Evidence

NOTABLE = 0.10
"""A cause that costs less than a tenth of the time is not worth a change: the gain would be at most 1.11x."""
FEWER = 4
"""The advice is to save or evaluate this many times less often, which avoids three quarters of the cost."""
RARER = 1 - 1 / FEWER
ROOM = 0.5
"""The share of GPU memory that must be free for advice that needs more memory."""
MOST_ADVICE = 2
SPILLED_MB = 64.0
"""Windows keeps some tens of MB of every process in shared memory; larger amounts are the model's."""


@dataclass(frozen=True)
class Advice:
    """One thing to change.

    changes: (manifest key or option of `train`, new value); empty for anything else. at_most: the largest possible speed-up of
    the whole run, from the measured shares; None if unknown.
    """

    changes: tuple[tuple[str, str], ...]
    why: str
    at_most: float | None

    def __str__(self) -> str:
        """The advice as one line."""
        told = " ".join(f"{key} {value}" if key[:2] == "--" else f"--set {key}={value}" for key, value in self.changes)
        gain = "gain not known from these numbers" if self.at_most is None else f"at most {self.at_most:.2f}x"
        return f"{told}  {gain}: {self.why}" if told else f"{self.why}  {gain}"

    def as_json(self) -> dict[str, Any]:
        """Return `changes`, `why`, `at_most`, and the line as `text`."""
        return {"changes": dict(self.changes), "why": self.why, "at_most": self.at_most, "text": str(self)}


@dataclass(frozen=True)
class Diagnosis:
    """What slows the run down, the evidence, and at most two things to change. share: the share of time that it costs."""

    name: str
    evidence: tuple[str, ...]
    advice: tuple[Advice, ...] = ()
    share: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the keys `verdict`, `evidence`, `advice`."""
        advice = [one.as_json() for one in self.advice]
        return {"verdict": self.name, "evidence": list(self.evidence), "advice": advice}


def diagnose(e: Evidence) -> Diagnosis:
    """Return what slows a run down, with at most two things to change."""
    found = _spilled(e) or _by_shares(e)
    return replace(found, advice=found.advice[:MOST_ADVICE])


def _spilled(e: Evidence) -> Diagnosis | None:
    if e.spilled_mb is None or e.spilled_mb < SPILLED_MB:
        return None
    told = f"{e.spilled_mb:,.0f} MB of GPU memory are in the host's memory and cross the bus at every use"
    return Diagnosis("memory spilling to the host", (told,), tuple(_less_memory(e)))


def _by_shares(e: Evidence) -> Diagnosis:
    if not e.shares:
        return Diagnosis("not enough data", ("no step times are logged yet", *_use(e)))
    losses = [_data(e), *_rare(e), _launches(e)]
    worst = max(losses, key=lambda loss: loss.share)
    return worst if worst.share >= NOTABLE - 1e-9 else _busy(e)


def _share(e: Evidence, *names: str) -> float:
    return sum(e.shares.get(name, 0.0) for name in names)


def _data(e: Evidence) -> Diagnosis:
    waiting, copying = _share(e, "data"), _share(e, "host_to_device")
    share = waiting + copying if e.idle is None else min(waiting + copying, e.idle)
    evidence = [f"{waiting:.0%} of the time is spent waiting for data, {copying:.0%} copying it to the device"]
    if e.idle is not None:
        evidence.append(f"the GPU idles {e.idle:.0%} of the time")
    return Diagnosis(
        "waiting for data", tuple(evidence), tuple(_sooner_data(e, share, copying=copying > waiting)), share
    )


def _rare(e: Evidence) -> Iterator[Diagnosis]:
    """Yield the diagnoses of checkpoints and evaluations, which are rare, over the whole run."""
    for name, phase, words, remedy in (
        ("checkpointing", "checkpoint", "checkpoints", _fewer_saves),
        ("evaluation", "eval", "evaluation", _fewer_evaluations),
    ):
        share = (e.run_shares or e.shares).get(phase, 0.0)
        yield Diagnosis(name, (f"{share:.0%} of the run's time is spent on {words}",), tuple(remedy(e, share)), share)


def _launches(e: Evidence) -> Diagnosis:
    """Return the diagnosis of a host that is too slow, in Python between the steps or in launches of single kernels."""
    other, compute = _share(e, "other"), _share(e, "forward", "backward", "captured", "optimizer")
    share, evidence = other, []
    if e.idle is not None:
        waits = _share(e, "data", "host_to_device", "checkpoint")
        share = max(0.0, e.idle - waits)
        evidence.append(f"the GPU idles {e.idle:.0%} of the time, {waits:.0%} is spent waiting")
    evidence.append(f"{compute:.0%} of the time is forward, backward and optimizer, {other:.0%} the rest")
    return Diagnosis("launch-bound", tuple(evidence), tuple(_fuller_steps(e, share)), share)


def _busy(e: Evidence) -> Diagnosis:
    compute = _share(e, "forward", "backward", "captured", "optimizer")
    evidence = (f"{compute:.0%} of the time is forward, backward and optimizer; no wait costs {NOTABLE:.0%}", *_use(e))
    advice = tuple(_cheaper_work(e))
    known = e.idle is not None or e.cpu_use is not None
    return Diagnosis("healthy" if known and not advice else "compute-bound", evidence, advice)


def _use(e: Evidence) -> list[str]:
    told = []
    if e.idle is not None:
        told.append(f"the GPU is busy {1 - e.idle:.0%} of the time")
    if not e.on_gpu and e.cpu_use is not None:
        told.append(f"the run keeps {e.cpu_use:.0%} of {e.cores} cores busy")
    if e.mfu is not None:
        told.append(f"model FLOPs utilization is {e.mfu:.1%}")
    return told


# What to change for each cause; gains are bounds from the measured shares ---------------------------------------------


def _sooner_data(e: Evidence, share: float, *, copying: bool) -> Iterator[Advice]:
    workers, cores = e.settings.get("num_workers"), e.cores or 0
    if copying and e.settings.get("pin_memory") is False:
        yield _set("dataloader_pin_memory", "true", "copies overlap with work", share)
    if workers is not None and not copying and workers < cores - 1:
        wanted = min(2 * workers or 2, cores - 1)
        why = f"{wanted} instead of {workers} workers prepare batches ahead"
        yield _set("dataloader_num_workers", wanted, why, share)


def _fewer_saves(e: Evidence, share: float) -> Iterator[Advice]:
    steps = e.settings.get("save_steps")
    if e.settings.get("save_strategy") == "steps" and steps:
        yield _set("save_steps", steps * FEWER, f"every {steps} steps now", share * RARER)
    elif every_s := e.settings.get("save_every_s"):
        yield _set("save_every", f"{every_s * FEWER:.0f}s", f"every {every_s:g} s now", share * RARER)
    else:
        yield _set("save_strategy", "no", "the adapter is saved at the end", share)


def _fewer_evaluations(e: Evidence, share: float) -> Iterator[Advice]:
    steps = e.settings.get("eval_steps")
    if e.settings.get("answers") and steps:
        why = f"every {steps} steps now"
        yield Advice((("evaluation.every_steps", str(steps * FEWER)),), why, _gain(share * RARER))
        return
    if e.settings.get("eval_strategy") == "steps" and steps:
        yield _set("eval_steps", steps * FEWER, f"every {steps} steps now", share * RARER)
    yield Advice((("--validation", "PATH"),), "half of the rows take half the time", _gain(share / 2))


def _less_memory(e: Evidence) -> Iterator[Advice]:
    why, batch_size = f"{e.spilled_mb:,.0f} MB less are needed", e.settings.get("batch_size") or 1
    if batch_size > 1:
        yield _batch(e, batch_size // 2, why, None)
    if e.settings.get("checkpointing") == "off":
        yield _set("gradient_checkpointing", "true", f"{why}; it takes one more forward pass in each step", None)


def _fuller_steps(e: Evidence, share: float) -> Iterator[Advice]:
    """Yield advice that puts more work into each launch."""
    batch_size, accumulation = (e.settings.get(name) for name in ("batch_size", "gradient_accumulation_steps"))
    if e.settings.get("attention") == "eager":
        yield _set("use_sdpa", "true", "one kernel in place of many", share)
    if batch_size and _has_room(e) and (accumulation or 1) > 1:
        yield _batch(e, batch_size * 2, "fewer, larger launches", share)
    if e.settings.get("torch_compile") is False and e.on_gpu:
        yield _set("torch_compile", "true", "fused kernels, fewer launches", share)


def _cheaper_work(e: Evidence) -> list[Advice]:
    """Return advice against unnecessary work of a busy device, the largest possible gain first, unknown gains last."""
    advice, forward, padding = [], e.shares.get("forward", 0.0), e.padding_share or 0.0
    if e.settings.get("packing") in ("off", None) and padding >= NOTABLE:
        # rows of a base model with recurrent layers are not packed, even if requested
        key = "packing" if e.settings.get("packing_asked") in ("off", None) else "group_by_length"
        if e.settings.get(key) is not True:
            advice.append(_set(key, "true", f"{padding:.0%} of the positions are padding", padding))
    if e.settings.get("checkpointing") not in ("off", None) and forward and _has_room(e):
        why = "the backward pass repeats the forward pass, and half of the memory is free"
        advice.append(_set("gradient_checkpointing", "false", why, forward))
    if e.settings.get("attention") == "eager":
        advice.append(_set("use_sdpa", "true", "eager attention keeps every score in memory", None))
    return sorted(advice, key=lambda one: -(one.at_most or 0.0))


def _batch(e: Evidence, batch: int, why: str, share: float | None) -> Advice:
    """Return the advice to change the batch size, at the same effective batch if a whole accumulation gives it."""
    now, accumulation = e.settings.get("batch_size") or 1, e.settings.get("gradient_accumulation_steps") or 1
    kept, rest = divmod(now * accumulation, batch)
    more = () if rest else (("training.config.gradient_accumulation_steps", str(kept)),)
    return _set("batch_size", batch, f"{why}; batch_size is {now} now", share, *more)


def _set(key: str, value: object, why: str, share: float | None, *more: tuple[str, str]) -> Advice:
    return Advice(((f"training.config.{key}", str(value)), *more), why, _gain(share))


def _gain(share: float | None) -> float | None:
    """Return the speed-up if this share of the time is saved; None: unknown."""
    return None if share is None or not 0 <= share < 1 else 1 / (1 - share)


def _has_room(e: Evidence) -> bool:
    """Whether enough GPU memory is free to propose something that needs more."""
    return e.free_memory is not None and e.free_memory >= ROOM
