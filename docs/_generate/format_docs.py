"""docs/EXPERT_FORMAT.md, made from the manifest's schema and the code that reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from string import Template
from typing import Any

from expert_cli.commands.schema import manifest_schema
from expert_cli.config.data_sources import COMPRESSED_SUFFIXES, DATA_SUFFIXES, format_name
from expert_cli.data.columns import USUAL_NAMES
from expert_cli.data.templates.make_template import STYLES, style_text
from expert_cli.evaluation.verifiers.registry import VERIFIERS
from expert_cli.manifest.json_text import MAX_BYTES, MAX_DEPTH
from expert_cli.manifest.key import LARGEST, LARGEST_NUMBER, declared
from expert_cli.manifest.keys.dataset import Dataset
from expert_cli.manifest.keys.optim import SCHEDULERS
from expert_cli.manifest.messages import BY_HAND, OTHER_TOOLS
from expert_cli.manifest.schema import Base, Manifest
from expert_cli.manifest.training_config import TrainingConfig
from tests.row_forms import FORMS

SMALLEST = """\
{
  "name": "expert-regex",
  "base_models": [{"name": "Qwen/Qwen3-0.6B"}],
  "training": {"dataset": {"path": "datasets/train.jsonl"}}
}"""

BLOCKS = (
    (
        "",
        "The top of the file",
        "Who the expert is. Most of it is for the model card and for the programs that load the expert.",
    ),
    (
        "Base",
        "`base_models[i]`",
        "The models that the expert can be trained for. `--base-model` picks one by alias or name.",
    ),
    ("Training", "`training`", "Data, settings, and how answers are generated."),
    (
        "TrainingConfig",
        "`training.config`",
        "How the expert is trained. A base model's own `config` has the same keys and wins.",
    ),
    ("Dataset", "`training.dataset`", "Which rows train the expert."),
    (
        "FieldMapping",
        "`training.dataset.field_mapping`",
        "Which column is what. A mapping that names less is completed by the usual names.",
    ),
    (
        "Task",
        "`training.dataset.tasks.NAME`",
        "One task of a data set of `type` multi_task. [Several sources](#several-sources) has an example.",
    ),
    (
        "Replay",
        "`training.dataset.replay`",
        "Rows of an earlier training that are trained again, beside `path` or `tasks`.",
    ),
    ("Filters", "`training.dataset.filters`", "Rows to leave out. How many were left out is reported."),
    (
        "SchemaPromptKeys",
        "`training.dataset.schema_prompt`",
        "What a question is shown of its database, in the place of its input: alike in training rows, in test cases with a "
        "`database`, and in `chat --database`. Where there is no database, the CREATE TABLE texts of the input are read. "
        "An adapter keeps what it was trained with, in [`expert.json`](#how-another-program-asks-an-expert).",
    ),
    (
        "Decoding",
        "`training.decoding`",
        "How answers are generated, and training changes nothing by it. `evaluate`, `chat`, the samples at a run's end and "
        "`evaluation.every_steps` end answers at the stop sequences and hold them to the grammar; `num_beams` counts where "
        "answers are not drawn, the rest where they are (`--samples`), and in what `export` writes. The adapter carries "
        "it along, in [`expert.json`](#how-another-program-asks-an-expert).",
    ),
    (
        "Rft",
        "`training.rft`",
        "Rejection-sampling fine-tuning, with `method` rft: after the first training, rounds of drawing answers to prompts, "
        "running them, and training on those that are right. "
        "[Learning from answers that were run](TRAINING_GUIDE.md#learning-from-answers-that-were-run) says how a round goes.",
    ),
    (
        "EvaluationBlock",
        "`evaluation`",
        "Answers that are run during training, and what was forgotten at its end; other keys are information.",
    ),
    (
        "Adapter",
        "`base_models[i].adapters[j]`",
        "Adapters as other programs load them. The first one fills in what `training.config` leaves out.",
    ),
)

HOLDS = {
    "JSON lines": "an object a line",
    "JSON": "a list of JSON objects",
    "CSV": "a first line of names, then a row a line; more lines where a text in quotes has them",
    "TSV": "the same with tabs for commas",
    "Parquet": "a table",
    "Arrow": "a table, as a file or as the stream that `datasets` writes",
}
"""What the rows of each format of data files are."""
TEMPLATE = Path(__file__).with_name("EXPERT_FORMAT.template.md")


def expert_format() -> str:
    """Return the text of docs/EXPERT_FORMAT.md: the template, its tables filled in from the code."""
    schema = manifest_schema()
    blocks = [
        f"### {title}\n\n{intro}\n\n{_block(schema['$defs'][name] if name else schema)}"
        for name, title, intro in BLOCKS
    ]
    old = {**TrainingConfig.old_names, **Dataset.old_names}
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        smallest=SMALLEST,
        max_bytes=f"{MAX_BYTES:,}",
        max_depth=MAX_DEPTH,
        blocks="\n".join(blocks),
        largest=f"{LARGEST:,}",
        largest_number=f"{LARGEST_NUMBER:,.0f}",
        without_effect="| key | why |\n|---|---|\n" + _rows((f"`{key}`", why) for key, why in without_effect()),
        suffixes=", ".join(f"`{suffix}`" for suffix in DATA_SUFFIXES),
        compressions=", ".join(f"`{suffix}`" for suffix in COMPRESSED_SUFFIXES),
        files=_files(),
        columns=_rows((role, ", ".join(f"`{name}`" for name in names)) for role, names in USUAL_NAMES.items()),
        forms=_rows(_forms()),
        verifiers=_rows((f"`{name}`", _in_a_line(case.__doc__)) for name, case in VERIFIERS.items()),
        cases="\n".join(json.dumps({"verifier": name, **case.example.row}) for name, case in VERIFIERS.items()),
        schedulers=_schedulers(),
        templates=_templates(),
        old_names=", ".join(f"`{name}` is now `{new}`" for name, new in old.items()),
        other_tools=_other_tools(),
    )


def without_effect() -> list[tuple[str, str]]:
    """Return the keys that change no run, and why, as the effects table says it."""
    blocks = (("training.config.", TrainingConfig), ("training.dataset.", Dataset), ("", Manifest))
    keys = [(f"{place}{name}", declared(block, name).always) for place, block in blocks for name in block.model_fields]
    return [(key, outcome.reason) for key, outcome in keys if outcome and outcome.status == "not_used"]


def allowed(node: dict[str, Any]) -> str:
    """Return the values that a part of a JSON Schema allows, in words."""
    options = [option for option in node.get("anyOf", [node]) if option.get("type") != "null"]
    if len(options) > 1:
        return " or ".join(dict.fromkeys(allowed(option) for option in options))
    (node,) = options
    if "$ref" in node:
        return "object"
    if "const" in node or "enum" in node:
        return ", ".join(f"`{json.dumps(value)}`" for value in node.get("enum", [node.get("const")]))
    if node.get("type") == "array":
        return f"list: {allowed(node['items'])}"
    words = {
        "integer": "whole number",
        "number": "number",
        "boolean": "true or false",
        "string": "text",
        "object": "object",
    }
    return words.get(node.get("type", ""), "anything") + _bounds(node)


def _bounds(node: dict[str, Any]) -> str:
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    said = {name: node[name] for name in signs if name in node and node[name] not in (LARGEST, LARGEST_NUMBER)}
    return ",".join(f" {signs[name]} {bound}" for name, bound in said.items())


def _block(block: dict[str, Any]) -> str:
    """Return the table of a block's keys; it has columns of defaults and their reasons where there are any."""
    required, unused = block.get("required", []), dict(without_effect())
    nodes = {key: node for key, node in block["properties"].items() if f"training.config.{key}" not in unused}
    defaults = {key: node["default"] for key, node in nodes.items() if node.get("default") is not None}
    whys = {key: node["$comment"] for key, node in nodes.items() if "$comment" in node}
    rows = [
        (
            f"`{key}`",
            allowed(node) + (" (required)" if key in required else ""),
            *([f"`{json.dumps(defaults[key])}`" if key in defaults else ""] if whys else []),
            " ".join(node["description"].split()),
            *([whys.get(key, "")] if whys else []),
        )
        for key, node in nodes.items()
    ]
    closed = (
        "Unknown keys are errors."
        if block.get("additionalProperties") is False
        else "Other keys are kept as information."
    )
    heads = ["key", "value", *(["default"] if whys else []), "meaning", *(["why this default"] if whys else [])]
    return f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|\n{_rows(rows)}\n{closed}\n"


def _in_a_line(docstring: str | None) -> str:
    return " ".join((docstring or "").split()).rstrip(".")


def _rows(rows: Iterable[Sequence[str]]) -> str:
    """Return the body of a table."""
    return "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |\n" for row in rows)


def _forms() -> Iterator[tuple[str, ...]]:
    for name, form in FORMS.items():
        mapping = f"`{json.dumps(dict(form.mapping))}`" if form.mapping else ""
        yield name, f"`{json.dumps(form.row)}`", mapping


def _files() -> str:
    """Return a row for every format of data files, with what may follow its suffix."""
    by_format: dict[str, list[str]] = {}
    for suffix, name in DATA_SUFFIXES.items():
        by_format.setdefault(name, []).append(suffix)
    return _rows(
        (
            ", ".join(f"`{suffix}`" for suffix in suffixes),
            ", ".join(f"`{more}`" for more in COMPRESSED_SUFFIXES if format_name(f"x{suffixes[0]}{more}"))
            or "no: inside",
            HOLDS[name],
        )
        for name, suffixes in by_format.items()
    )


def _schedulers() -> str:
    rows = [
        (f"`{name}`", ", ".join(f"`{setting}`" for setting in sorted(settings)) or "none")
        for name, settings in SCHEDULERS.items()
    ]
    return "| `lr_scheduler` | keys of `lr_scheduler_kwargs` |\n|---|---|\n" + _rows(rows)


def _templates() -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    turns = (("system", "SYSTEM"), ("user", "QUESTION"), ("assistant", "ANSWER"))
    messages = [{"role": role, "content": content} for role, content in turns]
    written = {
        name: render_jinja_template([messages], chat_template=style_text(name), eos_token="EOS")[0][0]  # noqa: S106
        for name in STYLES
    }
    return "\n".join(f"`{name}`:\n\n```text\n{text}\n```\n" for name, text in written.items())


def _other_tools() -> str:
    strict = {*TrainingConfig.model_fields, *Base.model_fields}
    rows = [(f"`{name}`", f"`{new}`", BY_HAND.get(name, "")) for name, new in OTHER_TOOLS.items() if new in strict]
    return "| elsewhere | here | mind |\n|---|---|---|\n" + _rows(rows)
