"""Settings and machine go in, one `KernelPlan` with a reason a line comes out. Decides how a step is computed
(`kernel_plan.py`): attention (`attention_backends.py`), dequantized weights, fused LoRA, DoRA, the loss without logits.
"""
