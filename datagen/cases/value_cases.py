"""The test cases of JSON and TypeScript: a value or a function is asked for, no database is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

from datagen.cases import case_worlds
from datagen.cases.case_files import Cases, overlaps
from datagen.json import make as make_json_data
from datagen.json.case import Case as JsonCase
from datagen.json.domains import parse_domains as parse_objects
from datagen.json.extraction import SCENE_LIST, from_scene
from datagen.json.make import on_side
from datagen.typescript import make as make_typescript_data
from datagen.typescript.case import Case as TypescriptCase

SEED = 4711
JSON_FAMILIES = ("generation", "repair", "extraction", "transformation", "schema")
JSON_CASES = 30
TYPESCRIPT_CASES = {
    "records": 30,
    "record tools": 30,
    "types": 18,
    "unions": 10,
    "classes": 12,
    "async": 10,
    "pipelines": 40,
}


def _scene_cases(count: int) -> Iterator[JsonCase]:
    """Extraction from the scenes that training rows lack."""
    rng = Random(SEED)
    scenes = [scene.replace("\n", " ") for scene in case_worlds.SCENES.strip().split("\n\n")]
    made = (from_scene(scenes[number % len(scenes)], rng) for number in range(3 * count))
    return (case for case in made if make_json_data.verify(case) is None)


def _json_cases(made: dict[str, list[JsonCase]]) -> Cases:
    """Some cases of every family that read like no training row; values are compared, not their layout."""
    cases, built = Cases(), make_json_data.build()[0]
    for place, family in enumerate(JSON_FAMILIES, 1):
        for number, case in enumerate(made[family], 1):
            head = {"id": f"{family}-{number}", "category": f"{place} {family}", "verifier": "json"}
            prompt = {"prompt": case.instruction, "input": case.input}
            value = {"schema": case.schema, "expected": make_json_data.parse(case.output), "rule": "exact"}
            cases.add({**head, **prompt, **value}, case.output)
    rows = [case.row() for known in built.values() for side in ("train", "valid") for case in on_side(known, side)]
    most = {f"{place} {family}": JSON_CASES for place, family in enumerate(JSON_FAMILIES, 1)}
    return cases.without(overlaps(cases, rows), most)


def json_cases() -> Cases:
    """Known worlds: the groups that no training row comes from."""
    return _json_cases({family: on_side(made, "cases") for family, made in make_json_data.build()[0].items()})


def unseen_json_cases() -> Cases:
    """The same forms over objects and scenes that no training row speaks of."""
    domains = parse_objects(case_worlds.OBJECTS)
    made = {family: make_json_data.make(family, domains, 4 * JSON_CASES, SEED, Counter()) for family in JSON_FAMILIES}
    known = {scene[:20] for scene in SCENE_LIST}
    own = [case for case in made["extraction"] if case.group.partition(" | ")[0] not in known]
    scenes = list(_scene_cases(JSON_CASES))[: JSON_CASES // 2]
    made["extraction"] = [*own[: JSON_CASES - len(scenes)], *scenes]
    return _json_cases(made)


def _typescript_cases(made: dict[str, list[TypescriptCase]]) -> Cases:
    """Some cases of every family that read like no training row; the right answers stay here, the tests judge."""
    cases, built = Cases(), make_typescript_data.build()[0]
    trained = make_typescript_data.sides(built, Counter())
    for place, family in enumerate(made, 1):
        for number, case in enumerate(made[family], 1):
            name = f"{family.replace(' ', '-')}-{number}"
            head = {"id": name, "category": f"{place} {family}", "verifier": "typescript"}
            cases.add({**head, "prompt": case.instruction, "tests": case.test}, case.output)
    rows = [case.row() for side in trained.values() for case in side]
    most = {f"{place} {family}": TYPESCRIPT_CASES[family] for place, family in enumerate(made, 1)}
    return cases.without(overlaps(cases, rows), most)


def typescript_cases() -> Cases:
    """Known worlds: the groups that no training row comes from."""
    built = make_typescript_data.build()[0]
    return _typescript_cases(
        {family: make_typescript_data.on_side(built[family], "cases") for family in TYPESCRIPT_CASES}
    )


def unseen_typescript_cases() -> Cases:
    """The same forms over objects that no training row speaks of; pipelines and plane figures speak of none."""
    domains, families = parse_objects(case_worlds.OBJECTS), [name for name in TYPESCRIPT_CASES if name != "pipelines"]
    made = {
        name: make_typescript_data.make(name, domains, 6 * TYPESCRIPT_CASES[name], SEED, Counter()) for name in families
    }
    return _typescript_cases({name: [case for case in made[name] if "shapes" not in case.group] for name in families})
