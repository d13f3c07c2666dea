"""Writes `adapter/` of a run, and exports it in other forms, which are loaded again and compared with the trained model.

adapter/ output/  adapter_model.safetensors  adapter_config.json  base_model.json  tokenizer.json   (neither --merge nor --gguf)
output/  model.safetensors  config.json  tokenizer.json                                             (--merge)
         expert-sql-q8_0.gguf  Modelfile                                                            (--gguf q8_0)
         README.md  expert.json  generation_config.json, and schema.json: the JSON Schema of answers, if there is one

base_model.json describes the base model of training; "quantization_config" is in transformers' form.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import ModelCard
from peft import PeftModel
from torch.nn.functional import kl_div
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig

from expert_cli.artifacts import model_card as cards
from expert_cli.artifacts.gguf_writer import GgufType, modelfile, require_writable, write_gguf
from expert_cli.config.adapter_origin import BASE, CONFIG, WEIGHTS
from expert_cli.config.plan import Plan, TrainedAdapter, require_new
from expert_cli.config.run_config import RunConfig
from expert_cli.data.store.store_files import drawn_prompts
from expert_cli.errors import IntegrityError
from expert_cli.inference import expert as experts
from expert_cli.inference.expert_config import GenerationConfig, decoding_for
from expert_cli.inference.generate import Request, generate
from expert_cli.inference.prompts import PromptRenderer, trained_renderer
from expert_cli.manifest.key import Dtype, Quantization
from expert_cli.model.loading.base_model import LocalModel, locate_base
from expert_cli.model.loading.gguf import load_gguf, quiet
from expert_cli.model.loading.quantize import DTYPES, quantization_arguments, weights_dtype
from expert_cli.model.tokenizer import load_tokenizer
from expert_cli.runs.metrics import read_json
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils import files
from expert_cli.utils.files import sha256_of, write_json, write_text
from expert_cli.utils.paths import slug
from expert_cli.utils.reporter import Reporter

PROMPTS, TOKENS = 20, 8
"""Prompts in the comparison, of which missing ones are taken from training rows; tokens of each answer that are compared."""
SAME_KL, MAX_KL, MIN_TOP1 = 1e-6, 1.0, 0.7
"""Nats; share of positions. SmolLM2 after 4 steps, merged in bf16: 0.6, 89 %; a wrong matrix in a tiny model: 1 to 8, 40 %."""
Prompts = Sequence[tuple[str, str]]  # (instruction, input)
Text = tuple[int, Sequence[int]]  # length of the prompt; ids of prompt and answer
Agreement = Mapping[str, Any]
"""Number of `prompts` and `tokens` compared; `top1`: share of positions with the same most likely token; `max_kl`: largest
Kullback-Leibler divergence from the trained model's next-token distribution, in nats. Beside an adapter, `base` is compared.
"""


def save_adapter(
    model: PeftModel,
    source: LocalModel,
    by: PromptRenderer,
    plan: Plan,
    done: Mapping[str, Any],
    decoding: GenerationConfig,
) -> str:
    """Write the adapter folder atomically; return the hash of its weights."""
    paths = RunPaths(plan.run.output)
    beside = paths.adapter.with_name(".adapter.tmp")
    files.remove(beside)  # left by a killed run
    # without it PEFT adds whole matrices of the base model, if an adapter is on embedding or head
    model.save_pretrained(str(beside), safe_serialization=True, save_embedding_layers=False)
    write_text(beside / "README.md", cards.model_card(plan, done, source.address))
    describe(beside, plan.run, source, by, decoding, cards.PROMPT)
    files.sync_folder(beside)
    files.remove(paths.adapter)
    beside.rename(paths.adapter)
    return sha256_of(paths.adapter / WEIGHTS)


def describe(
    folder: Path, run: RunConfig, source: LocalModel, by: PromptRenderer, decoding: GenerationConfig, prompt: str
) -> None:
    """Describe the base model and the prompts in the adapter's configuration and card."""
    held, compute, rope = run.model.quantization, DTYPES[run.compute.dtype], dict(run.model.rope_scaling)
    quantized, dtype = quantization_arguments(held, compute), weights_dtype(held, compute)
    name = run.model.name if source.kind in ("hub", "package") else source.address
    told: dict[str, Any] = {"name": name, "address": source.address, "sha256": source.sha256, "quantization": held}
    told |= {"dtype": str(dtype).removeprefix("torch."), "rope_parameters": rope}
    told |= {"quantization_config": BitsAndBytesConfig(**quantized).to_dict() if quantized else None}
    config = {**read_json(folder / CONFIG), "base_model_name_or_path": source.address}
    write_json(folder / BASE, {**told, "template": by.template.fingerprint})
    write_json(folder / CONFIG, config)
    by.tokenizer.hf.chat_template = by.template.jinja
    by.tokenizer.hf.save_pretrained(folder)
    if rope:  # complete rotary settings, because they replace the model's
        rope = {**(read_json(source.folder / "config.json").get("rope_parameters") or {}), **rope}
    base = "base" if source.gguf and not source.hub_id else source.address
    values: dict[str, Any] = {"held": held, "quantized": quantized, "dtype": dtype, "rope": rope}
    asked = experts.expert_files(decoding, by, run.data.schema_prompt)
    cards.put_usage(
        folder / "README.md", *asked, prompt, source=source, base=base, package=source.kind == "package", **values
    )
    cards.put_servers(folder / "README.md", config, by.tokenizer.hf, is_adapter=True)


def in_words(agreement: Mapping[str, Agreement]) -> list[str]:
    """Return the comparison in words, one line for each exported form, or for the base model without the adapter."""
    words = (
        "{}: the most likely token is the trained model's at {top1:.1%} of {tokens} positions of {prompts} answers, "
    )
    return [(words + "largest KL divergence {max_kl:.2g} nats").format(form, **one) for form, one in agreement.items()]


def export_expert(
    trained: TrainedAdapter, output: Path, prompts: Prompts, report: Reporter, *, merge: bool, gguf: GgufType | None
) -> dict[str, Any]:
    """Export an expert into the new folder `output`, atomically; return the JSON document. prompts: for the comparison."""
    require_new(output)
    run, adapter = trained.plan.run, trained.origin.adapter
    source = locate_base(run, report)
    trained.origin.require_base(source.name, source.sha256)
    renderer = trained_renderer(run, load_tokenizer(source.folder), trained.origin)
    decoding = decoding_for(trained)
    asked = experts.expert_files(decoding, renderer, run.data.schema_prompt)
    whole = [*(["merged"] if merge else []), *([f"gguf {gguf}"] if gguf else [])]
    document: dict[str, Any] = {"expert": run.expert, "base_model": run.model.name, "base_sha256": source.sha256}
    document |= {"output": str(output), "forms": whole or ["adapter"], "adapter_sha256": sha256_of(adapter / WEIGHTS)}
    document |= {"quantization": run.model.quantization}
    if gguf is not None:
        config = AutoConfig.from_pretrained(source.folder, local_files_only=True, trust_remote_code=False)
        require_writable(config, dict(run.model.rope_scaling), renderer.tokenizer)
    turns = (renderer.template.user_turn(*prompt) for prompt in prompts)
    prompt = min((turn for turn in turns if "```" not in turn), key=len, default=cards.PROMPT)
    agreement: dict[str, Agreement] = {}
    with files.folder_beside(output) as beside:
        card, written = beside / "README.md", adapter / "README.md"
        text = written.read_text(encoding="utf-8") if written.is_file() else ""
        head: Any = ModelCard(text or cards.model_card(trained.plan, None, source.address))
        head.data.library_name = "transformers" if merge else "gguf" if gguf else "peft"
        write_text(card, str(head))
        if whole:
            agreement = _write_whole(trained, beside, prompts, report, merge=merge, gguf=gguf)
            file = next((path.name for path in beside.glob("*.gguf")), "")
            cards.put_usage(card, *asked, prompt, merged=merge, gguf=file, base=".", dtype="torch.bfloat16")
            cards.put_servers(card, read_json(adapter / CONFIG), renderer.hf, is_adapter=False)
        else:
            for name in (WEIGHTS, CONFIG):  # without a checkpoint's training state
                shutil.copyfile(adapter / name, beside / name)
            describe(beside, run, source, renderer, decoding, prompt)
            expert, texts, meant = _answered(trained, run, prompts, report)
            with expert.model.disable_adapter():
                agreement = {"base": compare(expert.model, texts, meant)}
            if agreement["base"]["max_kl"] < SAME_KL:
                report.warning("the adapter changes nothing: the base model predicts the same without it")
        form = f"the model with its adapter merged ({', '.join(whole)})" if whole else "the adapter"
        told = "\n\n".join(f"{line}." for line in (f"This folder holds {form}", *in_words(agreement)))
        cards.put_section(card, "Files", [told])
        measured = files.VerifiedFolder.measured(beside).files.items()
        if output.is_dir():
            output.rmdir()  # it is empty; Windows cannot rename onto a folder
        for path in (beside, *beside.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)  # files and folder are private to the user when created
        beside.rename(output)
    return {"agreement": agreement, "files": [{"path": name, **entry} for name, entry in measured], **document}


def _write_whole(
    trained: TrainedAdapter, folder: Path, prompts: Prompts, report: Reporter, *, merge: bool, gguf: GgufType | None
) -> dict[str, Agreement]:
    """Write the merged model; return its comparison with the trained one.

    The adapter is merged in fp32, into the 4-bit weights of training or the original weights. One 4-bit code in a hundred
    differs between fp32 and bf16 weights, so the dtype of training is used, whatever this machine prefers.
    """
    run, dtype = trained.plan.run, trained.origin.dtype or trained.plan.run.compute.dtype
    is_int4 = run.model.quantization == "int4"
    exact = _held(run, "int4", dtype) if is_int4 else _held(run, "none", "fp32")
    expert, texts, meant = _answered(trained, exact, prompts, report, widened=True)
    renderer, base, decoding = expert.renderer, expert.source.folder, decoding_for(trained)
    report.info("merging in fp32")
    model: Any = expert.model.merge_and_unload(safe_merge=True)
    del expert
    written: dict[str, Callable[[], Any]] = {}
    if merge:
        report.info("writing the merged model in bf16")
        # loaded again, so that the config has no trace of a quantization
        plain: Any = experts.load_base_of(_held(run, "none", "bf16"), base)
        plain.load_state_dict({name: value.to(plain.dtype) for name, value in model.state_dict().items()})
        plain.config.use_cache, plain.config.eos_token_id = True, renderer.ends
        plain.generation_config = experts.expert_files(decoding, renderer)[1]
        with quiet():
            plain.save_pretrained(folder)
        renderer.tokenizer.hf.chat_template = renderer.template.jinja
        renderer.tokenizer.hf.save_pretrained(folder)
        written["merged"] = lambda: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if gguf is not None:
        file, stops = folder / f"{slug(run.expert)}-{gguf}.gguf", renderer.spelled(renderer.ends)
        report.info(f"writing {file.name}")
        write_gguf(file, model, renderer, name=run.expert, kind=gguf)
        write_text(folder / "Modelfile", modelfile(file.name, renderer.template, decoding, stops))
        written["gguf"] = lambda: load_gguf(file, torch.float32)
    del model
    agreement = {}
    for form, load in written.items():
        gc.collect()
        report.info(f"comparing {form} with the trained model")
        with quiet():
            agreement[form] = compare(load().to(run.compute.device), texts, meant)
        require_alike(form, agreement[form])
    return agreement


def _answered(
    trained: TrainedAdapter, run: RunConfig, prompts: Prompts, report: Reporter, *, widened: bool = False
) -> tuple[experts.Expert, list[Text], torch.Tensor]:
    """Load the trained model; return it with its answers to the prompts, and its log-probabilities there."""
    expert = experts.open_expert(run, trained.origin, report, widened=widened)
    ids = [expert.renderer.encode_prompt(*prompt) for prompt in prompts][:PROMPTS]
    ids += drawn_prompts(trained.origin.store, PROMPTS - len(ids), run.seed) if len(ids) < PROMPTS else []
    ids = ids or [list(range(3, 35))]
    answers = generate(expert.model, [Request(one) for one in ids], GenerationConfig(TOKENS, PROMPTS), expert.renderer)
    # the prediction after the last token is compared, too
    ends = [one.ids[: None if one.stop == "end" else -1] for (one,) in answers]
    texts: list[Text] = [(len(prompt), [*prompt, *answer]) for prompt, answer in zip(ids, ends, strict=True)]
    return expert, texts, log_probs(expert.model, texts)


def _held(run: RunConfig, quantization: Quantization, dtype: Dtype) -> RunConfig:
    model, compute = replace(run.model, quantization=quantization), replace(run.compute, dtype=dtype)
    return replace(run, model=model, compute=compute)


def compare(other: Any, texts: Sequence[Text], meant: torch.Tensor) -> Agreement:
    """Compare a model with the trained model's log-probabilities."""
    found = log_probs(other, texts)
    kl = float(kl_div(found, meant, reduction="none", log_target=True).sum(-1).max())
    top1 = float((found.argmax(-1) == meant.argmax(-1)).float().mean())
    return {"prompts": len(texts), "tokens": len(meant), "top1": top1, "max_kl": kl}


def require_alike(form: str, found: Agreement) -> None:
    """Raise IntegrityError if a written model differs too much from the trained one."""
    if found["max_kl"] <= MAX_KL and found["top1"] >= MIN_TOP1:  # false for NaN, too
        return
    words = f"the written model differs from the trained one (allowed: {MAX_KL:g} nats, {MIN_TOP1:.0%}); "
    hint = "after few steps an adapter may be lost in rounding to bf16: train longer, try --gguf, or report this"
    raise IntegrityError(words + in_words({form: found})[0], hint)


@torch.no_grad()
def log_probs(model: Any, texts: Sequence[Text]) -> torch.Tensor:
    """Return log-probabilities [positions, vocabulary] after each prompt and after each token of its answer."""
    model.eval()
    found = []
    for prompt, ids in texts:
        seen = torch.tensor([list(ids)], device=model.device)
        logits = model(input_ids=seen, logits_to_keep=len(ids) - prompt + 1).logits[0]
        found.append(logits.float().cpu().log_softmax(-1))
    return torch.cat(found)
