"""The main path: a plan goes in, a token store or a run directory comes out."""
