"""How a file of rows is told by its name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath

PLAIN_TEXT = "plain text"
"""The format whose files may as well be words about the rows."""
DATA_SUFFIXES: Mapping[str, str] = {
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".json": "JSON",
    ".csv": "CSV",
    ".tsv": "TSV",
    ".txt": PLAIN_TEXT,
    ".parquet": "Parquet",
    ".arrow": "Arrow",
}
"""Suffixes of data files in small letters, and the format of each, which `data/reading.py` reads."""
COMPRESSED_SUFFIXES: Mapping[str, str] = {".gz": "gzip", ".zst": "zstd", ".bz2": "bzip2", ".xz": "xz"}
"""What may follow such a suffix, and the compression."""
_COMPRESSED_INSIDE = frozenset({"Parquet", "Arrow"})


def format_name(name: str | Path) -> str:
    """Return the format of a data file as its name tells it, "" = none: `rows.jsonl.gz` is one of JSON lines."""
    *_, inner, last = ["", "", *(suffix.lower() for suffix in PurePath(name).suffixes)]
    if last not in COMPRESSED_SUFFIXES:
        return DATA_SUFFIXES.get(last, "")
    found = DATA_SUFFIXES.get(inner, "")
    return "" if found in _COMPRESSED_INSIDE else found
