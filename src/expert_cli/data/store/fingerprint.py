"""A token store's fingerprint: what the store is made of, its files, and a hash of the fingerprint itself.

fingerprint.json   {"format", "key": 64 hex, "parts": {...}, "expert", "shards": [...],
                    "files": {path: {"bytes", "sha256"}}, "self"}
progress.json      {"expert", "shards": [...]} of a store that is not whole yet

`expert` is the one it was built for first, for `--prune`; another with the same data uses the same store.
"""

from __future__ import annotations

from typing import Any

from expert_cli.utils.files import open_sealed

FINGERPRINT = "fingerprint.json"
PROGRESS = "progress.json"
FORMAT = 1


def parse_fingerprint(text: str) -> dict[str, Any]:
    """Return the body of a fingerprint as it was written. Raises ValueError saying what is wrong with it."""
    body = open_sealed(text)
    if body.get("format") != FORMAT:
        raise ValueError(f"is of format {body.get('format')}, not {FORMAT}")
    return body
