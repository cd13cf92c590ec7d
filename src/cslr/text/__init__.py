"""Encoders, word vectors, and the cache of embeddings."""
