"""`expert-cli schema`."""

from __future__ import annotations

import json

from expert_cli.commands.options import Debug, Json
from expert_cli.console import Console


def schema(as_json: Json = False, debug: Debug = False) -> None:  # noqa: ARG001  --debug is read by cli.main
    """Print the manifest's JSON Schema, for editors and other programs.

    Examples:

        expert-cli schema > manifest.schema.json

        expert-cli schema --json
    """
    from expert_cli.manifest.schema import Manifest

    console = Console("schema", as_json=as_json)
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Manifest.model_json_schema()}
    if as_json:
        console.document({"schema": document})
    else:
        console.text(json.dumps(document, indent=2))
