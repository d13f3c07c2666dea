"""`expert-cli benchmark`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from expert_cli.commands.options import benchmark as ask
from expert_cli.commands.options.common import Debug, Json, Offline, Quiet
from expert_cli.console.terminal import SCHEMA_VERSION, Console
from expert_cli.errors import CTRL_C, ThresholdNotMet


def benchmark(
    run: ask.Run = None,
    duration: ask.Duration = 60.0,
    interval: ask.Interval = 2.0,
    manifest: ask.Manifest = None,
    against: ask.Against = None,
    sweep: ask.Sweep = None,
    steps: ask.Steps = 20,
    warmup: ask.Warmup = 3,
    repeats: ask.Repeats = None,
    gate: ask.Gate = None,
    base_model: ask.Base = None,
    dataset: ask.Dataset = None,
    validation: ask.Validation = None,
    device: ask.Device = "auto",
    seed: ask.Seed = None,
    set_: ask.Set = None,
    compare: ask.Compare = None,
    force: ask.Force = False,
    output: Annotated[Path | None, typer.Option(help="Write the JSON document to this file, too.")] = None,
    offline: Offline = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001  read by cli.main
) -> None:
    """Watch a training run and say what holds it back; or measure one setting against another.

    Without --manifest, a run is watched from a second terminal: GPU, CPU, memory, disk, network, and the run's own
    metrics, with a verdict, the numbers behind it, and what to change. Ctrl-C ends the watching, never the run.

    With --manifest, short runs are made: against the stock libraries or another manifest, in turn, with the ratio of their
    speeds and its 95 % interval, and whether they learn the same; or over a sweep of settings. Stock ways, on the same
    documents in the same steps: padded (transformers' Trainer with PEFT, padded to the longest of a batch), flattening
    (with DataCollatorWithFlattening), trl (TRL's SFTTrainer, padding-free). unoptimized is what unchanged scripts do.

    Examples:

        expert-cli benchmark

        expert-cli benchmark --run experts/expert-sql/weights/smollm2 --duration 120 --output watched.json

        expert-cli benchmark -m experts/expert-sql/manifest.json --against padded --gate 1.5 --output today.json

        expert-cli benchmark -m experts/expert-sql/manifest.json --sweep batch_size=2,4,8 --sweep dataloader_num_workers=0,2

        expert-cli benchmark --compare today.json yesterday.json
    """
    console = Console("benchmark", as_json=as_json, quiet=quiet)
    mode = ask.mode_of(run, manifest, against, sweep, gate, compare)
    if mode == "watch":
        _watch(console, run, duration, interval, output)
    elif compare is not None:
        from expert_cli.benchmark.experiment.compare import compare_experiments

        _show(console, compare_experiments(*compare, force=force), output)
    elif manifest is not None:
        from expert_cli.config.resolve import Overrides

        overrides = Overrides(
            dataset=dataset,
            validation=validation,
            base_model=base_model,
            device=device,
            seed=seed,
            settings=tuple(set_ or ()),
            offline=offline,
        )
        found, code = _measure(console, manifest, against or "", sweep or [], overrides, (steps, warmup, repeats), gate)
        _show(console, found, output, code)


def _watch(console: Console, folder: Path | None, duration: float, interval: float, output: Path | None) -> None:
    from expert_cli.benchmark.monitor import session, view

    target = session.find_run(folder)
    console.info(f"watching  {target.paths.output}")
    for other in target.others:
        console.info(f"runs too  {other} (--run names another)")
    with console.live() as show:
        seen = session.monitor_run(
            target, duration, interval, lambda s: show(view.progress_line(s), view.figures_line(s), view.rows(s))
        )
    _show(console, seen.as_json(), output, CTRL_C if seen.interrupted else 0)


def _measure(
    console: Console,
    manifest: Path,
    against: str,
    keys: list[str],
    overrides: Any,
    numbers: tuple[int, int, int | None],
    gate: float | None,
) -> tuple[dict[str, Any], int]:
    """Return the document of an experiment or a sweep, and the exit code."""
    from expert_cli.benchmark.experiment.paired_runs import experiment, make_job
    from expert_cli.benchmark.experiment.subprocess_run import StepCounts
    from expert_cli.benchmark.experiment.sweep import sweep
    from expert_cli.hardware import machine

    steps, warmup, repeats = numbers
    length, facts = StepCounts(steps, warmup), machine.inspect()
    if facts.first_words:
        console.warning(facts.first_words)
    if keys:
        swept = sweep(manifest, keys, overrides, length, repeats or 1, facts, console)
        return swept.as_json(), swept.exit_code
    outcome = experiment(make_job(manifest, against, overrides, length, repeats or 3, facts, gate), facts, console)
    code = ThresholdNotMet.exit_code if outcome.missed() else 0
    return outcome.as_json(), outcome.interrupted or code


def _show(console: Console, document: dict[str, Any], output: Path | None, code: int = 0) -> None:
    """Save and show a result; a missed gate or an interruption is an exit code beside it."""
    from expert_cli.benchmark.experiment import tables
    from expert_cli.benchmark.monitor import view
    from expert_cli.utils.files import write_json

    if output is not None:
        write_json(output, {"schema_version": SCHEMA_VERSION, "command": "benchmark", **document})
    if console.as_json:
        console.document(document)
    else:
        console.text(view.summary(document) if document["kind"] == "monitor" else tables.as_text(document))
    if code:
        raise typer.Exit(code)
