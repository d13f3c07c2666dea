"""The documents that are made from the code: `python -m docs._generate.make_docs`."""
