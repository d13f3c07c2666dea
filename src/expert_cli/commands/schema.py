"""`expert-cli schema`."""

from __future__ import annotations

import json
from typing import Any

from expert_cli.console.terminal import Console


def schema(console: Console) -> None:
    """Print the JSON Schema of manifests, for editors and other programs.

    Examples:

        expert-cli schema > manifest.schema.json
        expert-cli schema --json
    """
    document = manifest_schema()
    console.result({"schema": document}, lambda: console.text(json.dumps(document, indent=2)))


def manifest_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a manifest; keys that start with "_" are comments everywhere."""
    from expert_cli.manifest.schema import Manifest

    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Manifest.model_json_schema()}
    _allow_comments(document)
    return document


def _allow_comments(node: Any) -> None:
    if isinstance(node, list):
        for item in node:
            _allow_comments(item)
    elif isinstance(node, dict):
        for item in node.values():
            _allow_comments(item)
        if node.get("type") == "object":
            node["patternProperties"] = {"^_": True}
