"""Odd manifests, each drawn by a seed, and the laws that hold for what is said of one."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from expert_cli.config.plan import make_plan, validate
from expert_cli.config.resolve import Overrides
from expert_cli.errors import ExpertError
from expert_cli.manifest.keys.dataset import Dataset, FieldMapping, Filters, Task
from expert_cli.manifest.schema import Adapter, Base, EvaluationBlock, Manifest
from expert_cli.manifest.training_config import TrainingConfig
from tests.machines import CPU, H200
from tests.manifests import SHIPPED

BLOCKS = (TrainingConfig, Base, Dataset, Task, Adapter, Manifest, Filters, FieldMapping, EvaluationBlock)
KEYS = [*(key for block in BLOCKS for key in block.model_fields), "_comment", "zz", ""]
NUMBERS = (0, 1, -1, 2, 3, 0.5, 1.0, -0.0, 1e-4, 64, 1e12, 2**31, 2**63, 10**30, 1e308, 5e-324)
TEXTS = (
    "",
    " ",
    "0",
    "1e-4",
    "true",
    "auto",
    "none",
    "~",
    "..",
    "../../x",
    "/etc/passwd",
    "C:\\data\\x",
    "a" * 300,
    "\0",
)
ODD = ("x\ny", "\u202eabc", "\ud800", "专家一", "train[abc]", "id::train[10%:20%]", "{{ 7 / 0 }}", "%s%n")
NESTED: tuple[Any, ...] = ([], {}, [None], [[]], {"": 1}, [1, 2], ["a", "b"], {"a": {"b": {"c": []}}}, [{}] * 50)
VALUES = (None, True, False, *NUMBERS, *TEXTS, *ODD, *NESTED)
Place = tuple[str | int, ...]


def sources() -> list[dict[str, Any]]:
    """Return the manifests that are changed: those this project ships."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in SHIPPED]


def odd_manifest(random: Random, known: list[dict[str, Any]]) -> bytes:
    """Draw a manifest: a shipped one with some places changed, and sometimes its bytes as well."""
    document = copy.deepcopy(random.choice(known))
    for _ in range(random.randint(1, 4)):
        change(random, document)
    text = json.dumps(document, ensure_ascii=random.random() < 0.5)
    return spoiled(random, text) if random.random() < 0.2 else text.encode("utf-8", "surrogatepass")


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield where every value of a document stands, the document itself left out."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*place, key)
        yield from places(inner, (*place, key))


def change(random: Random, document: Any) -> None:
    """Replace, remove, rename or add one value of a document."""
    *way, last = random.choice([*places(document)] or [("zz",)])
    holder = document
    for key in way:
        holder = holder[key]
    new, kind = copy.deepcopy(random.choice(VALUES)), random.randint(0, 4)
    if kind > 1 and isinstance(holder, dict):
        value = holder.pop(last, None) if kind < 4 else new
        if kind > 2:
            holder[random.choice((str(last)[:-1], f"{last}s", f"_{last}", random.choice(KEYS)))] = value
    else:
        holder[last] = new


def spoiled(random: Random, text: str) -> bytes:
    """Return a text's bytes with something wrong about them: cut, in another encoding, or one changed."""
    raw = bytearray(text[: random.randint(1, len(text))].encode("utf-8", "surrogatepass"))
    if random.random() < 0.3:
        return text.encode(random.choice(("utf-8-sig", "utf-16", "utf-32", "utf-16-le")), "surrogatepass")
    raw[random.randrange(len(raw))] = random.randint(0, 255)
    return bytes(raw)


def broken_laws(path: Path, raw: bytes, random: Random) -> list[str]:
    """Return what is wrong with what `validate` says of a manifest, and `train` with a setting; an exception passes through."""
    path.write_bytes(raw)
    found = validate(path, random.choice((CPU, H200)), random.choice((None, None, "qwen3", "x/y", "")))
    setting = f"{random.choice(KEYS)}={random.choice(('[[[', json.dumps(random.choice(VALUES))))}"
    with suppress(ExpertError):
        make_plan(path, CPU, Overrides(settings=(setting,), dataset=random.choice((None, "x.jsonl", "a::b[c]", ""))))
    try:
        json.dumps(found.as_json(), allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, UnicodeEncodeError) as error:
        return [f"validate --json is no JSON: {error}"]
    if not found.errors:
        return [] if found.plan else ["neither a plan nor a fault"]
    placed = all(fault.message.strip() and fault.line > 0 and fault.column > 0 for fault in found.errors)
    return [] if placed else ["a fault without words or place"]
