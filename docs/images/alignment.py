"""Plot alignment.svg: where the best aligning head of a trained run looks while it translates one sentence.

python docs/images/alignment.py runs/demo
"""

import sys
from html import escape
from pathlib import Path

import torch

import regard
from regard.data.synthetic.world.corpus import LECTURE
from regard.data.synthetic.world.sentence import spans
from regard.look.alignment import best_head, merge, words_of_pieces
from regard.look.watch import attentions, watch
from regard.nn.batch import Pairs, Tokens
from regard.tasks.corpora import world_held_out
from regard.tasks.translation import encode_pair
from regard.tasks.translation_metrics import head_alignment

CELL, LEFT, TOP = 34, 116, 104
FONT = 'font-family="system-ui, -apple-system, \'Segoe UI\', Helvetica, Arial, sans-serif" font-size="14"'


def main(directory: str) -> None:
    run = regard.load(directory, "cpu")
    sentence = LECTURE[2]
    (said,) = run.translate([sentence.english])
    if said != sentence.french:
        raise SystemExit(f"the run says {said!r}: the picture needs {sentence.french!r}")
    names = [name for name in attentions(run.model) if "cross" in name]
    layer, head = best_head(head_alignment(run, world_held_out("valid", count=500).sentences))
    weights = word_weights(run, sentence, names[layer])[head]
    picture = draw(weights, sentence, f"{names[layer]}, head {head}; outlined: gold")
    path = Path(__file__).with_name("alignment.svg")
    path.write_text(picture, encoding="utf-8")
    print(path)


@torch.inference_mode()
def word_weights(run, sentence, name):
    """Heads by French word by English word, at the steps that predict the French words."""
    source, target = encode_pair(run, sentence.english, sentence.french)
    with watch(run.model, name) as trace:
        run.model(Pairs(Tokens.of([source]), Tokens.of([target])))
    own = trace.weights(name)[0, :, : len(target) - 2, : len(source) - 1]
    sides = (
        (run.vocabularies.source, sentence.english, sentence.english_words),
        (run.vocabularies.target, sentence.french, sentence.french_words),
    )
    pieces = [words_of_pieces(side.offsets(text), spans(text, list(words))) for side, text, words in sides]
    return merge(own, *pieces, sources=len(sentence.english_words), targets=len(sentence.french_words))


def draw(weights, sentence, caption: str) -> str:
    columns, rows = sentence.english_words, sentence.french_words
    width, height = LEFT + CELL * len(columns) + 56, TOP + CELL * len(rows) + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" {FONT}>',
        f"<title>{escape(sentence.english)} {escape(sentence.french)}</title>",
        f'<rect width="{width}" height="{height}" rx="10" fill="#fbfaf7"/>',
    ]
    for index, word in enumerate(columns):
        x = LEFT + CELL * index + CELL / 2 + 5
        parts.append(f'<text transform="translate({x:g} {TOP - 10}) rotate(-50)" fill="#1f2430">{escape(word)}</text>')
    for index, word in enumerate(rows):
        y = TOP + CELL * index + CELL / 2 + 5
        parts.append(f'<text x="{LEFT - 10}" y="{y:g}" text-anchor="end" fill="#1f2430">{escape(word)}</text>')
    for row, line in enumerate(weights.tolist()):
        for column, weight in enumerate(line):
            x, y = LEFT + CELL * column, TOP + CELL * row
            parts.append(
                f'<rect x="{x}" y="{y}" width="{CELL - 1}" height="{CELL - 1}" fill="#1f4e8c" '
                f'fill-opacity="{0.04 + 0.96 * weight:.3f}"><title>{weight:.3f}</title></rect>'
            )
    for column, row in sentence.alignment:
        x, y = LEFT + CELL * column + 1.5, TOP + CELL * row + 1.5
        parts.append(
            f'<rect x="{x}" y="{y}" width="{CELL - 4}" height="{CELL - 4}" rx="3" fill="none" stroke="#d9822b" '
            f'stroke-width="2"/>'
        )
    parts.append(f'<text x="{LEFT}" y="{height - 16}" font-size="12.5" fill="#4a5262">{escape(caption)}</text></svg>')
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
