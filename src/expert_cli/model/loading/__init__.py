"""The name of a base model goes in, a folder that transformers loads comes out, and from it a quantized model. Decides
what a name means (`names.py`) and what is refused as code or pickle (`file_checks.py`).
"""
