"""Read sense-tagged text sentence by sentence, and WordNet's first senses.

The XML is that of Raganato's evaluation framework, in which SemCor and the test sets are published.
It is read as a stream: no tree is built, and nothing outside the file is looked up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from sys import intern
from typing import Any
from xml.parsers import expat

from elmokit.analysis.uses import read_uses
from elmokit.data.labeled import BadLines
from elmokit.data.lines import good_lines
from elmokit.errors import ElmokitError
from elmokit.io.lines import STANDARD_INPUT, FilePath, name_of, read_blocks
from elmokit.text.readers import extension_of

# Parts of speech by their number in WordNet's keys, such as bank%1:17:01::
PARTS_OF_SPEECH = {"1": "NOUN", "2": "VERB", "3": "ADJ", "4": "ADV", "5": "ADJ"}
# The Penn Treebank's names of quotes and brackets; the models were trained on the characters.
PENN_NAMES = dict(zip("`` '' -LRB- -RRB- -LSB- -RSB- -LCB- -RCB-".split(), '""()[]{}', strict=True))


@dataclass(frozen=True)
class Instance:
    """A word of a sentence that has a sense."""

    start: int
    end: int
    """The word is `tokens[start:end]`."""
    lemma: str
    pos: str
    """NOUN, VERB, ADJ or ADV; empty if unknown."""
    keys: tuple[str, ...]
    """Its senses: several if the annotators chose several."""


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence and those of its words that have senses."""

    tokens: tuple[str, ...]
    instances: tuple[Instance, ...]


def read_tagged(data: FilePath, keys: FilePath | None = None) -> Iterator[TaggedSentence]:
    """Yield the sentences of a file in Raganato's XML, or of a table of uses (see `read_uses`).

    Args:
        data: The file, also .gz, .xz, .zst.
        keys: The senses of an XML file's instances: lines of an id and one or more keys.
    """
    if extension_of(data) == ".xml":
        if keys is None:
            raise ElmokitError(f"name the file with the senses of {name_of(data)} with --keys")
        return _read_xml(data, keys)
    if keys is not None:
        raise ElmokitError(f"--keys belongs to an .xml file, and {name_of(data)} is not one")
    pairs = ((u.tokens, Instance(u.start, u.end, u.lemma, "", (u.sense,))) for u in read_uses(data))
    return (TaggedSentence(tokens, (instance,)) for tokens, instance in pairs)


class TaggedCorpus:
    """The sentences of a sense-tagged file, read again each time they are iterated over."""

    def __init__(self, data: FilePath, keys: FilePath | None = None) -> None:
        """Read the files, as `read_tagged` does, once to find errors in them and to count."""
        if STANDARD_INPUT in (data, keys):
            raise ElmokitError("sense-tagged text is read more than once: give a file")
        self.data, self.keys = data, keys
        self.sentences = self.instances = 0
        for sentence in self:
            self.sentences += 1
            self.instances += len(sentence.instances)
        if not self.instances:
            raise ElmokitError(f"{name_of(data)} has no words with senses")

    def __iter__(self) -> Iterator[TaggedSentence]:
        return read_tagged(self.data, self.keys)

    def __len__(self) -> int:
        """Return the number of sentences."""
        return self.sentences


def _read_keys(path: FilePath) -> dict[str, tuple[str, ...]]:
    senses: dict[str, tuple[str, ...]] = {}
    for where, text in good_lines(path, BadLines()):
        name, *keys = text.split() or [""]
        if name and not keys:
            raise ElmokitError(f"{where}: expected an id and one or more keys")
        if name in senses:
            raise ElmokitError(f"{where}: {name!r} already has keys")
        if name:
            senses[name] = tuple(map(intern, keys))
    return senses


def _read_xml(path: FilePath, keys: FilePath) -> Iterator[TaggedSentence]:
    reader = _XmlReader(name_of(path), name_of(keys), _read_keys(keys))
    for block in read_blocks(path):
        yield from reader.feed(block)
    yield from reader.feed(b"", last=True)
    if left := next(iter(reader.senses), None):
        raise ElmokitError(
            f"{reader.keys} has keys for {left!r}, which is not in {reader.name}: the two files do "
            "not belong together"
        )


class _XmlReader:
    """The handlers that expat calls for each tag; complete sentences wait in `done`."""

    def __init__(self, name: str, keys: str, senses: dict[str, tuple[str, ...]]) -> None:
        self.name, self.keys, self.senses = name, keys, senses
        self.tokens: list[str] = []
        self.instances: list[Instance] = []
        self.done: list[TaggedSentence] = []
        self.word: dict[str, str] | None = None  # attributes of the word that is being read
        self.text = ""
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.begin
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.EntityDeclHandler = self.reject_entity

    def feed(self, block: bytes, *, last: bool = False) -> list[TaggedSentence]:
        """Return the sentences that end in the next block of the file."""
        try:
            self.parser.Parse(block, last)
        except expat.ExpatError as error:
            raise self.error(f"not valid XML: {expat.ErrorString(error.code)}") from None
        done, self.done = self.done, []
        return done

    def error(self, problem: str) -> ElmokitError:
        return ElmokitError(f"{self.name}, line {self.parser.CurrentLineNumber}: {problem}")

    def reject_entity(self, name: str, *_: Any) -> None:
        """Reject entity declarations (entity-expansion attacks)."""
        raise self.error(f"the file defines an entity {name!r}")

    def begin(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "sentence":
            self.tokens, self.instances = [], []
        elif tag in ("wf", "instance"):
            missing = {"id", "lemma", "pos"} - set(attributes)
            if tag == "instance" and missing:
                raise self.error(f"the instance has no {min(missing)}")
            self.word, self.text = attributes, ""

    def characters(self, text: str) -> None:
        if self.word is not None:
            self.text += text

    def end(self, tag: str) -> None:
        if tag == "sentence":
            self.done.append(TaggedSentence(tuple(self.tokens), tuple(self.instances)))
        elif tag in ("wf", "instance") and self.word is not None:
            start = len(self.tokens)
            self.tokens += (PENN_NAMES.get(token, token) for token in self.text.split())
            end, word, self.word = len(self.tokens), self.word, None
            if tag == "instance":
                if start == end:
                    raise self.error(f"the instance {word['id']!r} has no word")
                if word["id"] not in self.senses:
                    raise ElmokitError(f"{self.keys} has no keys for {word['id']!r}")
                lemma, keys = "_".join(word["lemma"].lower().split()), self.senses.pop(word["id"])
                self.instances.append(Instance(start, end, lemma, word["pos"], keys))


def read_first_senses(path: FilePath) -> dict[tuple[str, str], str]:
    """Return the first sense of each lemma and part of speech, from WordNet's `index.sense`."""
    first: dict[tuple[str, str], str] = {}
    for where, text in good_lines(path, BadLines()):
        cells = text.split()
        if not cells:
            continue
        lemma, _, rest = cells[0].partition("%")
        pos = PARTS_OF_SPEECH.get(rest[:1])
        if len(cells) != 4 or pos is None or not cells[2].isdecimal():
            reason = "expected a sense key, an offset, a sense number and a count"
            raise ElmokitError(f"{where}: {reason}")
        if int(cells[2]) == 1:
            first[lemma.lower(), pos] = cells[0]
    if not first:
        raise ElmokitError(f"{name_of(path)} has no senses")
    return first
