"""How a step is computed: attention, dequantized weights, fused LoRA, the loss without logits."""
