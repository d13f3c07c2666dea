"""What to change for each cause, from the settings of the run; gains are bounds derived from measured shares."""

from __future__ import annotations

from expert_cli.benchmark.monitor.evidence import Advice, Evidence

CONFIG = "training.config."
FEWER = 4
"""How many times rarer saving or evaluating is proposed: it takes three quarters of the cost away."""
ROOM = 0.5
"""The share of the GPU's memory that must be free before anything that takes more of it is proposed."""


def gain(share: float) -> float | None:
    """Return the factor by which a run can get faster when this share of its time goes away."""
    return 1 / (1 - share) if 0 <= share < 1 else None


def sooner_data(e: Evidence, share: float, *, slow_disk: bool, copying: bool) -> tuple[Advice, ...]:
    """Data that is there when the step wants it."""
    settings = e.settings
    advice = []
    if slow_disk:
        advice.append(Advice((("--stage", "DIR"),), "DIR on a faster disk", gain(share)))
    if copying and settings.dataloader_pin_memory is False:
        advice.append(_one("dataloader_pin_memory", "true", "copies overlap with work", gain(share)))
    workers, cores = settings.dataloader_num_workers, e.cores or 0
    if workers is not None and not copying and workers < cores - 1:
        wanted = min(2 * workers or 2, cores - 1)
        why = f"{wanted} instead of {workers} workers prepare batches ahead"
        advice.append(_one("dataloader_num_workers", str(wanted), why, gain(share)))
    if e.padding_share is not None and e.padding_share >= 0.1 and settings.packing == "off":
        advice.append(_pack(e.padding_share))
    return tuple(advice)


def fewer_saves(e: Evidence, share: float) -> tuple[Advice, ...]:
    """Checkpoints that come less often."""
    steps = e.settings.save_steps
    if e.settings.save_strategy != "steps" or not steps:
        return (_one("save_strategy", "no", "the adapter is saved at the end", gain(share)),)
    rarer = gain(share * (1 - 1 / FEWER))
    return (_one("save_steps", str(steps * FEWER), f"every {steps} steps now", rarer),)


def fewer_evaluations(e: Evidence, share: float) -> tuple[Advice, ...]:
    """Evaluations that come less often, or look at fewer rows; without any, it is answers that are run."""
    if e.settings.eval_strategy == "no":
        return (
            Advice((), "four times the steps in evaluation.every_steps", gain(share * (1 - 1 / FEWER))),
            Advice((), "half of the cases in evaluation.sample", gain(share / 2)),
        )
    fewer_rows = Advice((("--validation", "PATH"),), "half of the rows take half of the time", gain(share / 2))
    steps = e.settings.eval_steps
    if e.settings.eval_strategy != "steps" or not steps:
        return (fewer_rows,)
    rarer = gain(share * (1 - 1 / FEWER))
    return (_one("eval_steps", str(steps * FEWER), f"every {steps} steps now", rarer), fewer_rows)


def less_memory(e: Evidence, why: str) -> tuple[Advice, ...]:
    """A step that needs less memory at the same effective batch."""
    settings = e.settings
    advice = []
    if settings.batch_size is not None and settings.batch_size > 1:
        advice.append(_batch(e, settings.batch_size // 2, why))
    if settings.checkpointing == "off":
        advice.append(_one("gradient_checkpointing", "true", f"{why}; a forward pass more a step", None))
    return tuple(advice)


def fuller_steps(e: Evidence, share: float | None) -> tuple[Advice, ...]:
    """More work in each launch. share None: these numbers give no bound."""
    settings = e.settings
    bound = None if share is None else gain(share)
    advice = []
    if settings.attention == "eager":
        advice.append(_one("use_sdpa", "true", "one kernel in place of many", bound))
    if settings.batch_size is not None and _has_room(e) and (settings.gradient_accumulation_steps or 1) > 1:
        advice.append(_batch(e, settings.batch_size * 2, "fewer, larger launches", bound))
    if settings.torch_compile is False and e.on_gpu:
        advice.append(_one("torch_compile", "true", "fused kernels, fewer launches", bound))
    return tuple(advice)


def cheaper_work(e: Evidence, notable: float) -> tuple[Advice, ...]:
    """Work of a busy device that the result does not need, the largest bound first, unknown ones last."""
    settings = e.settings
    advice = []
    if e.padding_share is not None and e.padding_share >= notable and settings.packing in ("off", None):
        advice.append(_pack(e.padding_share))
    forward = e.shares.get("forward", 0.0)
    if settings.checkpointing not in ("off", None) and forward and _has_room(e):
        why = "the backward pass repeats the forward one, and half of the memory is free"
        advice.append(_one("gradient_checkpointing", "false", why, gain(forward)))
    if settings.attention == "eager":
        advice.append(_one("use_sdpa", "true", "eager attention keeps every score in memory", None))
    return tuple(sorted(advice, key=lambda one: -(one.at_most or 0.0)))


def quieter_machine(share: float, stolen: float) -> tuple[Advice, ...]:
    """Cores that the run has for itself. stolen: the share of what others take that another virtual machine has."""
    ways = [
        (1 - stolen, "end or move the other programs (top lists them), or start those with nice -n 19"),
        (
            stolen,
            "a host with fewer virtual machines, or cores that are this one's alone: nothing here gives them back",
        ),
    ]
    part = 1 / (1 - share) - 1
    return tuple(Advice((), why, 1 + part * of) for of, why in sorted(ways, reverse=True) if of >= 0.1)


def _one(key: str, value: str, why: str, at_most: float | None) -> Advice:
    return Advice(((f"{CONFIG}{key}", value),), why, at_most)


def _pack(padding: float) -> Advice:
    return _one("packing", "true", f"{padding:.0%} of the positions are padding", gain(padding))


def _batch(e: Evidence, batch: int, why: str, at_most: float | None = None) -> Advice:
    """Another batch size, and the accumulation that keeps the effective batch, where there is a whole one."""
    now, accumulation = e.settings.batch_size or 1, e.settings.gradient_accumulation_steps or 1
    kept, rest = divmod(now * accumulation, batch)
    more = () if rest else ((f"{CONFIG}gradient_accumulation_steps", str(kept)),)
    return Advice(((f"{CONFIG}batch_size", str(batch)), *more), f"{why}; batch_size is {now} now", at_most)


def _has_room(e: Evidence) -> bool:
    gpu = e.gpu
    return (
        gpu is not None
        and bool(gpu.memory_total_mb)
        and (gpu.memory_mb or 0.0) / (gpu.memory_total_mb or 1) <= 1 - ROOM
    )
