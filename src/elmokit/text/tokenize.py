"""Split text into tokens: the first step of the flow.

`tokenize` splits like the Penn Treebank (`do n't`, `John 's`, separate punctuation), which is how
the corpora of the published models look, but it rewrites nothing: every character of the text that
is not whitespace ends up in exactly one token, in order. Tokens joined by spaces are tokenized to
the same tokens, so text that is already tokenized is safe. For running text, `split_sentences`
comes first.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import chain, starmap

from elmokit.errors import InvalidInput
from elmokit.text.chinese import CHINESE, segment_chinese

# Abbreviations that keep their dot. TITLES precede something and never end a sentence,
# CLOSERS may end one, NUMBERED are ordinary words unless a number follows ("No. 5", "Sat. 3 May").
TITLES = """
    Mr Mrs Ms Mx Messrs Dr Drs Prof Rev Hon Fr St Ste Mt Ft Gen Col Maj Capt Cmdr Lt Sgt Cpl Pvt Adm
    Brig Sen Sens Rep Reps Gov Pres Atty Supt Sra Srta Hr Dipl Ing MR MRS MS DR ST
    vs viz cf ca vgl bzw ggf evtl inkl sog
""".split()
CLOSERS = """
    etc Inc Ltd Corp Co Cos Bros Jr Sr Esq Ave Blvd Rd Dept Univ Assn approx al usw
    Jan Feb Apr Aug Sept Oct Nov Dec Ala Ariz Ark Calif Colo Conn Del Fla Ind Kan Ky Md Mich Minn
    Mont Neb Nev Okla Pa Tenn Tex Va Wis Wyo
""".split()
NUMBERED = """
    No Nos no nos Nr nr Vol vol vols Fig fig Figs figs Eq eq Ch ch Sec sec Art art p pp Pp Bd S
    Mar Jun Jul Sep Mon Tue Tues Wed Thu Thur Thurs Fri Sat Sun
""".split()
# Words that open a sentence far more often than they follow an abbreviation or an initial.
OPENERS = frozenset(
    """
    A After All Although An And Another Any As At Because Before But By Did Do Does During Each Even
    Every For From He Her Here His How However I If In It Its Many Meanwhile More Most My Next No
    Not Nothing Now Of On Once One Only Or Other Our Out People She Since So Some Still Such That
    The Their Then There These They This Those Though Thus To Today Two Under Until We What When
    Where Whether Which While Who Why Will With Yes Yet You Your
    Der Die Das Ein Eine Er Sie Es Wir Ich Und Aber Le La Les Un Une Il Elle Ils Nous Mais
    El Los Las Он Она Они Мы Это Но
""".split()
)
AFTER_GERMAN_ORDINAL = """
    Januar Februar März April Mai Juni Juli August September Oktober November Dezember
    Jahrhundert Jahrhunderts Platz Geburtstag
""".split()
DOMAIN_ENDINGS = """
    com org net edu gov mil info biz io ai tv uk de fr ru cn jp eu au br
    txt pdf html htm jpg jpeg png gif doc docx xls xlsx ppt csv json xml zip tar gz exe py js cpp
    php mp3 mp4
""".split()

HAN = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003fffd"
)
KANA = (
    "\u3041-\u3096\u309b-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
    "\U0001b000-\U0001b16f"
)
UPPER = "A-Z\u00c0-\u00d6\u00d8-\u00de\u0391-\u03a9\u0400-\u042f"
PICTOGRAPH = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
EAST_ASIAN = re.compile(f"[{HAN}{KANA}]")

# Marks that may end a sentence, with the quotes and brackets that close after them (“ closes in
# German, where a space follows, and opens in Chinese). The pattern begins with a plain character
# class, which is fast to search for, and cannot fail after it.
OPENING = " \"'“‘„«‹([{¿¡"
CLOSING = " \"'”’“‘»«›)]}」』）》"
CONTINUING = tuple("-–—,;:.…!?%)]}/")
ASIAN_FULL_STOPS = frozenset("。！？｡")
SENTENCE_MARK = re.compile(
    r"[.!?…؟۔।॥։።។။。！？｡][.!?…؟۔।॥։።។။。！？｡]*"
    r"[\"'”’»›)\]}」』）》]*(?:[“‘«](?= |$))?(?: [\"'”’»](?= |$))?"
)
BLANK_LINE = re.compile(r"\n\s*\n")
FIRST_WORD = re.compile(r"\w+")
DOTTED = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]{1,3}")  # U.S, p.m, without the last dot


def tokenize(text: str) -> list[str]:
    """Split any string into tokens, in linear time.

    >>> tokenize("Mr. O'Neil doesn't owe $1,234.56 (yet)...")
    ['Mr.', "O'Neil", 'does', "n't", 'owe', '$', '1,234.56', '(', 'yet', ')', '...']
    """
    # Without trailing whitespace, the pattern always matches where the previous match ended.
    return _token_pattern(text.isascii()).findall(text.rstrip())


def split_sentences(text: str) -> list[str]:
    r"""Split running `text` into sentences, each with single spaces between its words.

    A blank line ends a sentence; any other newline is a space.

    >>> split_sentences('Dr. Ito left at 5 p.m. on Monday. "Why?" she asked.\nNobody knew.')
    ['Dr. Ito left at 5 p.m. on Monday.', '"Why?" she asked.', 'Nobody knew.']
    """
    paragraphs = (" ".join(paragraph.split()) for paragraph in BLANK_LINE.split(text))
    return [sentence for paragraph in paragraphs for sentence in _sentences_of(paragraph)]


def _sentences_of(paragraph: str) -> Iterator[str]:
    start = 0
    for mark in SENTENCE_MARK.finditer(paragraph):
        if _ends_sentence(paragraph, start, mark):
            yield paragraph[start : mark.end()]
            start = mark.end() + paragraph.startswith(" ", mark.end())
    if start < len(paragraph):
        yield paragraph[start:]


def _ends_sentence(paragraph: str, start: int, mark: re.Match[str]) -> bool:
    """Tell whether the sentence that begins at `start` ends with the punctuation `mark`."""
    if not ASIAN_FULL_STOPS.isdisjoint(mark.group()):
        return True
    if not paragraph.startswith(" ", mark.end()):
        return mark.group()[0] in "!?" and EAST_ASIAN.match(paragraph, mark.end()) is not None
    # A slice of fixed length, not the rest of the paragraph, keeps the running time linear.
    following = paragraph[mark.end() : mark.end() + 40].lstrip(OPENING)
    if following[:1].islower() or following[:1] in CONTINUING:
        return False
    if mark.group().rstrip(CLOSING) != ".":
        return True
    word_start = paragraph.rfind(" ", start, mark.start()) + 1 or start
    word = paragraph[word_start : mark.start()].lstrip(OPENING)
    return _dot_ends_sentence(word, FIRST_WORD.match(following), at_start=word_start == start)


def _dot_ends_sentence(word: str, following: re.Match[str] | None, *, at_start: bool) -> bool:
    """Tell whether a single dot after `word` is a full stop, not part of an abbreviation."""
    next_word = following.group() if following else ""
    if word in TITLES or (word in NUMBERED and next_word[:1].isdigit()):
        return False
    if word.isdecimal() and len(word) < 4:  # "1. Introduction", "am 3. Oktober"
        return not at_start and next_word not in AFTER_GERMAN_ORDINAL
    is_initial = len(word) == 1 and word.isupper() and word != "I"
    if is_initial or (word in CLOSERS and word != "etc") or DOTTED.fullmatch(word):
        return next_word in OPENERS
    return True


def token_offsets(text: str, tokens: Iterable[str]) -> list[tuple[int, int]]:
    """Return the start and end of each token in `text`, in characters.

    >>> token_offsets("He's in.", ["He", "'s", "in", "."])
    [(0, 2), (2, 4), (5, 7), (7, 8)]
    """
    offsets, end = [], 0
    for token in tokens:
        start = text.find(token, end)
        if not token or start < 0 or text[end:start].strip():
            raise InvalidInput(f"the token {token!r} does not follow in the text {text[:60]!r}")
        end = start + len(token)
        offsets.append((start, end))
    if text[end:].strip():
        raise InvalidInput(f"the tokens of {text[:60]!r} end before the text does")
    return offsets


def token_span(offsets: Sequence[tuple[int, int]], start: int, end: int) -> tuple[int, int]:
    """Return the span of the tokens that overlap the characters from `start` to `end`.

    `offsets` are those of `token_offsets`. Whitespace belongs to no token.

    >>> token_span([(0, 2), (2, 4), (5, 7), (7, 8)], 1, 7)
    (0, 3)
    """
    first = bisect_right(offsets, start, key=lambda token: token[1])
    return first, bisect_left(offsets, end, lo=first, key=lambda token: token[0])


TOKENIZERS: dict[str, Callable[[str], list[str]]] = {
    "elmokit": tokenize,
    "whitespace": str.split,
    CHINESE: segment_chinese,
}


def tokenizer(name: str) -> Callable[[str], list[str]]:
    """Return the tokenizer named "elmokit", "whitespace" or "chinese".

    The words of a user dictionary may follow "chinese": see `elmokit.text.chinese`.
    """
    name, newline, words = name.partition("\n")
    if name not in TOKENIZERS or (newline and name != CHINESE):
        choices = ", ".join(TOKENIZERS)
        raise InvalidInput(f"tokenizer must be one of {choices}, not {name!r}")
    return partial(segment_chinese, words=words) if words else TOKENIZERS[name]


@cache
def _token_pattern(is_ascii: bool) -> re.Pattern[str]:
    """Return one pattern for all tokens, compiled at first use.

    That for ASCII, without the long classes of combining marks and ideographs, compiles three times
    faster. Matching is linear because every alternative that can fail after a long match is
    bounded. A token between spaces is tokenized to itself because a lookahead either skips
    whitespace or, if it fails, only makes tokens smaller.
    """
    # The cheap test comes first; (?!) matches nothing.
    extend = "(?!)" if is_ascii else rf"(?=[^\x00-\xac])[{_extending_characters()}]"
    unspaced = "" if is_ascii else HAN + KANA
    letter = rf"[^\W\d_{unspaced}]"
    alnum = rf"[^\W_{unspaced}]"
    run = rf"{alnum}+(?:{extend}{alnum}*)*"
    tag_run = rf"\w+(?:{extend}\w*)*"  # of hashtags and mentions
    clitic = rf"['’](?i:s|m|d|t|ll|re|ve)(?!{alnum})"
    joint = (
        rf"[-‐‑_·׳״]|(?!{clitic})['’]"  # well-known, snake_case, O'Neil
        r"|(?<=\d)[.,:/٫٬](?=\d)"  # 1,234.56 10:30 9/11
        r"|(?<=[A-Z])&(?=[A-Z])"  # AT&T
    )
    word = (
        rf"{run}(?:(?:{joint}){run})*(?:(?<=-{letter})(?:\.{letter}){{1,10}}\.(?!\.))?"  # non-U.S.
    )
    vowel = "[aeiouyhàâäéèêëíìîïóòôöúùûüœæ]"
    web_body = (
        r"(?:[^\s()<>\"“”«»。，、；：？！（）《》「」]|\([^\s()<>\"]{0,200}\))+(?<![.,;:!?'’\]}…])"
    )
    alternatives = [
        r"[0-9#*]\ufe0f?\u20e3",  # keycaps
        # Web addresses, e-mail addresses, domain and file names.
        rf"(?:https?|ftp)://{web_body}",
        rf"www\.{web_body}",
        rf"{alnum}[\w.+-]{{0,63}}@(?:[A-Za-z0-9-]{{1,63}}\.){{1,8}}[A-Za-z]{{2,24}}(?!{alnum})",
        rf"(?:[A-Za-z0-9][A-Za-z0-9-]{{0,62}}\.){{1,5}}(?:{'|'.join(DOMAIN_ENDINGS)})(?![\w-])"
        rf"(?:/{web_body})?",
        # Abbreviations: U.S.A and U.S. but U.S ... before an ellipsis; titles; initials.
        rf"{letter}(?:\.{letter}){{1,10}}(?!{alnum}|\.(?!\.))",
        rf"{letter}(?:\.{letter}{{1,3}}){{1,10}}\.(?!\.)(?:-{word})?",
        rf"(?=[A-Za-z]{{1,6}}\.)(?:(?:{'|'.join(TITLES + CLOSERS)}|Ph\.D)\.(?!\.)"
        rf"|(?:{'|'.join(NUMBERED)})\.(?=\s*\d))",
        rf"(?!I)[{UPPER}]\.(?=\s*{letter})",
        # Contractions: do n't, l' homme, John 's, 'em, '90s.
        rf"[A-Za-z]+(?=[nN]['’][tT](?!{alnum}))",
        rf"[nN]['’][tT](?!{alnum})",
        rf"(?i:[cdjlmnst]|[a-z]{{0,8}}qu)['’](?:(?={vowel})|(?<!['’].['’])(?=\s+{vowel}))",
        rf"{clitic}|['’](?:(?i:em|til|tis|twas|n['’]?)|\d\ds)(?!{alnum})",
        # Words and numbers, with -5 and .5 where no operand precedes the sign; Vor- und.
        rf"(?:(?<![\w)\]])[-+−](?=\.?\d))?(?:(?<![\w.])\.(?=\d))?{word}(?:-(?=\s*,|\s+[a-z]))?",
        rf"(?<![\w@#])[@#](?=\d*[^\W\d]){tag_run}",
        # Marks of markup (<unk>, -LRB-), emoticons, runs of one punctuation mark.
        r"</?[A-Za-z][\w-]{0,30}/?>|-[LR][RCS]B-",
        rf"[:;=]['’]?-?[()]+(?!{alnum})|(?<!\w)[:;=]-?[DPpOo|/\\](?![\w/])",
        rf"(?<!\w)</?3(?!{alnum}|[.,]\d)|\^_*\^|>_+<|-_+-|¯\\_\(ツ\)_/¯",
        r"\.{2,}|…+|-{2,}|—+|_+|\*{2,}|={2,}|~{2,}|\#{2,}|''|``",
        # Flags and other pictures, whose parts are joined by U+200D; kana; all the rest.
        r"[\U0001f1e6-\U0001f1ff]{2}",
        rf"[{PICTOGRAPH}](?:{extend}|(?<=\u200d)[{PICTOGRAPH}])*",
        rf"[{KANA}]+(?:{extend}[{KANA}]*)*",
        r"\S",
    ]
    # Most tokens of running text: plain words and marks with nothing special after them.
    fast = r"[A-Za-z]+(?=[\s,])|[,;?!\"”)](?=\s)"
    return re.compile(rf"\s*({fast}|(?:{'|'.join(alternatives)})(?:{extend})*)")


# Ranges with combining marks: the large blocks of ideographs and syllables have none.
MARKED = (
    *((0x300, 0x3400), (0xA000, 0xAC00), (0xD7B0, 0xD800), (0xF900, 0x12000)),
    *((0x13400, 0x14000), (0x16100, 0x17000), (0x1B000, 0x1F000)),
)


def _extending_characters() -> str:
    """Return the inside of a character class: all that stays with the character before it."""
    characters = map(chr, chain.from_iterable(starmap(range, MARKED)))
    marks = "".join(c for c in characters if unicodedata.category(c)[0] == "M")
    # Joiners and the soft hyphen, skin tones, flag tags, variation selectors.
    return (
        "\u00ad\u200c\u200d\u2060\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\U000e0100-\U000e01ef"
    ) + marks
