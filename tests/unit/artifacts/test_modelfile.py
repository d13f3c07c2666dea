"""A Modelfile says to Ollama what the manifest says."""

from __future__ import annotations

import pytest

from expert_cli.artifacts.gguf_writer import modelfile
from expert_cli.inference.expert_config import GenerationConfig
from tests.tiny import template_for, tiny_tokenizer

END, EOS = "<|im_end|>", "<|endoftext|>"


def written(*stops: str, system_prompt: str | None = None) -> str:
    template = template_for(tiny_tokenizer(chat_template=None), system_prompt=system_prompt)
    return modelfile("x.gguf", template, GenerationConfig(stops=stops), (END, EOS))


def read_stops(text: str) -> list[str]:
    """Read values as Ollama does (parser/parser.go): they end with the first line at whose end their quotes are closed."""
    found, value = [], None
    for line in text.splitlines(keepends=True):
        if value is None:
            value = line.removeprefix("PARAMETER stop ") if line.startswith("PARAMETER stop ") else None
        else:
            value += line
        bare = (value or "").strip(" \t\n")
        if bare and (not bare.startswith('"""') or (len(bare) >= 6 and bare.endswith('"""'))):
            found.append(bare[3:-3])
            value = None
    return found


@pytest.mark.parametrize("stop", ["\n\n", '"', '"\n', 'x"', '"""', "\\n", "a b", "é"], ids=repr)
def test_stop_sequences_reach_ollama_as_they_are(stop: str) -> None:
    assert read_stops(written(stop)) == [END, EOS, stop]


def test_braces_of_a_system_prompt_are_text_to_go() -> None:
    text = written(system_prompt="Fill {{name}}.")
    assert 'TEMPLATE """<|im_start|>system\nFill {{ "{{" }}name{{ "}}" }}.<|im_end|>\n' in text
    assert text.count("{{ .Prompt }}") == 1
