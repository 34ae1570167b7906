"""The tokenizers and the sentence splitter, against expectations written by hand."""

from __future__ import annotations

import doctest
import sys
import time
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.errors import ElmokitError, MissingExtra
from elmokit.text import chinese
from elmokit.text import tokenize as module
from elmokit.text.chinese import segment_chinese
from elmokit.text.tokenize import (
    split_sentences,
    token_offsets,
    token_span,
    tokenize,
    tokenizer,
)

# Each text with "|" wherever a token ends that no space ends: what is expected is read off it.
ENGLISH = {
    "punctuation stands apart": 'He said|, |"|Stop|!|" |(|twice|)|; |she ran|.',
    "contractions are split": "I|'m sure we|'ll go|, they|'ve left|, you|'re late|, she|'d know|.",
    "negations are split before the n": "It does|n't|, ca|n't|, wo|n't|, DO|N'T|.",
    "both apostrophes count": "John|’s dog is|n’t Ann|'s|, I|’m told|.",
    "a plural possessive loses its mark": "the dogs|' bones",
    "other apostrophes stay inside": "O'Neil|'s rock'n'roll ma'am at five o'clock",
    "shortened words keep theirs": "rock 'n' roll of the '90s|, tell 'em",
    "single quotes stand apart": "'|hello|' she said|, |'|yes|.|'",
    "a quoted letter is no elision": "the letter |'|l|' is here",
    "numbers keep their points": "1,234.56 and 3.14|, or 10,000|.",
    "units of money and percent stand apart": "$|5.50|, £|3bn|, 5|€|, 40|%",
    "signs and bare fractions belong to numbers": "-5 or +3 or .75|, 5-3",
    "times and dates stay whole": "at 10:30 on 2024-02-29|, 9/11",
    "words are split at a slash": "and|/|or",
    "hyphenated words stay whole": "well-known mother-in-law|'s U.S.-based non-U.S. 20-year-old",
    "a hyphen that waits for its word stays": "two- and three-year plans",
    "titles and initials keep their dot": "Mr. Lee|, Dr. Ng and George W. Shaw saw A. vera|.",
    "dotted abbreviations stay whole": "in the U.S. at 5 p.m.|, e.g. there|, i.e. here",
    "a dot at the end is a token": "We saw it|. You too|? So do I|.",
    "No. is an abbreviation before a number alone": "No. 5 said no|. Then",
    "an ellipsis is one token": "Well|... he left|… etc|...",
    "dashes are tokens": "it|--|no|, yes|—|was |--- gone – far",
    "marks repeat one by one": "What|?|!|!",
    "web addresses stay whole": "see https://a.org/x_(y)?q=1&r=2#s|, www.b.com/c|. |(|http://d.net|)",
    "domains and files stay whole": "example.co.uk|, notes.txt|; end|.|Then",
    "mail addresses stay whole": "write to ann.b+c@mail-box.co.uk|.",
    "mentions and hashtags stay whole": "@some_one loves #ELMo2|, not |#|1",
    "emoticons stay whole": "fine :-) bad :'( well ;) wow :D <3 great|:)",
    "a colon before a bracket is no face": "these|:|(|a|) one",
    "markup of corpora stays whole": "the <unk> and -LRB- b -RRB-",
    "penn quotes stay": "`` so ''",
    "moses clitics stay": "don 't he 's",
    "italics of plain text are opened": "_|very|_ snake_case ____",
    "names with an ampersand stay whole": "AT&T |& Sons",
}
OTHER_SCRIPTS = {
    "German": "Vor- und Nachteile|: |„|Das geht|'s nicht|“|, z.B. für 3,5 Mio|. Euro|.",
    "French": "L'|homme qu'|il voit n'|est pas d'|ici|, c'|est-à-dire aujourd'hui|. |« |Où |? |»",
    "Russian": "Он сказал|: |«|Нет|»|, т.е. ушёл в 10:15|.",
    "Arabic": "مرحبا|، كيف حالُكَ اليوم|؟ ٣٫١٤",
    "Hindi": "हिन्दी में लिखा हुआ वाक्य|। क्यों|?",
    "Thai": "ภาษาไทย ไม่มี",
    "Korean": "나는 서울에 산다|. 정말|?",
    "Chinese": "我|爱|北|京|，|用|iPhone15|。|——|好|……",
    "Japanese": "東|京|タワーに|行|きました|。",
    "Hebrew": "צה״ל ג׳ירפה",
    "Catalan": "col·lecció",
    "Persian with a joiner": "می\u200cخواهم|.",
}


def expected(marked: str) -> list[str]:
    return marked.replace("|", " ").split()


@pytest.mark.parametrize(
    "marked", [*ENGLISH.values(), *OTHER_SCRIPTS.values()], ids=[*ENGLISH, *OTHER_SCRIPTS]
)
def test_text_is_split_as_written_by_hand(marked: str) -> None:
    assert tokenize(marked.replace("|", "")) == expected(marked)


@pytest.mark.parametrize(
    "whole",
    [
        "e\u0301a\u0323\u0307",  # combining marks
        "\U0001f469\u200d\U0001f469\u200d\U0001f467",  # family
        "\U0001f44d\U0001f3fd",  # thumb with a skin tone
        "\U0001f1e9\U0001f1ea",  # flag of two letters
        "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",  # flag of tags
        "\u2764\ufe0f\u200d\U0001f525",  # heart on fire
        "1\ufe0f\u20e3",  # keycap
        "か\u3099き",  # kana with a combining voice mark
        "葛\U000e0100",  # a variant of a Han character
        "\u0915\u094d\u200d\u0937",  # a Hindi half form
    ],
)
def test_what_is_seen_as_one_character_is_never_split(whole: str) -> None:
    assert tokenize(whole) == [whole]
    assert tokenize(f"so {whole} it is") == ["so", whole, "it", "is"]


def test_pictures_side_by_side_are_single_tokens() -> None:
    assert tokenize("😀😀🇩🇪🇫🇷1️⃣2️⃣!") == ["😀", "😀", "🇩🇪", "🇫🇷", "1️⃣", "2️⃣", "!"]


def test_a_text_without_words_has_no_tokens() -> None:
    assert tokenize("") == []
    assert tokenize(" \t\r\n\x0b\x0c\x85\xa0\u2003\u3000") == []


WORDS = """
    the He well-known U.S. e.g. Mr. No. W. don't I'm John's dogs' we'll 'em '90s l'homme qu'il
    n't N’T 's ’t s t n d Vor- und I Ph.D etc etc. 1,234.56 -5 .5 5% $3 10:30 1/2 AT&T @you #tag
    http://a.b/c(d) www.e.org x@y.com :-) :( :D <3 <unk> ... … -- — - _ ' ’ " “ ” ` `` '' ( ) [ ]
    , ; : ! ? . / \\ & @ # * = ~ ^ % ¿ « » Straße été Москва م ا वि हिन्दी 한국 漢字 東
    かな カナ ー 😀 👍🏽 👩‍👧 🇩🇪
"""
FRAGMENTS = st.sampled_from(WORDS.split())
TRICKY = st.sampled_from(
    [
        *"aAnstdlIUe.,:;-_'’\"()<>/@#&%5 \n漢か한بéЙ½😀🏽🇩",
        *"\u0301\u200d\u200b\ufe0f\u20e3\ud800\x00\u00ad",
        *("com", "http://", "n't", "U.S."),
    ]
)
REALISTIC = st.lists(st.tuples(FRAGMENTS, st.sampled_from(["", " ", " "])), max_size=12).map(
    lambda pairs: "".join(word + space for word, space in pairs)
)
ANY_TEXT = st.one_of(REALISTIC, st.lists(TRICKY, max_size=12).map("".join), st.text(max_size=30))


@settings(max_examples=400)
@given(ANY_TEXT)
def test_every_character_is_in_one_token_in_order(text: str) -> None:
    tokens = tokenize(text)
    assert "".join(tokens) == "".join(text.split())
    assert all(token and token.split() == [token] for token in tokens)


@settings(max_examples=400)
@given(ANY_TEXT)
def test_text_that_is_tokenized_already_stays_as_it_is(text: str) -> None:
    tokens = tokenize(text)
    assert tokenize(" ".join(tokens)) == tokens


@settings(max_examples=400)
@given(st.text(st.characters(codec="ascii")))
def test_the_pattern_for_ascii_finds_what_the_whole_pattern_finds(text: str) -> None:
    assert tokenize(text) == module._token_pattern(False).findall(text.rstrip())


@settings(max_examples=200)
@given(ANY_TEXT)
def test_no_token_begins_with_a_mark_that_belongs_to_the_character_before(text: str) -> None:
    position = 0
    for token in tokenize(text):
        position = text.index(token, position)
        if unicodedata.category(token[0]).startswith("M") or token[0] == "\u200d":
            assert position == 0 or text[position - 1].isspace()
        position += len(token)


def test_a_lone_surrogate_and_control_characters_are_tokens() -> None:
    assert tokenize("a\ud800 \x00b\x7f") == ["a", "\ud800", "\x00", "b", "\x7f"]


def seconds(function: Callable[[str], list[str]], text: str) -> float:
    start = time.process_time()
    function(text)
    return time.process_time() - start


# With quadratic behaviour each of these would take minutes.
@pytest.mark.parametrize("unit", ["a.", "'", "(", "1,", " "])
def test_a_megabyte_of_one_pattern_takes_linear_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    assert seconds(tokenize, text) + seconds(split_sentences, text) < 10


UNITS = [
    *("ab.", "a-", "a'", "http://(", "http://a.", "a@b.", ":(", "A&", ". ", ".)", "?!", " ", "\n "),
    *(
        "a- ",
        "W. ",
        "<a",
        "\u0301",
        "\u200d😀",
        "U.S. ",
        "_",
        "l'a",
        "n't",
        "。",
        "。”",
        "No. ",
        "a",
    ),
]


@pytest.mark.parametrize("unit", UNITS)
def test_no_pattern_is_slow(unit: str) -> None:
    text = unit * (40_000 // len(unit)) + "x"
    assert seconds(tokenize, text) + seconds(split_sentences, text) < 2


def test_a_tokenizer_is_found_by_its_name() -> None:
    assert tokenizer("elmokit")("don't.") == ["do", "n't", "."]
    assert tokenizer("whitespace")(" don't.\tgo\n") == ["don't.", "go"]
    with pytest.raises(ElmokitError, match="elmokit, whitespace, chinese, not 'spacy'"):
        tokenizer("spacy")


def test_chinese_is_segmented_into_words(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jieba")
    assert segment_chinese("我们 喜欢\n北京大学。") == ["我们", "喜欢", "北京大学", "。"]
    assert tokenizer("chinese")("") == []
    assert capfd.readouterr() == ("", "")


def test_chinese_without_jieba_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    chinese._jieba.cache_clear()
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(MissingExtra, match=r"elmokit\[chinese\]"):
        segment_chinese("我们")


# Each text with "|" where a sentence ends.
SENTENCES = {
    "full stops end sentences": "It rains.| We stay in.| Why?| Because!",
    "titles do not": "Dr. Ito met Mr. Lee and Mrs. St. John.| They ate.",
    "initials do not": "George W. Shaw and J. R. Poe came.| A. Lee left.",
    "an I does": "She is taller than I.| Tom is not.",
    "abbreviations do before an opener": "He left the U.S. in May.| He is in the U.S.| The end.",
    "abbreviations do not before a name": "Acme Inc. President Lee met a U.S. Senator.",
    "a lower-case word goes on": "Apples, pears etc. are fruit... or so. they say.",
    "etc. ends before a capital letter": "Apples, pears, etc.| Paris is big.",
    "decimals do not": "It cost 3.50 dollars.| 5.25 is more.",
    "numbered things do not": "See No. 5 and Fig. 2.| Then stop.",
    "a year does": "It was in 1990.| The war was over.",
    "items of a list do not": "1. Start here.| 2. Go on.",
    "closing quotes and brackets belong to them": 'He said, "Go."| "No!"| (She left.)| [So.]| End.',
    "a quotation goes on in lower case": '"Why?" she asked.| “Go!” he said.',
    "marks may be many": "What?!| Yes...| No…| Well!!!| End",
    "tokenized text": 'He left .| She said , " Go . "| Then he came back .',
    "German": "Am 3. Oktober kam er.| „Geh.“| Das war z.B. 1990.| Ende.",
    "French": "M. Dupont est là.| Où va-t-il ?| « Ici. »| Élise rit.",
    "Russian": "Он ушёл.| Она осталась.| Это всё?| Да!",
    "Arabic": "ما اسمك؟| اسمي علي.| أهلا!",
    "Hindi": "यह एक है।| वह दो है।",
    "Korean": "나는 산다.| 너는 간다.",
    "Chinese": "我来了。|他问：“真的吗？”|“好！”|走吧?|走",
    "Japanese": "「行きます。」|はい！|そうです。",
}


@pytest.mark.parametrize("marked", SENTENCES.values(), ids=SENTENCES)
def test_sentences_end_where_a_reader_ends_them(marked: str) -> None:
    sentences = [sentence.strip() for sentence in marked.split("|")]
    assert split_sentences(marked.replace("|", "")) == sentences


def test_a_blank_line_ends_a_sentence_and_a_newline_is_a_space() -> None:
    text = "  A heading\r\n \r\nThe first\nline goes  on.\nAnd ends\n\n\n\nhere \n"
    assert split_sentences(text) == ["A heading", "The first line goes on.", "And ends", "here"]
    assert split_sentences(" \n\n ") == []


@settings(max_examples=200)
@given(ANY_TEXT)
def test_splitting_loses_no_character(text: str) -> None:
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


def test_every_combining_mark_is_kept_with_its_character() -> None:
    marks = [code for code in range(0x300, 0x1F000) if unicodedata.category(chr(code))[0] == "M"]
    assert len(marks) > 2000
    for code in marks:
        assert tokenize(f"a{chr(code)}b c") == [f"a{chr(code)}b", "c"], hex(code)


@settings(max_examples=200)
@given(ANY_TEXT)
def test_tokens_are_found_where_they_stand(text: str) -> None:
    for split in (tokenize, str.split):
        tokens = split(text)
        offsets = token_offsets(text, tokens)
        assert [text[start:end] for start, end in offsets] == tokens
        inside = {position for start, end in offsets for position in range(start, end)}
        assert len(inside) == sum(map(len, tokens))  # no character is in two tokens
        assert all(text[position].isspace() for position in set(range(len(text))) - inside)


@pytest.mark.parametrize(
    ("text", "tokens"), [("a b", ["a"]), ("a b", ["b"]), ("a", ["a", "a"]), ("ab", ["", "ab"])]
)
def test_tokens_of_another_text_have_no_positions(text: str, tokens: list[str]) -> None:
    with pytest.raises(ElmokitError):
        token_offsets(text, tokens)


def test_chinese_words_have_their_positions() -> None:
    pytest.importorskip("jieba")
    text = "我们 在北京\t。"
    words = segment_chinese(text)
    assert [text[start:end] for start, end in token_offsets(text, words)] == words


def test_a_span_has_every_token_that_it_touches_and_no_other() -> None:
    offsets = [(1, 3), (3, 4), (6, 9)]  # .AAB..CCC.
    for start in range(11):
        for end in range(start + 1, 11):
            touched = [i for i, (a, b) in enumerate(offsets) if a < end and start < b]
            assert list(range(*token_span(offsets, start, end))) == touched


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(module).attempted > 0
    assert doctest.testmod(module).failed == 0
