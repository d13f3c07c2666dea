"""Writes the model card, README.md: metadata for the hub, and sections between markers that may be added later.

It contains no path of this machine: `LocalModel.address`, `short_place`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from expert_cli.artifacts.report import page_part
from expert_cli.config.adapter_origin import EXPERT_CONFIG
from expert_cli.config.plan import Plan
from expert_cli.manifest.key import CARD
from expert_cli.runs.metrics import BASES, base_title, sample_shares
from expert_cli.utils.files import write_json, write_text
from expert_cli.utils.redaction import redact
from expert_cli.utils.text import short_place

PROMPT = "Hello"
"""The prompt in the card's examples if there is no better one."""
_ABSOLUTE = re.compile(r"(?:[A-Za-z]:)?[/\\]")
_SHOWN, _FOR_ROUTERS = ("description", "license", "tags"), ("routing", "constraints", "perf")
"""Manifest keys that are written elsewhere in the card; beginnings of keys that other programs read from it."""


def model_card(plan: Plan, done: Mapping[str, Any] | None, base: str) -> str:
    """Return the model card. done: the result of `fit`, None if the training is unknown; base: address of the base model."""
    from huggingface_hub import ModelCardData

    manifest, run = plan.loaded.manifest, plan.run
    front: dict[str, Any] = {"base_model": base, "library_name": "peft", "model_name": run.expert}
    front |= {"pipeline_tag": "text-generation", "tags": manifest.tags or None}
    front |= {"license": str(manifest.license).lower()} if manifest.license else {}  # in lower case, as on the hub
    data = ModelCardData(**json.loads(redact(json.dumps(front))))  # later, *** would make the YAML invalid
    rows = [row for row in plan.effects if row.reason == CARD.reason or row.key.startswith(_FOR_ROUTERS)]
    told = {row.key: row.value for row in rows if row.value and not row.key.startswith(_SHOWN)}
    files = ", ".join(short_place(spec.path) for spec in run.data.train)
    document = json.dumps(_without_paths(told), indent=2, ensure_ascii=False)
    values = {"data": data.to_yaml(), "manifest": manifest, "document": document if told else "", "done": done}
    return _rendered("card.md.j2", **values, run=run, base=base, files=files)


def _without_paths(value: Any) -> Any:
    """Return a JSON value with absolute paths shortened."""
    if isinstance(value, dict):
        return {name: _without_paths(one) for name, one in value.items()}
    if isinstance(value, list):
        return [*map(_without_paths, value)]
    return short_place(value) if isinstance(value, str) and _ABSOLUTE.match(value) else value


def put_usage(card: Path, told: dict[str, Any], generation: Any, prompt: str, **values: Any) -> None:
    """Write expert.json and generation_config.json, and the card's section Loading. values: for page/loading.md.j2."""
    write_json(card.with_name(EXPERT_CONFIG), told)
    generation.save_pretrained(card.parent)
    if schema := (told["decoding"]["grammar"] or {}).get("json_schema"):
        write_json(card.with_name("schema.json"), schema)
    put_section(card, "Loading", [_rendered("loading.md.j2", **values, schema=schema, prompt=prompt, spelled=repr)])


def _rendered(page: str, **values: Any) -> str:
    """Return a rendered Markdown template, without escaping."""
    template: Any = jinja2.Template(page_part(page), trim_blocks=True, lstrip_blocks=True)
    return str(template.render(values)).removesuffix("\n")


def put_servers(card: Path, config: Mapping[str, Any], tokenizer: Any, *, is_adapter: bool) -> None:
    """Say what servers need for an adapter, or a merged one with trained token rows. config: its adapter_config.json."""
    rows = config.get("trainable_token_indices") or {}
    tokens = {name: [*map(_code, tokenizer.convert_ids_to_tokens(ids))] for name, ids in rows.items()}
    if tokens or is_adapter:
        told = _rendered("servers.md.j2", rows=tokens, config=config, is_adapter=is_adapter)
        put_section(card, "Servers", [told])


def _code(text: str) -> str:
    return f"`{json.dumps(text, ensure_ascii=False)}`".replace("|", "\\|")


def put_section(card: Path, title: str, lines: Sequence[str]) -> None:
    """Write a section of a card, replacing the one between its markers."""
    begin, end = f"<!-- {title} -->", f"<!-- end of {title} -->"
    before, found, rest = card.read_text(encoding="utf-8").partition(begin)
    after = rest.partition(end)[2] if found else ""
    section = "\n".join([begin, "", f"## {title}", "", *lines, "", end])
    write_text(card, f"{before.rstrip()}\n\n{section}\n{after.lstrip()}")


def put_evaluation(card: Path, document: Mapping[str, Any]) -> None:
    """Write an evaluation (`evaluate --json`) into a card, and its accuracies into the metadata for the hub."""
    from huggingface_hub import EvalResult, ModelCard

    place, shares = short_place(document["cases_file"]), {None: document, **document["by_category"]}.items()
    bases = {base_title(name, document[name]): document[name] for name in BASES if document.get(name)}
    told = {
        "place": place,
        "shares": shares,
        "bases": bases,
        "percent": "{:.1%}".format,
        "drawn": sample_shares(document),
    }
    put_section(card, "Evaluation", [_rendered("evaluation.md.j2", **document, **told)])
    found = ModelCard.load(card)
    found.data.model_name = found.data.get("model_name") or card.parent.name
    values = {name: ("text-generation", place, place, "accuracy", share["accuracy"]) for name, share in shares}
    found.data.eval_results = [EvalResult(*value, dataset_config=name) for name, value in values.items()]
    write_text(card, str(found))
