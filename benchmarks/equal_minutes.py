"""Translation by regard and by Hugging Face's Marian with its Trainer, after the same time on the same GPU: by hand.

    python benchmarks/equal_minutes.py DATA OUT --seconds 190 --seeds 1 2

DATA has train, valid and test files ending in .en and .de. Both read the same token ids, made beforehand, have the same
sizes and vocabulary, train in bfloat16 for `--seconds` of wall clock from building the model to the last update, and
translate the test set with beam 5. Each first measures its speed in a short trial, outside that time, so that its
learning rate comes down just in time. The seeds of one toolkit run side by side, then those of the other. regard's
settings are the preset's, except for the number of updates. `--peer-seconds` gives the Trainer more.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

PRESET = "debian-l10n"
WARM = 20


def config_of(options: argparse.Namespace, seed: int, *settings: str):
    from regard import make_config

    files = {part: [f"{options.data}/{part}.{side}" for side in ("en", "de")] for part in ("train", "valid", "test")}
    given = [f"data.{part}={json.dumps(paths)}" for part, paths in files.items()]
    given += [f'data.cache="{options.out}/cache"', f"train.seed={seed}", "train.validate_every=100000"]
    given += ["train.save_every=100000", "train.log_every=20", *options.set, *settings]
    return make_config(None, PRESET, given)


def prepare(options: argparse.Namespace) -> None:
    """Tokenizer and token ids, which all later runs find in the cache."""
    from regard import train

    small = ["model.width=16", "model.feed_forward=16", "model.heads=2", "train.device=cpu", "train.steps=1"]
    small += ["train.compile=false", "train.compile_blocks=false", "train.cuda_graphs=false", "train.batch_tokens=512"]
    train(config_of(options, 1, *small), options.out / "prepared")


def ours(options: argparse.Namespace, seed: int, steps: int) -> None:
    """One training of `steps` updates. Its first update is a run's; the clock starts when the tokens are there."""
    from regard import train
    from regard.tasks.spec import Silence

    class Clock(Silence):
        began = time.monotonic()

        def say(self, text: str) -> None:
            if "tokens)" in text:  # the corpus is read: what follows is building the model and training it
                Clock.began = time.monotonic()

    name = f"regard-{seed}-{steps}"
    train(config_of(options, seed, f"train.steps={steps}"), options.out / name, Clock())
    seconds = time.monotonic() - Clock.began
    log = [json.loads(line) for line in (options.out / name / "log.jsonl").read_text().splitlines()]
    trained = [row for row in log if row["kind"] == "train"]
    later = [row for row in trained if row["step"] > WARM]
    pace = (later[-1]["seconds"] - later[0]["seconds"]) / (later[-1]["step"] - later[0]["step"])
    speed = sum(row["tokens_per_second"] for row in later) / len(later)
    write(options.out / f"{name}.json", {"seconds": seconds, "pace": pace, "steps": steps, "tokens_per_second": speed})


def theirs(options: argparse.Namespace, seed: int, seconds: float) -> None:
    """One training with the Trainer, its schedule made for as many updates as fit in `seconds`."""
    import numpy as np
    import torch
    from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainerCallback, set_seed
    from transformers.trainer_pt_utils import LengthGroupedSampler

    from regard.bench.training_speed import marian
    from regard.data import PairStore

    config = config_of(options, seed)
    folders = [path.parent for path in (options.out / "cache").glob("*/meta.json")]
    store = max(map(PairStore.open, folders), key=len)  # the training pairs; the others are for validation

    class Pairs(torch.utils.data.Dataset):
        def __len__(self):
            return len(store)

        def __getitem__(self, index):
            sides = (store.source, store.target)
            a, b = (s.tokens[s.offsets[index] : s.offsets[index] + s.lengths[index]].astype(np.int64) for s in sides)
            return {"input_ids": a, "labels": b[1:], "length": len(a)}

    pad, bos = store.source.pad, int(store.target.tokens[0])

    def collate(rows):
        def side(name, fill):
            width = max(len(row[name]) for row in rows)
            return torch.from_numpy(
                np.stack([np.pad(row[name], (0, width - len(row[name])), constant_values=fill) for row in rows])
            )

        labels = side("labels", -100)
        shifted = torch.cat((torch.full((len(rows), 1), bos), labels[:, :-1].masked_fill(labels[:, :-1] < 0, pad)), 1)
        ids = side("input_ids", pad)
        return {"input_ids": ids, "attention_mask": (ids != pad).long(), "decoder_input_ids": shifted, "labels": labels}

    class Grouped(Seq2SeqTrainer):
        def _get_train_sampler(self, train_dataset=None):
            # The Trainer's own sampler, told the lengths, which it would else find by reading every pair.
            return LengthGroupedSampler(self.args.train_batch_size, lengths=store.source.lengths.tolist())

    def trainer(steps: int, limit: float):
        class Limit(TrainerCallback):
            def on_step_end(self, args, state, control, **kwargs):
                if time.monotonic() - began > limit:
                    control.should_training_stop = True

        set_seed(seed)
        model = marian(sizes(config))
        arguments = Seq2SeqTrainingArguments(
            output_dir=str(options.out / f"theirs-{seed}"),
            max_steps=steps,
            per_device_train_batch_size=options.sentences,
            train_sampling_strategy="group_by_length",
            length_column_name="length",
            learning_rate=options.rate,
            warmup_steps=max(1, steps // 6),
            lr_scheduler_type="linear",
            adam_beta2=0.98,
            weight_decay=0.01,
            label_smoothing_factor=0.1,
            max_grad_norm=1.0,
            bf16=torch.cuda.is_available(),
            optim="adamw_torch_fused",
            dataloader_num_workers=4,
            remove_unused_columns=False,
            save_strategy="no",
            logging_steps=100,
            report_to=[],
            disable_tqdm=True,
            seed=seed,
        )
        return Grouped(model=model, args=arguments, train_dataset=Pairs(), data_collator=collate, callbacks=[Limit()])

    began = time.monotonic()
    trial = trainer(options.trial, 1e9)
    trial.train()
    began = time.monotonic()
    again = trainer(options.trial, 1e9)
    again.train()
    pace = (time.monotonic() - began) / options.trial
    del trial, again
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    wait_for(options, seed)
    began = time.monotonic()
    steps = max(2, int(0.97 * seconds / pace))
    real = trainer(steps, seconds)
    result = real.train()
    spent = time.monotonic() - began
    done = {"seconds": spent, "steps": real.state.global_step, "planned": steps, "loss": result.training_loss}
    answers = translate(options, config, real.model)
    write(options.out / f"theirs-{seed}.json", {**done, "answers": answers})


def wait_for(options: argparse.Namespace, seed: int) -> None:
    """Until every seed's trial is done, so that all train side by side as their trials did."""
    (options.out / f"ready-{seed}").touch()
    while not all((options.out / f"ready-{other}").exists() for other in options.seeds):
        time.sleep(0.2)


def sizes(config):
    from dataclasses import replace

    size = config.tokenizer.vocab_size
    return replace(config, model={**config.model, "source_vocab_size": size, "target_vocab_size": size}).model_config()


def translate(options: argparse.Namespace, config, model) -> list[str]:
    import torch

    from regard import load
    from regard.nn.batch import Tokens
    from regard.tasks.corpora import corpus_of

    vocabularies = load(options.out / "prepared", "cpu").vocabularies
    assert vocabularies is not None
    sources = [source for source, _ in corpus_of(config.data, "test")][: options.limit]
    order = sorted(range(len(sources)), key=lambda row: len(sources[row]))
    found, device = [""] * len(sources), next(model.parameters()).device
    model.eval()
    for start in range(0, len(order), 128):
        rows = order[start : start + 128]
        ids = [[*vocabularies.source.encode(sources[row])[:127], vocabularies.source.eos] for row in rows]
        batch = Tokens.of(ids, vocabularies.source.pad).to(device)
        longest = min(127, 2 * batch.ids.shape[1] + 10)
        with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            out = model.generate(
                input_ids=batch.ids, attention_mask=batch.mask().long(), num_beams=5, max_new_tokens=longest
            )
        for row, ids in zip(rows, out.tolist(), strict=True):
            ids = ids[1:]
            end = ids.index(vocabularies.target.eos) if vocabularies.target.eos in ids else len(ids)
            found[row] = vocabularies.target.decode([i for i in ids[:end] if i != vocabularies.target.pad])
    return found


def score(options: argparse.Namespace, steps: int) -> None:
    from regard import evaluate, load
    from regard.metrics.text import corpus_scores, paired_bootstrap
    from regard.tasks.corpora import corpus_of

    references = [target for _, target in corpus_of(config_of(options, 1).data, "test")][: options.limit]
    found: dict = {"data": str(options.data), "preset": PRESET, "limit_seconds": options.seconds, "runs": []}
    found["peer_limit_seconds"] = options.peer_seconds or options.seconds
    for seed in options.seeds:
        mine: list[str] = []
        result = evaluate(load(options.out / f"regard-{seed}-{steps}"), limit=options.limit, out=mine.append)
        row = {"toolkit": "regard", "seed": seed, **read(options.out / f"regard-{seed}-{steps}.json")}
        names = ("bleu", "bleu_interval", "bleu_signature", "chrf", "exact_match", "decode")
        found["runs"].append(row | {name: result[name] for name in names})
        other = read(options.out / f"theirs-{seed}.json")
        answers = other.pop("answers")
        scores = corpus_scores(answers, references).to_mapping()
        found["runs"].append({"toolkit": "Hugging Face", "seed": seed, **other} | {n: scores[n] for n in names[:-1]})
        gap = paired_bootstrap(mine, answers, references)
        found[f"gap, seed {seed}"] = {"bleu": gap.bleu, "interval": gap.interval, "p": gap.p_value}
    write(options.out / "result.json", found)
    print(json.dumps(found, indent=1))


def write(path: Path, value) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def together(options: argparse.Namespace, what: str, *more: str) -> None:
    """The same for every seed at once, each in its own process."""
    command = [sys.executable, __file__, *sys.argv[1:], "--part", what, *more]
    running = [subprocess.Popen([*command, "--seed", str(seed)]) for seed in options.seeds]
    if max(one.wait() for one in running):
        raise SystemExit(f"{what} failed")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=190.0)
    parser.add_argument("--peer-seconds", type=float, default=None, help="the Trainer's; by default as many")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--trial", type=int, default=120, help="updates of a trial")
    parser.add_argument("--sentences", type=int, default=512, help="the Trainer's sentences per batch")
    parser.add_argument("--rate", type=float, default=7e-4, help="the Trainer's learning rate")
    parser.add_argument("--limit", type=int, default=None, help="of the test sentences, the first so many")
    parser.add_argument("--set", action="append", default=[], help="a setting of regard's, for trying this out")
    parser.add_argument("--part")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--steps", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.part == "ours":
        return ours(options, options.seed, options.steps)
    if options.part == "theirs":
        return theirs(options, options.seed, options.peer_seconds or options.seconds)
    began = time.monotonic()

    def tell(what: str) -> None:
        print(f"[{time.monotonic() - began:6.0f} s] {what}", flush=True)

    prepare(options)
    tell("prepared")
    together(options, "ours", "--steps", str(options.trial))
    trials = [read(options.out / f"regard-{seed}-{options.trial}.json") for seed in options.seeds]
    pace = max(one["pace"] for one in trials)
    start = max(one["seconds"] - one["pace"] * options.trial for one in trials)
    steps = max(options.trial + 1, int(0.97 * (options.seconds - start) / pace))
    tell(f"regard's trial: {1000 * pace:.1f} ms per update, {start:.0f} s to begin; {steps} updates")
    together(options, "ours", "--steps", str(steps))
    tell("regard trained")
    together(options, "theirs")
    tell("Hugging Face trained and translated")
    score(options, steps)
    tell("scored")


if __name__ == "__main__":
    main()
