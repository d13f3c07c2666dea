"""Removes secrets from texts that are written or shown: hub tokens, and passwords in URLs."""

from __future__ import annotations

import re

HUB_TOKEN = re.compile(r"hf_(?:[A-Za-z0-9]{34,}|[A-Za-z0-9]{16,}(?=…|\.\.\.))")
"""A full token, or one truncated by an ellipsis; any other long word after hf_ may be the name of a folder or column."""
_PASSWORD_IN_URL = re.compile(r"(?<=://)[^/@\s:]+:[^/@\s]+(?=@)")


def redact(text: str) -> str:
    """Return `text` with hub tokens replaced by ***."""
    return HUB_TOKEN.sub("***", text)


def without_passwords(text: str) -> str:
    """Return `text` with user names and passwords in its URLs replaced by ***."""
    return _PASSWORD_IN_URL.sub("***", text)
