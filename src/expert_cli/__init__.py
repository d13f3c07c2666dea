"""expert-cli: a manifest goes in, a trained expert comes out."""

__version__ = "0.1.0"
