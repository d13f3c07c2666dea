"""Chat templates of published models, and shorter ones that do one thing of them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tests.tiny import CHATML

QWEN3 = (Path(__file__).parent / "golden" / "qwen3.jinja").read_text(encoding="utf-8")
"""Of Qwen3, whole (Apache-2.0)."""


def of_trl(name: str) -> str:
    """Return a published template as trl brings it."""
    found = find_spec("trl")
    assert found
    assert found.origin
    return Path(found.origin).with_name("chat_templates").joinpath(f"{name}.jinja").read_text(encoding="utf-8")


# As published: SmolLM2, Qwen2.5 (its part without tools), Llama 3.1 (likewise), Gemma 2, Mistral 7B v0.1.
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
QWEN25 = (
    "{%- if messages[0]['role'] == 'system' %}\n"
    "    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}\n"
    "{%- else %}\n"
    "    {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud.<|im_end|>\\n' }}\n"
    "{%- endif %}\n"
    "{%- for message in messages %}\n"
    "    {%- if (message.role == 'user') or (message.role == 'system' and not loop.first) or message.role == 'assistant' %}\n"
    "        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|im_start|>assistant\\n' }}\n"
    "{%- endif %}\n"
)
LLAMA31 = (
    "{{- '<s>' }}\n"
    "{%- if messages[0]['role'] == 'system' %}\n"
    "    {%- set system_message = messages[0]['content']|trim %}\n"
    "    {%- set messages = messages[1:] %}\n"
    "{%- else %}\n"
    '    {%- set system_message = "" %}\n'
    "{%- endif %}\n"
    '{{- "<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: December 2023\\n\\n" }}\n'
    "{{- system_message }}\n"
    '{{- "<|eot_id|>" }}\n'
    "{%- for message in messages %}\n"
    "    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n"
    "{%- endif %}\n"
)
GEMMA2 = (
    "{{ '<s>' }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
)
MISTRAL = (
    "{{ '<s>' }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] + '</s>' }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
)
THINKING = (
    CHATML + "{% if add_generation_prompt and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
)
# The generation prompt opens a think block: of QwQ, whose answers need not have one, and of Qwen3-Thinking, whose have.
QWQ = (
    "{%- for message in messages %}"
    "{%- if message.role == 'assistant' and not loop.last %}"
    "{%- set content = message.content.split('</think>')[-1].lstrip('\n') %}"
    "{%- else %}{%- set content = message.content %}{%- endif %}"
    "{{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n' }}{%- endif %}"
)
ALWAYS_THINKING = (
    "{%- for message in messages %}"
    "{%- if message.role == 'assistant' %}"
    "{%- set content = message.content.split('</think>')[-1].lstrip('\n') %}"
    "{%- set reasoning = '' %}{%- if '</think>' in message.content %}"
    "{%- set reasoning = message.content.split('</think>')[0].split('<think>')[-1].strip('\n') %}{%- endif %}"
    "{{- '<|im_start|>assistant\n<think>\n' + reasoning + '\n</think>\n\n' + content + '<|im_end|>\n' }}"
    "{%- else %}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n' }}{%- endif %}"
)
# Of DeepSeek-R1: what an answer thinks is never written again.
FORGETTING = CHATML.replace("message['content']", "message['content'].split('</think>')[-1]")
DATED = "{{ '<|im_start|>system\nToday is ' + strftime_now('%d %b %Y') + '.<|im_end|>\n' }}" + CHATML
PUBLISHED = {
    "smollm2": SMOLLM2,
    "qwen2.5": QWEN25,
    "qwen3": QWEN3,
    "llama 3.1": LLAMA31,
    "gemma 2": GEMMA2,
    "mistral": MISTRAL,
    "thinking": THINKING,
    "qwq": QWQ,
    "always thinking": ALWAYS_THINKING,
    "dated": DATED,
}
