"""Bundled corpora, generated from a seed, with known answers: a small world, puzzles, long-range questions, scenes."""
