"""The model card: the README.md beside an adapter, or beside what was made of it.

Its metadata are those of the hub; its sections stand between markers, because a run's evaluation and what it forgot are known
later than its adapter. No path of this machine stands in it: `LocalModel.address`, `shown`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

import jinja2
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from expert_cli.config.plan import Plan
from expert_cli.inference.expert_config import ExpertConfig
from expert_cli.manifest.key import CARD
from expert_cli.runs.fit_result import FitResult
from expert_cli.utils.files import sha256_of, write_text
from expert_cli.utils.paths import shown
from expert_cli.utils.redaction import redact

TRAINED_FROM = "Trained on from"
PROMPT = "Hello"
"""What a card's lines ask where there is no better prompt."""
SCHEMA = "schema.json"
"""The JSON Schema that answers are held to, beside a card."""
ROWS_OF_ADAPTER = (
    'PEFT reads them. vLLM ("unsupported LoRA weight") and llama.cpp\'s converter of adapters refuse them: give such servers '
    "the model with all of it merged, `expert-cli export --merge` or `--gguf q8_0`."
)
ROWS_OF_WHOLE = "They are in the weights of this folder: servers need nothing more."
_FIRST = ("version", "author", "homepage", "capabilities", "limitations")
_CARRIED = (*_FIRST, "quality_metrics", "routing", "constraints", "perf")


def model_card(plan: Plan, done: FitResult | None, base: str) -> str:
    """Return the card: metadata for the hub, what was trained on what, and what the manifest carries along.

    done: None for an adapter whose training is not known. base: the base model's address.
    """
    from huggingface_hub import ModelCardData

    manifest, run = plan.loaded.manifest, plan.run
    front: dict[str, Any] = {
        "base_model": base,
        "library_name": "peft",
        "model_name": run.expert,
        "pipeline_tag": "text-generation",
    }
    front |= {"tags": manifest.tags or None, **_license(manifest.license)}
    steps = ""
    if done:
        first, last = done.mean_losses()
        steps = f": {done.steps} steps, {done.trained_tokens:,} trained tokens, loss {first:.4f} -> {last:.4f}"
    carried = {row.key: row.value for row in plan.effects if row.reason == CARD.reason}
    known = {*_CARRIED, "description", "license", "tags"}
    rest = {key: value for key, value in carried.items() if re.split(r"[.[]", key, maxsplit=1)[0] not in known}
    told = {key: value for key, value in ({key: getattr(manifest, key) for key in _CARRIED} | rest).items() if value}
    lines = [
        # without secrets before it is YAML, in which *** is none
        f"---\n{ModelCardData(**json.loads(redact(json.dumps(front)))).to_yaml()}\n---\n\n# {run.expert}\n",
        *([f"{manifest.description}\n"] if manifest.description else []),
        f"A {run.adapter.type} adapter for `{base}` ({run.model.quantization}), trained with expert-cli{steps}.\n",
        f"Data: {', '.join(_placeless(spec.path) for spec in run.data.train)}.\n",
    ]
    if told:
        document = json.dumps(_placeless(told), indent=2, ensure_ascii=False)
        lines.append(f"## From the manifest\n\n```json\n{document}\n```\n")
    return "\n".join(lines)


def _placeless(value: Any) -> Any:
    """Return a value, each path of this machine in it as its last two parts."""
    if isinstance(value, Mapping):
        return {key: _placeless(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_placeless(one) for one in value]
    return shown(value) if isinstance(value, str) and PurePath(value).is_absolute() else value


def _license(written: Any) -> dict[str, str]:
    """Return a license as the hub spells it: SPDX identifiers in lower case; any other is "other", with its name."""
    name = str(written or "").strip()
    try:
        spelled = canonicalize_license_expression(name).lower()
    except InvalidLicenseExpression:
        return {"license": "other", "license_name": name} if name else {}
    return {"license": re.sub(r"-(only|or-later)$", "", spelled)}


def put_usage(card: Path, asked: ExpertConfig, prompt: str, **values: Any) -> None:
    """Say how the expert is asked, as expert.json beside the card does, and how it is loaded without expert-cli.

    values: as page/loading.md.j2 takes them.
    """
    decoding, held = asked.decoding, asked.decoding.grammar
    sampling = ", ".join(f"{name} {value:g}" for name, value in decoding.sampling().items())
    facts = {
        "template": f"{asked.template}; `chat_template` of the tokenizer",
        "system prompt": _code(asked.system_prompt) if asked.system_prompt is not None else "not written",
        "prompt and input": f"one user turn, {_code(asked.input_separator)} between them",
        "ends at": ", ".join(map(_code, [*asked.end_tokens, *decoding.stop_sequences])),
        "held to": (held.type + (f" by `{SCHEMA}`" if held.json_schema else "")) if held else "nothing: free text",
        "decoded": f"by beam search, {decoding.num_beams} beams" if decoding.num_beams else "greedily",
        "drawn, where it is drawn": sampling or "nothing is written; greedily",
    }
    rows = [f"| {name} | {value} |" for name, value in facts.items()]
    words = "Such a prompt, whole, as JSON writes it; `expert.json` has its token ids, too:"
    example = json.dumps(asked.example.text, ensure_ascii=False)
    put_section(card, "How it is asked", ["| | |", "|---|---|", *rows, "", words, "", "```json", example, "```"])
    text = files("expert_cli.artifacts").joinpath("page/loading.md.j2").read_text(encoding="utf-8")
    template: jinja2.Template = jinja2.Template(text, trim_blocks=True, lstrip_blocks=True)  # of Markdown: not escaped
    values |= {"asked": asked, "schema": SCHEMA if held and held.json_schema else "", "prompt": prompt}
    put_section(card, "Loading", [template.render(values, spelled=_spelled).removesuffix("\n")])


def _spelled(value: Any) -> str:
    """Return a value as Python writes it, a text in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def trained_from_lines(told: Mapping[str, Any]) -> list[str]:
    """Return the section on the adapters that this one was trained on from. told: `init_adapter` of its run.json."""
    rows = [
        f"| {_code(shown(one['path']))} | `{one['sha256']}` | {_code(shown(one['manifest'])) if one['manifest'] else ''} |"
        for one in (told, *reversed(told["chain"]))
    ]
    head = ["The last one first; each was trained on from the one below it.", ""]
    return [*head, "| adapter | SHA-256 of its weights | manifest |", "|---|---|---|", *rows]


def put_token_rows(card: Path, config: Mapping[str, Any], tokenizer: Any, words: str) -> None:
    """Name the tokens whose rows were trained beside the adapter, if any were. config: its adapter_config.json."""
    rows = config.get("trainable_token_indices")
    if rows:
        of = rows if isinstance(rows, dict) else {"embed_tokens": rows}
        named = {name: ", ".join(map(_code, tokenizer.convert_ids_to_tokens(ids))) for name, ids in of.items()}
        put_section(
            card, "Trained token rows", [*(f"- `{name}`: {tokens}" for name, tokens in named.items()), "", words]
        )


def put_files(card: Path, told: Sequence[str]) -> None:
    """Name the weights beside a card, with their hashes. told: paragraphs before them."""
    weights = [path for path in sorted(card.parent.iterdir()) if path.suffix in (".safetensors", ".gguf")]
    rows = [f"| {path.name} | {path.stat().st_size:,} | `{sha256_of(path)}` |" for path in weights]
    put_section(card, "Files", [*(f"{line}\n" for line in told), "| file | bytes | sha256 |", "|---|---|---|", *rows])


def _code(text: str) -> str:
    """Return a text as it is written in JSON, in a cell of a table."""
    return f"`{json.dumps(text, ensure_ascii=False)}`".replace("|", "\\|")


def put_section(card: Path, title: str, lines: Sequence[str]) -> None:
    """Write a section of a card, in place of the one between its markers where there is one."""
    begin, end = f"<!-- {title} -->", f"<!-- end of {title} -->"
    before, found, rest = card.read_text(encoding="utf-8").partition(begin)
    after = rest.partition(end)[2] if found else ""
    section = "\n".join([begin, "", f"## {title}", "", *lines, "", end])
    write_text(card, f"{before.rstrip()}\n\n{section}\n{after.lstrip()}")


def put_results(card: Path, document: Mapping[str, Any]) -> None:
    """Write an evaluation's accuracies into a card's metadata, where the hub reads them. document: as `evaluate` prints it."""
    from huggingface_hub import EvalResult, ModelCard

    found = ModelCard.load(card)
    found.data.model_name = found.data.get("model_name") or card.parent.name
    cases = shown(document["cases_file"])
    found.data.eval_results = [
        EvalResult("text-generation", cases, cases, "accuracy", one["accuracy"], dataset_config=category)
        for category, one in [(None, document), *document["by_category"].items()]
    ]
    write_text(card, str(found))
