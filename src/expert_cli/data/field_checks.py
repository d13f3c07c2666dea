"""The fields of a row, checked: what is of another type, empty, or no text that JSON has is a `BadRow`.

The reason is in the same words for every row with this fault.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from expert_cli.utils.text import type_name

T = TypeVar("T")
_FLAGS = {**dict.fromkeys(("0", "0.0", "false"), False), **dict.fromkeys(("1", "1.0", "true", ""), True)}
"""How weight and train are written, in any case; "": nothing is said."""


class BadRow(Exception):
    """The reason why a row cannot be used."""


def field_of(fields: Mapping[str, Any], key: str, kind: type[T], what: str, label: str = "") -> T:
    """Return a field of this type, `what` in words; `label` names it where the key alone would not. Raises BadRow."""
    label = label or f'"{key}"'
    value = fields.get(key)
    if value is None:
        raise BadRow(f"{label} is {'null' if key in fields else 'missing'}")
    if not isinstance(value, kind):
        hint = ": write it as JSON text" if kind is str and isinstance(value, dict | list) else ""
        raise BadRow(f"{label} is {type_name(value)}, not {what}{hint}")
    return value


def optional_text(fields: Mapping[str, Any], key: str) -> str:
    return text_of(fields, key) if key and fields.get(key) is not None else ""


def text_of(fields: Mapping[str, Any], key: str, label: str = "") -> str:
    """Return the text of a field, which `label` names where the key alone would not. Raises BadRow."""
    value = fields.get(key)
    if not isinstance(value, str):
        value = field_of(fields, key, str, "text", label)
    if not value.isascii() and not is_unicode(value):
        label = label or f'"{key}"'
        raise BadRow(f"{label} is not Unicode text (half of a surrogate pair)")
    return value


def is_unicode(text: str) -> bool:
    """Whether a text is Unicode: JSON can spell half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def answer_of(fields: Mapping[str, Any], key: str) -> str:
    """Return the text of a field that must say something. Raises BadRow."""
    value = text_of(fields, key)
    if is_blank(value):
        raise BadRow(f'"{key}" is empty')
    return value


def flag_of(value: object, label: str) -> bool:
    """Return what 0 or false, 1 or true says; nothing says that it is. Raises BadRow for another value, which `label` names."""
    known = "" if value is None else str(value).strip().lower()
    if known not in _FLAGS:
        raise BadRow(f"{label} is {value!r:.40}: 0 and false, 1 and true are known")
    return _FLAGS[known]


def is_blank(text: str) -> bool:
    """Whether a text shows nothing: blanks, or characters without a form like U+200B."""
    said = text.strip()
    return not said or not (said.isascii() or any(map(str.isprintable, said)))


def parsed(value: object, label: str) -> Any:
    """Return a field that may hold its value as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else None
    except (ValueError, RecursionError) as error:
        raise BadRow(f'"{label}" is not JSON') from error


def require_json(value: object, label: str) -> None:
    """Refuse what chat templates cannot be given: fields of Parquet may hold what JSON has no word for."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise BadRow(f"{label} is not Unicode text (half of a surrogate pair)") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise BadRow(f"{label} holds what JSON cannot") from error


def json_text(value: object) -> str:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False)
