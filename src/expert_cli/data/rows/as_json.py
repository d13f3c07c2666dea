"""What was seen of rows and decided of them, as JSON and arrays: for processes that build one store together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expert_cli.data.formats.raw_row import Piece, Pieces
from expert_cli.data.located import Located, LocatedData
from expert_cli.data.places import DataFile
from expert_cli.data.rows.cache import RowCache
from expert_cli.data.rows.columnar import RowReport
from expert_cli.data.rows.columns import Columns, TurnNames
from expert_cli.data.rows.look import Held, Judge, PieceLook
from expert_cli.data.rows.scan import SourcePieces
from expert_cli.data.rows.selected import RowSelection, Section, SelectedSource
from expert_cli.data.rows.validation import WeightValues
from expert_cli.errors import InputError
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig

Arrays = Mapping[str, NDArray[Any]]


def cut_as_json(cut: SourcePieces, files: Sequence[DataFile]) -> dict[str, Any]:
    """Return how a source of these files is cut."""
    held = [[_pieces_as_json(one.pieces, files), one.rows.start, one.rows.stop, one.size] for one in cut.held]
    return {"held": held, "start": cut.start, "names": list(cut.names)}


def cut_of(told: Mapping[str, Any], files: Sequence[DataFile]) -> SourcePieces:
    """Return what `cut_as_json` told."""
    held = tuple(Held(_pieces_of(some, files), range(start, stop), size) for some, start, stop, size in told["held"])
    return SourcePieces(held, told["start"], tuple(told["names"]))


def _pieces_as_json(pieces: Pieces, files: Sequence[DataFile]) -> list[list[int]]:
    numbers = {path: number for number, path in enumerate(files)}
    return [[numbers[piece.path], piece.start, piece.stop, piece.lines] for piece in pieces]


def _pieces_of(told: Sequence[Sequence[int]], files: Sequence[DataFile]) -> Pieces:
    return tuple(Piece(files[number], start, stop, lines) for number, start, stop, lines in told)


def look_as_json(look: PieceLook) -> tuple[dict[str, Any], Arrays]:
    """Return a first look, by which nothing is left out as rare."""
    told = {
        "names": look.names,
        "report": report_as_json(look.report),
        "fields": sorted(look.fields),
        "weights": asdict(look.weights),
        "refused": look.refused,
        "lines": look.lines,
    }
    numbers = {name: np.frombuffer(getattr(look, name), np.uint8) for name in ("ranks", "digests")}
    return told, {"kept": look.kept, **numbers}


def look_of(told: Mapping[str, Any], arrays: Arrays, judge: Judge, held: Held) -> PieceLook:
    """Return what `look_as_json` told of these pieces."""
    look = PieceLook(*held, RowCache((), -1), judge.rare, told["names"])
    try:
        look.columns = judge.columns(look.names)
    except InputError:  # the names of all pieces may tell
        look.columns = None
    look.kept = arrays["kept"]
    look.ranks, look.digests = (bytearray(arrays[name].tobytes()) for name in ("ranks", "digests"))
    look.report = report_of(told["report"])
    look.fields = set(told["fields"])
    look.weights = WeightValues(*([(value, where) for value, where in some] for some in told["weights"].values()))
    look.refused, look.lines = told["refused"], told["lines"]
    return look


def report_as_json(report: RowReport) -> dict[str, Any]:
    """Return a report; `asdict` counts what a Counter holds."""
    return {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(report).items()}


def report_of(told: Mapping[str, Any]) -> RowReport:
    """Return what `report_as_json` told."""
    left_out = {why: [(where, text) for where, text in some] for why, some in told["left_out"].items()}
    counts = {name: Counter(told[name]) for name in ("dropped", "filtered")}
    return RowReport(**{**told, **counts, "left_out": left_out})


def selection_as_json(selection: RowSelection) -> tuple[dict[str, Any], Arrays]:
    """Return what was decided of all sources; the arrays, by split and number of the source: how often each row is taken."""
    told: dict[str, Any] = {"reports": {}}
    arrays: dict[str, NDArray[Any]] = {}
    for split, report in (("train", selection.train_report), ("validation", selection.validation_report)):
        sources = selection.train if split == "train" else selection.validation
        told["reports"][split] = report_as_json(report) if report else None
        told[split] = None if sources is None else list(map(_source_as_json, sources))
        arrays |= {f"{split}-{number}": source.copies for number, source in enumerate(sources or ())}
    return told, arrays


def _source_as_json(source: SelectedSource) -> dict[str, Any]:
    sections = [
        [
            _pieces_as_json(one.pieces, source.located.files),
            one.rows.start,
            one.rows.stop,
            one.first,
            one.count,
            one.size,
        ]
        for one in source.sections
    ]
    return {"columns": asdict(source.columns), "start": source.start, "sections": sections}


def selection_of(
    told: Mapping[str, Any],
    copies: Callable[[str], NDArray[np.int32]],
    located: LocatedData,
    schema_prompt: SchemaPromptConfig | None,
) -> RowSelection:
    """Return what `selection_as_json` told of sources. copies: opens an array."""
    train, validation = (
        _sources_of(told[split], split, copies, located, schema_prompt) for split in ("train", "validation")
    )
    reports = {split: report_of(report) if report else None for split, report in told["reports"].items()}
    return RowSelection(train or (), validation, reports["train"] or RowReport(), reports["validation"])


def _sources_of(
    told: Sequence[Mapping[str, Any]] | None,
    split: str,
    copies: Callable[[str], NDArray[np.int32]],
    located: LocatedData,
    schema_prompt: SchemaPromptConfig | None,
) -> tuple[SelectedSource, ...] | None:
    if told is None:
        return None
    of_split: Sequence[Located] = located.validation if split == "validation" and located.validation else located.train
    return tuple(
        SelectedSource(
            place,
            _columns_of(source["columns"]),
            source["start"],
            copies(f"{split}-{number}"),
            tuple(
                Section(_pieces_of(pieces, place.files), range(start, stop), first, count, size, RowCache((), -1))
                for pieces, start, stop, first, count, size in source["sections"]
            ),
            schema_prompt,
        )
        for number, (source, place) in enumerate(zip(told, of_split, strict=True))
    )


def _columns_of(told: Mapping[str, Any]) -> Columns:
    turns = told["turns"]
    roles = tuple((written, role) for written, role in turns["roles"])
    return Columns(**{**told, "turns": TurnNames(turns["role"], turns["content"], roles)})
