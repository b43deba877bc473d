"""A look at data: each kind of wrong data gets its line, and clean data none."""

import itertools
import json
import random

import pytest

import regard
from regard.data.inspection import EvenSample, inspect_labelled, inspect_pairs, inspect_text, side_statistics
from regard.data.readers import Documents, PairList, SplitPairs, is_held_out
from regard.errors import DataError

# fmt: off
ENGLISH = (
    "the", "a", "dog", "cat", "man", "woman", "child", "house", "tree", "road", "sees", "finds", "likes", "takes",
    "small", "large", "old", "red", "near", "under", "with",
)
FRENCH = (
    "le", "un", "chien", "chat", "homme", "femme", "enfant", "maison", "arbre", "route", "voit", "trouve", "aime",
    "prend", "petit", "grand", "vieux", "rouge", "pour", "sous", "avec",
)
# fmt: on


def clean(count=1500, seed=1):
    """Pairs of made-up sentences, word for word, none twice."""
    made, random_ = {}, random.Random(seed)
    while len(made) < count:
        words = [random_.randrange(len(ENGLISH)) for _ in range(random_.randint(4, 9))]
        number = str(random_.randrange(10_000))
        made[" ".join([*(ENGLISH[word] for word in words), number])] = " ".join(
            [*(FRENCH[word] for word in words), number]
        )
    return list(made.items())


def kinds(found):
    return {finding.kind for finding in found.findings}


def test_clean_pairs_have_nothing_wrong_with_them():
    assert kinds(inspect_pairs(clean(), clean(200, seed=2))) == set()


def every(step, change):
    """Pairs of which every so-manieth is changed."""
    return [change(*pair) if number % step == 0 else pair for number, pair in enumerate(clean())]


WRONG = {
    "empty source": every(100, lambda source, target: ("", target)),
    "empty target": every(100, lambda source, target: (source, "  ")),
    "equal sides": every(10, lambda source, target: (source, source)),
    "repeated pairs": [*clean(), *clean()[:50]],
    "length ratio": every(20, lambda source, target: (source, f"{target} " * 9)),
    "swapped columns": every(10, lambda source, target: (target, source)),
    "replacement characters": every(500, lambda source, target: (source + " caf\ufffd", target)),
    "wrong encoding": every(500, lambda source, target: (source, target + " Ã©tÃ©")),
    "control characters": every(500, lambda source, target: (source + "\x07", target)),
    "markup": every(10, lambda source, target: (f"<b>{source}</b>", target)),
    "decomposed characters": every(500, lambda source, target: (source, target + " e\u0301te\u0301")),
    "spaces": every(2, lambda source, target: (source.replace(" ", "  "), target)),
    "mixed scripts": every(10, lambda source, target: ("собака видит дом", target)),
    "mixed languages": every(10, lambda source, target: (source, f"der {target} und nicht mit")),
    "numbers": [(source, str(number)) for number, (source, _) in enumerate(clean())],
    "one target": [(source, "le chien") for source, _ in clean()],
    "several targets": [(source, f"{target} {word}") for source, target in clean(900) for word in ("oui", "non")],
    "header": [("english", "francais"), *clean()],
    "line breaks": every(10, lambda source, target: (source, f"{target}\nfin")),
    "shifted lines": [(clean()[row + 1][0], target) for row, (_, target) in enumerate(clean()[:200])],
    "few rows": clean(50),
}
BOUNDS = {
    "few rows": (clean(1000), clean(999)),
    "repeated pairs": ([*clean(), *clean()[:1]], [*clean(), *clean()[:2]]),
    "equal sides": (
        [*clean(1470), *((source, source) for source, _ in clean(30, seed=2))],
        [*clean(1469), *((source, source) for source, _ in clean(31, seed=2))],
    ),
    "numbers": (
        [(source, "4" if number < 1350 else target) for number, (source, target) in enumerate(clean())],
        [(source, "4" if number < 1351 else target) for number, (source, target) in enumerate(clean())],
    ),
    "several targets": (
        [*clean(1200), *((source, f"{target} oui") for source, target in clean(300))],
        [*clean(1200), *((source, f"{target} oui") for source, target in clean(301))],
    ),
    "shifted lines": (clean()[:200], [(clean()[row][0], clean()[row + 1][1]) for row in range(200)]),
    "markup": (
        [(f"<b>{source}</b>" if number < 15 else source, target) for number, (source, target) in enumerate(clean())],
        [(f"<b>{source}</b>" if number < 16 else source, target) for number, (source, target) in enumerate(clean())],
    ),
    "spaces": (
        [(f"{source} " if number < 75 else source, target) for number, (source, target) in enumerate(clean())],
        [(f"{source} " if number < 76 else source, target) for number, (source, target) in enumerate(clean())],
    ),
    "mixed scripts": (
        [("дом " * 5 if number < 30 else source, target) for number, (source, target) in enumerate(clean())],
        [("дом " * 5 if number < 31 else source, target) for number, (source, target) in enumerate(clean())],
    ),
}
"""Pairs that do not get a line yet, and pairs that do: of rows that many may have, above a share alone."""


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_pairs_get_their_line(kind):
    found = inspect_pairs(WRONG[kind])
    assert kind in kinds(found)
    line = next(finding.line for finding in found.findings if finding.kind == kind)
    assert len(line) > 20


@pytest.mark.parametrize("kind", BOUNDS)
def test_pairs_get_their_line_above_its_bound_and_not_below(kind):
    below, above = BOUNDS[kind]
    assert kind not in kinds(inspect_pairs(below))
    assert kind in kinds(inspect_pairs(above))


@pytest.mark.parametrize(("shift", "way"), [(1, "last"), (-1, "next")])
def test_the_way_that_lines_are_shifted_is_said(shift, way):
    rows = [(clean()[row + shift][0], clean()[row][1]) for row in range(1, 200)]
    (line,) = [one.line for one in inspect_pairs(rows).findings if one.kind == "shifted lines"]
    assert f"numbers of a source stand in the {'next' if shift == 1 else 'last'} row's target" in line


def test_a_row_counts_once_where_both_its_sides_are_wrong():
    found = inspect_pairs([(f"<b>{source}</b>", f"<b>{target}</b>") for source, target in clean()])
    assert "1,500 of 1,500 rows (100 %)" in found.findings[0].line


def test_columns_are_swapped_in_a_third_of_the_rows():
    found = inspect_pairs(every(3, lambda source, target: (target, source)))
    line = next(finding.line for finding in found.findings if finding.kind == "swapped columns")
    assert "500 of 1,500 rows (33.3 %)" in line
    # Of one language on both sides nothing tells which is which.
    others = [source for source, _ in clean(1500, seed=2)]
    assert kinds(inspect_pairs([*zip((source for source, _ in clean()), others, strict=True)])) == set()


@pytest.mark.parametrize(
    "rows",
    [
        [("English text", "German text"), *clean()],
        [("x", "y"), *((str(number), str(number * 7)) for number in range(1500))],
    ],
)
def test_a_header_of_several_words_or_above_numbers_gets_its_line(rows):
    assert "header" in kinds(inspect_pairs(rows))
    assert "header" not in kinds(inspect_pairs(rows[1:]))


@pytest.mark.parametrize(
    ("kind", "valid"),
    [
        ("validation pairs in training", clean()[:20]),
        ("validation sources in training", [(source, "autre chose") for source, _ in clean()[:20]]),
        ("swapped validation", [(target, source) for source, target in clean(200, seed=2)]),
        ("another distribution", [("stocks fell sharply on monday", "les actions ont chuté")] * 50),
    ],
)
def test_wrong_validation_pairs_get_their_line(kind, valid):
    assert kind in kinds(inspect_pairs(clean(), valid))


def test_swapped_validation_is_told_what_to_do_with_files_and_with_a_table(tmp_path):
    pairs, other = clean(), clean(200, seed=2)
    swapped = [(target, source) for source, target in other]
    (said,) = [one.line for one in inspect_pairs(pairs, swapped).findings if one.kind == "swapped validation"]
    assert "give its two files in the other order" in said
    assert "of a table write the columns in the order of the training data, or give both headers" in said
    for name, rows in (("train.tsv", [("one", "two"), *pairs]), ("valid.tsv", [("two", "one"), *swapped])):
        (tmp_path / name).write_text("".join(f"{first}\t{second}\n" for first, second in rows), encoding="utf-8")
    named = ("data.source=one", "data.target=two")
    plan = regard.plan(tmp_path / "train.tsv", valid=tmp_path / "valid.tsv", overrides=named)
    assert "swapped validation" not in kinds(plan)


@pytest.mark.parametrize(("count", "said"), [(1, "there is 1 row: too few"), (20, "there are 20 rows: too few")])
def test_one_row_is_counted_as_one(count, said):
    for found in (inspect_pairs(clean(count)), inspect_labelled(labelled(count))):
        assert any(one.line.startswith(said) for one in found.findings)


def test_a_share_of_one_row_is_of_a_row():
    (line,) = [one.line for one in inspect_labelled([((" ",), "good")]).findings if one.kind == "empty text"]
    assert line.startswith("1 of 1 row (100 %)")


def test_pairs_of_texts_are_shown_as_classify_shows_them():
    spaced = [((f"{source} ", target), ("no", "yes")[number % 2]) for number, (source, target) in enumerate(clean(400))]
    rows = [(("the  end", "la fin"), "no"), *spaced, (("the  end", "la fin"), "yes"), *spaced[:99]]
    found = {one.kind: one.line for one in inspect_labelled([rows[0], *rows]).findings}
    assert found["repeated texts"].endswith(
        "are a text that was there before, with the same label; first in row 2: 'the  end ||| la fin'"
    )
    for kind in ("contradicting labels", "spaces"):
        assert found[kind].endswith("'the  end ||| la fin'")


def labelled(count=400):
    return [((source,), ("good", "bad")[number % 2]) for number, (source, _) in enumerate(clean(count))]


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("empty text", [((" ",), "good"), *labelled()]),
        (
            "labels that mean none",
            [(text, "-" if number % 9 else label) for number, (text, label) in enumerate(labelled())],
        ),
        (
            "several labels in one",
            [
                (text, ("art", "law", "art|law", "law|tax", "art|tax")[number % 5])
                for number, (text, _) in enumerate(labelled())
            ],
        ),
        ("dates as labels", [(text, f"2024-0{number % 6 + 1}-01") for number, (text, _) in enumerate(labelled())]),
        ("decimals as labels", [(text, f"{number % 9 / 2}") for number, (text, _) in enumerate(labelled())]),
        ("quoted texts", [((f'"{text[0]}"',), label) for text, label in labelled()]),
        ("repeated texts", [*labelled(), *labelled()[:40]]),
        (
            "contradicting labels",
            [*labelled(), *(((text), "bad") for text, label in labelled()[:4] if label == "good")],
        ),
        ("one label", [(text, "good") for text, _ in labelled()]),
        ("as many labels as rows", [(text, str(number)) for number, (text, _) in enumerate(labelled())]),
        ("labels that differ in case", [*labelled()[:-1], (labelled()[-1][0], "Good")]),
        ("few rows", labelled(100)),
        ("header", [(("comment",), "toxic"), *labelled()]),
        ("rare labels", [*labelled()[:-1], (labelled()[-1][0], "rare")]),
        (
            "one label of most texts",
            [(text, "bad" if number < 9 else "good") for number, (text, _) in enumerate(labelled())],
        ),
    ],
)
def test_wrong_labels_get_their_line(kind, rows):
    assert kind in kinds(inspect_labelled(rows))
    assert kinds(inspect_labelled(labelled())) == set()


@pytest.mark.parametrize(
    ("kind", "valid"),
    [
        ("validation texts in training", labelled()[:5]),
        ("labels of validation alone", [(text, "fair") for text, _ in labelled()[:5]]),
    ],
)
def test_wrong_validation_labels_get_their_line(kind, valid):
    assert kind in kinds(inspect_labelled(labelled(), valid))


def of_labels(counts):
    """Texts, no two alike, of which so many have each label."""
    labels = [label for label, count in counts.items() for _ in range(count)]
    return [((source,), label) for (source, _), label in zip(clean(len(labels)), labels, strict=True)]


@pytest.mark.parametrize(
    ("kind", "below", "above"),
    [
        ("few rows", labelled(200), labelled(199)),
        ("rare labels", of_labels({"a": 200, "b": 200, "c": 5}), of_labels({"a": 200, "b": 200, "c": 4})),
        ("one label of most texts", of_labels({"a": 360, "b": 40}), of_labels({"a": 361, "b": 39})),
        ("repeated texts", [*labelled(396), *labelled(4)], [*labelled(395), *labelled(5)]),
        (
            "as many labels as rows",
            of_labels({"a": 200, **{str(number): 1 for number in range(198)}}),
            of_labels({"a": 200, **{str(number): 1 for number in range(199)}}),
        ),
        (
            "as many labels as rows",
            of_labels(dict.fromkeys("abcdefghijklmnopqrs", 1)),
            of_labels(dict.fromkeys("abcdefghijklmnopqrst", 1)),
        ),
        (
            "several labels in one",
            of_labels({"art": 90, "law": 90, "tax": 90, "art|law": 90, "law|tax": 90}),
            of_labels({"art": 90, "law": 90, "tax": 90, "art|law": 90, "law|tax": 90, "art|tax": 90}),
        ),
        (
            "several labels in one",
            of_labels({"a|b": 90, "c|d": 90, "e|f": 90}),
            of_labels({"a|b": 90, "b|c": 90, "c|a": 90}),
        ),
        ("header", [(("comment",), "bad"), *labelled()], [(("comment",), "toxic"), *labelled()]),
        (
            "header",
            [(("the",), "toxic"), *labelled()],
            [(("a comment",), "toxic"), *((text, label) for text, label in labelled() if "a" not in text[0].split())],
        ),
    ],
)
def test_labels_get_their_line_above_its_bound_and_not_below(kind, below, above):
    assert kind not in kinds(inspect_labelled(below))
    assert kind in kinds(inspect_labelled(above))


def test_what_labels_are_like_matters_only_where_they_are_classes():
    rows = [(("comment",), "toxic"), *((text, "good") for text, _ in labelled()[:300])]
    assert {"one label of most texts", "rare labels", "header"} <= kinds(inspect_labelled(rows))
    assert kinds(inspect_labelled(rows, [(rows[5][0], "fair")], classes=False)) == {"validation texts in training"}


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (["stocks fell sharply on monday"] * 50, "100 % of the words of the validation texts do not occur"),
        (
            [" ".join([source] * 4) for source, _ in clean(50)],
            "a row of the validation texts has 29.9 words in the mean, one to train on 7.",
        ),
        (
            [source.split()[0] for source, _ in clean(50)],
            "a row of the validation texts has 1.0 words in the mean, one to train on 7.",
        ),
    ],
)
def test_validation_texts_of_another_kind_get_their_line(texts, line):
    found = inspect_labelled(labelled(), [((one,), "good") for one in texts]).findings
    assert [one.line[: len(line)] for one in found if one.kind == "another distribution"] == [line]
    again = inspect_text(text([source for source, _ in clean(4000)]), text(texts)).findings
    line = line.replace("validation texts", "validation text")
    assert [one.line[: len(line)] for one in again if one.kind == "another distribution"] == [line]


def test_first_texts_of_pairs_are_counted_case_and_spaces_aside():
    rows = [((first, second), "yes") for first in ("One text", "one  text", "Another") for second in ("a", "b")]
    assert inspect_labelled(rows).first_texts == 2
    assert inspect_labelled(labelled()).first_texts == 0


def text(lines):
    return [("\n".join(lines), True)]


PROSE = [source for source, _ in clean(4000)]


def treebank(sentence):
    """A sentence as a treebank in CoNLL-U has it: ten columns for each word, after a line about it."""
    rows = (f"{place}\t{word}\t{word}\tNOUN\t_\t_\t0\troot\t_\t_" for place, word in enumerate(sentence.split(), 1))
    return [f"# text = {sentence}", *rows, ""]


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("repeated lines", text([*PROSE, *PROSE])),
        ("a table as text", text([line.replace(" ", "\t", 1) for line in PROSE])),
        ("records as text", text([f'{{"text": "{line}"}}' for line in PROSE])),
        ("records as text", [(json.dumps([{"text": line} for line in PROSE], indent=1), True)]),
        ("a table as text", text([line.replace(" ", " ||| ", 1) for line in PROSE])),
        ("a treebank as text", text([line for one in PROSE[:500] for line in treebank(one)])),
        ("little text", text(PROSE[:100])),
        ("markup", text([f"<p>{line}</p>" for line in PROSE])),
    ],
)
def test_wrong_text_gets_its_line(kind, parts):
    assert kind in kinds(inspect_text(parts))
    assert kinds(inspect_text(text(PROSE))) == set()


@pytest.mark.parametrize(
    "form", ["[2024-05-01 10:02] anna: {}", '"{}", she said.', "[aside] {}", "{{{{{}}}}} is a template"]
)
def test_lines_that_only_begin_like_json_are_no_records(form):
    assert "records as text" not in kinds(inspect_text(text([form.format(line) for line in PROSE])))


def test_labels_with_commas_and_texts_that_quote_are_no_findings():
    known = ("yes, of course", "no, never", "maybe")
    rows = [((f'he said "{text[0]}" again',), known[number % 3]) for number, (text, _) in enumerate(labelled())]
    assert not kinds(inspect_labelled(rows)) & {"several labels in one", "quoted texts", "labels that mean none"}


@pytest.mark.parametrize("labels", [("1", "2", "5"), ("1.0", "2.0"), ("19:1", "v1.2", "2024"), ("1.5", "none")])
def test_labels_that_only_look_like_numbers_or_dates_are_no_findings(labels):
    rows = [(text, labels[number % len(labels)]) for number, (text, _) in enumerate(labelled())]
    assert not kinds(inspect_labelled(rows)) & {"dates as labels", "decimals as labels"}


def test_markup_is_said_to_be_written_only_where_a_model_writes():
    marked = [((f"<b>{one[0]}</b>",), label) for one, label in labelled()]
    lines = {finding.kind: finding.line for finding in inspect_labelled(marked).findings}
    assert "write" not in lines["markup"]
    lines = {finding.kind: finding.line for finding in inspect_text(text([f"<p>{one}</p>" for one in PROSE])).findings}
    assert "the model will write it too" in lines["markup"]


def test_validation_text_that_is_trained_on_gets_its_line():
    assert "validation text in training" in kinds(inspect_text(text(PROSE), text(PROSE[:200])))


def test_a_sample_is_even_and_bounded():
    sample = EvenSample[int](100)
    for number in range(12_345):
        sample.add(number)
    assert 100 <= len(sample.items) < 200
    assert sample.count == 12_345
    numbers = [number for number, _ in sample.items]
    assert len({later - earlier for earlier, later in itertools.pairwise(numbers)}) == 1


def test_a_closed_vocabulary_is_told_from_a_language():
    assert side_statistics(["go left twice"] * 50 + ["go right"] * 50).closed
    assert not side_statistics([f"word{number} and another{number}" for number in range(500)]).closed


def test_texts_without_spaces_are_counted_by_their_characters():
    random_ = random.Random(1)
    han = [chr(0x4E00 + number) for number in range(300)]
    chinese = ["".join(random_.choices(han, k=random_.randint(10, 40))) + "。" for _ in range(1500)]
    pairs = [(source, target) for source, (_, target) in zip(chinese, clean(), strict=True)]
    found = inspect_pairs(pairs, pairs[:0])
    assert kinds(found) == set()
    assert found.source.mean_words > 10
    assert found.most_words[0] == max(map(len, chinese))
    assert found.source.single == 1.0
    assert not found.source.closed  # its characters are few and known, but are not words between spaces
    other = [("".join(random_.choices("機械学習で文章を", k=20)), target) for _, target in clean(200, seed=2)]
    assert "another distribution" in kinds(inspect_pairs(pairs, other))
    lines = inspect_pairs([(f"{source}\n{source}", target) for source, target in clean()])
    assert lines.most_words[0] == 2 * max(len(source.split()) for source, _ in clean())


def test_a_split_keeps_copies_and_all_targets_of_a_source_on_one_side():
    pairs = [(f"Sentence {number}", f"phrase {number} {copy}") for number in range(500) for copy in range(3)]
    pairs += [(source.upper() + " ", target) for source, target in pairs]
    held, rest = (SplitPairs(PairList(pairs), 0.1, out) for out in (True, False))
    ours, theirs = ({" ".join(source.lower().split()) for source, _ in side} for side in (held, rest))
    assert not ours & theirs
    assert len(ours | theirs) == 500
    assert 25 < len(ours) < 80
    assert len(list(held)) + len(list(rest)) == len(pairs)
    assert held.digest() != rest.digest() != PairList(pairs).digest()
    assert is_held_out("a  B", 0.5) == is_held_out("A b", 0.5)


def test_the_end_of_a_plain_file_is_held_out_between_lines(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("".join(f"line number {number}\n" for number in range(1000)))
    rest, held = (Documents.of([file]).split(0.1, out) for out in (False, True))
    before, after = ("".join(part.text for part in one) for one in (rest, held))
    assert before + after == file.read_text()
    assert before.endswith("\n")
    assert 0.09 < len(after) / len(before + after) < 0.11
    assert rest.digest() != held.digest()
    (tmp_path / "one.txt").write_text("word " * 10_000)
    parts = [
        "".join(part.text for part in Documents.of([tmp_path / "one.txt"]).split(0.1, out)) for out in (False, True)
    ]
    assert "".join(parts) == "word " * 10_000
    assert 4000 < len(parts[1]) < 6000


def test_the_longest_labelled_text_is_found_wherever_it_stands():
    rows = labelled(30_000)
    for place in (1, 17_001):  # which a sample of every second or fourth row leaves out
        text = " ".join(["word"] * 300)
        found = inspect_labelled([*rows[:place], ((text,), "good"), *rows[place:]]).text
        assert (found.most_words, found.most_characters) == (300, len(text))
    assert inspect_labelled([(("a b\nc  d",), "good"), (("a",), "bad")]).text.most_words == 4
    assert inspect_labelled([(("one two", "three"), "good"), (("a", "b"), "bad")]).text.most_words == 3


def test_no_labelled_texts_at_all_are_refused():
    with pytest.raises(DataError, match="no row has a text and a label"):
        inspect_labelled([])
