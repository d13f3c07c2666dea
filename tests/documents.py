"""Conversations as the one `Row` that training knows, and what templates make of them, with brackets around what is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from expert_cli._compat import unmarked
from expert_cli.data.rows import Row
from expert_cli.data.templates.chat import Template
from expert_cli.data.templates.mask import Rendered


def talk(*turns: tuple[str, str] | dict[str, Any], trained: Sequence[bool] = (), **more: Any) -> Row:
    """Return a conversation of turns (role, content), or of whole messages."""
    messages = [{"role": turn[0], "content": turn[1]} if isinstance(turn, tuple) else turn for turn in turns]
    return Row("x:1", messages, trained or [turn["role"] == "assistant" for turn in messages], **more)


def shown(document: Rendered) -> str:
    """Return a document with ⟦ and ⟧ around what is trained."""
    marked = "".join(f"⟦{text}⟧" if trained else text for text, trained in document)
    return unmarked(marked.replace("⟧⟦", ""))


def written(template: Template, row: Row) -> list[str]:
    """Return the documents of a row. Fails where the template refuses it."""
    (documents,) = template.documents([row])
    assert not isinstance(documents, str), documents
    return list(map(shown, documents))


def refusal(template: Template, row: Row) -> str:
    """Return why a template refuses a row. Fails where it does not."""
    (reason,) = template.documents([row])
    assert isinstance(reason, str), reason
    return reason
