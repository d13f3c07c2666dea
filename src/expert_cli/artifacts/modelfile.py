"""An Ollama Modelfile: how a GGUF file is prompted, taken from the template of training."""

from __future__ import annotations

import json

from expert_cli.data.templates import Template
from expert_cli.errors import ExpertError
from expert_cli.manifest.schema import Decoding

_PLACE = "\ue000"


def modelfile(gguf_name: str, template: Template, decoding: Decoding | None) -> str:
    """Return the Modelfile; without the manifest's decoding, answers are greedy."""
    text = "".join(segment.text for segment in template.prompt(_PLACE)).removeprefix(template.carver.bos_token)
    if text.count(_PLACE) != 1 or '"""' in text:
        raise ExpertError(f"the template {template.name} cannot be written into a Modelfile")
    written = {name: getattr(decoding or Decoding(), name) for name in ("temperature", "top_p", "top_k", "min_p")}
    values = {name: value for name, value in written.items() if value is not None} or {"temperature": 0}
    stops = [template.end_token, *((decoding.stop_sequences or []) if decoding else [])]
    lines = [
        f"FROM ./{gguf_name}",
        f'TEMPLATE """{text.replace(_PLACE, "{{ .Prompt }}")}"""',
        *(f"PARAMETER {name} {value:g}" for name, value in values.items()),
        *(f"PARAMETER stop {json.dumps(stop, ensure_ascii=False)}" for stop in dict.fromkeys(stops)),
    ]
    return "\n".join(lines) + "\n"
