"""`expert-cli init`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from expert_cli.commands.options import Offline
from expert_cli.console.terminal import Console
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.manifest.starter import StarterKind
from expert_cli.utils.text import plural, shortened

if TYPE_CHECKING:
    from expert_cli.pipeline.rows_manifest import RowsManifest


def init(
    console: Console,
    name: Annotated[str, typer.Argument(help="Name of the expert; its folder is made.")],
    folder: Annotated[
        Path | None, typer.Option(help="Where the folder is made. Default: experts/ if there is one, else here.")
    ] = None,
    kind: Annotated[StarterKind | None, typer.Option(help="What its answers are. Default: json.")] = None,
    from_config: Annotated[
        Path | None,
        typer.Option(help="A configuration of axolotl or TRL to make the manifest from.", metavar="FILE"),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            "--from", help="Rows to train on, as training.dataset.path names them: file, folder, URL or hub id."
        ),
    ] = None,
    base_model: Annotated[
        str | None, typer.Option(help="With --from: the base model. Default: by whether there is a GPU.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=NAME", help="With --from: what a column is, where its name does not tell."),
    ] = None,
    offline: Offline = False,
) -> None:
    """Make a new expert's folder: a commented manifest, a few rows and a few test cases to replace.

    Rows and cases fit the kind of its answers: sql comes with a small database in which queries are run, text with the one
    right text, json, the default, with a schema and values, which need no engine to be compared. Other kinds are in examples/.

    With --from the rows are yours: they are looked at, and the manifest is written for them, with the row length, passes,
    steps and split that suit them. Where the base model's tokenizer is on this machine, its tokens are counted, and kept for
    training.

    With --from-config the manifest alone is made, of what a YAML file of another trainer says: model, adapter, data sets,
    lengths, optimizer, schedule. Every key that is not carried over is told, and stands in the manifest as a comment.
    What trains something else (all weights, preferences, images) is refused.

    Examples:

        expert-cli init expert-regex

        expert-cli init expert-dates --kind text

        expert-cli init expert-shop --kind sql --folder work

        expert-cli init expert-mails --from mails.jsonl

        expert-cli init expert-mails --from mails.csv --column response=label --base-model Qwen/Qwen3-0.6B

        expert-cli init expert-shop --from-config axolotl.yml
    """
    given = {"--kind": kind, "--from": rows, "--from-config": from_config}
    made_of = [option for option, value in given.items() if value is not None]
    if len(made_of) > 1:
        raise InputError(f"{' and '.join(made_of)}: each brings a manifest of its own", "give one of them")
    if rows is None and (base_model or column):
        raise InputError(f"{'--base-model' if base_model else '--column'} goes with --from ROWS")
    home = _home(name, folder)
    if rows is not None:
        _of_rows(console, home, rows, base_model, column or (), offline=offline)
    elif from_config:
        _of_config(console, from_config, home)
    else:
        _starter(console, name, home, kind or "json")


def _home(name: str, folder: Path | None) -> Path:
    """Return where the expert's folder will be. Raises InputError for a name or a place that cannot be."""
    from expert_cli.manifest.key import LONGEST_NAME

    if not re.fullmatch(r"\w([\w.-]*\w)?", name) or len(name) > LONGEST_NAME:
        hint = f"use at most {LONGEST_NAME} letters, digits, - and _; --folder says where"
        raise InputError(f'"{shortened(name)}" cannot be the name of an expert', hint)
    parent = folder or (Path("experts") if Path("experts").is_dir() else Path())
    if parent.exists() and not parent.is_dir():
        raise InputError(f"{parent} is a file, not a folder", "give another folder with --folder")
    home = parent / name
    if home.exists():
        raise InputError(f"{home} exists already", "choose another name, or remove it")
    return home


def _of_config(console: Console, file: Path, home: Path) -> None:
    """Make the manifest that a configuration of another trainer becomes, and tell what it lacks."""
    from expert_cli import api
    from expert_cli.manifest.import_config import import_config, manifest_text
    from expert_cli.utils.files import write_text

    imported, path = import_config(file, home), home / "manifest.json"
    with _making(home):
        write_text(path, manifest_text(imported))
        for beside, text in imported.files.items():
            write_text(home / beside, text)
    checked = api.validate(path)
    told = [*checked.warnings, *map(str, checked.errors)]
    if console.as_json:
        valid = not checked.errors
        console.document({"manifest": str(path), **imported.as_json(), "valid": valid, "warnings": told})
        return
    rows = [[one.key, one.value, one.reason] for one in imported.not_carried]
    if rows:
        console.table(f"not carried over from {file}:", ["key", "value", "why"], rows)
    for warning in told:
        console.warning(warning)
    carried = plural(len(imported.carried), "key")
    console.text(f"{path} made of {carried} of {file}, a configuration of {imported.program}. Then:")
    console.text(f"  expert-cli validate {path}\n  expert-cli train --manifest {path} --plan")


def _starter(console: Console, name: str, home: Path, kind: StarterKind) -> None:
    """Make an expert to fill in: its manifest, rows and cases."""
    from expert_cli.manifest.starter import SMOLLM2, write_starter
    from expert_cli.utils.paths import slug

    with _making(home):
        paths = write_starter(home, name, kind)
    if console.as_json:
        console.document({"kind": kind, **{what: str(path) for what, path in paths.items()}})
        return
    manifest, run = paths["manifest"], home / "weights" / slug(SMOLLM2)
    console.text(f"{manifest} made. Put your rows into {paths['rows']}, your cases into {paths['cases']}, then:")
    console.text(f"  expert-cli validate {manifest}\n  expert-cli train --manifest {manifest} --base-model smollm2")
    console.text(f"  expert-cli evaluate --adapter {run}\n  expert-cli chat --adapter {run}")


@contextmanager
def _making(home: Path) -> Iterator[None]:
    """Turn what keeps a folder from being made into an error of the environment."""
    try:
        yield
    except OSError as error:
        why = getattr(error, "strerror", error)
        raise EnvironmentProblem(f"{home} cannot be made: {why}", "give another folder with --folder") from error


def _of_rows(
    console: Console, home: Path, source: str, base_model: str | None, columns: Sequence[str], *, offline: bool
) -> None:
    """Make the folder `home` with a manifest for rows, and say what was seen of them; without it where that fails."""
    from expert_cli.hardware.machine import inspect
    from expert_cli.utils.process_setup import prepare_process

    named = _columns(columns)
    machine = inspect()
    prepare_process()
    from expert_cli.pipeline.rows_manifest import write_manifest_of_rows

    with _making(home):
        home.mkdir(parents=True)
    try:
        found = write_manifest_of_rows(
            home, source, machine, console, base_model=base_model, columns=named, offline=offline
        )
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    if console.as_json:
        console.document(found.as_json())
    else:
        _show(console, found)


def _columns(written: Sequence[str]) -> dict[str, str]:
    """Return columns by role from "ROLE=NAME". Raises InputError for another form."""
    from expert_cli.manifest.keys.dataset import FieldMapping

    named: dict[str, str] = {}
    for each in written:
        role, equals, name = each.partition("=")
        if not equals or not name or role not in FieldMapping.model_fields:
            raise InputError(
                f'--column "{shortened(each)}" is not of the form ROLE=NAME',
                f"the roles: {', '.join(FieldMapping.model_fields)}",
            )
        named[role] = name
    return named


def _show(console: Console, found: RowsManifest) -> None:
    report, lengths, size, config = found.report, found.lengths, found.size, found.config
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in {**report.dropped, **report.filtered}.items())
    counted = f"by the tokenizer of {found.written['base_models'][0]['name']}"
    if lengths.by == "estimate":
        counted = f"estimated from the text: {counted.removeprefix('by ')} is not on this machine"
    half, most, longest = map(lengths.tokens.percentile, (50, 99, 100))
    cut = f"{plural(size.truncated_rows, 'document')} shortened by {size.truncated_tokens:,} tokens in all"
    split = "none: too few rows to hold any back"
    if path := found.dataset.get("validation_path"):
        split = f"{path} evaluates after each pass"
    elif share := found.dataset.get("validation_split"):
        split = (
            f"about {found.good * share:,.0f} rows are held back ({share:.2g} of them), and evaluated after each pass"
        )
    each = len(lengths.tokens) * config["epochs"] / found.steps
    kept = ", the best one by the held-back rows is kept" if config.get("load_best_model_at_end") else ""
    told = {
        "rows": f"{found.good:,} of {report.read:,} can be trained" + (f"; left out: {left_out}" if left_out else ""),
        "form": f"{found.kind}: {report.mapping}",
        "not read": ", ".join(report.unread),
        "length": f"{half:,} tokens at half of the documents, {most:,} at 99 %, {longest:,} at most, {counted}",
        "row": f"max_seq_length {size.max_seq_length:,}: {plural(size.sequences, 'pack')} a pass, {size.fill:.0%} full; "
        + (cut if size.truncated_rows else "nothing is cut"),
        "split": split,
        "training": f"epochs {config['epochs']:g}: about {found.steps:,} steps of {each:.0f} documents{kept}",
    }
    console.text("\n".join(f"{what:9} {words}" for what, words in told.items() if words))
    train = f"  expert-cli train --manifest {found.manifest}"
    console.text(f"{found.manifest} made; the reason of each default: expert-cli validate {found.manifest}")
    console.text(f"{train} --plan    # time and memory, before anything is trained\n{train}")
