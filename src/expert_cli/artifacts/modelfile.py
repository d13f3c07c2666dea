"""An Ollama Modelfile: how a GGUF file is prompted, taken from the template of training."""

from __future__ import annotations

import re

from expert_cli.data.templates.chat import Template
from expert_cli.errors import ExpertError, InputError
from expert_cli.inference.expert_config import ExpertConfig


def modelfile(gguf_name: str, template: Template, asked: ExpertConfig) -> str:
    """Return the Modelfile; where no temperature is written, answers are greedy.

    Raises InputError for a stop sequence that no quoting carries.
    """
    place = "\ue000"
    text = template.prompt([{"role": "user", "content": place}]).removeprefix(template.bos_token)
    if text.count(place) != 1 or '"""' in text:
        raise ExpertError(f"the template {template.name} cannot be written into a Modelfile")
    # braces would open or close an action in Go's template language
    text = re.sub(r"\{\{|\}\}", lambda braces: f'{{{{ "{braces[0]}" }}}}', text).replace(place, "{{ .Prompt }}")
    values = {"temperature": 0, **asked.decoding.sampling()}
    stops = [*asked.end_tokens, *asked.decoding.stop_sequences]
    for stop in [one for one in stops if re.search('"""[\\r\\n]', one)]:
        words = "take it out of training.decoding.stop_sequences, or use --merge"
        raise InputError(f"the stop sequence {stop!r} cannot be written into a Modelfile", words)
    lines = [
        f"FROM ./{gguf_name}",
        f'TEMPLATE """{text}"""',
        *(f"PARAMETER {name} {value:g}" for name, value in values.items()),
        # Ollama (parser/parser.go, unquote) takes off the quotes and undoes no escape: line feeds and quotes stand raw
        *(f'PARAMETER stop """{stop}"""' for stop in dict.fromkeys(stops)),
    ]
    return "\n".join(lines) + "\n"
