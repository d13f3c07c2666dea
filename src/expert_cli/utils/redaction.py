"""Removes secrets from what is written and shown: tokens of the hub, passwords in URLs."""

from __future__ import annotations

import re

HUB_TOKEN = re.compile(r"hf_(?:[A-Za-z0-9]{34,}|[A-Za-z0-9]{16,}(?=…|\.\.\.))")
"""A token in full length, or truncated: a folder or column may be named hf_ and a long word."""
_PASSWORD_IN_URL = re.compile(r"(?<=://)[^/@\s:]+:[^/@\s]+(?=@)")


def redact(text: str) -> str:
    """Return `text` with tokens of the hub replaced by ***."""
    return HUB_TOKEN.sub("***", text)


def without_passwords(text: str) -> str:
    """Return `text` with users and passwords in its URLs replaced by ***."""
    return _PASSWORD_IN_URL.sub("***", text)
