"""What becomes of `training.decoding`: what answers are held to, if to anything."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, NoReturn, get_args

from expert_cli.config.settings import Settings
from expert_cli.manifest.schema import Decoding
from expert_cli.manifest.types import GrammarType

JSON_GRAMMARS = ("json", "json-schema")


def decoding(written: Decoding) -> Settings[Decoding]:
    """Return the block, with what became of each of its keys noted."""
    keys = Settings(written)
    if not keys.use("use_grammar"):
        keys.leave("use_grammar is not true", "grammar_type", "json_schema")
    elif reason := unknown_grammar(written):
        keys.leave(reason, "use_grammar", "grammar_type", "json_schema")
    else:
        keys.use("grammar_type")
        if written.grammar_type in JSON_GRAMMARS:
            keys.use("json_schema")
        else:
            keys.leave(f"grammar_type {written.grammar_type} takes none", "json_schema")
    return keys


def known_grammar(written: Decoding) -> GrammarType | None:
    """Return what answers are held to; None for free text."""
    known: tuple[GrammarType, ...] = get_args(GrammarType)
    return next((name for name in known if written.use_grammar and name == written.grammar_type), None)


def unknown_grammar(written: Decoding) -> str:
    """Return why nothing holds answers where `use_grammar` is true; "" where something does."""
    if not written.use_grammar or known_grammar(written):
        return ""
    if written.grammar_type is None:
        return "grammar_type is not written"
    return f"nothing here holds answers to {written.grammar_type}"


def schema_fault(schema: Mapping[str, Any]) -> str:
    """Return why an object is no JSON Schema, "" where it is one, or where the package that knows is not installed.

    Nothing is fetched for it.
    """
    if find_spec("jsonschema_rs") is None:
        return ""
    import jsonschema_rs

    try:
        jsonschema_rs.validator_for(dict(schema), retriever=_retrieve)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        return f"is no JSON Schema: {str(error).splitlines()[0]}"
    return ""


def _retrieve(address: str) -> NoReturn:
    raise ValueError(f"{address} is not fetched: put its schema under $defs")
