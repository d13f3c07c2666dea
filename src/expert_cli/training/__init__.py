"""A model and batches go in, a trained adapter comes out."""
