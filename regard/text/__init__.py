"""Text to token ids and back: word, character, byte-level BPE, WordPiece and unigram tokenizers."""

from regard.text.config import TokenizerConfig
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_training import train_tokenizer, train_vocabularies
from regard.text.vocabularies import Vocabularies

__all__ = ["Tokenizer", "TokenizerConfig", "Vocabularies", "train_tokenizer", "train_vocabularies"]
