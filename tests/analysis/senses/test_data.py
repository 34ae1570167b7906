"""Sense-tagged text: Raganato's XML with its keys, tables of uses, WordNet's index."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import complaint

from elmokit.analysis.senses.data import (
    Instance,
    TaggedCorpus,
    TaggedSentence,
    read_first_senses,
    read_tagged,
)

XML = """<?xml version="1.0" encoding="UTF-8" ?>
<corpus lang="en" source="made-up">
<text id="d0">
<sentence id="d0.s0">
<wf lemma="``" pos=".">``</wf>
<instance id="d0.s0.t0" lemma="river_bank" pos="NOUN">River banks</instance>
<instance id="d0.s0.t1" lemma="Be" pos="VERB">are</instance>
<wf lemma="r&amp;d" pos="NOUN">R&amp;D</wf>
<wf lemma="of_this" pos="ADV">of this</wf>
</sentence>
<sentence id="d0.s1">
<wf lemma="yes" pos="X">Yes</wf>
</sentence>
</text>
</corpus>
"""
KEYS = "d0.s0.t0 river_bank%1:17:00::\nd0.s0.t1 be%2:42:03:: be%2:42:06::\n"


def files(folder: Path, xml: str = XML, keys: str = KEYS) -> tuple[Path, Path]:
    (folder / "data.xml").write_text(xml, encoding="utf-8")
    (folder / "gold.key.txt").write_text(keys, encoding="utf-8")
    return folder / "data.xml", folder / "gold.key.txt"


def trouble(folder: Path, xml: str = XML, keys: str = KEYS) -> str:
    data, gold = files(folder, xml, keys)
    return complaint(lambda: TaggedCorpus(data, gold)).replace(f"{folder}/", "")


def test_words_of_several_words_are_several_tokens_and_all_keys_are_kept(tmp_path: Path) -> None:
    assert list(read_tagged(*files(tmp_path))) == [
        TaggedSentence(
            ('"', "River", "banks", "are", "R&D", "of", "this"),
            (
                Instance(1, 3, "river_bank", "NOUN", ("river_bank%1:17:00::",)),
                Instance(3, 4, "be", "VERB", ("be%2:42:03::", "be%2:42:06::")),
            ),
        ),
        TaggedSentence(("Yes",), ()),
    ]
    corpus = TaggedCorpus(*files(tmp_path))
    assert (corpus.sentences, corpus.instances, len(corpus)) == (2, 2, 2)
    assert list(corpus) == list(corpus)  # It can be read more than once.


@pytest.mark.parametrize(("extension", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed_files_are_read_too(
    tmp_path: Path, extension: str, pack: Callable[[bytes], bytes]
) -> None:
    plain = files(tmp_path)
    packed = [path.with_name(path.name + extension) for path in plain]
    for path, other in zip(plain, packed, strict=True):
        other.write_bytes(pack(path.read_bytes()))
    assert list(read_tagged(*packed)) == list(read_tagged(*plain))


def test_keys_may_be_in_another_order(tmp_path: Path) -> None:
    usual = list(read_tagged(*files(tmp_path)))
    reordered = "".join(reversed(KEYS.splitlines(keepends=True)))
    assert list(read_tagged(*files(tmp_path, keys=reordered))) == usual


def test_any_entity_declaration_raises(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    for declared in ('"money"', f'SYSTEM "{tmp_path}/secret.txt"'):
        head = f"<!DOCTYPE corpus [\n<!ENTITY e {declared}>\n]>\n<corpus"
        message = trouble(tmp_path, XML.replace("<corpus", head, 1).replace("Yes", "&e;"))
        assert message == "data.xml, line 3: the file defines an entity 'e'"


def test_errors_name_the_line(tmp_path: Path) -> None:
    assert trouble(tmp_path, XML.replace("</text>", "")).startswith(
        "data.xml, line 15: not valid XML: "
    )
    assert trouble(tmp_path, XML.replace('pos="VERB"', "")) == (
        "data.xml, line 7: the instance has no pos"
    )
    assert trouble(tmp_path, XML.replace(">are<", "> <")) == (
        "data.xml, line 7: the instance 'd0.s0.t1' has no word"
    )
    assert trouble(tmp_path, "") == "data.xml, line 1: not valid XML: no element found"
    assert trouble(tmp_path, "<corpus></corpus>", "") == "data.xml has no words with senses"


def test_keys_that_do_not_belong_to_the_text_raise(tmp_path: Path) -> None:
    first = KEYS.splitlines(keepends=True)[0]
    assert trouble(tmp_path, keys=first) == "gold.key.txt has no keys for 'd0.s0.t1'"
    assert trouble(tmp_path, keys=KEYS + "d9.s0.t0 be%2:42:03::\n") == (
        "gold.key.txt has keys for 'd9.s0.t0', which is not in data.xml: the two files do not "
        "belong together"
    )
    assert trouble(tmp_path, keys=KEYS.replace(" river_bank%1:17:00::", "")) == (
        "gold.key.txt, line 1: expected an id and one or more keys"
    )
    assert "already" in trouble(tmp_path, keys=first + first + KEYS)


def test_options_that_do_not_fit_raise(tmp_path: Path) -> None:
    data, gold = files(tmp_path)
    assert "--keys" in complaint(lambda: TaggedCorpus(data))
    assert "belongs to an .xml file" in complaint(lambda: TaggedCorpus(gold, gold))
    assert complaint(lambda: TaggedCorpus("-")) == (
        "sense-tagged text is read more than once: give a file"
    )
    assert "there is no file" in complaint(lambda: TaggedCorpus(tmp_path / "no.xml", gold))


def test_a_table_of_uses_has_lemmas_without_a_part_of_speech(tmp_path: Path) -> None:
    path = tmp_path / "uses.tsv"
    path.write_text("the river bank\t2\tshore\nNew York\t0-1\tcity\tNYC\n")
    assert list(read_tagged(path)) == [
        TaggedSentence(("the", "river", "bank"), (Instance(2, 3, "bank", "", ("shore",)),)),
        TaggedSentence(("New", "York"), (Instance(0, 2, "NYC", "", ("city",)),)),
    ]


# ---------------------------------------------------------------------- WordNet
def test_the_first_sense_is_that_with_the_number_1(tmp_path: Path) -> None:
    path = tmp_path / "index.sense"
    path.write_text(
        "bank%1:14:00:: 08420278 2 20\n"
        "bank%1:17:01:: 09213565 1 25\n"
        "bank%2:40:00:: 02343595 1 1\n"
        "good%3:00:01:: 01123148 1 190\n"
        "good%5:00:00:close:00 01123000 7 1\n"
        "plain%5:00:00:obvious:00 01618376 1 2\n"
    )
    assert read_first_senses(path) == {
        ("bank", "NOUN"): "bank%1:17:01::",
        ("bank", "VERB"): "bank%2:40:00::",
        ("good", "ADJ"): "good%3:00:01::",
        ("plain", "ADJ"): "plain%5:00:00:obvious:00",
    }


@pytest.mark.parametrize(
    "line", ["bank 1 1 1", "bank%1:17:01:: 1 x 1", "bank%9:: 1 1 1", "a%1 1 1"]
)
def test_another_file_is_not_taken_for_an_index(tmp_path: Path, line: str) -> None:
    path = tmp_path / "index.sense"
    path.write_text(f"bank%1:17:01:: 09213565 1 25\n{line}\n")
    assert "line 2: expected a sense key" in complaint(lambda: read_first_senses(path))


def test_the_shared_files_have_as_much_as_their_readme_says(shared: Path) -> None:
    folder = shared / "data" / "senses"
    extent = TaggedCorpus(folder / "senseval2.data.xml.xz", folder / "senseval2.gold.key.txt.xz")
    assert extent.instances == 2282
    assert len(read_first_senses(folder / "index.sense.xz")) > 150_000
