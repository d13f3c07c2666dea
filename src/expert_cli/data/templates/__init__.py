"""Rows become documents: pieces of text, each trained or not."""
