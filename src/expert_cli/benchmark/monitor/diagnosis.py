"""Numbers -> verdict and remedy; pure.

Each rule says which share of the time its cause costs. The largest share wins if it is at least NOTABLE, and 1 / (1 - share)
bounds what its removal can bring; no factor is printed that does not come from such a share. Memory that spills is asked first,
because it slows everything else down. Where no cause is notable the device works all the time: "compute-bound" if settings
are known that spend its work on something avoidable, else "healthy".

A wait is a loss only while the device idles: of 20 % waiting for data on a GPU that is 95 % busy, 5 % are lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from expert_cli.benchmark.monitor.evidence import Advice, Diagnosis, Evidence, VerdictName
from expert_cli.benchmark.monitor.gauges import mean
from expert_cli.benchmark.monitor.remedies import (
    cheaper_work,
    fewer_evaluations,
    fewer_saves,
    fuller_steps,
    gain,
    less_memory,
    quieter_machine,
    sooner_data,
)

NOTABLE = 0.10
"""Below a tenth of the time no single cause is worth a change: it could bring 1.11x at most."""
MOST_ADVICE = 2
SPILLED_MB = 64.0
"""Windows keeps some tens of MB of every process in shared memory; more than this is the model's."""
SWAPPING_MB_PER_S = 1.0
THROTTLED_SAMPLES = 0.5
LIMITS = frozenset(
    {"power cap", "hardware slowdown", "thermal (driver)", "thermal (hardware)", "power brake", "board limit"}
)
FEW_CORES = 0.4
"""torch runs one thread a physical core: with two hardware threads each, half of them idle in the best case."""
FULL = 0.9
"""So much of all cores busy: whoever wants more takes it from others. Below, the run could have had more than it took."""
LOW_POWER = 0.4
LOW_MFU = 0.2


@dataclass(frozen=True)
class _Loss:
    name: VerdictName
    share: float
    evidence: tuple[str, ...]
    advice: tuple[Advice, ...]


def diagnose(e: Evidence) -> Diagnosis:
    """Name what holds a run back."""
    if not e.on_gpu:
        e = replace(e, gpu=None)  # what another program does there
    memory = _memory(e)
    if memory:
        return _with_context(e, memory)
    if not e.shares:
        return _without_shares(e)
    losses = [loss for rule in (_data, _checkpoints, _evaluation, _limit, _launches, _neighbors) if (loss := rule(e))]
    worst = max(losses, key=lambda loss: loss.share, default=None)
    if worst and worst.share >= NOTABLE - 1e-9:
        return _with_context(e, Diagnosis(worst.name, worst.evidence, worst.advice))
    return _with_context(e, _hot(e) or _small_kernels(e) or _busy(e))


def trend(tokens_per_s: tuple[float, ...], held_s: tuple[float, ...] = ()) -> float | None:
    """Return by which share the last third of the intervals is faster (+) or slower (-) than the first; None under 6."""
    third = len(tokens_per_s) // 3
    if third < 2:
        return None
    first, last = mean(tokens_per_s[:third], held_s[:third]), mean(tokens_per_s[-third:], held_s[-third:])
    return last / first - 1 if first and last is not None else None


def _share(shares: Mapping[str, float], *names: str) -> float:
    return sum(shares.get(name, 0.0) for name in names)


def _memory(e: Evidence) -> Diagnosis | None:
    if e.spilled_mb is not None and e.spilled_mb >= SPILLED_MB:
        told = f"{e.spilled_mb:,.0f} MB of GPU memory lie in the host's memory and cross the bus at every use"
        return Diagnosis(
            "memory spilling to the host", (told,), less_memory(e, f"{e.spilled_mb:,.0f} MB less are needed")
        )
    if e.swap_in_mb_per_s is not None and e.swap_in_mb_per_s >= SWAPPING_MB_PER_S:
        told = f"the system reads swapped memory back at {e.swap_in_mb_per_s:.1f} MB/s: memory is short"
        return Diagnosis("disk", (told,), less_memory(e, "memory that fits is not swapped"))
    return None


def _data(e: Evidence) -> _Loss | None:
    waiting, copying = _share(e.shares, "data"), _share(e.shares, "host_to_device")
    share = waiting + copying if e.idle is None else min(waiting + copying, e.idle)
    evidence = [f"{waiting:.0%} of the time goes into waiting for data, {copying:.0%} into copying it to the device"]
    if e.idle is not None:
        evidence.append(f"the GPU idles {e.idle:.0%} of the time")
    slow_disk = e.disk_busy is not None and e.disk_busy >= 0.5 and waiting >= copying
    if slow_disk:
        rate = "" if e.disk_read_mb_per_s is None else f", reading {e.disk_read_mb_per_s:,.1f} MB/s"
        evidence.append(f"the disk is busy {e.disk_busy:.0%} of the time{rate}")
    advice = sooner_data(e, share, slow_disk=slow_disk, copying=copying > waiting)
    return _Loss("disk" if slow_disk else "waiting for data", share, tuple(evidence), advice)


def _checkpoints(e: Evidence) -> _Loss | None:
    share = _share(e.run_shares or e.shares, "checkpoint")
    return _Loss(
        "checkpointing", share, (f"{share:.0%} of the run's time goes into checkpoints",), fewer_saves(e, share)
    )


def _evaluation(e: Evidence) -> _Loss | None:
    share = _share(e.run_shares or e.shares, "eval")
    return _Loss(
        "evaluation", share, (f"{share:.0%} of the run's time goes into evaluation",), fewer_evaluations(e, share)
    )


def _throttles(e: Evidence, *, thermal: bool = False) -> dict[str, float]:
    named = e.gpu.throttles if e.gpu else {}
    kept = {name: share for name, share in named.items() if name in LIMITS and share >= THROTTLED_SAMPLES}
    return {name: share for name, share in kept.items() if name != "power cap"} if thermal else kept


def _limit(e: Evidence) -> _Loss | None:
    """A clock held down while the GPU works. A power cap that costs little is what a card at full load shows."""
    if e.gpu is None or not _throttles(e) or not e.gpu.clock_mhz or not e.gpu.top_clock_mhz:
        return None
    slower = max(0.0, 1 - e.gpu.clock_mhz / e.gpu.top_clock_mhz)
    share = slower * (1 - (e.idle or 0.0))
    told = f"the SM clock is {e.gpu.clock_mhz:,.0f} MHz; {e.gpu.top_clock_mhz:,.0f} MHz were seen on this card"
    return _Loss("thermal or power limit", share, (_limit_words(e), told), _cooler(share))


def _hot(e: Evidence) -> Diagnosis | None:
    """Heat or a failing supply is named also where the full clock was never seen; a mere power cap is not."""
    gpu = e.gpu
    if gpu is None or not _throttles(e, thermal=True):
        return None
    seen = gpu.clock_mhz and gpu.top_clock_mhz and gpu.clock_mhz < 0.99 * gpu.top_clock_mhz
    return None if seen else Diagnosis("thermal or power limit", (_limit_words(e),), _cooler(None))


def _limit_words(e: Evidence) -> str:
    words = ", ".join(f"{name} in {share:.0%} of the samples" for name, share in _throttles(e).items())
    heat = f", {e.gpu.temperature_c:.0f} °C" if e.gpu and e.gpu.temperature_c is not None else ""
    return f"the driver holds the clock down: {words}{heat}"


def _cooler(share: float | None) -> tuple[Advice, ...]:
    bound = None if share is None else gain(share)
    return (
        Advice((), "better cooling, or a higher power limit: nvidia-smi -q -d POWER,TEMPERATURE says which", bound),
    )


def _launches(e: Evidence) -> _Loss | None:
    """The host is the brake: Python between the steps, or kernels launched one by one, or cores without work."""
    other = _share(e.shares, "other")
    compute = _share(e.shares, "forward", "backward", "optimizer")
    if e.on_gpu:
        waits = _share(e.shares, "data", "host_to_device", "checkpoint")
        share = other if e.idle is None else max(0.0, e.idle - waits)
        told = f"the GPU idles {e.idle:.0%} of the time, {waits:.0%} is spent waiting" if e.idle is not None else ""
    else:
        unused = 1 - e.cpu_use if e.cpu_use is not None and e.cpu_use < FEW_CORES and not _crowded(e) else 0.0
        share = other + compute * unused
        told = f"{e.cpu_use:.0%} of {e.cores} cores work" if unused and e.cpu_use is not None else ""
    evidence = (
        told,
        f"{compute:.0%} of the time is forward, backward and optimizer, {other:.0%} the program around them",
    )
    return _Loss("launch-bound", share, tuple(filter(None, evidence)), fuller_steps(e, share))


def _neighbors(e: Evidence) -> _Loss | None:
    """Other programs, and other virtual machines, take cores that the run would use.

    Alone it could use as many cores as it has threads, and no more than it and they use now: own / both of the time is its
    own. A GPU loses by a slow host only while it idles.
    """
    own, others = e.cpu_use, e.others
    if not own or not others or own + others < FULL - 1e-9 or not e.cores:
        return None
    wanted = max(own, min(own + others, (e.threads or e.cores) / e.cores))
    share = 1 - own / wanted if not e.on_gpu else min(1 - own / wanted, e.idle or 0.0)
    stolen = min(others, (e.stolen_percent or 0.0) / 100)
    told = [_taken(e, others), f"the run gets {own * e.cores:.1f} cores and could use {wanted * e.cores:.1f}"]
    if stolen >= NOTABLE * others:
        told.append(
            f"{stolen * e.cores:.1f} of what they keep busy is stolen: the host of this virtual machine gives it to others"
        )
    return _Loss("other programs use this machine", share, tuple(told), quieter_machine(share, stolen / others))


def _taken(e: Evidence, others: float) -> str:
    return f"other programs keep {others * (e.cores or 0):.1f} of {e.cores} cores busy"


def _small_kernels(e: Evidence) -> Diagnosis | None:
    """Utilization says that a kernel was there, power and MFU whether it filled the card."""
    gpu = e.gpu
    if not e.on_gpu or gpu is None or gpu.power_w is None or not gpu.power_limit_w:
        return None
    power = gpu.power_w / gpu.power_limit_w
    if power >= LOW_POWER or (e.mfu is not None and e.mfu >= LOW_MFU):
        return None
    told = f"kernels run all the time, yet draw {power:.0%} of the card's {gpu.power_limit_w:,.0f} W: they are small"
    return Diagnosis("launch-bound", (told,), fuller_steps(e, None))


def _busy(e: Evidence) -> Diagnosis:
    compute = _share(e.shares, "forward", "backward", "optimizer")
    evidence = (f"{compute:.0%} of the time is forward, backward and optimizer; no wait costs {NOTABLE:.0%}", *_use(e))
    advice = cheaper_work(e, NOTABLE)
    known = e.idle is not None or e.cpu_use is not None
    return Diagnosis("healthy" if known and not advice else "compute-bound", evidence, advice)


def _without_shares(e: Evidence) -> Diagnosis:
    """Runs that log no step times: only what is certain without them."""
    logged = "the metrics hold no step times" if e.tokens_per_s else "the run has logged no step yet"
    evidence = (logged, *_use(e))
    crowd = _neighbors(e)
    if crowd and crowd.share >= NOTABLE:
        return _with_context(e, Diagnosis(crowd.name, (logged, *crowd.evidence), crowd.advice))
    gpu_works = e.idle is not None and e.idle < NOTABLE
    cores_work = not e.on_gpu and e.cpu_use is not None and e.cpu_use >= FEW_CORES
    if gpu_works or cores_work:
        busy = Diagnosis("compute-bound", evidence, cheaper_work(e, NOTABLE))
        return _with_context(e, _hot(e) or _small_kernels(e) or busy)
    if e.idle is not None and e.disk_busy is not None and e.disk_busy >= 0.5:
        told = f"the disk is busy {e.disk_busy:.0%} of the time"
        return _with_context(
            e, Diagnosis("disk", (*evidence, told), sooner_data(e, e.idle, slow_disk=True, copying=False))
        )
    return _with_context(e, Diagnosis("not enough data", evidence))


def _use(e: Evidence) -> list[str]:
    told = []
    if e.gpu is not None and e.gpu.utilization is not None:
        told.append(f"the GPU is busy {e.gpu.utilization:.0f}% of the time")
    if not e.on_gpu and e.cpu_use is not None:
        told.append(f"the run keeps {e.cpu_use:.0%} of {e.cores} cores busy")
    if e.mfu is not None:
        told.append(f"model FLOPs utilization is {e.mfu:.1%}")
    return told


def _crowded(e: Evidence) -> bool:
    """Whether other programs take cores that this run could use."""
    return e.others is not None and e.others >= 0.25


def _with_context(e: Evidence, verdict: Diagnosis) -> Diagnosis:
    """Add what a reader needs to weigh the verdict, a falling speed and other programs; keep the first of the advice."""
    more = []
    change = trend(e.tokens_per_s, e.held_s)
    if change is not None and change <= -0.2 + 1e-9:
        more.append(f"tokens/s fell by {-change:.0%} while it was watched")
    if e.others is not None and _crowded(e) and _taken(e, e.others) not in verdict.evidence:
        more.append(_taken(e, e.others))
    return Diagnosis(verdict.name, (*verdict.evidence, *more), verdict.advice[:MOST_ADVICE])
