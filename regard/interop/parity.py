"""Whether a model that went elsewhere still says the same: both sides on the same sentences, compared and reported."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.config import JsonObject
from regard.decode.config import DecodeConfig
from regard.decode.search import search
from regard.decode.stepper import Hypothesis
from regard.errors import DataError, RegardError
from regard.interop import ctranslate2, onnx
from regard.interop.engines import MANIFEST, translator_with
from regard.models.gpt import GPT
from regard.models.transformer import Transformer
from regard.models.whisper import Whisper
from regard.nn.batch import Pairs, Tokens
from regard.runs.files import read_json, write_json
from regard.tasks.corpora import TextData, TranslationData, corpus_of, documents_of, world_held_out
from regard.tasks.run import Run
from regard.tasks.translator import Translator, encode_pair

REPORT = "parity.json"
SENTENCES = 100
"""How many sentences of a run's own data are compared."""
SOUNDS = 4
"""Sounds that are compared: each is a whole window."""
PROMPT, WRITTEN = 8, 24
"""Tokens of a text that a language model is given, and that it then writes."""
LEAST = {"float32": 0.99, "float16": 0.9, "int8": 0.5, "int8_float32": 0.5}
"""The share of greedy outputs that must be equal, by how weights are kept: rounding them changes outputs by design."""
NUMBERS = 1e-3
"""How far numbers may be apart, times the largest of them."""
NEAR = 1e-4
"""How far apart two scores are that count as one."""
SHOWN = 5


class NotEqual(RegardError):
    """What was exported does not say what the run says."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Output:
    """What one side made of a sentence."""

    tokens: tuple[int, ...]
    text: str
    score: float


@dataclass(frozen=True, slots=True)
class Compared:
    """One way of searching, on both sides."""

    search: str
    total: int
    equal: int
    near: int
    largest: float
    different: list[JsonObject] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.equal / max(1, self.total)

    def to_mapping(self) -> JsonObject:
        return {
            "search": self.search,
            "sentences": self.total,
            "equal": self.equal,
            "share": self.share,
            "equal_or_score_within_1e-4": self.near,
            "largest_score_difference": self.largest,
            "different": self.different,
        }

    def said(self) -> str:
        return (
            f"{self.search}: {self.equal:,} of {self.total:,} outputs equal ({self.share:.1%}), "
            f"{self.near:,} equal or within {NEAR:g} in score, largest difference of scores {self.largest:.2g}"
        )


def compare(search: str, sentences: Sequence[str], ours: Sequence[Output], theirs: Sequence[Output]) -> Compared:
    """How many outputs are the same tokens, how far scores are apart, and the first outputs that differ."""
    pairs = list(zip(sentences, ours, theirs, strict=True))
    differences = [abs(one.score - other.score) for _, one, other in pairs]
    same = [one.tokens == other.tokens for _, one, other in pairs]
    different = [
        {
            "line": number + 1,
            "source": sentence,
            "run": one.text,
            "exported": other.text,
            "run_score": one.score,
            "exported_score": other.score,
        }
        for number, (sentence, one, other) in enumerate(pairs)
        if not same[number]
    ]
    return Compared(
        search,
        len(pairs),
        sum(same),
        sum(equal or apart <= NEAR for equal, apart in zip(same, differences, strict=True)),
        max(differences, default=0.0),
        different[:SHOWN],
    )


def check_engine_files(
    run: Run, engine: str, directory: Path, sentences: Sequence[str] | None = None
) -> tuple[JsonObject, list[str]]:
    """Compare a run with what was exported of it, greedy and by beam, and write `parity.json` beside the files.

    The report, and lines that say it. `sentences` are by default the first of the run's own data.
    """
    given = list(sentences if sentences is not None else islice(own_sentences(run), SENTENCES))
    given = [one for one in given if one.strip()]
    if not given:
        raise DataError("there is no sentence to compare the export by: give some with --sentences")
    quantization = str(read_json(directory / MANIFEST).get("quantization", "float32"))
    wide = run.config.decode.beam if run.config.decode.beam > 1 else DecodeConfig().beam
    settings = [("greedy", run.decode_config(beam=1)), (f"beam {wide}", run.decode_config(beam=wide, top_beams=1))]
    both = _translations if "translator" in run.task.parts else _continuations
    found, left_out = [], {}
    for name, config in settings:
        if engine == "ctranslate2":
            neutral = ctranslate2.unsupported(config)
            left_out |= {f"decode.{setting}": getattr(config, setting) for setting in neutral}
            config = replace(config, **neutral)
        found.append(compare(name, given, *both(run, engine, directory, given, config)))
    least = LEAST.get(quantization, LEAST["float32"])
    report = {
        "engine": engine,
        "quantization": quantization,
        "compared": [one.to_mapping() for one in found],
        "least_share_of_greedy": least,
        "passed": found[0].share >= least,
        "decode_settings_left_out": left_out,
    }
    write_json(directory / REPORT, report)
    lines = [one.said() for one in found]
    lines += [f"compared without {name}={value}, which does not apply to {engine}" for name, value in left_out.items()]
    lines += [
        f"{one.search}, line {each['line']}: '{each['run']}' became '{each['exported']}'"
        for one in found
        for each in one.different
    ]
    return report, lines


def require(report: JsonObject, directory: Path) -> None:
    """Refuse a report of sides that differ too much."""
    if report["passed"] is not False:
        return
    if "largest_difference" in report:
        why = f"numbers differ by {report['largest_difference']:.2g}, and by at most {report['most']:.2g} they may"
    else:
        share, least = report["compared"][0]["share"], report["least_share_of_greedy"]
        why = f"only {share:.1%} of its greedy outputs are equal, and at least {least:.0%} should be"
    raise NotEqual(
        f"what was exported to {directory} does not say what the run says: {why}; see {directory / REPORT}, or accept "
        "it with --force"
    )


@torch.no_grad()
def check_huggingface(
    run: Run, directory: Path, sentences: Sequence[str] | None = None
) -> tuple[JsonObject, list[str]]:
    """Compare a run's numbers with those of `transformers` on what was exported, and write `parity.json` beside it.

    These are logits where the model writes, and the vectors of its last layer where it reads. Without `transformers`
    nothing is compared, which the report says.
    """
    report: JsonObject = {"engine": "transformers", "passed": None}
    if find_spec("transformers") is None:
        report["not_compared"] = "the package transformers is not here: pip install 'regard[hf]'"
        write_json(directory / REPORT, report)
        return report, [f"not compared: {report['not_compared']}"]
    what, numbers = _both_numbers(run, directory, sentences)
    total, largest, size, same, positions = 0, 0.0, 0.0, 0, 0
    for ours, theirs in numbers:
        total, largest = total + 1, max(largest, float((ours - theirs).abs().max()))
        size = max(size, float(ours.abs().max()))
        same += int((ours.argmax(-1) == theirs.argmax(-1)).sum())
        positions += ours[..., 0].numel()
    most = NUMBERS * max(1.0, size)
    report |= {
        "compared": what,
        "inputs": total,
        "largest_difference": largest,
        "largest_number": size,
        "most": most,
        "positions": positions,
        "positions_with_the_same_largest": same,
        "passed": largest <= most,
    }
    write_json(directory / REPORT, report)
    return report, [
        f"{what} of {total:,} inputs: largest difference {largest:.2g} among numbers up to {size:.3g}; "
        f"the same largest at {same:,} of {positions:,} positions"
    ]


def _both_numbers(
    run: Run, directory: Path, sentences: Sequence[str] | None
) -> tuple[str, Iterator[tuple[Tensor, Tensor]]]:
    """What is compared, and for each input the run's numbers and those of `transformers`."""
    import transformers

    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # of heads that it does without
    try:
        if isinstance(run.model, Transformer):
            kind, what, both = "AutoModelForSeq2SeqLM", "logits", _pair_numbers
        elif isinstance(run.model, GPT):
            kind, what, both = "AutoModelForCausalLM", "logits", _text_numbers
        elif isinstance(run.model, Whisper):
            kind, what, both = "WhisperForConditionalGeneration", "logits", _speech_numbers
        else:
            kind, what = "AutoModel", "vectors"
            both = _encoder_numbers if run.task.has_tokenizer else _image_numbers
        model: Any = getattr(transformers, kind).from_pretrained(directory, dtype=torch.float32).to(run.device).eval()
    finally:
        transformers.logging.set_verbosity(verbosity)
    given: list[str] = []
    if run.task.has_tokenizer:
        given = list(islice(own_sentences(run), SENTENCES) if sentences is None else sentences)
        given = [one for one in given if one.strip()]
        if not given:
            raise DataError("there is no sentence to compare the export by: give some with --sentences")
    return what, both(run, model, given)


def _pair_numbers(run: Run, model: Any, sentences: Sequence[str]) -> Iterator[tuple[Tensor, Tensor]]:
    """Of each sentence and its greedy translation."""
    longest = run.translator.max_len
    for sentence, found in zip(sentences, run.translations(sentences, beam=1), strict=True):
        source, target = encode_pair(run, sentence, "")
        target = [target[0], *found[0].tokens]
        pair = Pairs(Tokens.of([source[:longest]]), Tokens.of([[*target[:longest], target[0]]])).to(run.device)
        theirs = model(input_ids=pair.source.ids, decoder_input_ids=pair.inputs.ids).logits
        yield run.model.logits(pair)[0], theirs[0]


def _text_numbers(run: Run, model: Any, sentences: Sequence[str]) -> Iterator[tuple[Tensor, Tensor]]:
    longest = run.config.model_config().max_len
    for sentence in sentences:
        rows = Tokens.of([run.generator.prompt_ids(sentence)[:longest]]).to(run.device)
        yield run.model.head(run.model.read(rows))[0], model(input_ids=rows.ids).logits[0]


def _speech_numbers(run: Run, model: Any, sentences: Sequence[str]) -> Iterator[tuple[Tensor, Tensor]]:
    """Of random sounds, each as if a sentence were said in it."""
    config, generator, transcriber = run.config.model_config(), torch.Generator().manual_seed(0), run.transcriber
    prompt = transcriber.prompt(next(iter(transcriber.known.languages), None))
    for sentence in sentences[:SOUNDS]:
        frames = torch.randn(1, config.frames, config.bands, generator=generator).clamp(-1, 1)
        row = [*prompt, *run.vocabularies.target.encode(f" {sentence}")][: config.max_len]
        batch = transcriber.batch(frames, [[*row, run.vocabularies.target.eos]])
        theirs = model(input_features=batch.source.values.mT, decoder_input_ids=batch.inputs.ids).logits
        yield run.model.logits(batch)[0], theirs[0]


def _encoder_numbers(run: Run, model: Any, sentences: Sequence[str]) -> Iterator[tuple[Tensor, Tensor]]:
    for sentence in sentences:
        texts = run.encoder.texts([run.encoder.framer.ids(run.encoder.tokenizer.encode(sentence), None, "truncate")])
        yield run.model(texts)[0], model(input_ids=texts.ids).last_hidden_state[0]


def _image_numbers(run: Run, model: Any, sentences: Sequence[str]) -> Iterator[tuple[Tensor, Tensor]]:
    """Of random images."""
    config, generator = run.config.model_config(), torch.Generator().manual_seed(0)
    for _ in range(4):
        pixels = torch.rand(1, config.channels, config.image_size, config.image_size, generator=generator)
        pixels = pixels.to(run.device)
        yield run.model.read(pixels)[0], model(pixel_values=pixels).last_hidden_state[0]


def own_sentences(run: Run) -> Iterator[str]:
    """Sentences of the run's validation or test data or, where these are gone, of the corpus that comes with regard."""
    data = run.config.data
    for part in ("valid", "test"):
        files = getattr(data, part, ())
        if files and not all(Path(one).exists() for one in files):
            continue
        if isinstance(data, TranslationData):
            if (pairs := corpus_of(data, part)) is not None:
                return (source for source, _ in pairs)
        elif isinstance(data, TextData) and (documents := documents_of(data, part)) is not None:
            return (line for document in documents for line in document.text.splitlines() if line.strip())
    source = getattr(data, "source", "en")
    return (pair[0] for pair in world_held_out("test", source if source in ("en", "fr") else "en"))


def _translations(
    run: Run, engine: str, directory: Path, sentences: Sequence[str], config: DecodeConfig
) -> tuple[list[Output], list[Output]]:
    def said(translator: Translator) -> list[Output]:
        best = [found[0] for found in translator.translate(sentences, config)]
        return [Output(one.tokens, one.text, one.score) for one in best]

    return said(run.translator), said(translator_with(run, engine, directory))


def _continuations(
    run: Run, engine: str, directory: Path, sentences: Sequence[str], config: DecodeConfig
) -> tuple[list[Output], list[Output]]:
    """The first tokens of each text, continued; each alone, since none is to depend on how rows are padded."""
    tokenizer, longest = run.vocabularies.target, run.config.model_config().max_len
    prompts = [run.generator.prompt_ids(sentence)[:PROMPT] for sentence in sentences]
    config = replace(config, max_len=max(config.min_len + 1, min(WRITTEN, longest - PROMPT)), max_ratio=None)

    def output(found: Hypothesis) -> Output:
        return Output(tuple(found.tokens), tokenizer.decode(found.tokens), found.score)

    def searched(stepper: Any) -> list[Output]:
        found = []
        with torch.inference_mode():
            for prompt in prompts:
                rows = Tokens.of([prompt]).to(run.device)
                state = stepper.start(rows)
                first = rows.ids[:, -1]
                best = search(stepper, state, first, eos=tokenizer.eos, config=config)
                found.append(output(best[0][0]))
        return found

    if engine == "onnx":
        return searched(run.model), searched(onnx.OnnxLanguageModel(run, directory))
    generator = ctranslate2.generator(directory, run.device)
    names = ctranslate2.entries(tokenizer, run.config.model_config().vocab_size)
    options = ctranslate2.search_options(config, [names[one] for one in config.forbid])
    results = [
        generator.generate_batch(
            [[names[one] for one in prompt]],
            max_length=config.max_len,
            min_length=config.min_len,
            include_prompt_in_result=False,
            **options,
        )[0]
        for prompt in prompts
    ]
    theirs = [ctranslate2.ranked(one.sequences_ids, one.scores, config, tokenizer.eos)[0] for one in results]
    return searched(run.model), [output(one) for one in theirs]
