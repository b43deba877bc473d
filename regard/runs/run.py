"""A run directory, loaded: the same one trains on, translates, is evaluated and is looked into."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from regard import config as settings
from regard.data.puzzles import puzzle_named
from regard.decode.config import BOUNDS, DecodeConfig
from regard.errors import ConfigError, DataError, RunError
from regard.models.bert import Pooling
from regard.models.sizes import check_sizes
from regard.runs.answering import Answer, answer
from regard.runs.checkpoint import check_weights, load_weights_strictly
from regard.runs.config import RunConfig
from regard.runs.embedding import embed
from regard.runs.encoder import Encoder
from regard.runs.files import read_json, read_tensors
from regard.runs.filling import Filling, fill
from regard.runs.generator import Generated, Generation, Generator, Prompt
from regard.runs.pointer import Pointer
from regard.runs.tagging import Tag, tag
from regard.runs.translator import Overlong, Translation, Translator
from regard.text import TokenizerConfig, Vocabularies

if TYPE_CHECKING:
    from regard.runs.classifying import Choice, Classifier

CONFIG, TOKENIZER, MODEL, CHECKPOINTS = "config.json", "tokenizer.json", "model.safetensors", "checkpoints"

NOT_DRAWN: dict[str, Any] = {"temperature": None, "top_k": None, "top_p": None, "samples": 1}
"""What a search has of the settings that only matter to drawing."""

OF_A_BEAM = ("top_beams", "length_penalty", "length_form", "exact")
"""What only matters where texts are searched for by beam."""


class Run:
    """A trained model with everything needed to use it."""

    def __init__(self, directory: Path, config: RunConfig, vocabularies: Vocabularies | None, model: nn.Module) -> None:
        self.directory, self.config, self.model = directory, config, model
        self._vocabularies = vocabularies

    @property
    def vocabularies(self) -> Vocabularies:
        """The tokenizers of both sides."""
        if self._vocabularies is None:
            raise RunError(f"{self.directory} is a run for {self.config.task}, which has no tokenizer")
        return self._vocabularies

    @cached_property
    def translator(self) -> Translator:
        """Sentences in, translations out."""
        self.check_task("translation")
        return Translator(self.model, self.vocabularies, self.config.decode, self.config.model_config().max_len)

    @cached_property
    def generator(self) -> Generator:
        """A prompt in, text out."""
        self.check_task("language")
        data = self.config.data
        # Where the state is carried, no length of text is too long to go on from.
        length = sys.maxsize if data.carry else data.max_len
        return Generator(self.model, self.vocabularies.target, self.config.decode, length)

    @cached_property
    def pointer(self) -> Pointer:
        """Numbers or points in, positions out."""
        self.check_task("pointing")
        return Pointer(self.model, puzzle_named(self.config.data.puzzle or ""), self.config.decode)

    def point(self, problems: Sequence[Any], **decode: Any) -> list[list[int]]:
        """The positions that answer each problem, a list of numbers or of points: `point([[0.3, 0.1, 0.2]])`."""
        return [found[0].order for found in self.pointer.answers(problems, self.decode_config(**decode))]

    @cached_property
    def encoder(self) -> Encoder:
        """Texts in, vectors out: what fills, tags, classifies and embeds."""
        if not hasattr(self.model, "text_vectors"):
            raise RunError(f"{self.directory} is a run for {self.config.task}, not one with an encoder of texts")
        return Encoder(self.model, self.vocabularies.target, self.config.data.max_len)

    def classifier(self) -> "Classifier":
        """What tells classes apart, with what it takes as input: see `regard.runs.classifying`."""
        from regard.runs.classifying import CLASSIFIERS

        if self.config.task not in CLASSIFIERS:
            raise RunError(f"{self.directory} is a run for {self.config.task}, not one that tells classes apart")
        return CLASSIFIERS[self.config.task](self)

    def classify(self, inputs: Sequence[Any]) -> "list[list[Choice]]":
        """For each input every class with its probability, the likeliest first: texts, pairs of texts, or images."""
        if isinstance(inputs, str):
            raise DataError("give a list of inputs, not one: [input]")
        return self.classifier().classify(list(inputs))

    def fill(self, text: str, second: str | None = None, *, top: int = 5) -> list[list[Filling]]:
        """For each `[MASK]` of a text, or of two, the likeliest tokens with their probabilities."""
        return fill(self.encoder, text, second, top=top)

    def tag(self, sentences: Sequence[str | Sequence[str]]) -> list[list[Tag]]:
        """A tag for each word of each sentence, given as text or as a list of words."""
        if isinstance(sentences, str):
            raise DataError("give a list of sentences, not one text: [text]")
        return tag(self.encoder, sentences)

    def answer(self, question: str, context: str, *, top: int = 1) -> list[Answer]:
        """The stretches of the text that answer the question best."""
        return answer(self.encoder, question, context, top=top)

    def embed(
        self, texts: Sequence[str], *, pooling: Pooling | None = None, normalise: bool = True
    ) -> "Float[np.ndarray, 'N D']":
        """A vector for each text; their products are cosines, if `normalise`."""
        return embed(self.encoder, texts, pooling=pooling, normalise=normalise)

    def translate(self, sentences: Sequence[str], *, overlong: Overlong = "split", **decode: Any) -> list[str]:
        """The best translation of each sentence; `decode` are settings of `DecodeConfig`, such as `beam=5`."""
        return [found[0].text for found in self.translations(sentences, overlong=overlong, **decode)]

    def translations(
        self, sentences: Sequence[str], *, overlong: Overlong = "split", **decode: Any
    ) -> list[list[Translation]]:
        """For each sentence its best translations, with scores: `translations(["..."], beam=5, top_beams=5)`."""
        if isinstance(sentences, str):
            raise DataError("give a list of sentences, not one text: [text]")
        return self.translator.translate(list(sentences), self.decode_config(**decode), overlong=overlong)

    def generate(
        self, prompt: Prompt = "", *, stop: Sequence[str] = (), repetition_penalty: float = 1.0, **decode: Any
    ) -> list[str]:
        """Texts that follow the prompt, as many as `samples`: `generate("To be", temperature=0.8, max_len=100)`.

        `temperature=0` takes the likeliest token each time; `beam=4` finds the `top_beams` best texts by beam search.
        A prompt may be a `Conversation`: the texts are then its answers.
        """
        if decode.get("beam", 1) > 1:
            found = self.beams(prompt, stop=stop, repetition_penalty=repetition_penalty, **decode)
            return [output.text for output in found]
        generation = self.generation(prompt, stop=stop, repetition_penalty=repetition_penalty, **decode)
        for _ in generation:
            pass
        return [output.text for output in generation.outputs]

    def beams(
        self, prompt: Prompt = "", *, stop: Sequence[str] = (), repetition_penalty: float = 1.0, **decode: Any
    ) -> list[Generated]:
        """The best texts that follow the prompt by beam search, best first: `beams("To be", beam=4, top_beams=2)`."""
        config = self.beam_config(**decode)
        return self.generator.beams(prompt, config, stop=stop, repetition_penalty=repetition_penalty)

    def beam_config(self, **decode: Any) -> DecodeConfig:
        """The run's own way of decoding with these settings changed, by a beam where it would draw."""
        if decode.get("temperature"):
            raise ConfigError(f"temperature={decode['temperature']} draws texts, a beam of them is searched: give one")
        return self.decode_config(**{**NOT_DRAWN, **decode, "temperature": None})

    def generation(
        self, prompt: Prompt = "", *, stop: Sequence[str] = (), repetition_penalty: float = 1.0, **decode: Any
    ) -> Generation:
        """The same as it is drawn: iterate for (sample, new text)."""
        temperature, least = decode.get("temperature"), BOUNDS["temperature"][0]
        if temperature is not None and temperature != 0 and not temperature >= least:
            raise ConfigError(
                f"temperature={temperature} must be above 0 (at least {least:g}), or 0 to take the likeliest token "
                f"each time"
            )
        if temperature == 0:
            # What only matters to drawing goes with it, where the run's own settings brought it along.
            decode = {**NOT_DRAWN, **decode, "temperature": None}
        if beside := [f"{name}={decode[name]}" for name in OF_A_BEAM if name in decode]:
            raise ConfigError(f"{beside[0]} is of a search: give beam too, as beam=4")
        config = self.decode_config(**decode)
        return self.generator.generation(prompt, config, stop=stop, repetition_penalty=repetition_penalty)

    def check_task(self, task: str) -> None:
        """Refuse what this kind of run does not do."""
        if self.config.task != task:
            raise RunError(f"{self.directory} is a run for {self.config.task}, not for {task}")

    def decode_config(self, **decode: Any) -> DecodeConfig:
        """The run's own way of decoding, with these settings changed.

        A `max_len` that is given is the only limit, unless `max_ratio` or `max_extra` is given with it. None, or
        "none", lifts a limit; a translation is then as long as the model can write.
        """
        mapping = settings.to_mapping(self.config.decode, nulls=True)
        decode = self._limits(decode)
        searched = [f"{name}={decode[name]}" for name in ("beam", "top_beams") if decode.get(name, 1) != 1]
        if searched and decode.get("temperature") is not None:
            raise ConfigError(f"temperature={decode['temperature']} draws, {searched[0]} is of a search: give one")
        if "beam" in decode and decode.get("temperature") is None:  # then the run's own way is not to draw either
            mapping |= NOT_DRAWN
        mapping = settings.merge(mapping, decode)
        if "beam" in decode and "top_beams" not in decode:
            mapping["top_beams"] = min(mapping.get("top_beams", 1), mapping["beam"])
        config = settings.from_mapping(DecodeConfig, mapping, "decode")
        for name, beside in (("max_ratio", "max_extra"), ("max_extra", "max_ratio")):
            if decode.get(name) not in (None, "none") and getattr(config, beside) is None:
                raise ConfigError(f"{name}={decode[name]} limits nothing while {beside} is none: give {beside} too")
        return config

    def _limits(self, decode: dict[str, Any]) -> dict[str, Any]:
        """The settings with what those that limit an output's length bring along."""
        if "max_len" not in decode:
            return decode
        if decode["max_len"] in (None, "none"):
            if self.config.task != "translation":
                raise ConfigError(f"max_len=none is for translations, not for a run for {self.config.task}")
            decode = {**decode, "max_len": self.config.model_config().max_len}
        if "max_ratio" not in decode and "max_extra" not in decode:
            decode = {**decode, "max_ratio": None}
        return decode


def load(directory: str | Path, device: str = "auto") -> Run:
    """The run in `directory`, ready to use."""
    directory = Path(directory)
    config = load_config(directory)
    reads_text = config.task not in ("images", "pointing")
    vocabularies = load_vocabularies(directory, config.tokenizer) if reads_text else None
    weights = read_tensors(directory / MODEL)
    with torch.device("meta"):  # shapes alone: a model that its weights do not fit takes no memory
        check_weights(build_model(config), weights, directory / MODEL)
    model = build_model(config)
    load_weights_strictly(model, weights, directory / MODEL)
    return Run(directory, config, vocabularies, model.to(choose_device(device)).eval())


def load_config(directory: Path) -> RunConfig:
    if not directory.is_dir():
        raise RunError(f"no such run: {directory}")
    try:
        config = settings.from_mapping(RunConfig, read_json(directory / CONFIG))
        check_sizes(config.model)
        return config
    except ConfigError as error:
        raise RunError(f"{directory / CONFIG}: {error}") from None


def load_vocabularies(directory: Path, config: TokenizerConfig) -> Vocabularies:
    if not (directory / TOKENIZER).exists():
        raise RunError(f"{directory} is missing its {TOKENIZER}")
    return Vocabularies.load(directory / TOKENIZER, config.eos, config.bos)


def build_model(config: RunConfig) -> nn.Module:
    """The configured model with fresh weights, a function of the seed."""
    torch.manual_seed(config.train.seed)
    _, kind = config.architecture()
    return kind(config.model_config())


def choose_device(name: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"unknown device '{name}'; use auto, cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device '{name}' is not one that regard knows; use auto, cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device '{name}' was asked for, but torch finds no GPU")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device '{name}' was asked for, but torch finds {torch.cuda.device_count()} GPUs")
    return device


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the GPU has it."""
    if name == "auto":
        name = "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def packs(model: nn.Module | type[nn.Module], pack: str, device: torch.device) -> bool:
    """Whether several sequences share a row: `auto` is where a GPU trains a model that can tell them apart."""
    return pack == "always" or (pack == "auto" and device.type == "cuda" and getattr(model, "packs", True))


def absolute(config: RunConfig) -> RunConfig:
    """The configuration with its files named from the root, so that the run can be taken up from anywhere."""
    names = ("train", "valid", "test")
    files = {name: tuple(str(Path(file).resolve()) for file in getattr(config.data, name)) for name in names}
    cache = None if config.data.cache is None else str(Path(config.data.cache).resolve())
    at = {name: getattr(config.train, name) for name in ("start_from", "vectors")}
    train = replace(
        config.train, **{name: None if path is None else str(Path(path).resolve()) for name, path in at.items()}
    )
    return replace(config, data=replace(config.data, **files, cache=cache), train=train)
