"""`expert-cli init --from`: what was seen of the rows, as a person reads it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from expert_cli.console.terminal import Console
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.utils.text import plural, shortened

if TYPE_CHECKING:
    from expert_cli.pipeline.rows_manifest import RowsManifest


@contextmanager
def making(home: Path) -> Iterator[None]:
    """Turn what keeps a folder from being made into an error of the environment."""
    try:
        yield
    except OSError as error:
        why = getattr(error, "strerror", error)
        raise EnvironmentProblem(f"{home} cannot be made: {why}", "give another folder with --folder") from error


def init_from_rows(
    console: Console, home: Path, source: str, base_model: str | None, columns: Sequence[str], *, offline: bool
) -> None:
    """Make the folder `home` with a manifest for rows, and say what was seen of them; without it where that fails."""
    from expert_cli.hardware.machine import inspect
    from expert_cli.utils.process_setup import prepare_process

    named = _columns(columns)
    machine = inspect()
    prepare_process()
    from expert_cli.pipeline.rows_manifest import write_manifest_of_rows

    with making(home):
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
    told = [("rows", _rows(found)), ("form", f"{found.kind}: {found.report.mapping}")]
    if unread := found.report.unread:
        told.append(("not read", ", ".join(unread)))
    told += [("length", _length(found)), ("row", _row(found)), ("split", _split(found)), ("training", _training(found))]
    console.text("\n".join(f"{what:9} {words}" for what, words in told))
    console.text(f"{found.manifest} made; the reason of each default: expert-cli validate {found.manifest}")
    console.text(
        f"  expert-cli train --manifest {found.manifest} --plan    # time and memory, before anything is trained"
    )
    console.text(f"  expert-cli train --manifest {found.manifest}")


def _rows(found: RowsManifest) -> str:
    report = found.report
    counts = [f"{count:,} {reason}" for reason, count in {**report.dropped, **report.filtered}.items()]
    left_out = f"; left out: {', '.join(counts)}" if counts else ""
    return f"{found.good:,} of {report.read:,} can be trained{left_out}"


def _length(found: RowsManifest) -> str:
    lengths, name = found.lengths, found.written["base_models"][0]["name"]
    counted = f"by the tokenizer of {name}"
    if lengths.by == "estimate":
        counted = f"estimated from the text: the tokenizer of {name} is not on this machine"
    half, most, longest = map(lengths.tokens.percentile, (50, 99, 100))
    return f"{half:,} tokens at half of the documents, {most:,} at 99 %, {longest:,} at most, {counted}"


def _row(found: RowsManifest) -> str:
    size = found.size
    cut = "nothing is cut"
    if size.truncated_rows:
        cut = f"{plural(size.truncated_rows, 'document')} shortened by {size.truncated_tokens:,} tokens in all"
    return (
        f"max_seq_length {size.max_seq_length:,}: {plural(size.sequences, 'pack')} a pass, {size.fill:.0%} full; {cut}"
    )


def _split(found: RowsManifest) -> str:
    if path := found.dataset.get("validation_path"):
        return f"{path} evaluates after each pass"
    if share := found.dataset.get("validation_split"):
        return (
            f"about {found.good * share:,.0f} rows are held back ({share:.2g} of them), and evaluated after each pass"
        )
    return "none: too few rows to hold any back"


def _training(found: RowsManifest) -> str:
    config, documents = found.config, len(found.lengths.tokens)
    each = documents * config["epochs"] / found.steps
    kept = ", the best one by the held-back rows is kept" if config.get("load_best_model_at_end") else ""
    return f"epochs {config['epochs']:g}: about {found.steps:,} steps of {each:.0f} documents{kept}"
