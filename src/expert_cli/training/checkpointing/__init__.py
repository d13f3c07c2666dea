"""The state of a trainer goes in, a hashed checkpoint comes out, and back. Decides which checkpoint is good."""
