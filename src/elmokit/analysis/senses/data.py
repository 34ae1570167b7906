"""Sense-tagged text from files, sentence by sentence, and WordNet's first senses.

    data.xml + keys ─┐
                     ├─► TaggedSentence: tokens, and where words stand that have senses
    uses.tsv ────────┘

The XML is that of Raganato's evaluation framework, in which SemCor and the test sets come. It is
read as a stream: no tree is built, nothing outside the file is looked up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from elmokit.analysis.uses import read_uses
from elmokit.data.lines import decoded_lines, extension_of
from elmokit.errors import ElmokitError
from elmokit.io.lines import STANDARD_INPUT, FilePath, name_of, read_blocks

# The number of a part of speech in WordNet's keys, such as bank%1:17:01::
PARTS_OF_SPEECH = {"1": "NOUN", "2": "VERB", "3": "ADJ", "4": "ADV", "5": "ADJ"}
# The Penn Treebank's names of quotes and brackets; the models have read the characters themselves.
PENN_NAMES = {
    "``": '"',
    "''": '"',
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
}


@dataclass(frozen=True)
class Instance:
    """A word of a sentence that has a sense."""

    id: str
    start: int
    end: int
    """The word is `tokens[start:end]`."""
    lemma: str
    pos: str
    """NOUN, VERB, ADJ or ADV; empty where it is not known."""
    keys: tuple[str, ...]
    """Its senses: several where the annotators saw several."""


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence and its words that have senses."""

    tokens: tuple[str, ...]
    instances: tuple[Instance, ...]


def read_tagged(data: FilePath, keys: FilePath | None = None) -> Iterator[TaggedSentence]:
    """The sentences of a file in Raganato's XML, or of a table of uses (see `read_uses`).

    Args:
        data: the file, also .gz, .xz, .zst.
        keys: the senses of an XML file's instances: lines of an id and one or more keys.
    """
    if extension_of(data) == ".xml":
        if keys is None:
            raise ElmokitError(f"name the file with the senses of {name_of(data)} with --keys")
        return _read_xml(data, Keys(keys))
    if keys is not None:
        raise ElmokitError(f"keys belong to an .xml file, and {name_of(data)} is none")
    return _read_table(data)


@dataclass(frozen=True)
class Extent:
    """How much there is in a file."""

    sentences: int
    instances: int


def survey(data: FilePath, keys: FilePath | None = None) -> Extent:
    """Read a file once, to find what is wrong with it and how much there is."""
    if STANDARD_INPUT in (data, keys):
        raise ElmokitError("sense-tagged text is read more than once: it must be a file")
    sentences = instances = 0
    for sentence in read_tagged(data, keys):
        sentences += 1
        instances += len(sentence.instances)
    if not instances:
        raise ElmokitError(f"{name_of(data)} has no words with senses")
    return Extent(sentences, instances)


def _read_table(path: FilePath) -> Iterator[TaggedSentence]:
    for number, use in enumerate(read_uses(path), start=1):
        instance = Instance(f"use {number}", use.start, use.end, use.lemma, "", (use.sense,))
        yield TaggedSentence(use.tokens, (instance,))


# ---------------------------------------------------------------------- keys
class Keys:
    """The senses of instances by their ids; in memory is only what stands in another order."""

    def __init__(self, path: FilePath) -> None:
        self.path = path
        self._lines = _key_lines(path)
        self._waiting: dict[str, tuple[str, ...]] = {}

    def of(self, instance: str) -> tuple[str, ...]:
        """The senses of an instance; each is asked for once."""
        while instance not in self._waiting:
            number, name, keys = next(self._lines, (0, "", ()))
            if not name:
                raise ElmokitError(f"{name_of(self.path)} has no keys for {instance!r}")
            if name in self._waiting:
                raise ElmokitError(
                    f"{name_of(self.path)}, line {number}: {name!r} has its keys already"
                )
            self._waiting[name] = keys
        return self._waiting.pop(instance)

    def check_end(self, data: str) -> None:
        """Complain of keys that nobody has asked for."""
        left = next(iter(self._waiting), None) or next((name for _, name, _ in self._lines), None)
        if left is not None:
            raise ElmokitError(
                f"{name_of(self.path)} has keys for {left!r}, which is not in {data}: the two "
                "files do not belong together"
            )


def _key_lines(path: FilePath) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    for number, text, trouble in decoded_lines(path):
        name, *keys = text.split() or [""]
        if trouble or (name and not keys):
            what = trouble or "there must be an id and one or more keys"
            raise ElmokitError(f"{name_of(path)}, line {number}: {what}")
        if name:
            yield number, name, tuple(keys)


# ---------------------------------------------------------------------- XML
def _read_xml(path: FilePath, keys: Keys) -> Iterator[TaggedSentence]:
    reader = _XmlReader(name_of(path), keys)
    for block in read_blocks(path):
        yield from reader.feed(block)
    yield from reader.feed(b"", last=True)
    keys.check_end(name_of(path))


@dataclass
class _XmlReader:
    """What expat calls for each tag; whole sentences wait in `done`."""

    name: str
    keys: Keys
    tokens: list[str] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    done: list[TaggedSentence] = field(default_factory=list)
    word: dict[str, str] | None = None
    """The attributes of the word that is being read."""
    text: str = ""

    def __post_init__(self) -> None:
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.begin
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.EntityDeclHandler = self.refuse_entity

    def feed(self, block: bytes, *, last: bool = False) -> list[TaggedSentence]:
        """The sentences that end in the next block of the file."""
        try:
            self.parser.Parse(block, last)
        except expat.ExpatError as error:
            what = expat.ErrorString(error.code)
            raise ElmokitError(f"{self.name}, line {error.lineno}: no XML: {what}") from None
        done, self.done = self.done, []
        return done

    def where(self) -> str:
        """The place in the file, for messages."""
        return f"{self.name}, line {self.parser.CurrentLineNumber}"

    def refuse_entity(self, name: str, *_: Any) -> None:
        """Files of this format define no entities; those that do may mean no good."""
        raise ElmokitError(f"{self.where()}: the file defines an entity {name!r}")

    def begin(self, tag: str, attributes: dict[str, str]) -> None:
        """A tag opens."""
        if tag == "sentence":
            self.tokens, self.instances = [], []
        elif tag in ("wf", "instance"):
            missing = {"id", "lemma", "pos"} - set(attributes) if tag == "instance" else set()
            if missing:
                raise ElmokitError(f"{self.where()}: the instance has no {min(missing)}")
            self.word, self.text = attributes, ""

    def characters(self, text: str) -> None:
        """Text between tags."""
        if self.word is not None:
            self.text += text

    def end(self, tag: str) -> None:
        """A tag closes."""
        if tag == "sentence":
            self.done.append(TaggedSentence(tuple(self.tokens), tuple(self.instances)))
        elif tag in ("wf", "instance") and self.word is not None:
            start = len(self.tokens)
            self.tokens += (PENN_NAMES.get(token, token) for token in self.text.split())
            if tag == "instance":
                self.instances.append(self.instance(self.word, start))
            self.word = None

    def instance(self, word: dict[str, str], start: int) -> Instance:
        """The word that has just ended."""
        if len(self.tokens) == start:
            raise ElmokitError(f"{self.where()}: the instance {word['id']!r} has no word")
        lemma = "_".join(word["lemma"].lower().split())
        keys = self.keys.of(word["id"])
        return Instance(word["id"], start, len(self.tokens), lemma, word["pos"], keys)


# ---------------------------------------------------------------------- WordNet
def read_first_senses(path: FilePath) -> dict[tuple[str, str], str]:
    """The first sense of each lemma and part of speech, from WordNet's `index.sense`."""
    first: dict[tuple[str, str], str] = {}
    for number, text, trouble in decoded_lines(path):
        cells = text.split()
        if not cells and not trouble:
            continue
        lemma, percent, rest = cells[0].partition("%") if cells else ("", "", "")
        pos = PARTS_OF_SPEECH.get(rest[:1])
        if trouble or len(cells) != 4 or not percent or pos is None or not cells[2].isdecimal():
            what = trouble or "there must be a sense key, an offset, a sense number and a count"
            raise ElmokitError(f"{name_of(path)}, line {number}: {what}")
        if int(cells[2]) == 1:
            first[lemma.lower(), pos] = cells[0]
    if not first:
        raise ElmokitError(f"{name_of(path)} has no senses")
    return first
