"""The speed of packed texts and fixed-shape batches, next to single texts and ordinary batches.

    OMP_NUM_THREADS=1 python benchmarks/embedding.py

MiniLM on the messages and public sentences of examples/own_data, in texts per CPU second. Vectors
count as different if any bit differs. The figures go into docs/decisions.md.
"""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.text.cache import slices, unit_rows
from cslr.text.encoders import SentenceEncoder, load_encoder

OWN_DATA: Final = Path(__file__).parent.parent / "examples" / "own_data"
EACH: Final = 96
"""Number of messages, and of public sentences."""


def main() -> None:
    """Print a line for each way."""
    encoder = load_encoder("minilm")
    if not isinstance(encoder, SentenceEncoder):
        raise SystemExit("this benchmark is about sentence encoders")
    texts = own_texts()
    packed = timed("packed", encoder, texts)
    shapes = timed("fixed shapes", unpacked(encoder), texts)
    print(f"vectors of fixed shapes that differ from packed ones: {changed(shapes, packed)}")
    compare("one by one", encoder, texts, packed, 1)
    compare("by length, up to 32", encoder, texts, packed, 32)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    print(f"vectors that depend on other texts: {changed(alone, packed)}")


def timed(name: str, encoder: SentenceEncoder, texts: list[str]) -> FloatArray:
    """The vectors; prints the speed. A first call, which loads the model, is not timed."""
    encoder.encode(texts[:1])
    begun = time.process_time()
    vectors = encoder.encode(texts)
    print(f"{name}: {rate(texts, begun):.0f} texts a CPU second")
    return vectors


def unpacked(encoder: SentenceEncoder) -> SentenceEncoder:
    """The same model in batches of fixed shapes, as models other than BERT are encoded."""
    other = SentenceEncoder(encoder.source, encoder.id)
    vars(other).update(_packed=None, _model=encoder._model)
    return other


def changed(one: FloatArray, other: FloatArray) -> int:
    """How many vectors are not the same to the last bit."""
    return int((one != other).any(axis=1).sum())


def own_texts() -> list[str]:
    """Some messages and some public sentences."""
    with (OWN_DATA / "libraries.csv").open(encoding="utf-8", newline="") as file:
        messages = [row["message"] for row in csv.DictReader(file)]
    lines = (OWN_DATA / "public.txt").read_text(encoding="utf-8").splitlines()
    return [*messages[:EACH], *[line.strip() for line in lines if line.strip()][:EACH]]


def compare(
    name: str, encoder: SentenceEncoder, texts: list[str], packed: FloatArray, size: int
) -> None:
    """How fast the library's own batches are, and how many vectors differ from packed ones."""
    places = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    found = np.empty_like(packed)
    begun = time.process_time()
    for batch in slices(places, size):
        given = [texts[place] for place in batch]
        vectors = model_of(encoder).encode(
            given, batch_size=len(given), show_progress_bar=False, convert_to_numpy=True
        )
        found[batch] = unit_rows(vectors, np.arange(len(batch) + 1), encoder.id)
    speed = rate(texts, begun)
    most = float(np.abs(found - packed).max())
    differ = f"{changed(found, packed)} of {len(texts)} vectors differ, by up to {most:.1g}"
    print(f"{name}: {speed:.0f} texts a CPU second; {differ}")


def model_of(encoder: SentenceEncoder) -> Any:
    """The model behind an encoder."""
    return encoder._model


def rate(texts: list[str], begun: float) -> float:
    """Texts a CPU second since ``begun``."""
    return len(texts) / (time.process_time() - begun)


if __name__ == "__main__":
    main()
