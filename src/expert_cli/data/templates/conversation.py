"""A conversation that goes through its chat template as it is, where a compiled one would not tell the truth.

Tools, calls of tools, reasoning and what a row gives the template are written by the template alone, and contents that it looks
into decide what it writes. The rendered text is the reference, as `apply_chat_template` gives it; what the template does not
show is refused, never lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from expert_cli.data.rows.columnar import BESIDE, KWARGS, TOOLS, Message
from expert_cli.data.templates.chat_template import require_read
from expert_cli.data.templates.loss_mask import TemplateCompiler
from expert_cli.data.templates.segment import Document
from expert_cli.data.templates.spans import Spans
from expert_cli.data.templates.talk import Talk
from expert_cli.data.templates.turns import hide_control, parse_arguments, spelled_arguments, template_turn


def needs_template(messages: Sequence[Message]) -> bool:
    """Whether turns have more than a role and a content."""
    return any(message.fields or message.role in BESIDE for message in messages)


def whole_document(compiler: TemplateCompiler, messages: Sequence[Message]) -> Document:
    """Return the document of a conversation that ends with an answer.

    Raises InputError: the template refuses the conversation, or does not show part of it.
    """
    talk = _talk(compiler, messages)
    spelled = [arguments for turn in talk.turns for arguments in spelled_arguments(turn)]
    if any(arguments not in talk.text or json.dumps(arguments) in talk.text for arguments in spelled):
        # given as JSON text and quoted once more: the template wants what the text spells
        talk = replace(talk, turns=[parse_arguments(turn) for turn in talk.turns])
    talk.require_shown()
    answers, ended = Spans(talk).answers()
    spans = sorted((*answers, *Spans(talk).others(answers)), key=attrgetter("start"))
    return tuple(talk.pieces(talk.text[: answers[-1].stop], spans, ended=ended))


def asking(compiler: TemplateCompiler, messages: Sequence[Message]) -> Document:
    """Return what the next answer of a conversation follows."""
    talk = _talk(compiler, messages)
    return tuple(talk.pieces(talk.rendered(len(talk.turns), generate=True), [], ended=True))


def _talk(compiler: TemplateCompiler, messages: Sequence[Message]) -> Talk:
    hidden: list[str] = []
    beside = {
        message.role: hide_control(json.loads(message.content), compiler.control, hidden)
        for message in messages
        if message.role in BESIDE
    }
    messages = [message for message in messages if message.role not in BESIDE]
    turns = [hide_control(template_turn(message), compiler.control, hidden) for message in messages]
    masks = compiler.trained.of_turns(messages)
    require_read(compiler.chat.jinja, beside.get(KWARGS, {}))
    return Talk(compiler, beside.get(TOOLS, []), beside.get(KWARGS, {}), turns, masks, hidden)
