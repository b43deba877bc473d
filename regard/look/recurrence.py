"""What the units of a recurrence do: which of them go with a feature of the text, such as an open quotation."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from regard.errors import ConfigError, DataError
from regard.look.alignment import Span
from regard.look.document import Feature, SideName
from regard.look.packed_arrays import as_array

OPENS, CLOSES = "([{", ")]}"
QUOTES = {"\u201c": 1, "\u00ab": 1, "\u201d": 0, "\u00bb": 0}
"""Marks that only open a quotation, or only close it; a straight one does either."""


def tracking(values: object, feature: Sequence[float]) -> Float[np.ndarray, " D"]:
    """How each unit goes with a feature over time: the correlation of its values, steps by units, with it.

    1 or -1 is a unit that is a straight line of the feature; what never changes goes with nothing and has 0.
    """
    units, wanted = as_array(values).astype(np.float64), np.asarray(feature, dtype=np.float64)
    if units.ndim != 2 or len(units) != len(wanted):
        raise DataError(f"values of shape {units.shape} and {len(wanted)} steps of a feature; must be steps, units")
    units, wanted = units - units.mean(0), wanted - wanted.mean()
    lengths = np.sqrt((units**2).sum(0) * (wanted**2).sum())
    return np.divide(wanted @ units, lengths, out=np.zeros(units.shape[1]), where=lengths > 1e-12)


def text_features(
    text: str, spans: Sequence[Span], side: SideName = "source", patterns: Mapping[str, str] | None = None
) -> tuple[Feature, ...]:
    """What is true of the text after each of its pieces, which cover `spans` of its characters.

    Whether a quotation is open, how many brackets are, how far into its line and into the text it is; and, for each of
    `patterns`, a name and a regular expression, whether the piece ends inside what matches it. A feature that is the
    same everywhere is left out.
    """
    quotes, depth, columns = [0.0], [0.0], [0.0]
    for character in text:
        straight = 1 - quotes[-1] if character == '"' else quotes[-1]
        quotes.append(float(QUOTES.get(character, straight)))
        depth.append(max(0.0, depth[-1] + (character in OPENS) - (character in CLOSES)))
        columns.append(0.0 if character == "\n" else columns[-1] + 1)
    after = {"inside quotes": quotes, "open brackets": depth, "place in its line": columns}
    for name, pattern in (patterns or {}).items():
        try:
            found = [match.span() for match in re.finditer(pattern, text)]
        except re.error as error:
            raise ConfigError(f"feature {name}={pattern} is no regular expression: {error}") from None
        inside = np.zeros(len(text) + 1)
        for start, end in found:
            inside[start + 1 : end + 1] = 1.0
        after[name] = inside.tolist()
    ends = [end for _, end in spans]
    made = {name: tuple(float(values[end]) for end in ends) for name, values in after.items()}
    made["place in the text"] = tuple(map(float, range(len(spans))))
    return tuple(Feature(name=name, side=side, values=values) for name, values in made.items() if len(set(values)) > 1)
