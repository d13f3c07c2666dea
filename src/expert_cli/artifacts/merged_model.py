"""A base model with its adapter in it, in one file or folder, and the check that it is the model that was trained.

Two things are compared, each with base model and adapter: the logits after every prompt, which may differ by the rounding of
the stored weights alone (`rounding.py`), and the answers.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from expert_cli.artifacts.gguf_writer import GgufType, write_gguf
from expert_cli.artifacts.modelfile import modelfile
from expert_cli.artifacts.rounding import Difference, StoredType, compare_logits, last_logits
from expert_cli.config.plan import TrainedAdapter
from expert_cli.config.run_config import RunConfig
from expert_cli.data.store.documents import drawn_prompts
from expert_cli.errors import IntegrityError
from expert_cli.inference.base_model import load_base_of
from expert_cli.inference.expert import PromptRenderer, load_adapted, open_expert
from expert_cli.inference.expert_config import SAMPLING, ExpertConfig
from expert_cli.inference.generate import Request, generate
from expert_cli.inference.generation_config import GenerationConfig
from expert_cli.manifest.types import Dtype, Quantization
from expert_cli.model.loading.gguf import load_gguf, quiet
from expert_cli.model.loading.sources import LocalModel
from expert_cli.model.tokenizer import TokenizerInfo
from expert_cli.utils.files import write_text
from expert_cli.utils.paths import slug
from expert_cli.utils.reporter import Reporter

CHECK_TOKENS = 64
"""Of each answer, compared."""
TRAINING_PROMPTS = 20
"""Asked where no others are given."""
Prompts = Sequence[tuple[str, str]]
"""(instruction, input) each."""


@dataclass(frozen=True)
class Agreement:
    """A written form, held against base model and adapter: how many of the answers are the same, how far logits differ."""

    prompts: int
    same: int
    logits: Difference

    def as_json(self) -> dict[str, Any]:
        """Return the entry under "agreement"; the differences are relative."""
        logits = {"difference": self.logits.found, "rounding": self.logits.rounding}
        return {"prompts": self.prompts, "same": self.same, "logits": logits}


def in_words(agreement: Mapping[str, Agreement]) -> list[str]:
    """Return a line for each form: how far it is from base model and adapter, and whether its answers are theirs."""
    return [
        f"{form}: logits differ from those of base model and adapter by {one.logits.found:.2%}, rounding alone makes "
        f"{one.logits.rounding:.2%}; {one.same} of {one.prompts} answers are the same in their first {CHECK_TOKENS} tokens"
        for form, one in agreement.items()
    ]


def write_whole(
    trained: TrainedAdapter,
    tokenizer: TokenizerInfo,
    config: ExpertConfig,
    folder: Path,
    prompts: Prompts,
    report: Reporter,
    *,
    merge: bool,
    gguf: GgufType | None,
) -> dict[str, Agreement]:
    """Write the model with its adapter in it, as asked; return the agreements. config: how the expert is asked.

    Raises IntegrityError where what was written is not that model.
    """
    run = trained.plan.run
    expert = open_expert(run, trained.origin, report)
    renderer, source = expert.renderer, expert.source
    ids = [renderer.encode_prompt(*prompt) for prompt in prompts]
    ids = ids or drawn_prompts(trained.origin.store, TRAINING_PROMPTS, run.seed)
    asked = _Asked(renderer, ids, report)
    before = asked.answers(expert.model, "base model and adapter")
    del expert
    gc.collect()
    model, meant = _merged(trained, source, asked.probes, report)
    if merge:
        _save_merged(model, source, config, run, folder, report)
        tokenizer.hf.save_pretrained(folder)
    if gguf is not None:
        file = folder / f"{slug(run.expert)}-{gguf}.gguf"
        report.info(f"writing {file.name}")
        write_gguf(file, model, tokenizer, name=run.expert, kind=gguf, end_token=renderer.template.end_token)
        write_text(folder / "Modelfile", modelfile(file.name, renderer.template, config))
    del model
    gc.collect()
    agreement: dict[str, Agreement] = {}
    if merge:
        written = _dense(folder, run, "fp32")
        agreement["merged"] = asked.agreement(written, before, meant, "merged model", "bf16")
        del written
        gc.collect()
    if gguf is not None:
        written = load_gguf(file, torch.float32).to(run.compute.device)
        agreement["gguf"] = asked.agreement(written, before, meant, "GGUF file", gguf)
    return agreement


@dataclass(frozen=True)
class _Asked:
    """Prompts as ids, and who reads the answers."""

    renderer: PromptRenderer
    ids: Sequence[Sequence[int]]
    report: Reporter

    @property
    def probes(self) -> Sequence[Sequence[int]]:
        """What logits are compared after: there is always something."""
        return self.ids or [list(range(3, 35))]

    def answers(self, model: Any, title: str) -> list[str]:
        """Return what the model answers, as text."""
        if not self.ids:
            return []
        with self.report.progress(title, len(self.ids), "answers") as bar:
            settings = GenerationConfig(CHECK_TOKENS, batch_size=len(self.ids))
            requests = [Request(ids) for ids in self.ids]
            written = generate(model, requests, settings, self.renderer, lambda done, _: bar.update(done))
        return [self.renderer.decode(one.ids) for (one,) in written]

    def agreement(
        self, written: Any, before: Sequence[str], meant: torch.Tensor, title: str, kind: StoredType
    ) -> Agreement:
        """Let a written model answer, then compare its logits. Raises IntegrityError where it is another model."""
        after = self.answers(written, title)
        logits = compare_logits(meant, written, self.probes, kind)
        if not logits.is_rounding:
            raise IntegrityError(
                f"the {title} is not base model and adapter: its logits differ by {logits.found:.2%}, rounding its weights to "
                f"{kind} makes {logits.rounding:.2%}",
                "report this with the base model's name; nothing was written",
            )
        return Agreement(len(before), sum(a == b for a, b in zip(before, after, strict=True)), logits)


def _merged(
    trained: TrainedAdapter, source: LocalModel, probes: Sequence[Sequence[int]], report: Reporter
) -> tuple[Any, torch.Tensor]:
    """Return the base model in fp32 with the adapter added, and the logits of the two before they were one.

    It is added to 4-bit weights as training saw them, else to the base model's own. What 4-bit weights are depends on the
    dtype they had when they were quantized and unpacked: of weights stored in fp32 one code in a hundred is another one in
    bf16. So it is the dtype of training, whatever this machine would choose.
    """
    report.info("merging in fp32")
    run, seen = trained.plan.run, trained.origin.dtype or trained.plan.run.compute.dtype
    quantization: Quantization = "int4" if run.model.quantization == "int4" else "none"
    compute = replace(run.compute, dtype=seen if quantization == "int4" else "fp32")
    exact = replace(run, model=replace(run.model, quantization=quantization), compute=compute)
    adapted = load_adapted(exact, source, trained.origin.adapter, widened=True)
    meant = last_logits(adapted, probes)
    return adapted.merge_and_unload(safe_merge=True), meant


def _save_merged(
    model: Any, source: LocalModel, config: ExpertConfig, run: RunConfig, folder: Path, report: Reporter
) -> None:
    """Save the merged weights in bf16, in a model that never was quantized: nothing of that is left in its config.

    It stops where the expert does, and is drawn from as its decoding says, greedily where that says nothing, whatever the base
    model's own generation_config.json says. Stop sequences are not written there: transformers' generate() then asks every
    caller for a tokenizer.
    """
    report.info("writing the merged model in bf16")
    plain = _dense(source.folder, run, "bf16")
    plain.load_state_dict({name: value.bfloat16() for name, value in model.state_dict().items()})
    plain.config.use_cache = True
    drawn = config.decoding.sampling()
    plain.generation_config.update(
        eos_token_id=list(config.end_tokens.values()),
        do_sample=bool(drawn.get("temperature")),
        num_beams=None if drawn.get("temperature") else config.decoding.num_beams,
        **{name: drawn.get(name) if drawn.get("temperature") else None for name in SAMPLING},
    )
    with quiet():
        plain.save_pretrained(folder)


def _dense(folder: Path, run: RunConfig, dtype: Dtype) -> Any:
    plain = replace(run, model=replace(run.model, quantization="none"), compute=replace(run.compute, dtype=dtype))
    return load_base_of(plain, folder)
