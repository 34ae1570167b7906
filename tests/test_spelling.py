"""Typing errors: codespell finds those in English, a few rules find some in Chinese."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import FENCE, ROOT

PAGES = [ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").glob("**/*.zh-CN.md"))]
HAN = "[\u4e00-\u9fff]"
MARK = "[，。；：、！？（）“”《》]"
RULES = {
    "half-width punctuation": rf"{HAN} ?[,;:!?]|[,;:!?] ?{HAN}|{HAN}\(|\){HAN}|\"{HAN}|{HAN}\"",
    "a space between Chinese characters": rf"{HAN}\s+{HAN}|{MARK}\s+\S|\S[^\S\n]+{MARK}",
    "no space beside Latin letters, digits or code": rf"{HAN}[A-Za-z0-9`]|[A-Za-z0-9`]{HAN}",
    "punctuation twice": r"[，。；：、！？][，。；：、]|\.。|。\.",
    "a word twice": "的的|了了|是是|在在|和和|把把|与与|会会",
    "a wrong character": "帐[号户单]|[好图影录]象|象素|做为|既使|部份|份量|按装|登陆|重迭|阀值|"
    "其它|必需要|以经|侯选",
    "a term that is not in the glossary": "令牌|词元|迷惑度|混淆度|惊奇度|意外度|训练周期|"
    "领域自适应|词汇表|反向(?!传播)|正向|隐藏状态|高速层",  # docs/reference/glossary.zh-CN.md
    "another form of address than 你": "您",
}


def errors(text: str) -> Iterator[str]:
    """Yield the errors in a page of Chinese, outside of its code, shapes and addresses."""
    text = re.sub(r"`[^`\n]*`", "`…`", FENCE.sub("", text))
    text = re.sub(r"\]\([^)\s]*\)", "]", text)  # the addresses of links
    text = re.sub(r"\((?:[^()\n]+, )+[^()\n]+\)", "(…)", text)  # shapes such as (词数, D)
    text = re.sub(r"^\|.*$", lambda row: row[0].replace("|", "\n\n"), text, flags=re.M)
    for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*#>]|\d+\.) )", text):
        for name, rule in RULES.items():
            for match in re.finditer(rule, part.strip()):
                yield f"{name}: {part.strip()[max(match.start() - 10, 0) : match.end() + 10]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_in_chinese_has_no_typing_errors(page: Path) -> None:
    assert list(errors(page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "text",
    [
        "词向量,各层",
        "词向量（各层） 取平均",
        "一行结束\n下一行",
        "每个 词",
        "用ELMo计算",
        "用 `load`读取",
        "向量。。",
        "模型的的向量",
        "| 名称 | 其它 |",
        "- 困惑度\n- 迷惑度",
        "反向 LSTM",
        "正向语言模型",
        "各层的隐藏状态",
        "两个高速层",
        "“您好”",
    ],
)
def test_each_of_these_is_an_error(text: str) -> None:
    assert list(errors(f"# 标题\n\n{text}\n"))


def test_this_is_right() -> None:
    text = (
        "用 `load` 读取 [ELMo](elmo.md)（第 0 层）：“词”。\n\n- 形状为 (词数, D)，\n\n| 词 | 层 |\n"
        "\n前向与后向的隐状态、highway 层、反向传播。\n"
    )
    assert not list(errors(text))


def codespell(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run codespell as `make lint` does."""
    pytest.importorskip("codespell_lib")
    command = [sys.executable, "-m", "codespell_lib", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_english_has_no_typing_errors() -> None:
    done = codespell(".")
    assert done.returncode == 0, done.stdout


def test_codespell_finds_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("The wrod has two vectors, and rouge is a score.\n")  # codespell:ignore wrod
    done = codespell(page)
    assert done.returncode > 0
    assert "wrod ==> word" in done.stdout  # codespell:ignore wrod
    assert "rouge" not in done.stdout
