"""Odd manifests drawn at random, and the laws that hold for each, of which a test draws some kept seeds.

A generator takes a `random.Random`: a seed gives one document again, and hypothesis' own `Random` lets it shrink what it finds.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from expert_cli.commands.schema import manifest_schema
from expert_cli.config.plan import Plan, make_plan, validate
from expert_cli.config.resolve import Overrides
from expert_cli.errors import ExpertError
from expert_cli.hardware.machine import Gpu, Machine
from expert_cli.manifest.keys.dataset import Dataset, FieldMapping, Filters, Task
from expert_cli.manifest.schema import Adapter, Base, EvaluationBlock, Manifest
from expert_cli.manifest.training_config import TrainingConfig

ROOT = Path(__file__).parents[1]
MACHINE = Machine("Linux", 8, 32 * 2**30, (), cpu_bf16=True, torch_cuda="", versions=())
GPU_MACHINE = Machine(
    "Linux", 16, 2**36, (Gpu("NVIDIA H200", 2**37, (9, 0)),), cpu_bf16=True, torch_cuda="13.0", versions=()
)
BLOCKS = (TrainingConfig, Base, Dataset, Task, Adapter, Manifest, Filters, FieldMapping, EvaluationBlock)
KEYS = [*(key for block in BLOCKS for key in block.model_fields), "_comment", "zz", ""]
Place = tuple[str | int, ...]

NUMBERS = (0, 1, -1, 2, 3, 7, 0.5, 1.0, -0.0, 1e-4, 64, 1e12, 2**31, 2**32, 2**63, 10**30, 1e308, 5e-324)
STRINGS = (
    *(
        "",
        " ",
        "0",
        "1e-4",
        "true",
        "auto",
        "none",
        "~",
        ".",
        "..",
        "../../x",
        "/etc/passwd",
        "C:\\data\\x",
        "a" * 300,
        "\0",
    ),
    *(
        "x\ny",
        "\u202eabc",
        "\ud800",
        "专家一",
        "é",
        "train[abc]",
        "train[:10]",
        "id::train[10%:20%]",
        "{{ 7 / 0 }}",
        "%s%n",
    ),
)
NESTED: tuple[Any, ...] = ([], {}, [None], [[]], {"": 1}, [1, 2], ["a", "b"], {"a": {"b": {"c": []}}}, [{}] * 50)
PASSING = (None, True, False, *NUMBERS, *STRINGS, *NESTED)
SIMPLE: dict[Any, tuple[Any, ...]] = {
    "boolean": (True, False),
    "integer": (0, 1, 2, 4, 8, 16, 100, 1024),
    "number": (0.0, 0.01, 0.1, 0.5, 1.0, 2, 1e-4),
    "null": (None,),
}
TEXTS = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "0x10",
    "01",
    "1.",
    "'a'",
    "undefined",
    "[" * 3000,
    "9" * 400,
    '"\\ud800"',
)
"""What a JSON file may hold in the place of a value, though much of it is no JSON."""


def sources() -> list[dict[str, Any]]:
    """Return the manifests that are changed: those this project ships."""
    files = sorted((*ROOT.glob("experts/*/manifest.json"), *ROOT.glob("examples/*/manifest.json")))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def odd_manifest(random: Random, known: list[dict[str, Any]]) -> bytes:
    """Draw a manifest: a shipped one, keys of the schema put in, some places changed, and sometimes its bytes as well."""
    document = copy.deepcopy(random.choice(known))
    if random.random() < 0.5:
        document["training"].setdefault("config", {}).update(drawn_settings(random))
    for _ in range(random.randint(0, 3)):
        change(random, document)
    text = json.dumps(document, ensure_ascii=random.random() < 0.5, indent=random.choice((None, 1, 2)))
    return spoiled(random, text) if random.random() < 0.2 else text.encode("utf-8", "surrogatepass")


def drawn_settings(random: Random) -> dict[str, Any]:
    """Return some keys of `training.config`, each with a value of the type that its schema asks for."""
    definitions = manifest_schema()["$defs"]
    keys: dict[str, Any] = definitions["TrainingConfig"]["properties"]
    return {
        key: drawn_value(random, keys[key], definitions) for key in random.sample(sorted(keys), random.randint(1, 6))
    }


def drawn_value(random: Random, schema: dict[str, Any], definitions: dict[str, Any]) -> Any:
    """Return a value that a schema describes, bounds aside."""
    if "$ref" in schema:
        return drawn_value(random, definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
    if "anyOf" in schema:
        return drawn_value(random, random.choice(schema["anyOf"]), definitions)
    if "const" in schema or "enum" in schema:
        return random.choice(schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind == "array":
        return [drawn_value(random, schema.get("items", {}), definitions) for _ in range(random.randint(0, 2))]
    if kind == "object":
        keys = schema.get("properties", {})
        chosen = random.sample(sorted(keys), random.randint(0, min(3, len(keys))))
        return {key: drawn_value(random, keys[key], definitions) for key in chosen}
    return random.choice(SIMPLE.get(kind, STRINGS[:7]))


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield where every value of a document stands, the document itself left out."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*place, key)
        yield from places(inner, (*place, key))


def change(random: Random, document: dict[str, Any]) -> None:
    """Replace, remove, rename, double or move one value of a document."""
    found = list(places(document))
    if not found:
        return
    place = random.choice(found)
    holder = at(document, place[:-1])
    value = holder[place[-1]]
    way = random.randint(0, 7)
    if way <= 3:
        holder[place[-1]] = copy.deepcopy(random.choice(PASSING))
    elif way == 4:
        del holder[place[-1]]
    elif way == 5 and isinstance(holder, dict):
        name = str(place[-1])
        others = (name[:-1], name + "s", name.upper(), "_" + name, random.choice(KEYS), random.choice(KEYS))
        holder[random.choice(others)] = holder.pop(name)
    elif way == 6:
        holder[place[-1]] = [value, copy.deepcopy(value)]
    else:
        other = random.choice([at(document, place) for place in found])
        if isinstance(other, dict):
            other[str(place[-1])] = copy.deepcopy(value)


def at(document: Any, place: Place) -> Any:
    """Return the value at a place."""
    for key in place:
        document = document[key]
    return document


def spoiled(random: Random, text: str) -> bytes:
    """Return a text's bytes with something wrong or unusual about them."""
    cut, way = random.randint(0, len(text)), random.randint(0, 5)
    if way == 0:
        return text.encode(random.choice(("utf-8-sig", "utf-16", "utf-32", "utf-16-le")), "surrogatepass")
    if way == 1:
        raw = bytearray(text.encode("utf-8", "surrogatepass"))
        raw[min(cut, len(raw) - 1)] = random.randint(0, 255)
        return bytes(raw)
    values = text.split(": ")
    where = random.randint(1, max(1, len(values) - 1))
    before, after = ": ".join(values[:where]), ": ".join(values[where:])
    new = {
        2: text[:cut],
        3: text + random.choice(("}", "\n{}", ",", "//", "\x00", "\n\n")),
        4: f"{before}: {random.choice(TEXTS)}, {after}",
        5: text.replace('"', random.choice(("'", '"" ', "\\")), random.randint(1, 3)),
    }[way]
    return new.encode("utf-8", "surrogatepass")


def broken_laws(path: Path, raw: bytes, random: Random) -> list[str]:
    """Return what is wrong with what `validate` says of a manifest, and `train` with a setting; an exception passes through."""
    path.write_bytes(raw)
    found = validate(path, random.choice((MACHINE, GPU_MACHINE)), random.choice((None, None, "qwen3", "x/y", "")))
    setting = f"{random.choice(KEYS)}={random.choice(('[[[', json.dumps(random.choice(PASSING))))}"
    with suppress(ExpertError):
        make_plan(
            path, MACHINE, Overrides(settings=(setting,), dataset=random.choice((None, "x.jsonl", "a::b[c]", "")))
        )
    broken = []
    try:
        json.dumps(found.as_json(), allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, UnicodeEncodeError) as error:
        broken.append(f"validate --json is no JSON: {error}")
    if found.errors:
        if not all(fault.message.strip() and fault.line > 0 and fault.column > 0 for fault in found.errors):
            broken.append("a fault without words or place")
        return broken
    if found.plan is None:
        return [*broken, "neither a plan nor a fault"]
    document = json.loads(raw.decode("utf-8-sig"))
    return broken + unmentioned(document, found.plan)


def leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield the keys of a manifest that have a row of their own: what holds no further keys."""
    lists = place and place[-1] in {"base_models", "adapters"}
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*place, key))
    elif isinstance(value, list) and lists and value:
        for n, inner in enumerate(value):
            yield from leaves(inner, (*place, n))
    elif place:
        yield place, value


def dotted(place: Place) -> str:
    """Return a place as the table of effects writes it."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)
    return text.removeprefix(".")


def without_comments(value: Any) -> Any:
    """Return a value without the keys that begin with "_"."""
    if isinstance(value, list):
        return [without_comments(inner) for inner in value]
    if isinstance(value, dict):
        return {key: without_comments(inner) for key, inner in value.items() if not key.startswith("_")}
    return value


def unmentioned(document: dict[str, Any], plan: Plan) -> list[str]:
    """Return the keys that the table of effects leaves out, or tells with another value."""
    told = {row.key: row.value for row in plan.effects}
    broken = []
    for place, value in leaves(document):
        if any(str(key).startswith("_") for key in place):
            continue
        key = dotted(place)
        if key not in told:
            broken.append(f"{key} has no row")
        elif json.dumps(told[key]) != json.dumps(without_comments(value)):
            broken.append(f"{key}: {told[key]!r} is told, {value!r} is there")
    return broken
