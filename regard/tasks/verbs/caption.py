"""`caption`: images in, captions out."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from regard.errors import DataError
from regard.tasks.verbs.spec import (
    Asked,
    Beam,
    Between,
    Cost,
    LengthPenalty,
    NoRepeat,
    RequestLimits,
    SamplingOptions,
    Verb,
    WrittenText,
    check_constraints,
    check_count,
    check_search,
    given,
    option,
    search_key,
    search_rows,
)

if TYPE_CHECKING:
    from pathlib import Path

    from regard.decode.config import DecodeConfig
    from regard.tasks.run import Run

SERVED_PIXELS = 1 << 24
"""Pixels of an image that a server takes: a small body may claim to hold any number of them."""


@dataclass(frozen=True, slots=True)
class WrittenCaption(WrittenText):
    """A caption."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionRequest(SamplingOptions):
    """Images, and how to caption them."""

    image: str | tuple[str, ...] = option(
        MISSING, "Image files, folders of them, or arrays; to a server, an image file in base64."
    )
    beam: Beam = option(None, "Hypotheses kept at each step; 1 is greedy.")
    top_beams: Beam = option(None, "How many of them to print, best first.")
    length_penalty: LengthPenalty = option(None, "Higher favours longer captions; 0 for none.")
    max_len: Annotated[int | None, Between(1, "tokens")] = option(None, "Most tokens of a caption.")
    min_len: Annotated[int | None, Between(0, "tokens")] = option(None, "Fewest tokens of a caption.")
    no_repeat: NoRepeat = option(None, "No run of so many tokens occurs twice in a caption; 0 lets any.")
    prefix: str | None = option(None, "Begin every caption with this text.", "TEXT")
    require: str | tuple[str, ...] = option((), "A phrase that captions must have; may be repeated.", "TEXT")
    forbid: str | tuple[str, ...] = option((), "A phrase that no caption has; may be repeated.", "TEXT")


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionedImage:
    """One image, by its name, with its captions, best first."""

    image: str
    captions: tuple[WrittenCaption, ...]


@dataclass(frozen=True, slots=True)
class ImageToCaption:
    """An image at the model's size, and how it is captioned."""

    name: str
    pixels: Any
    config: "DecodeConfig"


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionDisplay:
    scores: bool = option(False, "Print the score before each caption, with a tab.")


class WriteCaptions(Verb[CaptionRequest, CaptionedImage]):
    """Images of many requests that are searched for alike go together."""

    def check(
        self, run: "Run", request: CaptionRequest, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> list[ImageToCaption]:
        check_count(len(items), "image", limits, "images")
        check_constraints(request, limits)
        config = _config(run, request, limits)
        check_search(config, len(items), "images", limits)
        # A server reads no files of its own: what it is sent is the image itself.
        read = sent_images(run, items) if limits is not None else run.captioner.read(list(items))
        return [ImageToCaption(name, pixels, config) for name, pixels in read]

    def key(self, run: "Run", request: CaptionRequest) -> Hashable:
        return search_key(_config(run, request, None))

    def cost(self, run: "Run", asked: Asked) -> Cost:
        config = asked.item.config
        return Cost(run.captioner.places, search_rows(config) * config.max_len)

    def together(self, run: "Run", asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> list[CaptionedImage]:
        found = run.captioner.caption(
            [one.item.pixels for one in asked],
            asked[0].item.config,
            numbers=[one.number for one in asked],  # what is sampled goes by an image's number in its own request
            gone=lambda place: gone(asked[place]),
        )
        return [
            CaptionedImage(image=one.item.name, captions=tuple(best)) for one, best in zip(asked, found, strict=True)
        ]

    def written(self, result: CaptionedImage) -> int:
        return sum(len(one.tokens) for one in result.captions)

    def inputs(self, run: "Run", words: Iterable[str], file: "Path | None") -> Iterator[Any]:
        reader = run.captioner.reader
        return reader.file(file) if file else iter(reader.arguments(list(words)))

    def show(self, result: CaptionedImage, display: CaptionDisplay | None = None) -> str:
        lines = []
        for one in result.captions:
            score = [f"{one.score:.4f}"] if display and display.scores else []
            lines.append("\t".join([result.image, *score, " ".join(one.text.split())]))
        return "\n".join(lines)

    def cut(self, result: CaptionedImage) -> tuple[int, int]:
        return sum(not one.finished for one in result.captions), len(result.captions)

    def note(self, run: "Run", request: CaptionRequest, cut: int, total: int) -> str:
        return run.captioner.cut_note(cut, total, _config(run, request, None))


def sent_images(run: "Run", items: Sequence[Any]) -> list[tuple[str, Any]]:
    """The names and pixels of images that were sent to a server in base64."""
    return run.captioner.read([sent_image(item, number) for number, item in enumerate(items, 1)], SERVED_PIXELS)


def sent_image(item: object, number: int) -> tuple[str, bytes]:
    """The bytes of an image that was sent in base64, plain or as a data: address."""
    import base64
    import binascii

    where = f"image {number}"
    if not isinstance(item, str):
        raise DataError(f"{where} must be an image file in base64")
    head, comma, rest = item.partition(",")
    text = rest if comma and head.startswith("data:") else item
    try:
        return where, base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DataError(
            f"{where} is not base64: send the bytes of an image file, as base64 or a data: address"
        ) from None


def _config(run: "Run", request: CaptionRequest, limits: RequestLimits | None) -> "DecodeConfig":
    decode = {name: value for name, value in given(request, "image").items() if value != ()}
    config = run.decode_config(**decode)
    longest = min(config.max_len, run.captioner.max_len)
    longest = longest if limits is None else min(longest, limits.tokens)
    return replace(config, max_len=longest, min_len=min(config.min_len, longest - 1))


CAPTION = WriteCaptions(
    name="caption",
    help="""Write captions of images: the image's name and its caption, one line each.

    With --top-beams or --samples, that many lines for each image. A server is sent image files in base64.

    \b
    Examples:
      regard caption runs/scenes photo.png
      regard caption runs/scenes folder --beam 5 --top-beams 3 --scores
      regard caption runs/scenes --input images.txt --output captions.tsv --json
    """,
    request=CaptionRequest,
    items="image",
    result=CaptionedImage,
    display=CaptionDisplay,
    unit="images",
    reads_standard_input=False,
)
