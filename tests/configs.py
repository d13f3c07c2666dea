"""Small configurations of axolotl and TRL."""

AXOLOTL = """
base_model: Qwen/Qwen3-0.6B
adapter: qlora
load_in_4bit: true
datasets:
  - path: corpora/tickets
    type: chat_template
sequence_len: 1024
sample_packing: true
lora_r: 8
lora_alpha: 16
lora_target_linear: true
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 3
learning_rate: 2e-4
optimizer: adamw_bnb_8bit
lr_scheduler: cosine
warmup_ratio: 0.1
"""
TRL = """
model_name_or_path: Qwen/Qwen3-0.6B
use_peft: true
dataset_name: corpora/tickets
assistant_only_loss: true
"""
