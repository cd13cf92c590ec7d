"""A sentence encoder in ONNX Runtime: the same model, exported once, faster on a CPU.

``minilm+onnx`` is MiniLM with weights in single precision. The model is exported from the
sentence-transformers model at first use, into the user's cache, together with its tokenizer; later
uses load neither torch nor transformers. Vectors differ from torch's by rounding (cosine ≥ 0.9999,
checked when it is exported), so the encoder has an id of its own.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from cslr.arrays import FloatArray
from cslr.errors import EncoderError
from cslr.text.cache import cache_root, slices, unit_rows
from cslr.text.models import Source, import_late, load_model, model_id

__all__ = ["OnnxEncoder"]

ROWS: Final = 16
"""Most texts of a batch."""
OPERATORS: Final = 17
"""Version of ONNX's operators; part of the export's name."""
LEAST_COSINE: Final = 0.9999
"""Least cosine between vectors of the export and of the original model."""
TRIALS: Final = (
    "The dose of the tablets was lowered by the doctor.",
    "one two three",
    "Where can I pick up my parcel, and until when is the office open?",
)
"""A fixed text. Its tokens are used to test whether the other rows of a batch affect a row."""


class OnnxEncoder:
    """A sentence-transformers model exported to ONNX Runtime, at first use.

    ``source`` is a directory or a hub name.
    """

    rows_independent = True

    def __init__(self, source: Source) -> None:
        self.source = source
        self.id = f"{model_id(source)}:onnx"

    @cached_property
    def dimension(self) -> int:
        """d, as the exported model has it."""
        return int(self._exported.facts["dimension"])

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """(n, d) float32, rows of unit norm, in the order of the texts.

        Guarantee: a row depends on its text alone, bit for bit. Nothing is padded, and batches have
        two rows, unless a test with rows of as many tokens gave the same bits in larger batches.
        """
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        return unit_rows(self._exported.vectors(texts), np.arange(len(texts) + 1), self.id)

    @cached_property
    def _exported(self) -> _Exported:
        """The export in the cache; made first if it is not there."""
        folder = cache_root() / "models" / re.sub(r"\W+", "-", f"{self.id}-{OPERATORS}")
        if not folder.is_dir():
            _export(self.source, folder, self.id)
        return _Exported(folder)


@dataclass(frozen=True)
class _Exported:
    """A folder with an exported model, its tokenizer and its ``facts.json``."""

    folder: Path

    def vectors(self, texts: Sequence[str]) -> FloatArray:
        """(n, d) of at least one text, not yet checked. A text alone in its batch is repeated."""
        found = self._tokenizer.encode_batch([self.facts["prompt"] + text for text in texts])
        ids = [each.ids for each in found]
        vectors = np.empty((len(texts), self.facts["dimension"]), dtype=np.float32)
        for batch in _of_equal_length(ids, self._rows_of):
            filled = batch if len(batch) > 1 else batch * 2
            vectors[batch] = self._forward([ids[index] for index in filled])[: len(batch)]
        return vectors

    @cached_property
    def facts(self) -> dict[str, Any]:
        """``dimension``, ``longest`` (tokens) and ``prompt`` (put before every text)."""
        facts: dict[str, Any] = json.loads((self.folder / "facts.json").read_text("utf-8"))
        return facts

    def _rows_of(self, length: int) -> int:
        """The most texts of so many tokens that a batch may have."""
        return ROWS if self._alike(length) else 2

    @cached_property
    def _tried(self) -> dict[int, bool]:
        """The results of ``_alike`` by length."""
        return {}

    def _alike(self, length: int) -> bool:
        """Whether a row has the same bits in batches of two rows and of more, at every position.

        Tested once for every length that several texts have, on rows of words of one of ``TRIALS``.
        """
        if length not in self._tried:
            first, *words, last = self._tokenizer.encode(TRIALS[0]).ids
            middle = [words[place % len(words)] for place in range(length - 2)]
            both = [first, *middle, last][:length], [first, *middle[::-1], last][:length]
            pair = [row.tobytes() for row in self._forward(list(both))]
            self._tried[length] = all(
                [row.tobytes() for row in self._forward([both[which] for which in chosen])]
                == [pair[which] for which in chosen]
                for chosen in ([place % 3 % 2 for place in range(rows)] for rows in (3, 5, 8, ROWS))
            )
        return self._tried[length]

    def _forward(self, ids: list[list[int]]) -> FloatArray:
        """One pass through the model: (n, d) of n texts of equally many tokens."""
        vectors: FloatArray = self._session.run(None, {"ids": np.array(ids, dtype=np.int64)})[0]
        return vectors

    @cached_property
    def _session(self) -> Any:
        runtime = _imported("onnxruntime")
        settings = runtime.SessionOptions()
        settings.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS") or 0)  # 0: all cores
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        path = str(self.folder / "model.onnx")
        return runtime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])

    @cached_property
    def _tokenizer(self) -> Any:
        library = _imported("tokenizers")
        tokenizer = library.Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.facts["longest"])
        return tokenizer


def _export(source: Source, folder: Path, name: str) -> None:
    """Export into a temporary folder, check, and rename: ``folder`` is complete or missing."""
    for library in ("onnx", "onnxruntime"):
        _imported(library)
    folder.parent.mkdir(parents=True, exist_ok=True)
    kind = "a sentence-transformers model with a fast tokenizer that can be exported to ONNX"
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".part-") as work:
        made = Path(work) / "made"
        made.mkdir()
        expected = load_model(source, "sentence_transformers", kind, partial(_write, made))
        _check(_Exported(made).vectors(TRIALS), expected, name)
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process has made it meanwhile
                raise


def _write(folder: Path, library: Any, source: str, **settings: bool) -> FloatArray:
    """Write model, tokenizer and facts; returns torch's vectors (n, d) of ``TRIALS``."""
    torch = import_late("torch")
    arguments = {"use_safetensors": True, "attn_implementation": "eager"}
    model = library.SentenceTransformer(source, model_kwargs=arguments, device="cpu", **settings)

    class Vectors(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = model.eval()

        def forward(self, ids: Any) -> Any:
            features = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            return self.model(features)["sentence_embedding"]

    example = torch.tensor([model.tokenizer(TRIALS[0])["input_ids"]] * 2)
    torch.onnx.export(
        Vectors(),
        (example,),
        str(folder / "model.onnx"),
        input_names=["ids"],
        output_names=["vectors"],
        dynamic_axes={"ids": {0: "texts", 1: "tokens"}, "vectors": {0: "texts"}},
        opset_version=OPERATORS,
        dynamo=False,
    )
    model.tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    vectors: FloatArray = model.encode(list(TRIALS), show_progress_bar=False)
    facts = {
        "dimension": int(vectors.shape[1]),
        "longest": int(model.max_seq_length or 512),
        "prompt": model.prompts.get(model.default_prompt_name) or "",
    }
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    return vectors


def _check(vectors: FloatArray, expected: FloatArray, name: str) -> None:
    """Raise an error if the export's vectors are not close to the original model's."""
    one, other = (unit_rows(each, np.arange(len(TRIALS) + 1), name) for each in (vectors, expected))
    least = float((one * other).sum(axis=1).min())
    if least < LEAST_COSINE:
        raise EncoderError(
            f"the export of {name} gives other vectors than the model itself (cosine {least:.4f}); "
            "use the encoder without +onnx"
        )


def _of_equal_length(
    ids: Sequence[Sequence[int]], rows_of: Callable[[int], int]
) -> Iterator[list[int]]:
    """Batches of indices of texts with equally many tokens, shortest first.

    rows_of: the largest batch for a number of tokens; called only if there are more than two texts.
    """
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    for index, each in enumerate(ids):
        by_length[len(each)].append(index)
    for length, group in sorted(by_length.items()):
        yield from slices(group, rows_of(length) if len(group) > 2 else 2)


def _imported(library: str) -> Any:
    try:
        return import_late(library)
    except ImportError as error:
        raise EncoderError(
            f"encoders named +onnx require the extra 'onnx' ({error}); run: pip install "
            '"cslr[onnx]", or use the encoder without +onnx'
        ) from error
