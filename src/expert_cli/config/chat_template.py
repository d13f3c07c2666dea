"""The file of a run's own chat template (`chat_template_path`)."""

from __future__ import annotations

from pathlib import Path

from expert_cli.errors import InputError

LARGEST = 1 << 18
"""Bytes; published templates have up to 20,000."""


def read_chat_template(path: Path) -> str:
    """Return the jinja text of a file. Raises InputError: it is not there, empty, too large, or no text."""
    hint = "name a file of a chat template in jinja, relative to the manifest"
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"{path} has {path.stat().st_size:,} bytes, {LARGEST:,} is the most", hint)
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', error)}", hint) from error
    if not text.strip():
        raise InputError(f"{path} is empty", hint)
    return text
