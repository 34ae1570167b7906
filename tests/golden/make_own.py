"""Make `own/`: a small model in the bilm format and the vectors that the reference gives for it.

Run from the repository: `PYTHONPATH=tests/helpers python tests/golden/make_own.py`. The weights
come from a fixed seed; nothing of elmokit takes part.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from reference import make_options, make_reference

FOLDER = Path(__file__).parent / "own"
SENTENCES = [
    "He sat on the river bank and watched the boats .",
    "The bank raised its rate by 0.25 % on Monday .",
    "Ein naïver Übermut gehört nicht auf die Straße !",
    "Она долго смотрела на реку и молчала .",
    "她 坐 在 河岸 上 看 船 。",
    "彼女 は 銀行 で 働い て いる 。",
    "은행 에서 돈 을 찾았다 .",
    "جلس الرجل على ضفة النهر",
    "वह नदी के किनारे बैठा था ।",
    "a 🙂 👩‍👩‍👧‍👦 e\u0301 Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichen",
    "one",
    "",
]


def main() -> None:
    """Write the model, the sentences and the expected vectors."""
    filters = [[1, 3], [2, 3], [3, 4], [5, 4], [7, 6]]
    options = make_options(cells=12, size=6, char_dim=4, filters=filters, highways=2)
    reference = make_reference(options, seed=2018, scale=0.8)
    reference.save(FOLDER)
    sentences = [text.split() for text in SENTENCES]
    text = json.dumps(sentences, ensure_ascii=False, indent=1)
    (FOLDER / "sentences.json").write_text(text + "\n", encoding="utf-8")
    layers: dict[str, Any] = {
        f"layers_{i}": reference.embed(tokens) for i, tokens in enumerate(sentences)
    }
    np.savez_compressed(FOLDER / "expected.npz", **layers)


if __name__ == "__main__":
    main()
