"""The state of a trainer goes in, a hashed checkpoint comes out, and back. Decides which run may go on from which
(`resume_compatibility.py`).
"""
