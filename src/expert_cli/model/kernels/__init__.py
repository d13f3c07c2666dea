"""Decides how a step is computed (`kernel_plan.py`), with a reason for each choice: attention (`attention_backends.py`),
dequantized weights, fused LoRA, DoRA, the loss without full logits.
"""
