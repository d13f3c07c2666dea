"""Which trainer a configuration is written for, and the manifest that comes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from expert_cli.errors import InputError
from expert_cli.manifest.importers.axolotl import AXOLOTL
from expert_cli.manifest.importers.draft import Draft, NotCarried
from expert_cli.manifest.importers.rules import NOTHING, Program, unknown
from expert_cli.manifest.importers.transformers_keys import left_out_kwargs
from expert_cli.manifest.importers.trl import TRL
from expert_cli.manifest.importers.yaml_file import read_yaml
from expert_cli.manifest.training_config import TrainingConfig

PROGRAMS: Sequence[Program] = (AXOLOTL, TRL)


@dataclass(frozen=True)
class Imported:
    """What became of a configuration: the manifest, and every key of the file.

    carried: each key with its names here; with none, it says what happens here anyway. defaults: the same of keys that the
    file does not have, for which the manifest says what the program does. files: texts beside the manifest, by their names.
    """

    program: str
    manifest: Mapping[str, Any]
    carried: Mapping[str, Sequence[str]]
    defaults: Mapping[str, Sequence[str]]
    not_carried: Sequence[NotCarried]
    files: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """Return what `init --json` tells of it."""
        return {
            "program": self.program,
            "carried": [{"key": key, "names": list(names)} for key, names in self.carried.items()],
            "defaults": [{"key": key, "names": list(names)} for key, names in self.defaults.items()],
            "not_carried": [asdict(one) for one in self.not_carried],
        }


def import_config(file: Path, name: str, home: Path) -> Imported:
    """Return what a configuration becomes as the manifest of the expert `name`, whose folder is `home`.

    Raises InputError: the file is no configuration of a known program, or trains what is not trained here.
    """
    return carry_over(read_yaml(file), file, name, home)


def carry_over(told: Mapping[Any, Any], file: Path, name: str, home: Path) -> Imported:
    """Do what `import_config` does with what a file holds."""
    written = {str(key): value for key, value in told.items() if value is not None}
    program = which_program(file, written)
    draft = Draft(written, {**program.defaults, **written}, file.parent, home)
    for key, value in draft.values.items():
        if key in program.keys:
            program.keys[key](draft, key, value)
        elif value not in NOTHING:
            draft.lose(key, unknown(key, program.keys))
    program.finish(draft)
    if draft.refused:
        raise InputError(_refusal(file, program, draft.refused), "what is trained here: docs/FROM_OTHERS.md")
    left_out_kwargs(draft)
    carried = {key: names for key, names in draft.carried.items() if re.split(r"[.[]", key)[0] in written}
    said = {name for names in carried.values() for name in names}
    defaults = {
        key: unsaid
        for key, names in draft.carried.items()
        if key not in carried and (unsaid := [name for name in names if name not in said])
    }
    manifest = _manifest(draft, program, file, name, defaults)
    return Imported(program.name, manifest, carried, defaults, draft.not_carried, draft.files)


def which_program(file: Path, written: Mapping[str, Any]) -> Program:
    """Return the program that knows the most keys of a file, of those whose key for the base model it has.

    Raises InputError: it has none of them.
    """
    fitting = [program for program in PROGRAMS if written.get(program.model_key)]
    if not fitting:
        names = ", ".join(f"{program.name} ({program.model_key})" for program in PROGRAMS)
        raise InputError(
            f"{file}: no base model is named; known are configurations of {names}", "name the file of a training"
        )
    return max(fitting, key=lambda program: len(program.keys.keys() & written.keys()))


def _refusal(file: Path, program: Program, refused: Sequence[NotCarried]) -> str:
    told = "; ".join(
        f"{one.key} {one.value}: {one.reason}" for one in {one.reason: one for one in reversed(refused)}.values()
    )
    return f"{file}, of {program.name}, trains what is not trained here: {told}"


def _manifest(
    draft: Draft, program: Program, file: Path, name: str, defaults: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    config = draft.blocks["config"]
    ours = [name for names in defaults.values() for name in names]
    said = f"{', '.join(ours)}: what {program.name} does where its file does not say."
    lost: dict[str, str] = {}
    for one in draft.not_carried:
        lost[one.key] = f"{lost[one.key]}; {one.reason}" if one.key in lost else one.reason
    return {
        "_from": f"{file.name}, of {program.name}",
        "name": name,
        "version": "0.1.0",
        "schema_version": "2.0",
        "base_models": [draft.blocks["base"]],
        "training": {
            "dataset": draft.blocks["dataset"],
            "config": {
                **({"_defaults": said} if ours else {}),
                **{key: config[key] for key in TrainingConfig.model_fields if key in config},
            },
        },
        **({"_not_carried": lost} if lost else {}),
    }


def manifest_text(imported: Imported) -> str:
    """Return the JSON text of the manifest."""
    return json.dumps(imported.manifest, indent=2, ensure_ascii=False) + "\n"
