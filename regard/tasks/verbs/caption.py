"""`caption`: images in, captions out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from regard.tasks.verbs.spec import Asked, Between, RequestLimits, SamplingOptions, WrittenText, option, read_each
from regard.tasks.verbs.writing import ScoresDisplay, ToWrite, WritingRequest, WritingVerb, sent_file

if TYPE_CHECKING:
    from pathlib import Path

    from regard.tasks.run import Run

SERVED_PIXELS = 1 << 24
"""Pixels of an image that a server takes: a small body may claim to hold any number of them."""

SERVED_BODY = 16 << 20
"""Bytes of a request, unless said: a photograph of 12 MB, in base64."""


@dataclass(frozen=True, slots=True)
class WrittenCaption(WrittenText):
    """A caption."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionRequest(SamplingOptions, WritingRequest):
    """Images, and how to caption them."""

    image: str | tuple[str, ...] = option(
        MISSING, "Image files, folders of them, or arrays; to a server, an image file in base64."
    )
    min_len: Annotated[int | None, Between(0, "tokens")] = option(None, "Fewest tokens of a caption.")
    prefix: str | None = option(None, "Begin every caption with this text.", "TEXT")
    require: str | tuple[str, ...] = option((), "A phrase that captions must have; may be repeated.", "TEXT")
    forbid: str | tuple[str, ...] = option((), "A phrase that no caption has; may be repeated.", "TEXT")


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionedImage:
    """One image, by its name, with its captions, best first."""

    image: str
    captions: tuple[WrittenCaption, ...]


class WriteCaptions(WritingVerb[CaptionRequest, CaptionedImage]):
    """Images of many requests that are searched for alike go together."""

    def inputs_read(
        self, run: "Run", request: CaptionRequest, items: Sequence[Any], limits: RequestLimits | None
    ) -> list[tuple[str, Any]]:
        return sent_images(run, items) if limits is not None else run.captioner.read(list(items))

    def places(self, run: "Run", item: ToWrite) -> int:
        return run.captioner.places

    def result_of(self, asked: Asked, best: Sequence[WrittenCaption]) -> CaptionedImage:
        return CaptionedImage(image=asked.item.name, captions=tuple(best))

    def inputs(self, run: "Run", words: Iterable[str], file: "Path | None") -> Iterator[Any]:
        reader = run.captioner.reader
        return reader.file(file) if file else read_each(words, lambda word: reader.arguments([word]))

    def leading(self, result: CaptionedImage) -> tuple[str, ...]:
        return (result.image,)


def sent_images(run: "Run", items: Sequence[Any]) -> list[tuple[str, Any]]:
    """The names and pixels of images that were sent to a server in base64."""
    return run.captioner.read([sent_image(item, number) for number, item in enumerate(items, 1)], SERVED_PIXELS)


def sent_image(item: object, number: int) -> tuple[str, bytes]:
    """The bytes of an image that was sent in base64, plain or as a data: address."""
    return sent_file(item, f"image {number}", "an image")


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
    display=ScoresDisplay,
    engine="captioner",
    outputs="captions",
    unit="images",
    body=SERVED_BODY,
    reads_files=True,
    reads_standard_input=False,
)
