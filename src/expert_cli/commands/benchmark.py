"""`expert-cli benchmark`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from expert_cli.commands import passed_on
from expert_cli.commands.options import Offline
from expert_cli.console.terminal import SCHEMA_VERSION, Console
from expert_cli.errors import CTRL_C, InputError, ThresholdNotMet
from expert_cli.manifest.keys.compute import DeviceChoice

# An option of one way of measuring, in the help's panel of that way.
_watch_option, _measure_option, _compare_option = (
    partial(typer.Option, rich_help_panel=panel)
    for panel in ("Watch a run", "Measure (with --manifest)", "Compare saved results")
)


def benchmark(
    console: Console,
    run: Annotated[
        Path | None,
        _watch_option("--run", help="Watch the run of this folder. Default: the newest one on this machine."),
    ] = None,
    duration: Annotated[float, _watch_option(min=0.1, help="Watch for this many seconds.")] = 60.0,
    interval: Annotated[float, _watch_option(min=0.1, help="Seconds between two looks.")] = 2.0,
    manifest: Annotated[Path | None, _measure_option("--manifest", "-m", help="Measure this manifest.")] = None,
    against: Annotated[
        str | None,
        _measure_option(
            metavar="padded|flattening|trl|unoptimized|MANIFEST",
            help="What it is measured against: a way of the stock libraries, or another manifest.",
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        _measure_option(
            metavar="KEY=a,b,c",
            help="Values of a setting to try at the same effective batch; repeatable, every combination is run.",
        ),
    ] = None,
    steps: Annotated[int, _measure_option(min=1, help="Optimizer steps that are measured.")] = 20,
    warmup: Annotated[int, _measure_option(min=0, help="Steps before them that are not.")] = 3,
    repeats: Annotated[
        int | None, _measure_option(min=1, help="Runs of each side (3), of each combination (1).")
    ] = None,
    gate: Annotated[
        float | None,
        _measure_option(
            metavar="RATIO", min=0.01, help="Exit 5 if the ratio is below this, or the two do not learn the same."
        ),
    ] = None,
    base_model: Annotated[
        str | None, _measure_option("--base-model", help="Base model of all runs, as train takes it.")
    ] = None,
    dataset: Annotated[str | None, _measure_option(help="Train on these rows instead.")] = None,
    validation: Annotated[str | None, _measure_option(help="Set these rows apart instead.")] = None,
    device: Annotated[DeviceChoice, _measure_option(help="Where to run.")] = "auto",
    seed: Annotated[int | None, _measure_option(min=0, help="Seed of the first repeat.")] = None,
    set_: Annotated[
        list[str] | None,
        _measure_option(
            "--set", metavar="training.config.KEY=VALUE", help="Change one setting of all runs; repeatable."
        ),
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None, _compare_option(metavar="A.json B.json", help="Two results saved with --output.")
    ] = None,
    force: Annotated[bool, _compare_option("--force", help="Even of different machines, base models or rows.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write the JSON document to this file, too.")] = None,
    offline: Offline = False,
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
    asked = locals()
    if _way_asked(manifest, gate, run=run, against=against, sweep=sweep, compare=compare) == "run":
        _watch(console, run, duration, interval, output)
    elif compare is not None:
        from expert_cli.benchmark.experiment.compare import compare_experiments

        _show(console, compare_experiments(*compare, force=force), output)
    elif manifest is not None:
        from expert_cli.config.resolve import Overrides

        said = passed_on(asked, "dataset validation base_model device seed offline")
        overrides = Overrides(**said, settings=tuple(set_ or ()))
        found, code = _measure(console, manifest, against or "", sweep or [], overrides, (steps, warmup, repeats), gate)
        _show(console, found, output, code)


def _way_asked(manifest: Path | None, gate: float | None, **options: Any) -> str:
    """Return which of the `options`, each a way of measuring, is given, "run" for none.

    Raises InputError where the options do not say one thing.
    """
    asked = [name for name, value in options.items() if value not in (None, [])]
    if len(asked) > 1:
        raise InputError(f"give one of {', '.join(f'--{name}' for name in options)}")
    way = asked[0] if asked else "run"
    measures = way in ("against", "sweep")
    if measures and manifest is None:
        raise InputError(f"--{way} needs --manifest")
    if manifest is not None and not measures:
        raise InputError("--manifest needs --against padded|flattening|trl|unoptimized|MANIFEST, or --sweep KEY=a,b,c")
    if gate is not None and way != "against":
        raise InputError("--gate needs --against")
    return way


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
    words = view.summary if document["kind"] == "monitor" else tables.as_text
    console.result(document, lambda: words(document))
    if code:
        raise typer.Exit(code)
