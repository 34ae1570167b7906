"""Damages the files of a model in many ways and loads them, in processes that may die of it.

    python fuzz.py          takes jobs as lines of JSON, and answers each with a line

A job is {"model": FOLDER, "name": "weights.hdf5", "first": 0, "last": 50, "work": FOLDER}: the
files of the folder are damaged by the dice of each number from first to last, and what is called
`name` in it is loaded. Each number gives the same damage whenever it is tried. Allowed are a model
or one sentence; all else is a fault: another error, a warning, a process that dies, takes long or
takes much memory. This process only starts others, so that it outlives them.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tarfile
import traceback
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bundles import stored

import elmokit
from elmokit.cli.models import info
from elmokit.conversion import convert
from elmokit.errors import ElmokitError

MOST_MEMORY = 256 << 20  # that a load may take beyond what the process has
MOST_ADDRESSES = 8 << 30  # of memory, touched or not
MOST_SECONDS = 20  # of the processor, for one load
LONGEST_SENTENCE = 700  # without the path, which may stand in it twice

Files = dict[str, bytes]

# Numbers and values that nobody expects.
EXTREMES = [0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 31, 1 << 40,
            (1 << 63) - 1, 1 << 63, (1 << 64) - 1]  # fmt: skip
VALUES: list[Any] = [None, True, -1, 0, 1, 3, 7, 10**4, 2**22, 2**31, 2**62, 10**30, 0.5, 1e308,
                     float("nan"), float("inf"), "", "x", "\0", "\ud800", "../../x", "a" * 5000,
                     [], [1, 2], [[1, 2]], [[50, 4194304]], {}, {"a": 1}]  # fmt: skip
# Where the structure of a file is written down.
MARKS = re.compile(rb"\x89HDF|TREE|SNOD|HEAP|FRHP|FHDB|BTHD|OHDR|GCOL|PK\x01\x02|PK\x03\x04|PK\x05")


# ---------------------------------------------------------------------- damage
def damaged_files(files: Files, dice: random.Random) -> Files:
    """The files of a model, one of them changed, or two of them mixed up."""
    files, names = dict(files), sorted(files)
    name, turn = dice.choice(names), dice.random()
    if turn < 0.03:
        del files[name]
    elif turn < 0.06:
        other = dice.choice(names)
        files[name], files[other] = files[other], files[name]
    elif turn < 0.08:
        files[name] = dice.choice([b"", b"\0", b"{}", b"version https://git-lfs.github.com", b"PK"])
    else:
        files[name] = damaged(name, files[name], dice)
    return files


def damaged(name: str, content: bytes, dice: random.Random) -> bytes:
    """A file with some bytes changed, or with changes inside and checksums that are right."""
    inside = INSIDE.get(kind_of(name, content))
    if inside is not None and dice.random() < 0.6:
        return inside(content, dice)
    return damaged_bytes(content, dice)


def damaged_bytes(content: bytes, dice: random.Random) -> bytes:
    """One to four changes."""
    mutable = bytearray(content)
    for _ in range(dice.choice([1, 1, 2, 4])):
        place, size = place_in(bytes(mutable), dice), dice.choice([1, 2, 4, 8, 16, 100])
        turn = dice.randrange(10)
        if turn == 0:
            mutable[place : place + 1] = dice.randbytes(1)
        elif turn == 1 and place < len(mutable):
            mutable[place] ^= 1 << dice.randrange(8)
        elif turn == 2:
            del mutable[place : place + size]
        elif turn == 3:
            mutable[place:place] = dice.randbytes(size)
        elif turn == 4:
            start = dice.randrange(len(mutable) + 1)
            mutable[place : place + size] = mutable[start : start + size]
        elif turn == 5:
            mutable[place : place + size] = dice.choice([b"\0", b"\xff"]) * size
        elif turn == 6 and dice.random() < 0.3:
            del mutable[place:]
        else:
            change_number(mutable, place, dice)
    return bytes(mutable)


def place_in(content: bytes, dice: random.Random) -> int:
    """Rather where sizes and names are than among the numbers of the weights."""
    turn = dice.random()
    marks = marks_of(content) if turn < 0.5 else []
    if marks:
        return min(len(content), dice.choice(marks) + dice.randrange(400))
    return dice.randrange((min(3000, len(content)) if turn < 0.7 else len(content)) + 1)


@functools.lru_cache(maxsize=64)
def marks_of(content: bytes) -> list[int]:
    return [match.start() for match in MARKS.finditer(content)]


def change_number(mutable: bytearray, position: int, dice: random.Random) -> None:
    """Another number, in digits or in bytes."""
    if digits := re.compile(rb"\d+").search(mutable, position, position + 40):
        mutable[slice(*digits.span())] = str(dice.choice(EXTREMES)).encode()
        return
    width = dice.choice([1, 2, 4, 8])
    before = int.from_bytes(mutable[position : position + width], "little")
    replacement = dice.choice([*EXTREMES, before + 1, before - 1, before * 2, len(mutable)])
    mutable[position : position + width] = (replacement % (1 << (8 * width))).to_bytes(
        width, "little"
    )


# ---------------------------------------------------------------------- damage inside
def kind_of(name: str, content: bytes) -> str:
    """What a file is, by its name and its first bytes."""
    if content.startswith(b"PK\x03\x04"):
        return "zip"
    if content.startswith(b"\x1f\x8b"):
        return "tar.gz" if name.endswith((".tar.gz", ".tgz")) else "gz"
    return Path(name).suffix


def damaged_json(content: bytes, dice: random.Random) -> bytes:
    """Another value somewhere, a name too many or too few."""
    values = json.loads(content)
    place = values
    parts: list[tuple[Any, Any]] = []
    while isinstance(place, dict | list) and place and (not parts or dice.random() < 0.7):
        key = dice.choice(list(place) if isinstance(place, dict) else list(range(len(place))))
        parts.append((place, key))
        place = place[key]
    if parts:
        place, key = parts[-1]
        turn = dice.random()
        if turn < 0.15:
            del place[key]
        elif turn < 0.3 and isinstance(place, dict):
            place["more"] = dice.choice(VALUES)
        else:
            place[key] = dice.choice(VALUES)
    return json.dumps(values).encode()


def damaged_zip(content: bytes, dice: random.Random) -> bytes:
    """A member damaged, called otherwise or packed otherwise."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(packed, "w") as new:
        members = old.infolist()
        # of the many of torch, the list of the others
        chosen = dice.choice([m for m in members if m.filename.endswith("data.pkl")] or members)
        for member in members:
            inner = old.read(member)
            if member is chosen:
                turn = dice.random()
                if turn < 0.05:
                    member.filename = dice.choice(["../x", "/tmp/x", "x", "a/" * 200 + "b", "\0"])
                elif turn < 0.1:
                    member.external_attr = dice.getrandbits(32)
                elif turn < 0.15:
                    member.compress_type = dice.choice([0, 8, 12, 14])
                else:
                    inner = damaged(member.filename, inner, dice)
            new.writestr(member, inner, compress_type=member.compress_type)
    return packed.getvalue()


def damaged_tar(content: bytes, dice: random.Random) -> bytes:
    """A member damaged, called otherwise or of another kind; or the bytes of the tar itself."""
    whole = gzip.decompress(content)
    if dice.random() < 0.4:
        return gzip.compress(damaged_bytes(whole, dice), 1, mtime=0)
    packed = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(whole)) as old, tarfile.open(None, "w:gz", packed) as new:
        members = [member for member in old if member.isfile()]
        chosen = dice.choice(members)
        for member in members:
            inner = old.extractfile(member).read()  # type: ignore[union-attr]
            if member is chosen:
                turn = dice.random()
                if turn < 0.05:
                    member.name = dice.choice(["../x", "/tmp/x", "x", "a/" * 200 + "b"])
                elif turn < 0.1:
                    member.type = dice.choice([tarfile.SYMTYPE, tarfile.LNKTYPE, b"9", b"S", b"L"])
                else:
                    inner = damaged(member.name, inner, dice)
                    member.size = len(inner)
            new.addfile(member, io.BytesIO(inner))
    return packed.getvalue()


def damaged_gz(content: bytes, dice: random.Random) -> bytes:
    """What is packed is damaged."""
    return gzip.compress(damaged_bytes(gzip.decompress(content), dice), 1, mtime=0)


def damaged_safetensors(content: bytes, dice: random.Random) -> bytes:
    """The list of tensors damaged, its length right."""
    size = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + size]
    change = damaged_json if dice.random() < 0.7 else damaged_bytes
    header = change(header, dice)
    return len(header).to_bytes(8, "little") + header + content[8 + size :]


def damaged_index(content: bytes, dice: random.Random) -> bytes:
    """An index of TensorFlow with the checksums of its blocks made good."""
    mutable = bytearray(damaged_bytes(content, dice))
    for start, size in blocks_of(content):
        end = start + size
        if end + 5 <= len(mutable):
            mutable[end + 1 : end + 5] = stored(bytes(mutable[start : end + 1]))
    return bytes(mutable)


def blocks_of(content: bytes) -> list[tuple[int, int]]:
    """Where the blocks of a small index are: entries from the start, then two in the footer."""
    numbers, shift = [0], 0
    for byte in content[-48:-8]:
        numbers[-1] |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(0)
            shift = 0
    empty, _, index, size = numbers[:4]
    return [(0, empty - 5), (index, size)]


INSIDE = {
    ".json": damaged_json,
    "zip": damaged_zip,
    "tar.gz": damaged_tar,
    "gz": damaged_gz,
    ".safetensors": damaged_safetensors,
    ".index": damaged_index,
}


# ---------------------------------------------------------------------- trying
def try_model(path: Path, folder: Path, *, further: bool) -> str:
    """Load what is there and use it: the sentence that refuses it, or nothing."""
    try:
        elmo = elmokit.load(path)
        elmo.embed([["the", "bank", "水"], ["<S>"]])
        if further:
            with contextlib.redirect_stdout(io.StringIO()):
                info(str(path))
                convert(str(path), str(folder / "converted"))
    except ElmokitError as error:
        return str(error)
    return ""


def fault_of(sentence: str, folder: Path) -> str | None:
    """What is wrong with a sentence."""
    if "\n" in sentence:
        return "it has several lines"
    if len(sentence) > LONGEST_SENTENCE + 2 * len(str(folder)):
        return "it is too long"
    if "/elmokit-" in sentence:
        return "it names a temporary folder"
    return None if str(folder) in sentence else "it names no file"


def try_seeds(job: dict[str, Any], first: int) -> Iterator[dict[str, Any]]:
    """What each number leads to; the number itself before it is tried."""
    model, work = Path(job["model"]), Path(job["work"])
    whole = {
        path.relative_to(model).as_posix(): path.read_bytes()
        for path in sorted(model.rglob("*"))
        if path.is_file()
    }
    for seed in range(first, job["last"]):
        yield {"seed": seed}
        shutil.rmtree(work, ignore_errors=True)
        for name, content in damaged_files(whole, random.Random(seed)).items():
            (work / "model" / name).parent.mkdir(parents=True, exist_ok=True)
            (work / "model" / name).write_bytes(content)
        (work / "model").mkdir(parents=True, exist_ok=True)
        signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)  # of the processor: it may be busy
        before = memory()
        fault = said = None
        try:
            said = try_model(work / "model" / job["name"], work, further=seed % 4 == 0)
            fault = said and fault_of(said, work)
        except Exception as error:
            fault = f"{type(error).__name__}: " + traceback.format_exc(limit=-4)
        if memory() - before > MOST_MEMORY:
            fault = f"it took {(memory() - before) >> 20} MB; {said}"
        yield {"said": said and said.replace(str(work), "…"), "fault": fault or None}


def memory() -> int:
    """The most that this process ever had in memory, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def run(job: dict[str, Any], first: int, results: Path) -> None:
    """In a process of its own: try the numbers from `first` on, a line of results for each."""
    warnings.simplefilter("error")
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # which ends the process, whatever it is doing
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with results.open("a") as file:
        for line in try_seeds(job, first):
            print(json.dumps(line), file=file, flush=True)


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Start a process for a job, and another from where one has died."""
    results = Path(job["work"]).with_name("results.jsonl")
    results.unlink(missing_ok=True)
    deaths, first = [], job["first"]
    while first < job["last"]:
        child = os.fork()
        if child == 0:
            try:
                run(job, first, results)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        lines = [json.loads(line) for line in results.read_text().splitlines()]
        last = max((line["seed"] for line in lines if "seed" in line), default=job["last"])
        if not status and "seed" not in lines[-1]:
            break
        deaths.append({"seed": last, "fault": f"the process ended: {reason_of(status)}"})
        first = last + 1
    return tell(results, deaths)


def reason_of(status: int) -> str:
    """What `waitpid` says of a process, in words."""
    name = signal.Signals(status & 127).name if status & 127 else f"exit code {status >> 8}"
    return f"{name}, it took too long" if name == "SIGPROF" else name


def tell(results: Path, deaths: list[dict[str, Any]]) -> dict[str, Any]:
    """All faults with their numbers, and what was said how often."""
    faults, said, seed = list(deaths), [], None
    for line in map(json.loads, results.read_text().splitlines()):
        if "seed" in line:
            seed = line["seed"]
        elif line["fault"]:
            faults.append({"seed": seed, **line})
        else:
            said.append(line["said"])
    sentences = [sentence for sentence in said if sentence]
    kinds = sorted({re.sub(r"'.*'|\d+|\[.*\]", "_", sentence) for sentence in sentences})
    loaded, refused = len(said) - len(sentences), len(sentences)
    return {"loaded": loaded, "refused": refused, "kinds": kinds, "faults": faults}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
