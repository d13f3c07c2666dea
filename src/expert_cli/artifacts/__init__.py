"""A run directory goes in, files for people and other programs come out: adapter, model card, report, merged model,
GGUF. Decides whether what was written is the model that was trained (`export.py`).
"""
