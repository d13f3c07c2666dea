"""A token store's fingerprint: what the store is made of, its files, and a hash of the fingerprint itself.

fingerprint.json   {"format", "key": 64 hex, "parts": {...}, "shards": [...], "files": {path: {"bytes", "sha256"}}, "self"}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from expert_cli.files import json_text

FINGERPRINT = "fingerprint.json"
FORMAT = 1


def seal_fingerprint(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document to write: `body` and its hash."""
    return {**body, "self": _digest_of(body)}


def parse_fingerprint(text: str) -> dict[str, Any]:
    """Return the body of a fingerprint as it was sealed. Raises ValueError saying what is wrong with it."""
    try:
        sealed: dict[str, Any] = json.loads(text)
        body = {name: value for name, value in sealed.items() if name != "self"}
        digest, format_ = sealed["self"], body["format"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("is not of its form") from error
    if format_ != FORMAT:
        raise ValueError(f"is of format {format_}, not {FORMAT}")
    # The text too: white space or a repeated key would pass the hash.
    if digest != _digest_of(body) or text != json_text(sealed):
        raise ValueError("does not match its own hash")
    return body


def _digest_of(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
