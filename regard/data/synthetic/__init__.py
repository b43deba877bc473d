"""Bundled corpora, generated from a seed and with known answers: a small world, puzzles, long-range questions."""
