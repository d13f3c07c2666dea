"""The JSON reader: one clear error a fault, with its place; never a traceback."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expert_cli.errors import ManifestError
from expert_cli.manifest.json_text import parse_json_text, read_json_text

HERE = Path("m.json")
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text().filter(lambda k: k[:1] != "_"), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON_VALUES, st.sampled_from([None, 1, 4]))
def test_reads_what_the_standard_library_reads(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert parse_json_text(text, HERE).value == json.loads(text)


@given(st.text(alphabet='{}[]",:0123456789.-+eEtrufalsn\\ \n_ab', max_size=40))
def test_accepts_and_refuses_exactly_what_the_standard_library_does(text: str) -> None:
    try:
        expected = json.loads(text, parse_constant=lambda _: math.nan, parse_float=_finite)
    except (json.JSONDecodeError, RecursionError, OverflowError):
        with pytest.raises(ManifestError):
            parse_json_text(text, HERE)
        return
    if "_" not in text and not _repeats_a_key(text) and len(text) < 38 and "Infinity" not in text:
        assert parse_json_text(text, HERE).value == expected


def _finite(text: str) -> float:
    """JSON has no infinity, but the standard library reads 1e999 as one."""
    if math.isinf(float(text)):
        raise OverflowError(text)
    return float(text)


def _repeats_a_key(text: str) -> bool:
    repeated: list[bool] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        repeated.append(len({key for key, _ in items}) < len(items))
        return dict(items)

    json.loads(text, object_pairs_hook=pairs)
    return any(repeated)


FAULTS = {
    "trailing comma in object": ('{"a": 1,}', (1, 9), "property name", "remove the comma"),
    "single quotes": ("{'a': 1}", (1, 2), "property name", "double quotes"),
    "NaN": ('{"a": NaN}', (1, 7), "NaN is no finite number", ""),
    "unclosed brace": ('{"a": {"b": 1}', (1, 15), "',' delimiter", "closing bracket"),
    "unclosed string": ('{"a": "b}', (1, 7), "Unterminated string", 'close it with "'),
    "bad escape": ('{"a": "C:\\Users"}', (1, 10), "Invalid", "\\\\ for a backslash"),
    "empty": ("", (1, 1), "Expecting value", ""),
    "repeated key": ('{"a": 1,\n  "a": 2}', (2, 3), "occurs twice, first in line 1", "keep one"),
    "10^4 brackets": ("[" * 10_000, (1, 1), "64 deep", ""),
    "half a character": ('{"a": "x\\ud83d"}', (1, 7), "half of a surrogate pair", ""),
    "an endless number": ('{"a": {"b": -1e999}}', (1, 13), "-1e999 is no finite number", ""),
    "long number": ('{"a": ' + "9" * 5000 + "}", (1, 7), "… is no finite number", ""),
}


@pytest.mark.parametrize(("text", "place", "message", "hint"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_names_its_place_and_remedy(text: str, place: tuple[int, int], message: str, hint: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_json_text(text, HERE)
    fault = caught.value.faults[0]
    assert (fault.line, fault.column) == place
    assert message in fault.message
    assert hint in fault.suggestion
    assert caught.value.exit_code == 2


def test_comments_go_at_any_depth_and_may_repeat() -> None:
    text = '{"_a": 1, "_a": 2, "b": {"_c": [], "d": [{"_e": 1, "f": 2}]}}'
    assert parse_json_text(text, HERE).value == {"b": {"d": [{"f": 2}]}}


def test_places_count_from_one_in_characters_with_crlf() -> None:
    text = parse_json_text('{\r\n  "é": {"b": [10, 20]},\r\n  "c": 1\r\n}', HERE)
    assert text.places["é",] == (2, 3)
    assert text.places["é", "b", 1] == (2, 19)
    absent = text.fault(("c", "not there"), "is missing")
    assert (absent.line, absent.column, absent.key) == (3, 3, "c.not there")


@pytest.mark.parametrize(
    ("raw", "message"),
    [('{"a": 1}'.encode("utf-16"), "is not UTF-8"), (b" " * 50_000_000, "50,000,000 bytes"), (None, "No such file")],
)
def test_files_that_are_refused(tmp_path: Path, raw: bytes | None, message: str) -> None:
    path = tmp_path / "m.json"
    if raw is not None:
        path.write_bytes(raw)
    with pytest.raises(ManifestError, match=message):
        read_json_text(path)
