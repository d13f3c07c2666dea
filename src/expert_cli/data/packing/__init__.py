"""The lengths of documents go in, packs, batches and the steps of a run come out. Decides what becomes of long
documents (`overflow.py`). Drawn by seed and epoch: in which portion of a large epoch a document is (`portions.py`), which
documents share a pack (`random_fit.py`), and the order of the packs (`order.py`).
"""
