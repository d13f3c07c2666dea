"""The lengths of documents go in, packs, batches and the steps of a run come out. `overflow.py` decides what becomes of
long documents. Drawn by seed and epoch: which documents share a pack, and the order of the packs (`random_fit.py`).
"""
