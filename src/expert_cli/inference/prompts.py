"""Formats prompts as in training, and decodes answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from expert_cli.config.adapter_origin import AdapterOrigin
from expert_cli.config.run_config import RunConfig
from expert_cli.data.encode import Encoder
from expert_cli.data.templates.chat import Template
from expert_cli.data.templates.make_template import make_template
from expert_cli.errors import InputError
from expert_cli.inference.expert_config import read_decoding
from expert_cli.model.tokenizer import TokenizerInfo


class PromptRenderer:
    """Formats prompts as ids and decodes answers. end_ids: end a trained answer; stop_token_ids: end generation."""

    def __init__(self, tokenizer: TokenizerInfo, template: Template, stop_ids: Sequence[int] = ()) -> None:
        """Take tokenizer and template of training. stop_ids: ids at which generation stops; (): derived from both."""
        self.tokenizer, self.template = tokenizer, template
        self.hf, self.pad_id = tokenizer.hf, tokenizer.pad_id
        self._encoder = Encoder(template)
        self.end_ids = frozenset(self._encoder.ids(template.end_token))
        # the base model may use its own end tokens instead
        own = {tokenizer.eos_id, tokenizer.hf.eos_token_id, *tokenizer.ends} - {None}
        self.stop_token_ids = frozenset(stop_ids) or self.end_ids | own | {*self._encoder.ids(template.tool_token)}

    def spelled(self, ids: Iterable[int]) -> list[str]:
        """Return tokens as the tokenizer spells them."""
        return [str(self.tokenizer.backend.id_to_token(number)) for number in ids]

    @property
    def ends(self) -> list[int]:
        """The ids at which generation stops, the end token of training first."""
        return sorted(self.stop_token_ids, key=lambda number: (number not in self.end_ids, number))

    def encode_prompt(self, instruction: str, input_: str = "") -> list[int]:
        """Return the prompt of a row as ids."""
        return self.encode_messages([{"role": "user", "content": self.template.user_turn(instruction, input_)}])

    def encode_messages(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return a conversation with the generation prompt as ids."""
        return self._encoder.ids(self.template.prompt(messages))

    def ids(self, text: str) -> list[int]:
        """Return a text as ids, without a template."""
        return self._encoder.ids(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return an answer's text, with special tokens spelled out."""
        return str(self.tokenizer.backend.decode(list(ids), skip_special_tokens=False))


def prompt_template(run: RunConfig, tokenizer: TokenizerInfo, input_column: str) -> Template:
    """Return the template of a run. input_column: a name, on which alpaca's heading depends."""
    model, all_ = run.model, not run.data.completion_only
    asked: dict[str, Any] = {"given": model.chat_template, "system_prompt": model.system_prompt, "trains_all": all_}
    asked |= {"chat_template_kwargs": dict(model.chat_template_kwargs), "input_column": input_column}
    asked |= {"eos_token": tokenizer.eos_token, "bos_token": tokenizer.leading_token}
    return make_template(model.template, tokenizer.hf, **asked)


def trained_renderer(run: RunConfig, tokenizer: TokenizerInfo, origin: AdapterOrigin) -> PromptRenderer:
    """Return the renderer of training. Raises InputError if the manifest gives another template, or files are damaged."""
    kept = read_decoding(origin.expert_config).end_ids if origin.expert_config else ()
    run = replace(run, model=origin.prompting(run.model))
    written = [prompt_template(run, tokenizer, name) for name in (run.data.mapping.input or "input", "context")]
    for template in written:
        if origin.fits_template(template.fingerprint):
            return PromptRenderer(tokenizer, template, kept)
    told = f"{origin.adapter} was trained with the prompt template {origin.template}, the manifest gives"
    hint = 'set "prompt_template" of this base model as it was, or train again'
    raise InputError(f"{told} {written[0].fingerprint}", hint)


def base_renderer(run: RunConfig, origin: AdapterOrigin, tokenizer: TokenizerInfo) -> PromptRenderer:
    """Return the renderer for the base model alone: its own chat template with training's system prompt. Raises InputError."""
    asked = origin.prompting(run.model)
    given = () if asked.chat_template else asked.chat_template_kwargs
    own = replace(run, model=replace(asked, template="", chat_template="", chat_template_kwargs=given))
    return PromptRenderer(tokenizer, prompt_template(own, tokenizer, run.data.mapping.input or "input"))
