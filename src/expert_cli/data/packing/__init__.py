"""Documents become packs, packs become batches, in an order that a resumed run keeps."""
