"""What is a secret (hub tokens, values of *_TOKEN and *_KEY, passwords), and its way out of what is written and shown.

Secrets are cut out of texts before these are put into JSON: cut out of JSON they would take quotes and backslashes along. Rows,
and answers of models, are nothing that is told of a run: but for hub tokens they are written as they are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

_OF_THE_HUB = r"hf_(?:[A-Za-z0-9]{34,}|[A-Za-z0-9]{16,}(?=…|\.\.\.))"
"""As long as the hub makes its tokens, or cut: a folder or a column may well be named hf_ and a long word."""
_OF_TOKENIZERS = r"(?:bos|eos|pad|unk|sep|cls)_token"
"""Names of settings that say which token a text begins or ends with."""
_SECRET = re.compile(
    _OF_THE_HUB
    + rf"|(?i:(?<=_token=)(?<!{_OF_TOKENIZERS}=)|(?<=_key=)|(?<=_token\": \")(?<!{_OF_TOKENIZERS}\": \")|(?<=_key\": \"))"
    + r"(?!\*\*\*)[^\s\"']+"
)
_WORDS_OF_MODELS = ("answer", "raw")
"""Under these names stand answers that are judged again: {"primary_key": "id"} is right or wrong, and no secret."""
_SECRET_NAME = re.compile(rf"(?!{_OF_TOKENIZERS}$).*_(?:token|key)", re.IGNORECASE | re.DOTALL)
_PASSWORD_IN_URL = re.compile(r"(?<=://)[^/@\s:]+:[^/@\s]+(?=@)")


def redact(text: str) -> str:
    """Return `text` with secrets replaced by ***; a text that was redacted stays as it is."""
    return _SECRET.sub("***", text)


def told_apart(value: Any) -> Any:
    """Return a JSON value without secrets; two texts that differ in a secret alone still differ."""
    if isinstance(value, str):
        plain = redact(value)
        return plain if plain == value else f"{plain} ({hashlib.sha256(value.encode()).hexdigest()[:12]})"
    if isinstance(value, list):
        return [told_apart(entry) for entry in value]
    return {name: told_apart(entry) for name, entry in value.items()} if isinstance(value, dict) else value


def without_hub_tokens(text: str) -> str:
    """Return `text` with the hub's tokens replaced by ***, and all else as it is: rows that are trained, answers of models."""
    return re.sub(_OF_THE_HUB, "***", text)


def without_passwords(text: str) -> str:
    """Return `text` with users and passwords in its URLs replaced by ***."""
    return _PASSWORD_IN_URL.sub("***", text)


def secret_spans(text: str) -> list[tuple[int, int]]:
    """Return where each of the secrets that `redact` replaces begins and ends."""
    return [match.span() for match in _SECRET.finditer(text)]


def redacted(value: Any) -> Any:
    """Return a value that JSON can hold with every secret in it replaced by ***, as plain dicts and lists.

    A secret is what `redact` takes for one, in names as in values, and any text named *_token (but eos_token and its like) or
    *_key; in answers of models it is a hub token alone. What is no JSON (a path) becomes text.
    """
    if isinstance(value, str):
        return redact(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {
            redact(name) if isinstance(name, str) else name: _redacted_entry(name, entry)
            for name, entry in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redacted(entry) for entry in value]
    return redact(str(value))


def _redacted_entry(name: Any, entry: Any) -> Any:
    if entry and isinstance(name, str) and isinstance(entry, str):
        if name in _WORDS_OF_MODELS:
            return without_hub_tokens(entry)
        if _SECRET_NAME.fullmatch(name):
            return "***"
    return redacted(entry)
