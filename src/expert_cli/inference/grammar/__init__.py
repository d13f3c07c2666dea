"""What an answer may say: a grammar, and what of it the prompt decides, held while the answer is written."""
