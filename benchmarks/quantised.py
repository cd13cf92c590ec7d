"""Speed and accuracy of MiniLM in eight-bit integers, and whether a vector depends on its batch.

    python benchmarks/quantised.py
    python benchmarks/quantised.py --write      # into docs/encoders.md

Dynamic quantisation (ONNX Runtime) of the exported model, weights per channel. It scales the
activations of a layer by the range of all rows of a batch, so a vector depends on the other texts,
unless texts are encoded one at a time. Median CPU seconds for 192 texts on one thread.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from embedding import own_texts
from measuring import cpu_seconds

from cslr.text.encoders import load_encoder
from cslr.text.onnx_encoder import ROWS, OnnxEncoder, _Exported

PAGE = Path(__file__).resolve().parents[1] / "docs" / "encoders.md"
BEGIN = "<!-- int8:begin (written by `benchmarks/quantised.py`) -->"
END = "<!-- int8:end -->"


def quantised(exported: _Exported, folder: Path) -> _Exported:
    """The same model with weights in eight bits, in another folder."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    for name in ("tokenizer.json", "facts.json"):
        shutil.copy(exported.folder / name, folder / name)
    source, target = exported.folder / "model.onnx", folder / "model.onnx"
    quantize_dynamic(source, target, per_channel=True, weight_type=QuantType.QInt8)
    return _Exported(folder)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length one."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def batched(model: _Exported, texts: list[str], rows: int) -> np.ndarray:
    """(n, d) in batches of texts with equally many tokens, at most ``rows`` of them."""
    ids = [each.ids for each in model._tokenizer.encode_batch(texts)]
    vectors = np.empty((len(texts), model.facts["dimension"]), dtype=np.float32)
    by_length: dict[int, list[int]] = {}
    for index, each in enumerate(ids):
        by_length.setdefault(len(each), []).append(index)
    for group in by_length.values():
        for begin in range(0, len(group), rows):
            some = group[begin : begin + rows]
            vectors[some] = model._forward([ids[index] for index in some])
    return unit(vectors)


def measured(times: int) -> dict[str, Any]:
    """Seconds of the three ways, cosines with single precision, and the effect of batching."""
    encoder, texts = load_encoder("minilm+onnx"), own_texts()
    assert isinstance(encoder, OnnxEncoder)
    whole = encoder.encode(texts)
    with tempfile.TemporaryDirectory() as folder:
        small = quantised(encoder._exported, Path(folder))
        alone, together = batched(small, texts, 1), batched(small, texts, ROWS)
        ways = {
            "single": lambda: encoder.encode(texts),
            "together": lambda: batched(small, texts, ROWS),
            "alone": lambda: batched(small, texts, 1),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(times):
            for name, run in ways.items():
                seconds[name].append(cpu_seconds(run))
    cosines = (whole * alone).sum(axis=1)
    changed = (alone != together).any(axis=1)
    return {
        **{name: statistics.median(found) for name, found in seconds.items()},
        "texts": len(texts),
        "mean": float(cosines.mean()),
        "least": float(cosines.min()),
        "changed": int(changed.sum()),
        "apart": float((alone * together).sum(axis=1).min()),
    }


def told(figures: dict[str, Any]) -> str:
    """The paragraph for docs/encoders.md."""
    of_batch = f"{figures['changed']} of {figures['texts']} texts had another vector in a batch"
    apart, mean, least = (f"{figures[name]:.3f}" for name in ("apart", "mean", "least"))
    alone, single, together = (f"{figures[name]:.2f}" for name in ("alone", "single", "together"))
    return (
        "Eight-bit weights (dynamic quantisation) are not offered: the activations of a layer are\n"
        f"scaled by the range of the whole batch, so that {of_batch}\n"
        f"than alone (cosine down to {apart}). One text at a time a vector is its text's own:\n"
        f"{alone} CPU s for these texts beside {single} in single precision ({together} in\n"
        f"batches), with a cosine to the model's vectors of {mean} on average, {least} at least."
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="Write into docs/encoders.md.")
    asked = parser.parse_args()
    text = told(measured(asked.times))
    print(text)
    if asked.write:
        before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
