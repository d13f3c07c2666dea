"""One file a language: an answer goes in and a Verdict comes out, reached by running the answer."""
