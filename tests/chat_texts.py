"""Conversations as published chat templates write them, by the form that they are read as.

What is trained stands in brackets, and <END> is the end token that the text itself does not have.
"""

from __future__ import annotations

END = "<END>"
CHATML = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
HARMONY = "<|start|>system<|message|>s<|end|><|start|>user<|message|>q<|end|>"
COMMAND_R = "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>q<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"
PUBLISHED = {
    "chatml": {
        "Qwen, Yi, InternLM 2": f"{CHATML}⟦a<|im_end|>⟧\n{CHATML}⟦b<|im_end|>⟧\n",
        "Phi-4": "<|im_start|>system<|im_sep|>s<|im_end|><|im_start|>user<|im_sep|>q<|im_end|>"
        "<|im_start|>assistant<|im_sep|>⟦a<|im_end|>⟧<|im_start|>user<|im_sep|>r<|im_end|>"
        "<|im_start|>assistant<|im_sep|>⟦b<|im_end|>⟧",
        "control tokens in an answer": f"{CHATML}⟦<think>\nr\n</think>\n\na<|fim_middle|>b\n"
        '<tool_call>\n{"name": "f"}\n</tool_call><|im_end|>⟧\n<|im_start|>user\n<tool_response>\n4\n</tool_response>'
        "<|im_end|>\n<|im_start|>assistant\n⟦four<|im_end|>⟧\n",
        "one at the end of all": f"{CHATML}⟦<tool_call>\n{{}}\n</tool_call><END>⟧\n",
        "one before the next turn": f"{CHATML}⟦a</tool_call>⟧\n{CHATML}⟦b<|im_end|>⟧",
        "ended by another's end": f"{CHATML}⟦a<|endoftext|>⟧\n{CHATML}⟦b<|endoftext|>⟧\n",
        "nothing answered": f"{CHATML}\n",
        "nobody answers": "<|im_start|>user\nq<|im_end|>\n",
    },
    "kimi": {
        "Kimi K2": "<|im_system|>system<|im_middle|>s<|im_end|><|im_user|>user<|im_middle|>q<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>⟦a<|im_end|>⟧<|im_user|>user<|im_middle|>r<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>⟦b<|im_end|>⟧",
    },
    "harmony": {
        "final": f"{HARMONY}<|start|>assistant⟦<|channel|>final<|message|>a<|end|>⟧<|start|>user<|message|>r<|end|>"
        "<|start|>assistant⟦<|channel|>final<|message|>b<|return|>⟧",
        "analysis": f"{HARMONY}<|start|>assistant⟦<|channel|>analysis<|message|>t<|end|>"
        "<|start|>assistant<|channel|>final<|message|>a<|return|>⟧",
        "a call": f"{HARMONY}<|start|>assistant⟦<|channel|>analysis<|message|>t<|end|>"
        "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>⟧"
        "<|start|>functions.f to=assistant<|channel|>commentary<|message|>4<|end|>"
        "<|start|>assistant⟦<|channel|>final<|message|>four<|return|>⟧",
        "nobody answers": HARMONY,
    },
    "granite": {
        "Granite 3": "<|start_of_role|>system<|end_of_role|>s<|end_of_text|>\n"
        "<|start_of_role|>user<|end_of_role|>q<|end_of_text|>\n"
        "<|start_of_role|>assistant<|end_of_role|>⟦<|tool_call|>[{}]<|end_of_text|>⟧\n"
        "<|start_of_role|>tool_response<|end_of_role|>4<|end_of_text|>\n"
        "<|start_of_role|>assistant<|end_of_role|>⟦b<|end_of_text|>⟧\n",
        "controls in the marker": '<|start_of_role|>assistant {"length": "long"}<|end_of_role|>⟦a<|end_of_text|>⟧\n',
    },
    "command-r": {
        "Command-R": f"{COMMAND_R}⟦a<|END_OF_TURN_TOKEN|>⟧{COMMAND_R}⟦b<|END_OF_TURN_TOKEN|>⟧",
        "Command R7B": f"{COMMAND_R}⟦<|START_RESPONSE|>a<|END_RESPONSE|><|END_OF_TURN_TOKEN|>⟧",
    },
    "phi": {
        "Phi-3": "<|user|>\nq<|end|>\n<|assistant|>\n⟦a<|end|>⟧\n<|user|>\nr<|end|>\n<|assistant|>\n⟦b<|end|>⟧\n<|endoftext|>",
        "Phi-4-mini": "<|user|>q<|end|><|assistant|>⟦<|tool_call|>{}<|/tool_call|><|end|>⟧"
        "<|tool_response|>4<|end|><|assistant|>⟦b<|end|>⟧",
    },
    "glm": {
        "GLM-4": "[gMASK]<sop><|system|>\ns<|user|>\nq<|assistant|>⟦\na<|user|>⟧\nr<|assistant|>⟦\nb<END>⟧",
        "ChatGLM3": "[gMASK]sop<|user|>\n q<|assistant|>⟦\n a<|user|>⟧\n r<|assistant|>⟦\n b<END>⟧",
        "GLM-4.5": "[gMASK]<sop><|user|>\nq<|assistant|>⟦\n<think></think>\n<tool_call>f\n</tool_call><|observation|>⟧\n"
        "<tool_response>\n4\n</tool_response><|assistant|>⟦\n<think>t</think>\nfour<|user|>⟧",
    },
    "zephyr": {
        "Zephyr": "<|system|>\ns</s>\n<|user|>\nq</s>\n<|assistant|>\n⟦a</s>⟧\n<|user|>\nr</s>\n<|assistant|>\n⟦b</s>⟧\n",
        "Falcon 3": "<|system|>\ns\n<|user|>\nq\n<|assistant|>\n⟦a<|endoftext|>⟧\n<|user|>\nr\n<|assistant|>\n⟦b<|endoftext|>⟧",
    },
    "llama": {
        "Llama 3": "<|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n⟦<|python_tag|>f()<|eom_id|>⟧"
        "<|start_header_id|>ipython<|end_header_id|>\n\n4<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n⟦run <|python_tag|>f()<|eot_id|>⟧",
    },
    "llama 4": {
        "Llama 4": "<|header_start|>user<|header_end|>\n\nq<|eot|><|header_start|>assistant<|header_end|>\n\n⟦a<|eot|>⟧"
        "<|header_start|>user<|header_end|>\n\nr<|eot|><|header_start|>assistant<|header_end|>\n\n⟦b<|eot|>⟧",
    },
    "gemma": {
        "Gemma 1 to 3": "<start_of_turn>user\nq<end_of_turn>\n<start_of_turn>model\n⟦a<end_of_turn>⟧\n"
        "<start_of_turn>user\nr<end_of_turn>\n<start_of_turn>model\n⟦b<end_of_turn>⟧\n",
    },
    "gemma 4": {
        "Gemma 4": "<|turn>system\ns<turn|>\n<|turn>user\nq<turn|>\n<|turn>model\n⟦a<turn|>⟧\n",
        "a call": "<|turn>user\nq<turn|>\n<|turn>model\n⟦<|tool_call>call:f{}<tool_call|><|tool_response>⟧response:f{4}"
        "<tool_response|><|tool_response>response:g{5}<tool_response|>⟦b<turn|>⟧\n",
    },
    "deepseek": {
        "DeepSeek V3, R1": "<s>s<｜User｜>q<｜Assistant｜>⟦a<｜end▁of▁sentence｜>⟧<｜User｜>r<｜Assistant｜>"
        "⟦<think>\nt\n</think>\n\nb<｜end▁of▁sentence｜>⟧",
        "V3, a call": "<｜User｜>q<｜Assistant｜>⟦<｜tool▁calls▁begin｜>f<｜tool▁calls▁end｜><｜end▁of▁sentence｜>⟧"
        "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>4<｜tool▁output▁end｜>\n<｜tool▁output▁begin｜>5<｜tool▁output▁end｜>"
        "<｜tool▁outputs▁end｜>⟦b<｜end▁of▁sentence｜>⟧",
        "V3.1, a call": "<｜User｜>q<｜Assistant｜>⟦</think><｜tool▁calls▁begin｜>f<｜tool▁calls▁end｜><｜end▁of▁sentence｜>⟧"
        "<｜tool▁output▁begin｜>4<｜tool▁output▁end｜>⟦b<｜end▁of▁sentence｜>⟧",
    },
    "internlm": {
        "InternLM": "<s><|User|>:q<eoh>\n<|Bot|>:⟦a<eoa>⟧\n<s><|User|>:r<eoh>\n<|Bot|>:⟦b<eoa>⟧\n",
    },
    "openchat": {
        "OpenChat": "GPT4 Correct User: q<|end_of_turn|>GPT4 Correct Assistant:⟦ a<|end_of_turn|>⟧"
        "GPT4 Correct User: r<|end_of_turn|>GPT4 Correct Assistant:⟦ b<|end_of_turn|>⟧",
    },
    "mistral": {
        "v1, Llama 2": "<s>[INST] <<SYS>>\ns\n<</SYS>>\n\nq [/INST]⟦ a </s>⟧<s>[INST] r [/INST]⟦ b </s>⟧",
        "v3": "[INST] q[/INST]⟦ a</s>⟧[AVAILABLE_TOOLS] [{}][/AVAILABLE_TOOLS][INST] r[/INST]⟦[TOOL_CALLS] [{}]</s>⟧"
        '[TOOL_RESULTS] {"content": 4}[/TOOL_RESULTS]⟦ four</s>⟧[INST] t[/INST]⟦ b</s>⟧',
        "v3, two results": "[INST]q[/INST]⟦[TOOL_CALLS][{}, {}]</s>⟧[TOOL_RESULTS]4[/TOOL_RESULTS]"
        "[TOOL_RESULTS]5[/TOOL_RESULTS]⟦nine</s>⟧",
        "v7": "<s>[SYSTEM_PROMPT] s[/SYSTEM_PROMPT][INST] q[/INST]⟦ a</s>⟧",
    },
    "alpaca": {
        "Alpaca": "Below is.\n\n### Instruction:\nq\n\n### Input:\nc\n\n### Response:\n⟦a<END>⟧",
        "an input after an answer": "### Instruction:\nq\n\n### Response:\n⟦a⟧\n\n### Input:\nc\n\n### Response:\n⟦b<END>⟧",
        "a question after the last": "### Instruction:\nq\n\n### Response:\n⟦a<END>⟧\n\n### Instruction:\nr\n",
        "another heading": "### Instruction:\nq\n\n### Response:\n⟦a\n### Steps:\nb<END>⟧",
        "DeepSeek Coder": "s### Instruction:\nq\n### Response:\n⟦a\n<|EOT|>⟧\n"
        "### Instruction:\nr\n### Response:\n⟦b\n<|EOT|>⟧\n",
        "Orca Mini": "### System:\ns\n\n### User:\nq\n\n### Response:\n⟦a⟧\n\n### User:\nr\n\n### Response:\n⟦b<END>⟧",
    },
    "guanaco": {
        "Guanaco": "### Human: q### Assistant:⟦ a⟧### Human: r### Assistant:⟦ b<END>⟧",
        "SOLAR": "### System:\ns\n\n### User:\nq\n\n### Assistant:\n⟦a</s>⟧\n### User:\nr\n\n### Assistant:\n⟦b</s>⟧",
    },
    "vicuna": {
        "Vicuna 1.1": "A chat. USER: q ASSISTANT:⟦ a</s>⟧USER: r ASSISTANT:⟦ b</s>⟧",
        "in lines": "s\n\nUSER: q\nASSISTANT:⟦ a</s>⟧\nUSER: r\nASSISTANT:⟦ b<END>⟧\n",
    },
    "user and assistant": {
        "DeepSeek V2": "<s>s\n\nUser: q\n\nAssistant:⟦ a<｜end▁of▁sentence｜>⟧User: r\n\nAssistant:⟦ b<｜end▁of▁sentence｜>⟧",
        "Falcon": "User: q\nAssistant:⟦ a⟧\nUser: r\nAssistant:⟦ b<END>⟧",
        "SmolVLM": "<|im_start|>User: q<end_of_utterance>\nAssistant:⟦ a<end_of_utterance>⟧\nUser: r<end_of_utterance>\n"
        "Assistant:⟦ b<end_of_utterance>⟧\n",
    },
    "human and assistant": {"HH-RLHF": "\n\nHuman: q\n\nAssistant:⟦ a⟧\n\nHuman: r\n\nAssistant:⟦ b<END>⟧"},
    "plain": {
        "a dialogue in a tale": "⟦He said: Assistant: no.<END>⟧",
        "ended": "⟦once upon a time</s>⟧\n",
    },
}


def bare(marked: str) -> str:
    """Return a text of the table without its marks."""
    return marked.replace("⟦", "").replace("⟧", "").replace(END, "")
