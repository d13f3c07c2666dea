"""One file in YAML -> its keys and values, or where it is broken."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from expert_cli.errors import InputError

LARGEST = 1_000_000
"""Bytes of a file: configurations have a few thousand."""


def read_yaml(file: Path) -> Mapping[Any, Any]:
    """Return what a file in YAML holds. No object but texts, numbers, dates, lists and mappings is made of it.

    Raises InputError: it cannot be read, is broken (with line and column), or holds no keys.
    """
    import yaml

    try:
        if file.stat().st_size > LARGEST:
            raise InputError(f"{file}: has more than {LARGEST:,} bytes", "name the file of a training")
        value = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}", "correct the path after --from-config") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: is not UTF-8 text: {error.reason}", "name a file in YAML") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        what = getattr(error, "problem", None) or str(error) or "is nested too deep"
        raise InputError(f"{file}{where}: {what}", "correct the YAML") from error
    if not isinstance(value, dict):
        raise InputError(f"{file}: holds no keys", "name the file of a training")
    return value
