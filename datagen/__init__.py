"""The generators of the rows and cases of the shipped experts: `python -m datagen.NAME.make`."""
