"""An expert in the forms in which people use it: adapter, merged model, GGUF file with a Modelfile.

    output/  adapter_model.safetensors  adapter_config.json  base_model.json      (neither --merge nor --gguf)
             model.safetensors  config.json  generation_config.json    (--merge)
             expert-sql-q8_0.gguf  Modelfile                           (--gguf q8_0)
             expert.json  tokenizer.json ...  README.md
             schema.json                                       (the JSON Schema that answers are held to, where there is one)

What is written is loaded again and answers; how far it is from base model and adapter is told.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from expert_cli.artifacts.gguf_writer import GgufType, require_writable
from expert_cli.artifacts.loading_code import PROMPT, SECTION, adapter_lines, whole_lines, write_base
from expert_cli.artifacts.merged_model import Agreement, Prompts, in_words, write_whole
from expert_cli.artifacts.model_card import HOW_ASKED, asked_lines, model_card, put_section, with_library
from expert_cli.config.adapter_origin import CONFIG, EXPERT_CONFIG, WEIGHTS
from expert_cli.config.plan import TrainedAdapter, require_new
from expert_cli.inference.base_model import locate_base
from expert_cli.inference.expert import PromptRenderer, trained_template
from expert_cli.inference.expert_config import decoding_for, expert_config
from expert_cli.model.tokenizer import load_tokenizer
from expert_cli.utils.files import json_text, sha256_of, write_text
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.verified_folder import VerifiedFolder, folder_beside

SCHEMA = "schema.json"
_OF_SCHEMA = (
    f"`{SCHEMA}` is the JSON Schema of an answer, which servers take as `response_format` "
    '(`{"type": "json_schema", "json_schema": {"name": "answer", "schema": ...}}`); llama.cpp as `--json-schema-file`.'
)


@dataclass(frozen=True)
class Exported:
    """What lies in `output`, {"bytes", "sha256"} by name; agreement: form -> how it compares with base model and adapter."""

    output: Path
    files: Mapping[str, Mapping[str, Any]]
    facts: dict[str, Any]
    agreement: dict[str, Agreement]

    def as_json(self) -> dict[str, Any]:
        """Return what `export --json` prints."""
        files = [{"path": name, **entry} for name, entry in self.files.items()]
        agreement = {form: one.as_json() for form, one in self.agreement.items()}
        return {"agreement": agreement, "output": str(self.output), "files": files, **self.facts}


def export_expert(
    trained: TrainedAdapter,
    output: Path,
    prompts: Prompts,
    report: Reporter,
    *,
    merge: bool,
    gguf: GgufType | None,
) -> Exported:
    """Write an expert into the new folder `output`, checked; it is whole or it is not there.

    prompts: asked in the check. Raises RunLocked where `output` holds something, IntegrityError where what was written is not
    the expert, InputError for what cannot be written in that form.
    """
    require_new(output)
    run, adapter = trained.plan.run, trained.origin.adapter
    source = locate_base(run, report)
    tokenizer = load_tokenizer(source.folder)
    renderer = PromptRenderer(tokenizer, trained_template(run, tokenizer, trained.origin))
    asked = expert_config(decoding_for(trained, report), renderer, run.data.schema_prompt)
    tokenizer.hf.chat_template = renderer.template.jinja
    forms = [*(["merged"] if merge else []), *([f"gguf {gguf}"] if gguf else [])]
    facts = {
        "expert": run.expert,
        "base_model": run.model.name,
        "adapter_sha256": sha256_of(adapter / WEIGHTS),
        "quantization": run.model.quantization,
        "base_sha256": source.sha256,
        "forms": forms or ["adapter"],
    }
    if gguf is not None:
        config = AutoConfig.from_pretrained(source.folder, local_files_only=True, trust_remote_code=False)
        rope = {**(getattr(config, "rope_parameters", None) or {}), **dict(run.model.rope_scaling)}
        require_writable(config, rope, tokenizer)
    agreement: dict[str, Agreement] = {}
    with folder_beside(output) as beside:
        if forms:
            agreement = write_whole(trained, tokenizer, asked, beside, prompts, report, merge=merge, gguf=gguf)
            form = f"the model with its adapter merged ({', '.join(forms)})"
            file = next((path.name for path in beside.glob("*.gguf")), "")
            loading = whole_lines(asked, _shown(renderer, prompts), merged=merge, gguf=file)
        else:
            form = "the adapter"
            for name in (WEIGHTS, CONFIG):  # not the state of training beside a checkpoint's
                shutil.copyfile(adapter / name, beside / name)
            write_base(beside, run, source, renderer.template.fingerprint)
            tokenizer.hf.save_pretrained(beside)
            loading = adapter_lines(run, source, asked, _shown(renderer, prompts))
        library = "transformers" if merge else "gguf" if gguf else "peft"
        _card(trained, beside, [f"{line}." for line in in_words(agreement)], library=library, form=form)
        write_text(beside / EXPERT_CONFIG, json_text(asked.as_json()))
        put_section(beside / "README.md", HOW_ASKED, asked_lines(asked))
        put_section(beside / "README.md", SECTION, loading)
        grammar = asked.decoding.grammar
        if grammar is not None and grammar.json_schema is not None:
            write_text(beside / SCHEMA, json_text(grammar.json_schema))
            put_section(beside / "README.md", "Grammar", [_OF_SCHEMA])
        files = _put_in_place(beside, output)
    return Exported(output, files, facts, agreement)


def _put_in_place(folder: Path, output: Path) -> Mapping[str, Mapping[str, Any]]:
    """Make a finished folder `output`, and return its files, {"bytes", "sha256"} by name."""
    files = VerifiedFolder.measured(folder).files
    if output.is_dir():
        output.rmdir()  # empty: Windows renames onto nothing
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)  # a temporary folder, and safetensors, are for one user alone
    folder.rename(output)
    return files


def _shown(renderer: PromptRenderer, prompts: Prompts) -> str:
    """Return the user's turn that a card asks."""
    turns = sorted((renderer.format_user_turn(*prompt) for prompt in prompts), key=len)
    return next((turn for turn in turns if "```" not in turn), PROMPT)


def _card(trained: TrainedAdapter, folder: Path, compared: Sequence[str], *, library: str, form: str) -> None:
    """Write README.md: the adapter's card (with its evaluation), what this folder is, and the hashes of its files."""
    written = trained.origin.adapter / "README.md"
    text = written.read_text(encoding="utf-8") if written.is_file() else model_card(trained.plan, None)
    card = folder / "README.md"
    write_text(card, with_library(text, library))
    weights = [path for path in sorted(folder.iterdir()) if path.suffix in (".safetensors", ".gguf")]
    lines = [
        f"This folder holds {form}.",
        "",
        *compared,
        *([""] if compared else []),
        "| file | bytes | sha256 |",
        "|---|---|---|",
        *(f"| {path.name} | {path.stat().st_size:,} | `{sha256_of(path)}` |" for path in weights),
    ]
    put_section(card, "Files", lines)
