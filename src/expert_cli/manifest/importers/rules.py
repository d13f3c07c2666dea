"""What may become of a key of another trainer: the words that the tables of the programs are written in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from expert_cli.manifest.importers.draft import Block, Draft
from expert_cli.manifest.spelling import typo_of

Rule = Callable[[Draft, str, Any], None]
Convert = Callable[[Any], Any]
OWN_TEMPLATE = "chat_template.jinja"
NOTHING: tuple[Any, ...] = (None, False, "", [], {})
"""Values that ask for nothing."""
NOT_CARRIED = "not carried over"


@dataclass(frozen=True)
class Program:
    """One trainer: how its configurations become manifests.

    model_key: names the base model in every configuration of it. keys: what becomes of each key. defaults: what it does
    where a file does not say, if something else happens here. finish: what several keys decide together.
    """

    name: str
    model_key: str
    keys: Mapping[str, Rule]
    finish: Callable[[Draft], None]
    defaults: Mapping[str, Any] = field(default_factory=dict)


def to(name: str, convert: Convert, block: Block = "config") -> Rule:
    """The key `name` of a block of the manifest. convert: raises ValueError with the reason for a value that has no like."""

    def rule(draft: Draft, key: str, value: Any) -> None:
        try:
            draft.put(key, block, name, convert(value))
        except ValueError as error:
            draft.lose(key, str(error), value)

    return rule


def unknown(key: str, known: Iterable[str]) -> str:
    """Return what is said of a key that no rule has, with the one that it misspells."""
    meant = typo_of(key, known)
    return f"{NOT_CARRIED}; did you mean {meant}?" if meant else NOT_CARRIED


def only(*values: Any, otherwise: str) -> Rule:
    """What happens here anyway, with one of these values; another one trains what is not trained here."""

    def rule(draft: Draft, key: str, value: Any) -> None:
        if value in values:
            draft.agree(key)
        else:
            draft.refuse(key, otherwise, value)

    return rule


def refused(reason: str) -> Rule:
    """Trains what is not trained here, unless it asks for nothing."""
    return only(*NOTHING, otherwise=reason)


def together(draft: Draft, key: str, value: Any) -> None:  # noqa: ARG001
    """Read by the program's `finish`, together with others."""
    draft.agree(key)


def number(value: Any) -> float:
    """Return a number. YAML 1.1 reads 2e-4, which has no point, as text."""
    try:
        read = float("" if isinstance(value, bool) else value)
    except (TypeError, ValueError) as error:
        raise ValueError("here it is a number") from error
    return int(read) if read.is_integer() else read


def whole(value: Any) -> int:
    """Return a whole number."""
    read = number(value)
    if not isinstance(read, int):
        raise ValueError("here it is a whole number")  # noqa: TRY004  the rules catch ValueError
    return read


def flag(value: Any) -> bool:
    """Return true or false."""
    words = {"true": True, "false": False}
    if str(value).lower() not in words:
        raise ValueError("here it is true or false")
    return words[str(value).lower()]


def text(value: Any) -> str:
    """Return a text as it is."""
    if not isinstance(value, str):
        raise ValueError("here it is a text")  # noqa: TRY004
    return value


def numbers(value: Any) -> dict[str, float]:
    """Return named numbers, of which those that are flags stay so."""
    if not isinstance(value, dict):
        raise ValueError("here it is an object")  # noqa: TRY004
    return {str(name): one if isinstance(one, bool) else number(one) for name, one in value.items()}


def values(value: Any) -> dict[str, Any]:
    """Return named values of any kind."""
    if not isinstance(value, dict):
        raise ValueError("here it is an object")  # noqa: TRY004
    return {str(name): one for name, one in value.items()}


def own_template(draft: Draft, key: str, value: Any) -> None:
    """A chat template in jinja: its text, which becomes a file beside the manifest, or the path of a file of it."""
    written = str(value)
    if "{" in written:
        draft.files[OWN_TEMPLATE] = written
    elif not written.endswith((".jinja", ".j2")):
        draft.lose(key, "a chat template is a file of jinja here, not another model's tokenizer", value)
        return
    path = OWN_TEMPLATE if "{" in written else draft.path(written)
    if draft.blocks["config"].get("chat_template_path", path) != path:
        draft.lose(key, "one template writes all rows", value)
        return
    draft.put(key, "config", "chat_template_path", path)
    draft.blocks["base"].pop("prompt_template", None)


def chosen(words: Mapping[str, str], otherwise: str) -> Convert:
    """Return a converter of their words to ours; one that neither side of `words` has has no like."""

    def convert(value: Any) -> str:
        word = str(value)
        if word not in words and word not in words.values():
            raise ValueError(otherwise)
        return words.get(word, word)

    return convert


def listed(value: Any) -> list[str]:
    """Return names, given as a list or with commas between them."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list):
        raise ValueError("here it is a list of names")  # noqa: TRY004
    return [str(name).strip() for name in names]
