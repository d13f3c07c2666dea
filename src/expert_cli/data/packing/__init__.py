"""The lengths of documents go in, packs, batches and the steps of a run come out."""
