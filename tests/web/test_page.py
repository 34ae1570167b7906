"""The explorer without a server, in a real browser: it computes what elmokit computes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from browsing import Window, check_access, check_width, chromium
from documents import ROOT
from playwright.sync_api import Browser
from playwright.sync_api import Error as BrowserError
from tiny import difference, softmax_elmo

import elmokit
from elmokit.embed import Embedder
from elmokit.errors import ElmokitError
from elmokit.text.tokenize import tokenize

try:
    import build_explorer

    from elmokit.serve import schemas
    from elmokit.serve.service import load_service
except ImportError as missing:
    if os.environ.get("CI"):
        raise
    pytest.skip(f"{missing.name} is not installed", allow_module_level=True)

READY = {"uses": ".point", "pair": ".cell", "language": ".bar", "anatomy": ".strip"}
TEXTS = [
    "They sat on the bank of the river and fished.",
    "",
    "The naïve Mr. O'Neil doesn't owe £1,234.56 (yet)... 中文 😀 <S> </S>",
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft!",
    "one",
]


# ---------------------------------------------------------------------- site and browser
class QuietHandler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        pass


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Files as any static server gives them; yields the address."""
    handler = functools.partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/explorer"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with elmokit's own model, and a tiny one that was trained on Chinese words."""
    try:
        build_explorer.fetch_runtime()
    except ElmokitError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    parent = tmp_path_factory.mktemp("site")
    softmax_elmo(metadata={"training": {"tokenizer": "chinese"}}).save_pretrained(parent / "tiny")
    build_explorer.build(parent / "explorer", ["english", f"tiny={parent / 'tiny'}"])
    return parent


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with serving(folder) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


class Visit(Window):
    """A page that computes by itself."""

    def ask(self, name: str, *values: Any) -> Any:
        """The answer of a function of the page's api.js."""
        code = """async ([name, ...values]) =>
            (await import(new URL('static/api.js', location)))[name](...values)"""
        return self.page.evaluate(code, [name, *values])


@contextlib.contextmanager
def visiting(
    browser: Browser,
    address: str,
    locale: str = "en-US",
    scheme: Literal["light", "dark"] = "light",
    width: int = 1280,
) -> Iterator[Visit]:
    context = browser.new_context(
        locale=locale, color_scheme=scheme, viewport={"width": width, "height": 900}
    )
    yield Visit(context, address)
    context.close()


@pytest.fixture(scope="module")
def visit(browser: Browser, address: str) -> Iterator[Visit]:
    """A page that is open, for all tests that only ask it."""
    with visiting(browser, address) as visit:
        visit.open()
        yield visit
        assert visit.complaints == []


@pytest.fixture(scope="module")
def elmo() -> Embedder:
    return elmokit.load()


# ---------------------------------------------------------------------- the same numbers
def test_vectors_are_those_of_embed(visit: Visit, elmo: Embedder, folder: Path) -> None:
    for name, own in (("english", elmo), ("tiny", elmokit.load(folder / "tiny"))):
        texts = TEXTS if name == "english" else [text.split() for text in TEXTS]
        answer = visit.ask("layers", name, texts)
        for result, expected in zip(answer["sentences"], own.embed(texts), strict=True):
            assert result["tokens"] == expected.tokens
            if expected.tokens:
                assert difference(np.array(result["layers"]), expected.layers) < 1e-4
    assert answer["forward"] == [0, 12]


def test_texts_are_tokenized_as_in_python(visit: Visit) -> None:
    rng = random.Random(1)
    pieces = [
        *"aZé1٣中かﾀ́ \u200d\u00ad😀🏽🇩🇪'’-.,:/&@#$%<>()_\"…\u3000\u2028\x1c",
        "n't",
        "Mr.",
        "http://a.b",
    ]
    texts = ["".join(rng.choices(pieces, k=rng.randint(1, 25))) for _ in range(2000)]
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        texts += page.read_text(encoding="utf-8").split("\n")
    texts += (ROOT / "tests/text/test_tokenize.py").read_text(encoding="utf-8").split("\n")
    code = """async (texts) => {
        const { tokenize } = await import(new URL('static/tokenize.js', location));
        return texts.map((text) => tokenize(text, 'elmokit'));
    }"""
    result = visit.page.evaluate(code, texts)
    wrong = [
        (text, tokens, tokenize(text))
        for text, tokens in zip(texts, result, strict=True)
        if tokens != tokenize(text)
    ]
    assert len(texts) > 4000
    assert wrong == []


def test_uses_are_those_of_the_service(visit: Visit) -> None:
    sentences = [
        "He sat on the bank of the river.",
        "The banks of the stream were steep.",
        "She opened an account at the bank.",
        "Nothing of the kind.",
        "The bank lent them money, and another bank did not.",
        "They walked along the grassy bank.",
    ]
    labels = ["river", "river", "money", "", "money", "river"]
    question: dict[str, Any] = {
        "word": "bank",
        "sentences": sentences,
        "labels": labels,
        "inflected": True,
    }
    result = visit.ask("uses", "english", question)
    service = load_service(["english"])
    request = schemas.UsesRequest(
        model="english", **question, clusters=0, neighbours=5, vectors=True
    )
    with ThreadPoolExecutor() as pool:  # The browser has an event loop of its own here.
        expected = pool.submit(asyncio.run, service.uses(request)).result()
    service.close()
    clusters, named = (
        np.array([use.pop("cluster") for use in one["uses"]]) for one in (result, expected)
    )
    assert ((clusters[:, None] == clusters) == (named[:, None] == named)).all()
    for key in ("word", "uses", "missing", "clusters"):
        assert result[key] == expected[key], key
    assert [form["word"] for form in result["static"]] == ["bank", "banks"]
    for map_found, map_expected in zip(result["layers"], expected["layers"], strict=True):
        assert map_found["name"] == map_expected["name"]
        assert map_found["one_point"] == map_expected["one_point"]
        for key in ("vectors", "variance", "purity", "silhouette"):
            values = np.array(map_found[key]), np.array(map_expected[key])
            assert difference(*values) < 1e-4, key
        points = (np.abs(np.array(one["points"])) for one in (map_found, map_expected))
        assert difference(*points) < 1e-3  # The signs of components are arbitrary.
        if map_found["name"] != "layer 0":  # where many are equally near
            near, expected_near = (
                [[(n["use"], round(n["cosine"], 3)) for n in row] for row in one["neighbours"]]
                for one in (map_found, map_expected)
            )
            assert near == expected_near


def test_surprisal_and_fill_are_those_of_the_model(visit: Visit, elmo: Embedder) -> None:
    text = "The zorble walked along the river."
    (result,) = visit.ask("surprisal", "english", [text])["sentences"]
    expected = elmo.surprisal(text)
    assert result["tokens"] == expected.tokens
    assert result["known"] == expected.known.tolist()
    for direction in ("forward", "backward"):
        assert difference(np.array(result[direction]), getattr(expected, direction)) < 1e-3
    for position in (0, 3, 6):  # at both ends, where the sentence has only one side
        tokens = [*expected.tokens[:position], "___", *expected.tokens[position + 1 :]]
        words = visit.ask("fill", "english", expected.tokens, position, 8)["words"]
        (best,) = elmo.fill([tokens], 8)
        assert [word["word"] for word in words] == [word.word for word in best]
        for share in ("probability", "fit"):
            expected_shares = np.array([getattr(word, share) for word in best])
            assert difference(np.array([word[share] for word in words]), expected_shares) < 1e-4


def test_chinese_is_split_into_words_by_the_browser(visit: Visit) -> None:
    answer = visit.ask("layers", "tiny", ["苹果 昨天发布了新的手机。"])
    tokens = answer["sentences"][0]["tokens"]
    assert "".join(tokens) == "苹果昨天发布了新的手机。"
    assert {"苹果", "昨天", "手机", "。"} <= set(tokens)


def test_what_cannot_be_computed_is_said_in_a_sentence(visit: Visit) -> None:
    for question, sentence in (
        ({"word": "bank", "sentences": ["a bank", "the bank"]}, "at least 3 uses"),
        ({"word": "bank", "sentences": ["a river"]}, "none of the sentences has the word"),
        ({"word": " ", "sentences": ["a river"]}, "the word is empty"),
        ({"word": "a", "sentences": ["a " * 501]}, "501 uses are too many"),
        ({"word": "a", "sentences": ["a " * 6000]}, "6000 tokens are too many"),
    ):
        with pytest.raises(BrowserError, match=sentence):
            visit.ask("uses", "english", question)
    with pytest.raises(BrowserError, match="needs elmokit serve"):
        visit.ask("predict", "ner", "text")


# ---------------------------------------------------------------------- the page
@pytest.mark.parametrize(
    ("locale", "scheme", "width"), [("en-US", "dark", 1280), ("zh-CN", "light", 360)]
)
def test_four_views_are_drawn_for_everybody_from_the_own_origin(
    browser: Browser, address: str, locale: str, scheme: Literal["light", "dark"], width: int
) -> None:
    with visiting(browser, address, locale, scheme, width) as visit:
        page = visit.open("view=tasks")  # A link to a view that needs a service.
        assert page.get_attribute("#tab-uses", "aria-selected") == "true"
        assert page.locator("[role=tab]").count() == len(READY)
        for view, ready in READY.items():
            page.click(f"#tab-{view}")
            page.wait_for_selector(ready)
            assert page.locator("#loading").is_hidden()
            check_access(page)
            check_width(page, width)
        assert "elmokit serve" in page.inner_text("footer")
        # A page in Chinese opens with the Chinese model.
        assert ("jieba" in page.inner_text("footer")) == (locale == "zh-CN")
        page.select_option("header select", "english")
        assert "jieba" not in page.inner_text("footer")
        page.select_option("header select", "tiny")
        assert "jieba" in page.inner_text("footer")
        visit.check()


def test_the_policy_holds_on_the_page_and_in_its_worker(visit: Visit) -> None:
    page = visit.page
    with serving(ROOT / "docs") as other:
        code = f"fetch('{other}', {{mode: 'no-cors'}}).then(() => 'reached', () => 'refused')"
        assert page.evaluate(code) == "refused"
        assert page.workers[0].evaluate(code) == "refused"
    page.evaluate("""() => {
        const script = document.createElement('script');
        script.textContent = 'window.hacked = true';
        document.body.append(script);
        setTimeout('window.hacked = true');
    }""")
    assert page.evaluate("new Promise((end) => setTimeout(() => end(window.hacked), 50))") is None
    assert all("Content Security Policy" in text for text in visit.complaints)
    visit.complaints.clear()


def test_all_of_it_works_offline_after_the_first_visit(browser: Browser, folder: Path) -> None:
    with contextlib.ExitStack() as online:
        address = online.enter_context(serving(folder))
        with visiting(browser, address) as visit:
            visit.open().evaluate("navigator.serviceWorker.ready.then(() => true)")
            online.close()
            page = visit.open()
            for view, ready in READY.items():
                page.click(f"#tab-{view}")
                page.wait_for_selector(ready)
            assert visit.complaints == []


def test_loading_is_shown_and_a_missing_file_is_said(
    browser: Browser, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "explorer", tmp_path / "explorer")
    graph = tmp_path / "explorer" / "models" / "english.onnx"
    graph.rename(tmp_path / "graph")
    with serving(tmp_path) as address, visiting(browser, address) as visit:
        page = visit.open("lang=en", "[role=alert]")
        assert "could not be loaded" in page.inner_text("[role=alert]")
        page.wait_for_selector("#loading", state="hidden")  # The runtime may still be on its way.
        # Half of the file, then nothing: the bar stands still.
        content = (tmp_path / "graph").read_bytes()
        graph.write_bytes(content[: len(content) // 2])
        page.click("[role=alert] button")
        page.wait_for_selector("#loading progress", state="attached")
        page.wait_for_selector("[role=alert]")
        (tmp_path / "graph").rename(graph)
        # On a busy machine the half file may be complained of only after a click.
        again = "document.querySelector('[role=alert] button')?.click()"
        page.wait_for_function(f"() => {again} || document.querySelector('.point')", polling=1000)


def test_both_languages_have_the_same_texts(visit: Visit) -> None:
    code = "async () => (await import(new URL('static/texts.js', location))).OWN_TEXTS"
    texts = visit.page.evaluate(code)
    assert list(texts["en"]) == list(texts["zh"])
