"""A trained expert, or its base model, in memory: asked, and answering."""
