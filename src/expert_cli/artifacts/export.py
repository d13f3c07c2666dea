"""An expert in the forms in which people use it: adapter, merged model, GGUF file with a Modelfile.

    output/  adapter_model.safetensors  adapter_config.json  base_model.json      (neither --merge nor --gguf)
             model.safetensors  config.json  generation_config.json    (--merge)
             expert-sql-q8_0.gguf  Modelfile                           (--gguf q8_0)
             expert.json  tokenizer.json ...  README.md
             schema.json                                       (the JSON Schema that answers are held to, where there is one)

A merged model and a GGUF file are loaded again and held against the trained model (`compare`).
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import ModelCard
from torch.nn.functional import kl_div
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from expert_cli.artifacts import model_card as cards
from expert_cli.artifacts.adapter import describe
from expert_cli.artifacts.gguf_writer import GgufType, require_writable, write_gguf
from expert_cli.artifacts.modelfile import modelfile
from expert_cli.config.adapter_origin import CONFIG, EXPERT_CONFIG, WEIGHTS
from expert_cli.config.plan import TrainedAdapter, require_new
from expert_cli.config.run_config import RunConfig
from expert_cli.data.store.documents import drawn_prompts
from expert_cli.errors import IntegrityError
from expert_cli.inference.base_model import load_base_of, locate_base
from expert_cli.inference.expert import Expert, PromptRenderer, open_expert, trained_template
from expert_cli.inference.expert_config import SAMPLING, ExpertConfig, decoding_for, expert_config
from expert_cli.model.loading.gguf import load_gguf, quiet
from expert_cli.model.tokenizer import load_tokenizer
from expert_cli.runs.metrics import read_json
from expert_cli.utils.files import json_text, sha256_of, write_json, write_text
from expert_cli.utils.paths import slug
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.verified_folder import VerifiedFolder, folder_beside

PROMPTS, TOKENS = 20, 8
"""Asked in the check, where fewer are given with training rows beside them; tokens of each answer that are compared."""
MAX_KL, MIN_TOP1 = 0.1, 0.8
"""Nats, and a share of places: what is beyond is another model than the trained one."""
Prompts = Sequence[tuple[str, str]]
"""(instruction, input) each."""
Text = tuple[int, Sequence[int]]
"""The length of a prompt; its ids with those of its answer."""


@dataclass(frozen=True)
class Agreement:
    """A written form beside the trained model, over the first tokens of that one's answers to `prompts` prompts.

    tokens: compared. top1: the share where both find the same token likeliest. max_kl: the largest Kullback-Leibler
    divergence of the written model's distribution of the next token from the trained model's, in nats.
    """

    prompts: int
    tokens: int
    top1: float
    max_kl: float


def in_words(agreement: Mapping[str, Agreement]) -> list[str]:
    """Return a line for each form."""
    return [
        f"{form}: the likeliest token is the trained model's in {one.top1:.1%} of {one.tokens} places of {one.prompts} "
        f"answers; largest KL divergence {one.max_kl:.2g} nats"
        for form, one in agreement.items()
    ]


@dataclass(frozen=True)
class Exported:
    """What lies in `output`, {"bytes", "sha256"} by name; agreement: form -> how it compares with the trained model."""

    output: Path
    files: Mapping[str, Mapping[str, Any]]
    facts: dict[str, Any]
    agreement: dict[str, Agreement]

    def as_json(self) -> dict[str, Any]:
        """Return what `export --json` prints."""
        files = [{"path": name, **entry} for name, entry in self.files.items()]
        agreement = {form: asdict(one) for form, one in self.agreement.items()}
        return {"agreement": agreement, "output": str(self.output), "files": files, **self.facts}


def export_expert(
    trained: TrainedAdapter, output: Path, prompts: Prompts, report: Reporter, *, merge: bool, gguf: GgufType | None
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
    forms = [*(["merged"] if merge else []), *([f"gguf {gguf}"] if gguf else [])]
    facts = {
        "expert": run.expert,
        "base_model": run.model.name,
        "base_sha256": source.sha256,
        "forms": forms or ["adapter"],
    }
    facts |= {"quantization": run.model.quantization, "adapter_sha256": sha256_of(adapter / WEIGHTS)}
    if gguf is not None:
        config = AutoConfig.from_pretrained(source.folder, local_files_only=True, trust_remote_code=False)
        require_writable(config, dict(run.model.rope_scaling), tokenizer)
    turns = sorted((renderer.format_user_turn(*prompt) for prompt in prompts), key=len)
    prompt = next((turn for turn in turns if "```" not in turn), cards.PROMPT)
    agreement: dict[str, Agreement] = {}
    with folder_beside(output) as beside:
        card, written = beside / "README.md", adapter / "README.md"
        text = written.read_text(encoding="utf-8") if written.is_file() else ""
        head: Any = ModelCard(text or cards.model_card(trained.plan, None, source.address))
        head.data.library_name = "transformers" if merge else "gguf" if gguf else "peft"
        write_text(card, str(head))
        if forms:
            agreement = _write_whole(trained, asked, beside, prompts, report, merge=merge, gguf=gguf)
            file = next((path.name for path in beside.glob("*.gguf")), "")
            cards.put_usage(card, asked, prompt, merged=merge, gguf=file, base=".", dtype="torch.bfloat16")
            cards.put_token_rows(card, read_json(adapter / CONFIG), tokenizer.hf, cards.ROWS_OF_WHOLE)
            write_text(beside / EXPERT_CONFIG, json_text(asked.as_json()))
        else:
            for name in (WEIGHTS, CONFIG):  # not the state of training beside a checkpoint's
                shutil.copyfile(adapter / name, beside / name)
            describe(beside, run, source, renderer, asked, prompt)
        grammar = asked.decoding.grammar
        if grammar is not None and grammar.json_schema is not None:
            write_json(beside / cards.SCHEMA, grammar.json_schema)
        form = f"the model with its adapter merged ({', '.join(forms)})" if forms else "the adapter"
        cards.put_files(card, [f"This folder holds {form}.", *(f"{line}." for line in in_words(agreement))])
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


def _write_whole(
    trained: TrainedAdapter,
    asked: ExpertConfig,
    folder: Path,
    prompts: Prompts,
    report: Reporter,
    *,
    merge: bool,
    gguf: GgufType | None,
) -> dict[str, Agreement]:
    """Write the model with its adapter in it, as asked; return how what was written compares. Raises as `compare` does."""
    run = trained.plan.run
    expert = _opened(trained, report)
    renderer, source, tokenizer = expert.renderer, expert.source, expert.renderer.tokenizer
    ids = [renderer.encode_prompt(*prompt) for prompt in prompts][:PROMPTS]
    ids += drawn_prompts(trained.origin.store, PROMPTS - len(ids), run.seed)
    texts = [_answered(expert, one) for one in ids or [list(range(3, 35))]]
    meant = log_probs(expert.model, texts)
    report.info("merging in fp32")
    model: Any = expert.model.merge_and_unload(safe_merge=True)
    del expert
    written: dict[str, Callable[[], Any]] = {}
    if merge:
        report.info("writing the merged model in bf16")
        _save_merged(model, source.folder, asked, run, folder)
        tokenizer.hf.chat_template = renderer.template.jinja
        tokenizer.hf.save_pretrained(folder)
        written["merged"] = lambda: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if gguf is not None:
        file = folder / f"{slug(run.expert)}-{gguf}.gguf"
        report.info(f"writing {file.name}")
        write_gguf(file, model, renderer, name=run.expert, kind=gguf)
        write_text(folder / "Modelfile", modelfile(file.name, renderer.template, asked))
        written["gguf"] = lambda: load_gguf(file, torch.float32)
    del model
    agreement = {}
    for form, load in written.items():
        gc.collect()
        report.info(f"comparing {form} with the trained model")
        with quiet():
            agreement[form] = compare(form, load().to(run.compute.device), texts, meant)
    return agreement


def compare(form: str, written: Any, texts: Sequence[Text], meant: torch.Tensor) -> Agreement:
    """Hold a written model against the trained model's log-probabilities. Raises IntegrityError where it is another one."""
    found = log_probs(written, texts)
    kl = float(kl_div(found, meant, reduction="none", log_target=True).sum(-1).max())
    top1 = float((found.argmax(-1) == meant.argmax(-1)).float().mean())
    agreement = Agreement(len(texts), len(meant), top1, kl)
    if kl <= MAX_KL and top1 >= MIN_TOP1:  # a number that is none is neither
        return agreement
    raise IntegrityError(
        f"what was written is not what was trained (at most {MAX_KL:g} nats, at least {MIN_TOP1:.0%}); "
        + in_words({form: agreement})[0],
        "report this with the base model's name; nothing was written",
    )


@torch.no_grad()
def log_probs(model: Any, texts: Sequence[Text]) -> torch.Tensor:
    """Return log-probabilities [places, vocabulary] of what follows each prompt, and each token of its answer."""
    model.eval()
    found = []
    for prompt, ids in texts:
        given = torch.tensor([list(ids)], device=model.device)
        logits = model(input_ids=given, logits_to_keep=len(ids) - prompt + 1).logits[0]
        found.append(logits.float().cpu().log_softmax(-1))
    return torch.cat(found)


def _answered(expert: Expert, ids: Sequence[int]) -> Text:
    """Return a prompt with the first tokens of an expert's answer, but the last."""
    renderer, given = expert.renderer, torch.tensor([list(ids)], device=expert.model.device)
    ends = {"eos_token_id": [*renderer.stop_token_ids], "pad_token_id": renderer.tokenizer.pad_id}
    settings = GenerationConfig(max_new_tokens=TOKENS, do_sample=False, **ends)
    with quiet():
        written = expert.model.generate(
            input_ids=given, attention_mask=torch.ones_like(given), generation_config=settings
        )
    return len(ids), written[0, :-1].tolist()


def _opened(trained: TrainedAdapter, report: Reporter) -> Expert:
    """Return the base model in fp32 with the adapter on it.

    It stands on 4-bit weights as training saw them, else on the base model's own. What 4-bit weights are depends on the
    dtype they had when they were quantized and unpacked: of weights stored in fp32 one code in a hundred is another one in
    bf16. So it is the dtype of training, whatever this machine would choose.
    """
    run = trained.plan.run
    is_int4 = run.model.quantization == "int4"
    compute = replace(run.compute, dtype=(trained.origin.dtype or run.compute.dtype) if is_int4 else "fp32")
    exact = replace(run, model=replace(run.model, quantization="int4" if is_int4 else "none"), compute=compute)
    return open_expert(exact, trained.origin, report, widened=True)


def _save_merged(model: Any, base: Path, asked: ExpertConfig, run: RunConfig, folder: Path) -> None:
    """Save the merged weights in bf16, in a model that never was quantized: nothing of that is left in its config.

    It stops where the expert does, and is drawn from as its decoding says, greedily where that says nothing, whatever the base
    model's own generation_config.json says. Stop sequences are not written there: transformers' generate() then asks every
    caller for a tokenizer.
    """
    plain = replace(run, model=replace(run.model, quantization="none"), compute=replace(run.compute, dtype="bf16"))
    dense = load_base_of(plain, base)
    dense.load_state_dict({name: value.bfloat16() for name, value in model.state_dict().items()})
    dense.config.use_cache = True
    drawn = asked.decoding.sampling() if asked.decoding.temperature else {}
    dense.generation_config.update(
        eos_token_id=list(asked.end_tokens.values()),
        do_sample=bool(drawn),
        num_beams=None if drawn else asked.decoding.num_beams,
        **{name: drawn.get(name) for name in SAMPLING},
    )
    with quiet():
        dense.save_pretrained(folder)
