r"""Rows become documents: pieces of text that are the template's or the user's, trained or not.

A row of ChatML, as it leaves here (C = the template's, control tokens count; U = the user's, they do not; * = trained):

    C "<|im_start|>"  U "user\nHow many?\n\nCREATE TABLE …"  C "<|im_end|>\n<|im_start|>assistant\n"
    U*"SELECT count(*) …"  C*"<|im_end|>"
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from expert_cli.data.rows.columnar import Message, Rows
from expert_cli.data.templates.builtin import ALPACA, STYLES, BuiltinTemplate
from expert_cli.data.templates.chat_template import OWN, ChatTemplate, as_trained
from expert_cli.data.templates.conversation import asking, needs_template, whole_document
from expert_cli.data.templates.loss_mask import TemplateCompiler
from expert_cli.data.templates.segment import Document
from expert_cli.data.templates.spans import THINKING
from expert_cli.data.templates.trained import ANSWERS, BY_DEFAULT, TrainedTurns
from expert_cli.data.templates.whole_text import TextReader
from expert_cli.errors import InputError
from expert_cli.utils.chat_rendering import render_safely

_PAIR = ("user", "assistant")
SCHEMA_COLUMNS = ("schema", "context")
"""Columns that alpaca heads "### Schema:"; an input from any other is headed "### Input:"."""


@dataclass(frozen=True)
class Template:
    """How rows are written down: one and the same for training, evaluation and generation.

    `name` says which template it is; `end_token` closes every trained answer and is what generation must stop at (it
    need not be the tokenizer's eos token). `chat_template`: the jinja text that writes the same for other programs.
    `system_prompt`: as written, None = not written; `chat_template_kwargs`: as written. `given`:
    the manifest's own template as it came, "" = none. Built by `make_template`.
    """

    name: str
    end_token: str
    input_separator: str
    chat_template: str
    system_prompt: str | None
    chat_template_kwargs: Mapping[str, Any]
    given: str
    compiler: TemplateCompiler

    @property
    def fingerprint(self) -> str:
        """What tells this template from another one for the same tokenizer: its name, end token, joint, what it is given."""
        parts = [self.name, repr(self.end_token), repr(self.input_separator)]
        if self.system_prompt is not None:
            parts.append(f"system {self.system_prompt!r}")
        if self.chat_template_kwargs:
            parts.append(f"kwargs {json.dumps(self.chat_template_kwargs, sort_keys=True)}")
        return ", ".join(parts)

    @property
    def thought(self) -> bool:
        """Whether any answer so far was trained with its reasoning, which `prompt` does not ask for."""
        return THINKING in self.compiler.reads

    @property
    def heads_input(self) -> bool:
        """Whether the input of a pair gets a heading, which depends on what its column is called."""
        return self.name == "alpaca"

    def documents(self, rows: Rows, *, forms: dict[str, int] | None = None) -> list[Document]:
        """Return one document a row; each ends with an end token.

        Instruction and input make one user turn. Of conversations those turns are trained that the run trains by role
        and place, unless they say otherwise. Whole texts: their control tokens are trusted, the assistant turns of a known form
        are trained, otherwise everything; how many rows have which form ("chatml", ..., "plain") is added to `forms`. Raises
        InputError if the template refuses a row, or does not show all of it.
        """
        return rows.documents(self, {} if forms is None else forms)

    def refused(self, rows: Rows) -> dict[int, str]:
        """Return which rows cannot be written down, and why. Roles alone decide where the template looks into no text."""
        found: dict[int, str] = {}
        reasons: dict[object, str] = {}
        for number, turns in enumerate(rows.conversations(self)):
            looked_into = self._goes_through_template(turns)
            alike = number if looked_into else tuple((turn.role, turn.trained) for turn in turns)
            if alike not in reasons:
                reasons[alike] = self._refusal(turns)
            if reasons[alike]:
                found[number] = reasons[alike]
        return found

    def prompt(self, instruction: str, input: str = "") -> Document:  # noqa: A002  the row's own word for it
        """Return what generation starts from: the document of such a row up to its answer."""
        return self.prompt_messages([Message("user", self.user_turn(instruction, input))])

    def prompt_messages(self, messages: Sequence[Message]) -> Document:
        """Return the conversation so far, ready for the next assistant turn."""
        if self._goes_through_template(messages):
            return asking(self.compiler, messages)
        compiled = self.compiler.compiled((*(m.role for m in messages), "assistant"))
        return compiled.fill([m.content for m in messages], with_answer=False)

    def user_turn(self, instruction: str, input_: str = "") -> str:
        """Return instruction and input as one turn's text."""
        return f"{instruction}{self.input_separator}{input_}" if input_ else instruction

    @cached_property
    def texts(self) -> TextReader:
        """Reads whole documents. Raises InputError: other turns than answers are to be trained, which are not found in them."""
        if self.compiler.trained.roles != ANSWERS:
            raise InputError(
                f"roles_to_train is {', '.join(self.compiler.trained.roles)}, but of whole texts the answers alone are found",
                'Leave roles_to_train out, or give rows of "messages".',
            )
        return TextReader(self.compiler, self.end_token)

    def pair(self, asked: str, answer: str, origin: str) -> Document:
        """Return the document of a user turn and its answer. Raises InputError; see `documents`."""
        if self.compiler.watched.occurs((asked, answer)):
            return self.conversation((Message("user", asked), Message("assistant", answer)), origin)
        return self.compiler.compiled(_PAIR).fill((asked, answer), with_answer=True)

    def _refusal(self, turns: tuple[Message, ...]) -> str:
        """Why a conversation cannot be written down, "" if it can."""
        try:
            self.conversation(turns, "")
        except InputError as error:
            return error.message.removeprefix(": ")
        return ""

    def conversation(self, messages: tuple[Message, ...], origin: str) -> Document:
        """Return the document of a conversation. Raises InputError; see `documents`."""
        roles = tuple(m.role for m in messages)
        if roles[-1:] != ("assistant",):
            raise InputError(
                f"{origin}: the conversation ends with {roles[-1] if roles else 'nothing'}, not with an assistant turn",
                "Remove what follows the last answer, or the whole row.",
            )
        try:
            return self._written(messages)
        except InputError as error:
            raise InputError(f"{origin}: {error.message}", error.hint) from error

    def _written(self, messages: tuple[Message, ...]) -> Document:
        if needs_template(messages):
            return whole_document(self.compiler, messages)
        masks = self.compiler.trained.of_turns(messages)
        compiled = self.compiler.compiled(tuple(m.role for m in messages), masks)
        if self._goes_through_template(messages):
            return whole_document(self.compiler, messages)
        return compiled.fill([m.content for m in messages], with_answer=True)

    def _goes_through_template(self, messages: Sequence[Message]) -> bool:
        if needs_template(messages) or self.compiler.watched.occurs([m.content for m in messages]):
            return True
        roles = tuple(m.role for m in messages)
        try:
            return not self.compiler.as_given(roles if roles[-1:] == ("assistant",) else (*roles, "assistant"))
        except InputError:  # the compiled template says why
            return False


def make_template(  # noqa: PLR0913  what a template is made of, each by its name
    name: str,
    *,
    own: ChatTemplate | None,
    control_tokens: Collection[str],
    eos_token: str,
    bos_token: str = "",
    system_prompt: str | None = None,
    chat_template_kwargs: Mapping[str, Any] = MappingProxyType({}),
    trained: TrainedTurns = BY_DEFAULT,
    input_column: str = "",
) -> Template:
    """Choose the prompt template that `name` means for this tokenizer.

    name: "" = the tokenizer's own chat template (`own`), else alpaca. A named chat template gives way to the tokenizer's
    own if that writes a user turn in the same form.
    control_tokens: the tokenizer's, as spelled. bos_token: what the tokenizer itself puts before a text ("" = nothing);
    it stands there exactly once. `tokenize/encoder.py` asks a tokenizer for both. system_prompt, chat_template_kwargs: as
    `as_trained` takes them.
    input_column: alpaca heads a column called schema or context "### Schema:".
    Raises InputError: an unknown name; control tokens that the tokenizer lacks (an end token spelled in plain tokens
    would be learned as text, and nothing would stop generation); no end token; a chat template that loses text, or cannot
    do what the system prompt asks.
    trained: which turns are.
    """
    control = frozenset(control_tokens)
    if name and name not in STYLES:
        raise InputError(f"unknown prompt template {name!r}", f"Use one of: {', '.join(sorted(STYLES))}.")
    if eos_token not in control:
        raise InputError(
            f"the tokenizer's end token {eos_token!r} is not one of its control tokens",
            "Without one the model cannot learn to stop: use a base model whose tokenizer has an end token.",
        )
    style = STYLES[name or "alpaca"]
    input_separator = "\n\n"
    if own and (not name or _speaks(own, style)):
        title, chat = own.name, own
    else:
        title, chat = name or "alpaca", style.chat_template(eos_token)
        _require_control_tokens(title, style, control)
        if style is ALPACA:
            input_separator = input_heading(input_column)
    chat = as_trained(
        chat, system_prompt=system_prompt, kwargs=chat_template_kwargs, control_tokens=control, bos_token=bos_token
    )
    compiler = TemplateCompiler(chat, control, eos_token, bos_token, trained)
    pair = compiler.compiled(_PAIR)
    given = own.jinja if own and own.name != OWN else ""
    return Template(
        title, pair.end_token, input_separator, chat.jinja, system_prompt, chat_template_kwargs, given, compiler
    )


def input_heading(column: str) -> str:
    """Return what alpaca puts between an instruction and an input that stood in a column of that name."""
    return f"\n\n### {'Schema' if column.lower() in SCHEMA_COLUMNS else 'Input'}:\n"


def _require_control_tokens(name: str, style: BuiltinTemplate, control: frozenset[str]) -> None:
    missing = [token for token in style.control if token not in control]
    if missing:
        usable = sorted(n for n, s in STYLES.items() if control.issuperset(s.control))
        raise InputError(
            f"prompt template {name!r} needs control tokens that this tokenizer does not have: {' '.join(missing)}",
            f"Leave prompt_template out (the tokenizer's own, else alpaca), or use one of: {', '.join(usable)}.",
        )


def _speaks(own: ChatTemplate, style: BuiltinTemplate) -> bool:
    """Whether a chat template writes a user turn and the generation prompt as `style` does, but for white space."""
    if style is ALPACA:
        return False
    wanted = f"{style.user[0]}\ue000{style.user[1]}{style.assistant}"
    try:
        text = render_safely(own, [{"role": "user", "content": "\ue000"}], True)
    except InputError:
        return False
    return "".join(wanted.split()) in "".join(text.split())
