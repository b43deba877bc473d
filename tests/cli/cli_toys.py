"""What the tests of the command line train with."""

SMALL = [
    "model.width=16",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.feed_forward=24",
    "model.max_len=24",
    "data.max_len=24",
    "tokenizer.kind=word",
    "tokenizer.vocab_size=2000",
    "train.batch_tokens=200",
    "train.steps=6",
    "train.log_every=2",
    "train.validate_sentences=2",
    "train.save_every=3",
    "train.warmup=3",
    "train.threads=1",
    "train.ema=0",
    "decode.beam=3",
    "decode.max_len=12",
]
WORDS = ["the", "a", "cat", "dog", "sees", "hears", "big", "small", "red", "house", "runs", "sleeps", "and"]


def small_settings(*more):
    return [f"--set={setting}" for setting in (*SMALL, *more)]
