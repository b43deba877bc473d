"""The English side of a sentence while it is being written."""

from regard.data.world.phrases import Stand

# Where each part of a record stands among the words, by the record's identity and the part's name.
Places = dict[tuple[int, str], tuple[int, ...]]


class Draft:
    """The English side as it is being written, word by word."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.heads: list[int] = []
        self.relations: list[str] = []
        self.brackets: list[str] = []
        self.places: Places = {}
        self.pronouns: list[Stand] = []

    def add(self, text: str, tag: str, head: int = -1, relation: str = "root") -> int:
        """Write a word and return its index."""
        index = len(self.words)
        if not index:
            text = text[0].upper() + text[1:]
        self.words.append(text)
        self.heads.append(head)
        self.relations.append(relation)
        self.brackets.append(f"({tag} {text})")
        return index

    def attach(self, word: int, head: int, relation: str) -> None:
        """Hang a word that was written before its head."""
        self.heads[word] = head
        self.relations[word] = relation

    def open(self, label: str) -> None:
        self.brackets.append("(" + label)

    def close(self) -> None:
        self.brackets.append(")")

    @property
    def tree(self) -> str:
        return " ".join(self.brackets).replace(" )", ")")
