"""`expert-cli init`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from expert_cli.commands.options import Offline
from expert_cli.console.terminal import Console
from expert_cli.errors import InputError
from expert_cli.manifest.starter import StarterKind
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.text import plural, quoted, shortened


def init(
    console: Console,
    name: Annotated[str, Argument(help="Name of the expert and of its new folder.")],
    folder: Annotated[
        Path | None, Option(help="Parent of the new folder. Default: experts/ if it exists, else here.")
    ] = None,
    kind: Annotated[StarterKind | None, Option(help="Kind of its answers. Default: json.")] = None,
    from_config: Annotated[Path | None, Option(help="A configuration of axolotl or TRL.", metavar="FILE")] = None,
    rows: Annotated[str | None, Option("--from", help="Rows to train on: file, folder, URL or hub id.")] = None,
    base_model: Annotated[
        str | None, Option(help="With --from: the base model. Default: one that suits the machine.")
    ] = None,
    column: Annotated[list[str] | None, Option(metavar="ROLE=NAME", help="With --from: the role of a column.")] = None,
    offline: Offline = False,
) -> None:
    """Create a new expert's folder: a manifest with comments, and a few rows and test cases to replace.

    Rows and cases fit the kind of answers: json (the default) with a schema and values, sql with a small database for
    running queries, text with the expected text. examples/ has other kinds.

    With --from you bring your own rows: they are analyzed, and the manifest gets a sequence length, epochs, steps and a
    validation split that suit them.

    With --from-config only a manifest is written, from a YAML file of axolotl or TRL. Keys that are not carried over are
    listed. The manifest always trains a LoRA adapter on questions and answers.

    Examples:

        expert-cli init expert-regex
        expert-cli init expert-shop --kind sql --folder work
        expert-cli init expert-mails --from mails.csv --column response=label --base-model Qwen/Qwen3-0.6B
        expert-cli init expert-shop --from-config axolotl.yml
    """
    given = {"--kind": kind, "--from": rows, "--from-config": from_config}
    made_of = [option for option, value in given.items() if value is not None]
    if len(made_of) > 1:
        raise InputError(f"{' and '.join(made_of)}: each creates a manifest", "give one of them")
    if rows is None and (base_model or column):
        raise InputError(f"{'--base-model' if base_model else '--column'} goes with --from ROWS")
    if from_config and not from_config.exists():
        raise InputError(f"--from-config {from_config}: no such file", "give a YAML file of axolotl or TRL")
    home = _home(name, folder)
    with disk_errors(f"{home} cannot be made", "give another folder with --folder"):
        if rows is not None:
            _of_rows(console, home, rows, base_model, column or (), offline=offline)
        elif from_config:
            _of_config(console, from_config, home)
        else:
            _starter(console, name, home, kind or "json")


def _home(name: str, folder: Path | None) -> Path:
    from expert_cli.manifest.key import LONGEST_NAME

    if not re.fullmatch(r"\w([\w.-]*\w)?", name) or len(name) > LONGEST_NAME:
        hint = f"use at most {LONGEST_NAME} letters, digits, - and _; --folder names its parent folder"
        raise InputError(f'"{shortened(name)}" cannot be the name of an expert', hint)
    home = (folder or (Path("experts") if Path("experts").is_dir() else Path())) / name
    if home.exists():
        raise InputError(f"{home} exists already", "choose another name, or remove it")
    return home


def _of_config(console: Console, file: Path, home: Path) -> None:
    from expert_cli import api
    from expert_cli.manifest.import_config import import_config
    from expert_cli.utils.files import write_text

    imported, path = import_config(file, home), home / "manifest.json"
    write_text(path, imported.text)
    checked = api.validate(path)
    told = [*checked.warnings, *map(str, checked.errors)]

    def show() -> None:
        rows = [[one.key, one.value, one.reason] for one in imported.not_carried]
        console.table(f"not carried over from {file}:", ["key", "value", "why"], rows)
        for warning in told:
            console.warning(warning)
        carried = plural(len(imported.carried), "key")
        console.text(f"{path} made of {carried} of {file}, a configuration of {imported.program}. Then:")
        console.text(f"  expert-cli validate {quoted(path)}\n  expert-cli train --manifest {quoted(path)} --plan")

    document = {
        "manifest": str(path),
        "program": imported.program,
        "carried": imported.carried,
        "not_carried": [asdict(one) for one in imported.not_carried],
        "valid": not checked.errors,
        "warnings": told,
    }
    console.result(document, show)


def _starter(console: Console, name: str, home: Path, kind: StarterKind) -> None:
    from expert_cli.manifest.starter import SMOLLM2, write_starter
    from expert_cli.utils.paths import slug

    paths = write_starter(home, name, kind)
    manifest, run = paths["manifest"], home / "weights" / slug(SMOLLM2)
    lines = (
        f"made      {manifest}\nrows      {paths['rows']}: replace them with yours\ncases     {paths['cases']}: these too",
        "next",
        f"  expert-cli validate {quoted(manifest)}\n  expert-cli train --manifest {quoted(manifest)} --base-model smollm2",
        f"  expert-cli evaluate --adapter {quoted(run)}\n  expert-cli chat --adapter {quoted(run)}",
    )
    document = {"kind": kind, **{what: str(path) for what, path in paths.items()}}
    console.result(document, lambda: console.text("\n".join(lines)))


def _of_rows(
    console: Console, home: Path, source: str, base_model: str | None, columns: Sequence[str], *, offline: bool
) -> None:
    """Create the folder `home` with a manifest for the rows, and show what was found in them; remove it after an error."""
    from expert_cli.hardware.machine import inspect
    from expert_cli.manifest.keys.dataset import FieldMapping
    from expert_cli.utils.process_setup import prepare_process

    named: dict[str, str] = {}
    for written in columns:
        role, _, named[role] = written.partition("=")
        if role not in FieldMapping.model_fields or not named[role]:
            roles = ", ".join(FieldMapping.model_fields)
            raise InputError(f'--column "{shortened(written)}" is not of the form ROLE=NAME', f"the roles: {roles}")
    machine = inspect()
    prepare_process()
    from expert_cli.pipeline.rows_manifest import write_manifest_of_rows

    home.mkdir(parents=True)
    try:
        asked: dict[str, Any] = {"base_model": base_model, "columns": named, "offline": offline}
        found = write_manifest_of_rows(home, source, machine, console, **asked)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    console.result(found, lambda: _show(console, found))


def _show(console: Console, made: Mapping[str, Any]) -> None:
    found, manifest = made["found"], made["manifest"]
    split = "none: too few rows to hold any back"
    if share := found["validation_split"]:
        split = f"about {share:.2g} of the rows are held back, and evaluated after each pass"
    length = "{p50:,} tokens at half of the documents, {p99:,} at 99 %, {max:,} at most, by {by}"
    told = {
        "rows": "{good:,} of {read:,} can be trained".format(**found),
        "form": "{form}: {columns}".format(**found),
        "not read": ", ".join(found["not_read"]),
        "length": length.format(**found["length"]),
        "row": "max_seq_length {max_seq_length:,}: {truncated_rows:,} documents shortened".format(**found),
        "split": split,
        "training": "epochs {epochs:g}: about {steps:,} steps".format(**found),
    }
    console.text("\n".join(f"{what:9} {words}" for what, words in told.items() if words))
    train = f"  expert-cli train --manifest {quoted(manifest)}"
    console.text(f"made      {manifest}\nnext")
    console.text(f"  expert-cli validate --verbose {quoted(manifest)}    # every key and default, and why")
    console.text(f"{train} --plan    # time and memory, before anything is trained\n{train}")
