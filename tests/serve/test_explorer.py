"""The explorer in a real browser: what it shows is what the library computes, for everybody."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import numpy as np
import pytest
from browsing import Window, check_access, check_width, chromium
from playwright.sync_api import Browser, BrowserContext, Page
from serving import LEARNED, Server, make_folders, running
from tiny import difference

import elmokit
from elmokit.embed import Embedder

VIEWS = ["uses", "pair", "language", "anatomy", "tasks", "search"]
READY = {
    "uses": ".point",
    "pair": ".cell",
    "language": ".bar",
    "anatomy": ".strip",
    "tasks": "figure .bar",
    "search": ".hits li",
}
TINY = {  # The tiny model has the index, and few words.
    "search": "query=he+sat+on+the+*bank*+.",
    "language": "model=tiny&text=he+sat+on+the+river+bank+.",
}
NASTY = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script> \u202eevil\u202c'


# ---------------------------------------------------------------------- service and browser
@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with elmokit's own models, a tiny one, tasks and an index."""
    folder = tmp_path_factory.mktemp("explorer")
    made = make_folders(folder)
    tasks = [part for task in made["tasks"] for part in ("--task", task)]
    arguments = ["english", "chinese", *made["models"], *tasks, "--index", made["index"]]
    with running(folder, *arguments) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


class Explorer(Window):
    """A page of the explorer: its views, and the files that it saves."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        super().__init__(context, address)
        self.expected: tuple[str, ...] = ()

    def show(self, view: str, fields: str = "") -> Page:
        return self.open(f"view={view}&{fields}&{TINY.get(view, '')}", READY[view])

    def save(self, figure: str, kind: str) -> bytes:
        """The file that a button of a figure saves."""
        with self.page.expect_download() as download:
            self.page.locator(figure).locator(f".tools button:text-is('{kind}')").click()
        assert download.value.suggested_filename.endswith(f".{kind.lower()}")
        return Path(download.value.path()).read_bytes()

    def rows(self, figure: str) -> list[dict[str, str]]:
        """The rows of the CSV file of a figure."""
        text = self.save(figure, "CSV").decode("utf-8-sig")
        return list(csv.DictReader(io.StringIO(text)))


Open = Callable[..., Explorer]


@pytest.fixture
def window(browser: Browser, server: Server) -> Iterator[Open]:
    """Opens windows, by default in English, light and wide; closes and checks them."""
    opened: list[Explorer] = []

    def make(locale: str = "en-US", scheme: Any = "light", width: int = 1280) -> Explorer:
        context = browser.new_context(
            locale=locale, color_scheme=scheme, viewport={"width": width, "height": 900}
        )
        opened.append(Explorer(context, server.address))
        return opened[-1]

    yield make
    for one in opened:
        one.context.close()
        one.check(one.expected)


@pytest.fixture(scope="module")
def elmo() -> Embedder:
    return elmokit.load()


def ask(server: Server, path: str, **body: Any) -> Any:
    data = json.dumps(body).encode()
    request = Request(f"{server.address}{path}", data, {"content-type": "application/json"})
    with urlopen(request) as answer:
        return json.load(answer)


def places(page: Page, figure: str) -> np.ndarray:
    """Where the points of the last map of a figure are, in pixels: (points, 2)."""
    transforms = page.eval_on_selector_all(
        f"{figure} [role=listbox]:last-of-type .point",
        "points => points.map((point) => point.getAttribute('transform'))",
    )
    return np.array([[float(x) for x in re.findall(r"-?[\d.]+", one)] for one in transforms])


def reach(page: Page, selector: str, key: str = "Tab") -> None:
    """Move the focus with the keyboard alone, until it is on an element."""
    for _ in range(60):
        page.keyboard.press(key)
        if is_focused(page, selector):
            return
    raise AssertionError(f"{key} does not lead to {selector}")


def is_focused(page: Page, selector: str) -> bool:
    return bool(page.evaluate("one => document.activeElement.matches(one)", selector))


def write(page: Page, text: str) -> None:
    """Write a text instead of the one that stands in the field with the focus."""
    page.keyboard.press("Control+A")
    page.keyboard.type(text)


def spread(points: np.ndarray) -> np.ndarray:
    """Products of centered points: the same however a map is turned, mirrored or scaled."""
    centered = points - points.mean(axis=0)
    gram = centered @ centered.T
    return np.asarray(gram / np.trace(gram))


# ---------------------------------------------------------------------- every view
@pytest.mark.parametrize(("locale", "scheme"), [("en-US", "light"), ("zh-CN", "dark")])
def test_views_are_readable_by_everybody(window: Open, locale: str, scheme: str) -> None:
    one = window(locale, scheme)
    for view in VIEWS:
        page = one.show(view)
        assert page.get_attribute("html", "lang") == locale.removesuffix("-US")
        title = page.evaluate(
            "async (view) => (await import('/static/i18n.js')).t(`view.${view}`)", view
        )
        assert page.text_content("h2") == title
        has_chinese = bool(re.search("[\u4e00-\u9fff]", title))
        assert has_chinese == (locale == "zh-CN")
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness = np.mean([int(x) for x in re.findall(r"\d+", color)[:3]])
        assert brightness < 60 if scheme == "dark" else brightness > 200
        page.click("summary >> nth=0")
        page.wait_for_selector("figure table")
        check_access(page)


def test_views_fit_the_width_of_a_phone(window: Open) -> None:
    phone = window(width=360)
    for view in VIEWS:
        check_width(phone.show(view), 360)


def test_the_list_of_routes_is_readable_too(window: Open) -> None:
    one = window(scheme="dark", width=360)
    one.page.goto(f"{one.address}/docs")
    one.page.click("summary:has-text('/v1/uses')")
    check_width(one.page, 360)
    check_access(one.page)


def test_both_languages_have_the_same_texts(window: Open) -> None:
    page = window().open()
    texts = page.evaluate("async () => (await import('/static/i18n.js')).TEXTS")
    english, chinese = texts["en"], texts["zh"]
    assert list(english) == list(chinese)
    for key, text in english.items():
        names = re.findall(r"\{\w+\}", text)
        assert sorted(set(names)) == sorted(set(re.findall(r"\{\w+\}", chinese[key]))), key
        assert text.strip() == text != "", key
    static = Path(elmokit.__file__).parent / "serve" / "static"
    code = "".join(path.read_text(encoding="utf-8") for path in static.glob("**/*.js"))
    used = set(re.findall(r"""\bt\("([^"]+)\"""", code))
    assert used - set(english) == set()
    unused = [key for key in english if key not in used and f'"{key}"' not in code]
    assert [
        key for key in unused if not re.match(r"(view|intro|part|about|label|field)\.", key)
    ] == []


def test_the_switches_change_language_and_theme(window: Open) -> None:
    one = window()
    page = one.open()
    page.click("button:text-is('中文')")
    assert page.text_content("h2") == "语境中的词"
    assert "lang=zh" in page.url
    assert page.evaluate("document.activeElement.textContent") == "中文"
    page.click("#theme")
    page.reload()
    page.wait_for_selector(".point")
    assert page.get_attribute("html", "lang") == "zh-CN"
    assert page.get_attribute("html", "data-theme") == "dark"
    page.click("button:text-is('English')")
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "light"
    assert page.text_content("h2") == "A word in context"


# ---------------------------------------------------------------------- a word in context
def test_it_opens_with_a_word_already_drawn(window: Open) -> None:
    page = window().open()
    titles = page.locator(".panel-title").all_text_contents()
    assert titles[:4] == ["Static vector", "Layer 0", "Layer 1", "Layer 2"]
    assert page.locator("[role=listbox]").count() == 4
    assert page.locator(".uses mark").all_text_contents() == ["bank"] * 16
    assert page.locator(".static").count() == 1
    assert set(page.locator(".legend").all_text_contents()) == {"river", "money"}
    shapes = (
        "points => new Set(points.map((p) => p.getAttribute('d') + p.getAttribute('class'))).size"
    )
    assert page.eval_on_selector_all(".point .symbol", shapes) == 2
    chinese = window("zh-CN").open()
    assert set(chinese.locator(".uses mark").all_text_contents()) == {"苹果"}
    assert set(chinese.locator(".legend").all_text_contents()) == {"水果", "公司"}
    assert chinese.input_value(".model select") == "chinese"
    assert chinese.locator(".notice").count() == 0
    english = window("zh-CN").open("model=english")
    assert "只读过英文" in (english.text_content(".notice") or "")


def test_every_example_has_its_word_in_every_sentence(window: Open) -> None:
    page = window().open()
    for button in page.locator(".examples button").all():
        word = button.text_content() or ""
        button.click()
        page.wait_for_function(
            "word => document.querySelector('h3').textContent.includes(word)", arg=word
        )
        page.wait_for_function("() => document.querySelectorAll('.uses mark').length === 16")
        assert page.locator(".uses .missing").count() == 0


def test_sliders_move_the_points_to_where_the_service_maps_the_mix(
    window: Open, server: Server
) -> None:
    page = window().open()
    figure = "figure:has(.mix)"
    before = places(page, figure)
    page.locator("[data-weight='0']").fill("10")
    page.locator("[data-weight='1']").fill("30")
    page.locator("[data-weight='2']").fill("60")
    moved = places(page, figure)
    assert np.abs(moved - before).max() > 5
    assert page.locator(".mix output").all_text_contents() == ["0.10", "0.30", "0.60", "1.00"]
    sentences = page.locator(".uses .sentence").all_text_contents()
    answer = ask(server, "/v1/uses", sentences=sentences, word="bank", weights=[0.1, 0.3, 0.6])
    expected = np.array(answer["mix"]["points"])
    assert np.abs(spread(moved) - spread(expected)).max() < 1e-3
    page.locator("[data-gamma]").fill("0.5")
    center = places(page, figure)
    middle = moved.mean(axis=0)
    assert np.abs((center - middle) - 0.5 * (moved - middle)).max() < 0.1
    assert "s=10%2C30%2C60" in page.url
    page.click("button:text-is('Only layer 0')")  # There all uses are one point.
    assert np.ptp(places(page, figure), axis=0).max() < 0.01


def test_neighbours_in_the_mix_are_the_nearest_by_cosine(window: Open, server: Server) -> None:
    page = window().open("s=0,0,100&layer=mix&use=3")
    shown = page.locator(".near .sentence").all_text_contents()
    page.click("label:has-text('Layer 2')")
    assert page.locator(".near .sentence").all_text_contents() == shown
    sentences = page.locator(".uses .sentence").all_text_contents()
    answer = ask(server, "/v1/uses", sentences=sentences, word="bank")
    near = answer["layers"][2]["neighbours"][3]
    assert shown == [sentences[one["use"]] for one in near]
    scores = [float(text) for text in page.locator(".near .score").all_text_contents()]
    assert scores == [round(one["cosine"], 2) for one in near]


def test_own_sentences_are_marked_colored_and_those_without_the_word_told(window: Open) -> None:
    page = window().open()
    page.fill("input[type=text]", "bank")
    page.fill(
        "textarea",
        "The *bank* lent money.\nA river bank.\nNothing here.\nTwo banks.\nHe ran to the bank.",
    )
    page.check("input[type=checkbox]")
    page.click("button.primary")
    page.wait_for_selector(".notice")
    assert page.locator(".uses mark").all_text_contents() == ["bank", "bank", "banks", "bank"]
    assert page.locator(".uses .missing").all_text_contents() == ["–Nothing here."]
    assert "Cluster 1" in page.locator(".legend").all_text_contents()
    assert page.locator("input[name=color]").count() == 0  # There are no labels to choose.
    forms = page.locator("[role=img] .panel-note").all_text_contents()
    assert forms == ["bank · 3", "banks · 1"]


def test_points_are_reached_with_the_keyboard_alone(window: Open) -> None:
    page = window().open()
    press = page.keyboard.press
    for _ in range(60):
        press("Tab")
        if page.evaluate("document.activeElement.getAttribute('role')") == "option":
            break
    label = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label.startswith("We left the canoe")
    press("ArrowRight")
    press("ArrowRight")
    tooltip = page.locator(".tooltip")
    assert (tooltip.text_content() or "").startswith("riverHe swam to the bank")
    press("Escape")
    assert tooltip.is_hidden()
    press("Enter")
    assert (page.text_content(".quote") or "").startswith("He swam to the bank")
    assert "use=2" in page.url
    assert "He swam" in (page.text_content("#announcer") or "")
    press("End")
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused.startswith("Last year the bank")
    assert page.locator("[role=option][aria-selected=true]").count() == 1
    press("Tab")  # Out of the map, and into the next one.
    boxes = page.evaluate(
        "document.activeElement.closest('[role=listbox]').getAttribute('aria-label')"
    )
    assert boxes.startswith("Layer 1")


def test_tabs_are_opened_with_the_keyboard_alone(window: Open) -> None:
    page = window().open()
    page.focus("#tab-uses")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector(READY["pair"])
    assert page.get_attribute("#tab-pair", "aria-selected") == "true"
    assert page.evaluate("document.activeElement.id") == "tab-pair"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.go_back()
    page.wait_for_selector(READY["uses"])
    assert page.get_attribute("#tab-uses", "aria-selected") == "true"


def test_a_model_is_chosen_with_the_keyboard_alone(window: Open) -> None:
    page = window().show("pair")
    reach(page, ".model select")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(READY["pair"])
    assert "model=chinese" in page.url
    assert is_focused(page, ".model select")


def test_two_sentences_are_compared_with_the_keyboard_alone(window: Open) -> None:
    page = window().show("pair")
    press = page.keyboard.press
    reach(page, "input[type=text]")
    write(page, "The bank lent money .")
    press("Tab")
    write(page, "A river bank .")
    press("Enter")
    page.wait_for_selector(".two button:has-text('lent')")
    reach(page, "[data-word='1.1']")
    press("Enter")
    assert page.text_content(".panel h3") == "Nearest to “river”"
    assert page.get_attribute("[data-word='1.1']", "aria-pressed") == "true"
    assert is_focused(page, "[data-word='1.1']")
    assert "word=1.1" in page.url
    before = page.locator(".cell-text").all_text_contents()
    reach(page, "input[type=radio]", "Shift+Tab")
    press("ArrowLeft")
    assert page.is_checked("input[value='layer 1']")
    assert page.locator(".cell-text").all_text_contents() != before != []
    reach(page, ".drawing.scroll")  # The arrow keys scroll a table that is too wide.
    reach(page, "figure summary")
    press("Enter")
    page.wait_for_selector("figure table :text-is('river')")


def test_anatomy_is_shown_with_the_keyboard_alone(window: Open) -> None:
    page = window().show("anatomy")
    press = page.keyboard.press
    reach(page, "input[type=text]")
    write(page, "He sat by the river .")
    press("Enter")
    page.wait_for_selector(".words button:has-text('by')")
    reach(page, ".words button:nth-child(5)")
    press("Space")
    assert page.locator(".unit-text").all_text_contents()[1:6] == list("river")
    assert is_focused(page, ".words button:nth-child(5)[aria-pressed=true]")
    reach(page, "[data-weight='0']")
    press("Home")
    assert page.locator(".mix output").all_text_contents()[0] == "0.00"
    assert "s=0%2C50%2C50" in page.url
    reach(page, "[data-gamma]")
    press("ArrowLeft")
    assert page.locator(".mix output").all_text_contents()[3] == "0.95"
    reach(page, ".parts button")
    press("Enter")
    assert page.locator(".anatomy.focused .part.active").count() > 0
    assert page.get_attribute(".parts button >> nth=0", "aria-pressed") == "true"
    press("Enter")
    assert page.locator(".anatomy.focused").count() == 0


def test_tasks_are_chosen_and_asked_with_the_keyboard_alone(window: Open) -> None:
    page = window().show("tasks")
    press = page.keyboard.press
    reach(page, "form select")
    press("ArrowDown")
    page.wait_for_selector(".tagged")
    assert page.input_value("form select") == "tagger"
    assert is_focused(page, "form select")
    reach(page, "textarea")
    write(page, "the river bank and the boat .")
    reach(page, "button.primary")
    press("Enter")
    page.wait_for_function("() => document.querySelector('.tagged').textContent.includes('boat')")
    reach(page, "figure summary")
    press("Enter")
    page.wait_for_selector("figure table :text-is('boat')")


def test_uses_are_searched_with_the_keyboard_alone(window: Open) -> None:
    page = window().show("search")
    press = page.keyboard.press
    reach(page, "form input[type=text]")
    write(page, "the *boat* sat .")
    press("Enter")
    page.wait_for_selector("h3:has-text('boat')")
    reach(page, "form select")
    press("ArrowDown")
    reach(page, "input[type=number]")
    write(page, "1")
    reach(page, "button.primary")
    press("Enter")
    page.wait_for_function("() => document.querySelectorAll('.hits li').length === 1")
    assert page.locator(".hits mark").all_text_contents() == ["boat"]
    assert "only=same-word" in page.url
    reach(page, "figure summary")
    press("Enter")
    page.wait_for_selector("figure table :text-is('boat')")


# ---------------------------------------------------------------------- the other views
def test_similarities_are_the_cosines_of_embed(window: Open, elmo: Embedder) -> None:
    one = window()
    page = one.show("pair", "a=The+bank+lent+money+.&b=A+river+bank+.")
    rows = one.rows("figure:has(.cell)")
    first, second = elmo.embed("The bank lent money ."), elmo.embed("A river bank .")
    for i, name in enumerate(["layer 0", "layer 1", "layer 2"]):
        table = [row for row in rows if row["layer"] == name]
        values = np.array([[float(row[token]) for token in second.tokens] for row in table])
        a, b = (
            s.layers[i] / np.linalg.norm(s.layers[i], axis=1, keepdims=True)
            for s in (first, second)
        )
        assert difference(values, a @ b.T) < 1e-4
    page.click(".two button:has-text('river')")
    assert page.text_content(".panel h3") == "Nearest to “river”"
    page.click("label:has-text('Layer 0')")
    assert page.locator(".two small").all_text_contents()[1] != ""
    page.click(".two button >> nth=1")  # bank, which is the same word in both
    assert (
        page.get_attribute(".two .words:nth-child(2) button >> nth=2", "aria-label") == "bank 1.00"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_are_readable_on_every_shade(window: Open, scheme: str) -> None:
    page = window(scheme=scheme).show("pair")
    for layer in range(3):
        page.click(f"label:has-text('Layer {layer}')")
        cells = page.eval_on_selector_all(
            "svg g:has(> .cell-text)",
            """cells => cells.map((cell) => {
                const fill = (one) => getComputedStyle(cell.querySelector(one)).fill;
                const share = cell.querySelector('.cell').getAttribute('fill-opacity');
                return [fill('.cell-text'), fill('.cell-ground'), fill('.cell'), share];
            })""",
        )
        assert len(cells) == 121
        for *colors, share in cells:
            ink, ground, shade = (
                np.array([int(x) for x in re.findall(r"\d+", color)]) / 255 for color in colors
            )
            seen = float(share) * shade + (1 - float(share)) * ground
            dark, bright = sorted([luminance(ink), luminance(seen)])
            assert (bright + 0.05) / (dark + 0.05) >= 4.5


def luminance(color: np.ndarray) -> float:
    """Relative luminance of sRGB, as WCAG 2 defines it."""
    linear = np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_surprisal_is_that_of_the_model_and_a_word_shows_what_fits(
    window: Open, server: Server, elmo: Embedder
) -> None:
    one = window()
    text = "She sat on the river bank ."
    page = one.open("view=language&text=" + text.replace(" ", "+"), ".bar")
    rows = one.rows("figure:has(.curve)")
    (expected,) = elmo.surprisal([text.split()])
    assert [row["token"] for row in rows] == expected.tokens
    for name, values in (("forward", expected.forward), ("backward", expected.backward)):
        result = np.array([float(row[f"{name}_bits"]) for row in rows])
        assert difference(result, np.asarray(values)) < 1e-4
    page.focus(".token[tabindex='0']")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("h3:text-is('What else would fit instead of “sat”')")
    words = [row["word"] for row in one.rows("figure:has(.bar)")]
    answer = ask(server, "/v1/fill", input=text.split(), position=1)
    assert words == [word["word"] for word in answer["words"]]
    assert "word=1" in page.url


def changing(**changes: Any) -> Callable[[Any], None]:
    """What changes the first model in the answer of /v1/models."""

    def change(route: Any) -> None:
        answer = route.fetch()
        body = answer.json()
        card = body["data"][0]
        for name, value in changes.items():
            card[name] = {**card[name], **value} if isinstance(value, dict) else value
        route.fulfill(response=answer, json=body)

    return change


def test_a_model_without_a_softmax_is_told_of(window: Open) -> None:
    one = window()
    one.page.route("**/v1/models", changing(predicts_words=False))
    page = one.open("view=language", ".empty")
    assert "no softmax" in (page.text_content(".empty") or "")


def test_anatomy_shows_the_vectors_of_the_token_and_their_mix(window: Open, elmo: Embedder) -> None:
    one = window()
    page = one.show("anatomy", "s=20,30,50&gamma=0.5")
    rows = {row["vector"]: row for row in one.rows("figure")}
    sentence = elmo.embed("She sat on the river bank.")
    half = elmo.dim // 2
    names = ["token", "forward_1", "backward_1", "forward_2", "backward_2"]
    assert list(rows) == [*names, "elmo_forward", "elmo_backward"]
    vector = {name: np.array([float(rows[name][f"v{i}"]) for i in range(half)]) for name in rows}
    for name in names:
        assert difference(vector[name], sentence.representation(name)[5]) < 1e-5
    mixed = 0.5 * np.einsum("l,ld->d", [0.2, 0.3, 0.5], sentence.layers[:, 5])
    both = np.concatenate([vector["elmo_forward"], vector["elmo_backward"]])
    assert difference(both, mixed) < 1e-5
    assert page.locator(".unit-text").all_text_contents()[:6] == ["⟨", *"bank", "⟩"]
    assert page.locator(".parts li").count() == 10
    assert page.locator(".parts math").count() >= 10
    assert "768 filters" in (page.text_content(".parts") or "")
    page.click(".parts button >> nth=5")
    assert page.locator(".anatomy.focused .part.active").count() > 0
    page.click(".words button:has-text('river')")
    assert page.locator(".unit-text").all_text_contents()[1:6] == list("river")


def test_anatomy_has_the_parts_of_the_model(window: Open) -> None:
    one = window()
    read = ["Characters", "Convolutions", "Maximum"]
    kinds: list[tuple[dict[str, Any], list[str]]] = [
        ({"word_dim": 3}, [*read, "Highway", "Word vector", "Projection"]),
        ({"highway_layers": 0, "project_tokens": False}, read),
        ({"character_encoder": "lstm"}, ["Characters", "Character LSTM", "Projection"]),
        ({"token_encoder": "words"}, ["Word table"]),
    ]
    lstms = ["Forward LSTMs", "Backward LSTMs", "Skip connection", "5 vectors", "The mix"]
    for changes, parts in kinds:
        one.page.route("**/v1/models", changing(architecture=changes))
        page = one.show("anatomy")
        titles = page.locator(".parts h4 span:last-child").all_text_contents()
        assert titles == [*parts, *lstms]
        assert ("UTF-8" in page.inner_text(".parts")) == ("Characters" in parts)
        drawn = page.locator(".badge-mark text").all_text_contents()
        assert sorted(map(int, drawn)) == list(range(1, len(titles) + 1))
        one.page.unroute("**/v1/models")


def test_tasks_show_their_predictions(window: Open, server: Server) -> None:
    one = window()
    shown = dict.fromkeys(LEARNED, ".bar") | {
        "tagger": ".tagged", "question": ".tagged", "translate": ".result .quote",
    }  # fmt: skip
    for task, selector in shown.items():
        page = one.open(f"view=tasks&task={task}", selector)
        assert page.locator(".error").count() == 0
    page = one.open("view=tasks&task=relation", ".axis-word")
    for label in page.locator(".axis-word").all():  # Also a bold one is not cut off.
        assert label.text_content() in LEARNED["relation"]["labels"]
        assert label.evaluate("one => one.getBBox().x") >= 0
    text = "the river bank and the boat ."
    page = one.open("view=tasks&task=tagger", ".tagged")
    page.fill("textarea", text)
    page.click("button.primary")
    page.wait_for_function("() => document.querySelector('.tagged').textContent.includes('boat')")
    (prediction,) = ask(server, "/v1/predict/tagger", inputs=[text])["predictions"]
    spans = [f"{span['text']}{span['label']}" for span in prediction["spans"]]
    assert page.locator(".span").all_text_contents() == spans
    assert [row["tag"] for row in one.rows("figure")] == prediction["tags"]
    page = one.open("view=tasks&task=question", ".tagged")
    body = {"question": "who sat ?", "passage": "🙂 he sat on the boat ."}
    page.fill("textarea", body["passage"])
    page.fill("input", body["question"])
    page.click("button.primary")
    page.wait_for_function("() => document.querySelector('.tagged').textContent.includes('🙂')")
    (prediction,) = ask(server, "/v1/predict/question", inputs=[body])["predictions"]
    assert page.text_content("mark.answer") == prediction["answer"]
    assert page.locator(".error").count() == 0


def test_search_lists_what_the_index_has(window: Open, server: Server) -> None:
    page = window().show("search")
    answer = ask(server, "/v1/neighbours", input="he sat on the *bank* .", k=20)
    hits = page.locator(".hits mark").all_text_contents()
    assert hits == [use["word"] for use in answer["neighbours"]]
    page.select_option("select >> nth=-1", "same-word")
    page.click("button.primary")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.hits mark')].every((m) => m.textContent === 'bank')"
    )


def test_what_is_not_loaded_is_told_with_the_command_that_loads_it(window: Open) -> None:
    one = window()

    def without(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "tasks": [], "index": None})

    one.page.route("**/v1/models", without)
    search = "elmokit neighbours index text.txt FOLDER\nelmokit serve --index FOLDER"
    for view, command in (("tasks", "elmokit serve --task FOLDER"), ("search", search)):
        page = one.open(f"view={view}", ".empty")
        assert page.text_content(".empty code") == command


# ---------------------------------------------------------------------- saved and shared
def test_figures_are_saved_as_they_look(window: Open) -> None:
    one = window()
    for view in ("uses", "pair", "language", "anatomy"):
        one.show(view)
        figure = "figure >> nth=0"
        svg = one.save(figure, "SVG").decode()
        root = ET.fromstring(svg)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        elements = list(root.iter())
        assert not any({"class", "style", "role"} & set(element.attrib) for element in elements)
        marks = [mark for mark in elements if mark.tag.endswith(("path", "rect", "circle"))]
        assert len({mark.get("fill") for mark in marks}) > 2
        png = one.save(figure, "PNG")
        assert png[:8] == b"\x89PNG\r\n\x1a\n"
        size = [int.from_bytes(png[i : i + 4], "big") for i in (16, 20)]
        assert size == [2 * int(width), 2 * int(height)]
        assert len(set(png)) > 200  # Not an empty picture.


def test_marked_texts_are_saved_as_pictures_too(window: Open) -> None:
    one = window(width=700)
    text = f"the bank of the river , 中文 and {NASTY} " * 4
    lines = 0
    for view, fields, shown in (
        ("tasks", f"task=tagger&text={quote(text)}", ".tagged"),
        ("search", "", ".hits"),
    ):
        page = one.open(f"view={view}&{fields}&{TINY.get(view, '')}", shown)
        root = ET.fromstring(one.save("figure", "SVG"))
        texts = [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}text")]
        unseen = r"[\s\u202a-\u202e]"
        seen = re.sub(unseen, "", page.text_content(shown) or "")
        assert re.sub(unseen, "", "".join(texts)) == seen != ""
        boxes = [one.attrib for one in root.iter("{http://www.w3.org/2000/svg}rect")][1:]
        assert all(re.fullmatch(r"rgb\(\d+, \d+, \d+\)", box["fill"]) for box in boxes)
        # Each mark has a box on every line that it is on, where it stands on the page.
        places = [(float(box["x"]), float(box["y"])) for box in boxes]
        for left, top in page.eval_on_selector(
            shown,
            """text => {
                const frame = text.getBoundingClientRect();
                const marks = [...text.querySelectorAll('mark')];
                return marks.flatMap((mark) => [...mark.getClientRects()])
                    .map(({ left, top }) => [left - frame.left, top - frame.top]);
            }""",
        ):
            assert any(abs(x - left) < 1 and abs(y - top) < 1 for x, y in places)
        lines = max(lines, len({one.get("y") for one in root.iter() if one.tag.endswith("text")}))
        assert one.save("figure", "PNG")[:8] == b"\x89PNG\r\n\x1a\n"
    assert lines > 3


def test_an_address_shows_the_same_to_others(window: Open) -> None:
    page = window().open()
    page.fill("textarea", "# a\nThe bank.\nMy bank.\n# b\nA bank.\nOur bank, our bank.")
    page.click("button.primary")
    page.wait_for_function("() => document.querySelectorAll('.uses li').length === 5")
    page.click("label:has-text('Clusters found')")
    page.locator("[data-weight='2']").fill("90")
    page.locator(".point >> nth=3").focus()
    page.keyboard.press("Enter")
    other = window().open(page.url.partition("#")[2])
    assert other.input_value("textarea") == page.input_value("textarea")
    assert other.is_checked("input[value=clusters]")
    for shown in (".mix output", ".quote", ".near li", ".uses li"):
        own = page.locator(shown).all_text_contents()
        assert other.locator(shown).all_text_contents() == own != []


# ---------------------------------------------------------------------- trouble
def test_markup_in_texts_is_shown_as_text(window: Open) -> None:
    one = window()
    page = one.open()
    sentences = [f"My bank {NASTY} number {i}." for i in range(3)]
    page.fill("textarea", "\n".join(["# " + NASTY, *sentences]))
    page.click("button.primary")
    page.wait_for_function("() => document.querySelectorAll('.uses li').length === 3")
    assert page.locator(".uses bdi").count() == 3
    page.locator(".point >> nth=0").focus()
    page.keyboard.press("Enter")
    assert "onerror=" in (page.text_content(".tooltip") or "")
    assert "onerror" in one.save("figure >> nth=0", "CSV").decode()
    ET.fromstring(one.save("figure >> nth=0", "SVG"))
    for view, selector in (
        ("pair", "input"),
        ("language", "textarea"),
        ("anatomy", "input"),
        ("tasks", "textarea"),
    ):
        one.show(view)
        page.fill(f"{selector} >> nth=0", f"the {NASTY} bank")
        page.click("button.primary")
        page.wait_for_function("() => !document.querySelector('[aria-busy]')")
        page.wait_for_selector(READY[view])
        assert page.locator(".error").count() == 0
    turned = page.evaluate(
        "async () => (await import('/static/i18n.js')).t('fillTitle', { word: '\\u202eevil' })"
    )
    assert "\u2068\u202eevil\u2069" in turned  # The rest of the sentence is not turned around.
    assert page.evaluate("window.hacked") is None
    assert page.locator("#app img, #app script").count() == 0


def test_formulas_in_texts_stay_texts_in_a_spreadsheet(window: Open) -> None:
    one = window()
    page = one.open()
    page.fill("textarea", '=HYPERLINK("x") bank\n-1+1 bank\nmy bank, "quoted"')
    page.click("button.primary")
    page.wait_for_function("() => document.querySelectorAll('.uses li').length === 3")
    rows = one.rows("figure >> nth=0")
    texts = [row["sentence"] for row in rows if row["layer"] == "layer 1"]
    assert texts[0].startswith("'=")
    assert not any(re.match(r"[=+@-]", text) for text in texts)


def test_a_service_that_fails_shows_a_sentence_and_can_be_asked_again(window: Open) -> None:
    one = window()
    one.expected = ("Failed to load resource",)  # what the browser itself says
    page = one.page
    page.route("**/v1/models", lambda route: route.abort())
    one.open(ready=".error")
    assert "The service does not answer" in (page.text_content(".error") or "")
    page.unroute("**/v1/models")
    page.route("**/v1/uses", lambda route: route.fulfill(status=500, body="<h1>broken</h1>"))
    page.click("button:text-is('Try again')")
    page.wait_for_selector(".result .error")
    assert "HTTP 500" in (page.text_content(".error") or "")
    page.unroute("**/v1/uses")
    page.click("button:text-is('Try again')")
    page.wait_for_selector(".point")
    page.fill("textarea", "One bank.")
    page.click("button.primary")
    page.wait_for_selector(".error")
    assert "a map needs at least 3 uses" in (page.text_content(".error") or "")
    page.click("#tab-pair")
    page.wait_for_selector(READY["pair"])


def test_refusals_are_said_in_the_language_of_the_page(window: Open) -> None:
    one = window(locale="zh-CN")
    one.expected = ("Failed to load resource",)
    for fields, sentence in (
        ("view=uses&word=bank&text=river", "这些句子都不含这个词。"),
        (
            "view=uses&word=bank&text=my+bank",
            "至少需要这个词的 3 个用例才能绘图，而这些句子中只有 1 个。",
        ),
        ("view=uses&word=a&text=" + "a%0A" * 501, "句子太多：有 501 句，最多 500 句。"),
        ("view=uses&word=a&text=" + "a+" * 501, "用例太多：有 501 个，最多 500 个。"),
        ("view=search&query=bank", "请用星号标出一个词，例如：她吃了一个*苹果*。"),
        ("view=language&text=" + "a+" * 270, "文本太长：有 270 个词，最多 262 个。"),
    ):
        page = one.open(f"model=english&{fields}", ".error")
        assert page.text_content(".error p") == f"服务无法完成这个请求：{sentence}"
        assert page.get_attribute(".error bdi", "lang") == "zh"


def test_a_key_is_asked_for_and_sent(window: Open) -> None:
    one = window()
    one.expected = ("Failed to load resource",)
    page = one.page
    error = {"error": {"message": "send the key", "type": "authentication_error"}}

    def gate(route: Any) -> None:
        if route.request.headers.get("authorization") == "Bearer secret":
            route.continue_()
        else:
            route.fulfill(status=401, json=error)

    page.route("**/v1/*", gate)
    one.open(ready="input[type=password]")
    page.fill("input[type=password]", "wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("[role=alert]")
    page.fill("input[type=password]", "secret")
    page.keyboard.press("Enter")
    page.wait_for_selector(".point")
    assert "secret" not in page.url
