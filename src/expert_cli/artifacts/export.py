"""An expert in the forms in which people use it: adapter, merged model, GGUF file with a Modelfile.

    output/  adapter_model.safetensors  adapter_config.json            (neither --merge nor --gguf)
             model.safetensors  config.json  generation_config.json    (--merge)
             expert-sql-q8_0.gguf  Modelfile                           (--gguf q8_0)
             tokenizer.json ...  README.md

What is written is loaded again and answers; how many of its answers are those of base model and adapter is told.
"""

from __future__ import annotations

import gc
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from expert_cli.artifacts.gguf_writer import GgufType, require_writable, write_gguf
from expert_cli.artifacts.modelfile import modelfile
from expert_cli.basemodel import locate_base
from expert_cli.card import model_card, put_section, with_library
from expert_cli.console import Reporter, Silent
from expert_cli.errors import LockedOrDamaged
from expert_cli.expert import Speaker, load_adapted, open_expert, trained_template
from expert_cli.files import sha256_of, sync_folder, write_json, write_text
from expert_cli.model.generate import answers
from expert_cli.model.gguf import convert, quiet
from expert_cli.model.quantise import DTYPES, load_base
from expert_cli.model.sources import LocalModel
from expert_cli.model.tokenizer import TokenizerInfo
from expert_cli.model.tokenizer import load as load_tokenizer
from expert_cli.origin import CONFIG, WEIGHTS
from expert_cli.paths import normalise
from expert_cli.plan import Trained, require_new
from expert_cli.runconfig import Quantization, RunConfig

CHECK_TOKENS = 64
"""Of each answer, compared."""
Prompts = Sequence[tuple[str, str]]
"""(instruction, input) each."""


@dataclass(frozen=True)
class Exported:
    """What lies in `output`; agreement: form -> (prompts, how many of them got the same answer as before)."""

    output: Path
    files: tuple[Path, ...]
    facts: dict[str, Any]
    agreement: dict[str, tuple[int, int]]

    def as_json(self) -> dict[str, Any]:
        """Return what `export --json` prints."""
        files = [
            {"path": path.relative_to(self.output).as_posix(), "bytes": path.stat().st_size, "sha256": sha256_of(path)}
            for path in self.files
        ]
        agreement = {form: {"prompts": all_, "same": same} for form, (all_, same) in self.agreement.items()}
        return {"output": str(self.output), "files": files, **self.facts, "agreement": agreement}


def export(
    trained: Trained, output: Path, prompts: Prompts, report: Reporter, *, merge: bool, gguf: GgufType | None
) -> Exported:
    """Write an expert into the new folder `output`, checked; it is whole or it is not there.

    Raises LockedOrDamaged where `output` holds something, InputError for what cannot be written in that form.
    """
    require_new(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    try:
        facts, agreement = _write(trained, beside, prompts, report, merge=merge, gguf=gguf)
        sync_folder(beside)
        if output.is_dir():
            output.rmdir()  # empty: Windows renames onto nothing
        beside.chmod(0o755)
        for path in beside.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)  # a temporary folder, and safetensors, are for one user alone
        beside.rename(output)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    files = tuple(sorted(path for path in output.rglob("*") if path.is_file()))
    return Exported(output, files, facts, agreement)


def _write(
    trained: Trained, folder: Path, prompts: Prompts, report: Reporter, *, merge: bool, gguf: GgufType | None
) -> tuple[dict[str, Any], dict[str, tuple[int, int]]]:
    """Write all files; return the facts and the agreements."""
    run, adapter = trained.plan.run, trained.origin.adapter
    source = locate_base(run, report)
    tokenizer = load_tokenizer(source.folder)
    tokenizer.hf.chat_template = trained_template(run, tokenizer, trained.origin).chat_template
    forms = [*(["merged"] if merge else []), *([f"gguf {gguf}"] if gguf else [])]
    facts = {
        "expert": run.expert,
        "base_model": run.model.name,
        "adapter_sha256": sha256_of(adapter / WEIGHTS),
        "quantization": run.model.quantization,
        "base_sha256": source.sha256,
        "forms": forms or ["adapter"],
    }
    if not forms:
        _copy_adapter(adapter, folder, run.model.name)
        tokenizer.hf.save_pretrained(folder)
        _card(trained, folder, {}, library="peft", form="the adapter")
        return facts, {}
    if gguf is not None:
        config = AutoConfig.from_pretrained(source.folder, local_files_only=True, trust_remote_code=False)
        rope = {**(getattr(config, "rope_parameters", None) or {}), **dict(run.model.rope_scaling)}
        require_writable(config, rope, tokenizer)
    agreement = _write_whole(trained, tokenizer, folder, prompts, report, merge=merge, gguf=gguf)
    library = "transformers" if merge else "gguf"
    _card(trained, folder, agreement, library=library, form=f"the model with its adapter merged ({', '.join(forms)})")
    return facts, agreement


def _write_whole(
    trained: Trained,
    tokenizer: TokenizerInfo,
    folder: Path,
    prompts: Prompts,
    report: Reporter,
    *,
    merge: bool,
    gguf: GgufType | None,
) -> dict[str, tuple[int, int]]:
    """Write the model with its adapter in it; return the agreements."""
    run = trained.plan.run
    expert = open_expert(run, trained.origin, report)
    speaker, source = expert.speaker, expert.source
    ids = [speaker.prompt(*prompt) for prompt in prompts]
    before = _answers(expert.model, speaker, ids, report, "base model and adapter")
    del expert
    gc.collect()
    agreement: dict[str, tuple[int, int]] = {}
    model = _merged(trained, source, report)
    if merge:
        _save_merged(model, source, speaker, run, folder, report)
        tokenizer.hf.save_pretrained(folder)
        agreement["merged"] = _agreement(folder, run, speaker, ids, before, report, "merged model")
    if gguf is not None:
        file = folder / f"{normalise(run.expert)}-{gguf}.gguf"
        report.say(f"writing {file.name}")
        write_gguf(file, model, tokenizer, name=run.expert, kind=gguf, end_token=speaker.template.end_token)
        decoding = trained.plan.loaded.manifest.training.decoding
        write_text(folder / "Modelfile", modelfile(file.name, speaker.template, decoding))
        del model
        gc.collect()
        with tempfile.TemporaryDirectory() as cache:
            unpacked = convert(file, sha256_of(file), Path(cache), Silent())
            agreement["gguf"] = _agreement(unpacked, run, speaker, ids, before, report, f"{gguf} GGUF")
    return agreement


def _merged(trained: Trained, source: LocalModel, report: Reporter) -> Any:
    """Return the base model in fp32 with the adapter added: to 4-bit weights as training saw them, else to its own.

    What 4-bit weights are depends on the dtype they had when they were quantised and unpacked: of weights stored in fp32
    one code in a hundred is another one in bf16. So it is the dtype of training, whatever this machine would choose.
    """
    report.say("merging in fp32")
    run, seen = trained.plan.run, trained.origin.dtype or trained.plan.run.compute.dtype
    quantization: Quantization = "int4" if run.model.quantization == "int4" else "none"
    compute = replace(run.compute, dtype=seen if quantization == "int4" else "fp32")
    exact = replace(run, model=replace(run.model, quantization=quantization), compute=compute)
    return load_adapted(exact, source, trained.origin.adapter, widened=True).merge_and_unload(safe_merge=True)


def _save_merged(
    model: Any, source: LocalModel, speaker: Speaker, run: RunConfig, folder: Path, report: Reporter
) -> None:
    """Save the merged weights in bf16, in a model that never was quantised: nothing of that is left in its config.

    It stops where the expert does; the end token of training comes first, which the base model may not have ended with.
    """
    report.say("writing the merged model in bf16")
    plain = _dense(source.folder, run, torch.bfloat16)
    plain.load_state_dict({name: value.bfloat16() for name, value in model.state_dict().items()})
    plain.config.use_cache = True
    end = speaker.tokenizer.backend.token_to_id(speaker.template.end_token)
    plain.generation_config.eos_token_id = sorted(speaker.end_ids, key=lambda number: number != end)
    with quiet():
        plain.save_pretrained(folder)


def _dense(folder: Path, run: RunConfig, dtype: torch.dtype) -> Any:
    return load_base(
        folder,
        quantization="none",
        dtype=dtype,
        device=run.compute.device,
        attention="eager" if run.compute.attention == "eager" else "sdpa",
        rope_scaling=dict(run.model.rope_scaling),
    )


def _agreement(
    folder: Path,
    run: RunConfig,
    speaker: Speaker,
    ids: Sequence[Sequence[int]],
    before: Sequence[str],
    report: Reporter,
    what: str,
) -> tuple[int, int]:
    """Load what was written and compare its answers. Raises LockedOrDamaged if it computes no numbers."""
    model = _dense(folder, run, DTYPES[run.compute.dtype])
    model.eval()
    with torch.no_grad():
        probe = torch.tensor([list(ids[0]) if ids else [0, 1]], device=model.device)
        if not bool(torch.isfinite(model(input_ids=probe).logits).all()):
            raise LockedOrDamaged(f"the {what} computes no finite numbers", "report this with the base model's name")
    after = _answers(model, speaker, ids, report, what)
    return len(before), sum(a == b for a, b in zip(before, after, strict=True))


def _answers(model: Any, speaker: Speaker, ids: Sequence[Sequence[int]], report: Reporter, title: str) -> list[str]:
    if not ids:
        return []
    with report.progress(title, len(ids), "answers") as bar:
        step: Callable[[int, int], None] = lambda done, _: bar.update(done)
        written = answers(
            model, ids, end_ids=speaker.end_ids, max_new_tokens=CHECK_TOKENS, batch_size=len(ids), on_step=step
        )
    return [speaker.text(one) for one in written]


def in_words(agreement: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return a line for each form: how many of its answers are those of base model and adapter."""
    return [
        f"{form}: {same} of {all_} answers are those of base model and adapter in their first {CHECK_TOKENS} tokens"
        for form, (all_, same) in agreement.items()
    ]


def _copy_adapter(adapter: Path, folder: Path, base_model: str) -> None:
    """Copy weights, not the state of training beside a checkpoint's; the base model is named as in the manifest."""
    shutil.copyfile(adapter / WEIGHTS, folder / WEIGHTS)
    config = json.loads((adapter / CONFIG).read_text(encoding="utf-8"))
    write_json(folder / CONFIG, {**config, "base_model_name_or_path": base_model})


def _card(trained: Trained, folder: Path, agreement: dict[str, tuple[int, int]], *, library: str, form: str) -> None:
    """Write README.md: the adapter's card (with its evaluation), what this folder is, and the hashes of its files."""
    written = trained.origin.adapter / "README.md"
    text = written.read_text(encoding="utf-8") if written.is_file() else model_card(trained.plan, None)
    card = folder / "README.md"
    write_text(card, with_library(text, library))
    weights = [path for path in sorted(folder.iterdir()) if path.suffix in (".safetensors", ".gguf")]
    compared = [f"{line}." for line in in_words(agreement)]
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
