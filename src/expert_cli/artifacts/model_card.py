"""The model card: the README.md beside an adapter."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from expert_cli.config.plan import Plan
from expert_cli.config.run_config import RunConfig
from expert_cli.inference.expert_config import ExpertConfig
from expert_cli.manifest.key import CARD
from expert_cli.runs.fit_result import FitResult
from expert_cli.utils.files import write_text
from expert_cli.utils.paths import shown

HOW_ASKED = "How it is asked"
TRAINED_FROM = "Trained on from"
HUB_LICENSES = (
    "apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0 bigcode-openrail-m "
    "afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5 "
    "cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 "
    "cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0 "
    "cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl "
    "lgpl-2.1 lgpl-3.0 isc lppl-1.3c ms-pl apple-ascl mpl-2.0 odc-by odbl openrail++ osl-3.0 postgresql ofl-1.1 ncsa "
    "unlicense zlib pddl lgpl-lr deepfloyd-if-license llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 gemma unknown other"
)
"""What the hub takes as a license, in its own spelling: huggingface.co/docs/hub/repositories-licenses."""


def model_card(plan: Plan, done: FitResult | None) -> str:
    """Return the card: front matter for the hub, what was trained on what, and what the manifest carries along.

    done: None for an adapter whose training is not known.
    """
    manifest = plan.loaded.manifest
    run = plan.run
    front = {
        "library_name": "peft",
        "base_model": run.model.name,
        **_license(manifest.license),
        "tags": manifest.tags,
    }
    lines = [
        "---",
        *(f"{key}: {json.dumps(value)}" for key, value in front.items() if value),
        "---",
        "",
        f"# {run.expert}",
        "",
    ]
    if manifest.description:
        lines += [str(manifest.description), ""]
    steps = ""
    if done:
        first, last = done.mean_losses()
        steps = f": {done.steps} steps, {done.trained_tokens:,} trained tokens, loss {first:.4f} -> {last:.4f}"
    lines += [
        f"A {run.adapter.type} adapter for `{run.model.name}` ({run.model.quantization}), trained with expert-cli{steps}.",
        "",
        f"Data: {', '.join(_data_name(path) for path in _data(run))}.",
        "",
    ]
    carried = {key: value for key, value in _carried(plan).items() if value}
    if carried:
        lines += ["## From the manifest", "", "```json", json.dumps(carried, indent=2, ensure_ascii=False), "```", ""]
    return "\n".join(lines)


def asked_lines(asked: ExpertConfig) -> list[str]:
    """Return the section that says how the expert is asked; expert.json beside the card says the same."""
    decoding = asked.decoding
    sampling = ", ".join(f"{name} {value:g}" for name, value in decoding.sampling().items())
    held = decoding.grammar
    facts = {
        "template": f"{asked.template}; `chat_template` of the tokenizer",
        "system prompt": _code(asked.system_prompt) if asked.system_prompt is not None else "not written",
        "prompt and input": f"one user turn, {_code(asked.input_separator)} between them",
        "ends at": ", ".join(map(_code, [*asked.end_tokens, *decoding.stop_sequences])),
        "held to": (held.type + (" by its own schema" if held.json_schema else "")) if held else "nothing: free text",
        "decoded": f"by beam search, {decoding.num_beams} beams" if decoding.num_beams else "greedily",
        "drawn, where it is drawn": sampling or "nothing is written; greedily",
    }
    return [
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in facts.items()),
        "",
        "Such a prompt, whole, as JSON writes it; `expert.json` has its token ids, too:",
        "",
        "```json",
        json.dumps(asked.example.text, ensure_ascii=False),
        "```",
    ]


def trained_from_lines(told: Mapping[str, Any]) -> list[str]:
    """Return the section on the adapters that this one was trained on from. told: `init_adapter` of its run.json."""
    return [
        "The last one first; each was trained on from the one below it.",
        "",
        "| adapter | SHA-256 of its weights | manifest |",
        "|---|---|---|",
        *(
            f"| {_code(shown(one['path']))} | `{one['sha256']}` | {_code(shown(one['manifest'])) if one['manifest'] else ''} |"
            for one in (told, *reversed(told["chain"]))
        ),
    ]


def _code(text: str) -> str:
    """Return a text as it is written in JSON, in a cell of a table."""
    return f"`{json.dumps(text, ensure_ascii=False)}`".replace("|", "\\|")


def with_library(text: str, library: str) -> str:
    """Return a card whose front matter names another library for the hub: that of the files beside it."""
    return re.sub(r"^library_name: .*$", lambda _: f"library_name: {json.dumps(library)}", text, count=1, flags=re.M)


def put_section(card: Path, title: str, lines: Sequence[str]) -> None:
    """Write a section of a card, in place of the one between its markers where there is one."""
    begin, end = f"<!-- {title} -->", f"<!-- end of {title} -->"
    before, found, rest = card.read_text(encoding="utf-8").partition(begin)
    after = rest.partition(end)[2] if found else ""
    section = "\n".join([begin, "", f"## {title}", "", *lines, "", end])
    write_text(card, f"{before.rstrip()}\n\n{section}\n{after.lstrip()}")


def _carried(plan: Plan) -> dict[str, Any]:
    """Return what other programs read, then every other key that the effects table says is carried to the card."""
    keys = (
        "version",
        "author",
        "homepage",
        "capabilities",
        "limitations",
        "quality_metrics",
        "routing",
        "constraints",
        "perf",
    )
    shown = {*keys, "description", "license", "tags"}
    carried = {row.key: row.value for row in plan.effects if row.reason == CARD.reason}
    rest = {key: value for key, value in carried.items() if re.split(r"[.[]", key, maxsplit=1)[0] not in shown}
    return {key: getattr(plan.loaded.manifest, key) for key in keys} | rest


def _license(written: Any) -> dict[str, str]:
    """Return a license as the hub spells it: its own identifiers are in lower case; others it calls "other", with a name."""
    name = str(written or "").strip()
    spelled = re.sub(r"-(only|or-later)$", "", name.lower())
    if not name:
        return {}
    return {"license": spelled} if spelled in HUB_LICENSES.split() else {"license": "other", "license_name": name}


def _data(run: RunConfig) -> list[str]:
    return [spec.path for spec in run.data.train]


def _data_name(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 2)[-1] if path.startswith("/") else path
