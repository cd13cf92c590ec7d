"""Sealed lines and arrays: what was written is read, anything else is refused."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from cslr.files import ends_in_damage, open_arrays, open_line, seal_arrays, seal_line

VALUES = {"kind": "row", "scores": [0.5, None], "seed": 13}


@pytest.mark.parametrize("indent", [None, 2])
def test_a_sealed_line_is_read_back(indent):
    assert open_line(seal_line(VALUES, indent)) == VALUES


def test_a_line_is_one_line_unless_it_is_indented():
    assert "\n" not in seal_line(VALUES)
    assert seal_line(VALUES, 2).startswith('{\n  "kind"')


@pytest.mark.parametrize("text", ["[]", '"digest"', "{}", '{"kind": "row"}'])
def test_a_line_without_a_checksum_is_refused(text):
    with pytest.raises(ValueError, match="no checksum"):
        open_line(text)


def test_a_changed_line_is_refused():
    with pytest.raises(ValueError, match="does not match"):
        open_line(seal_line(VALUES).replace("13", "17"))


def test_numbers_that_json_does_not_have_are_neither_sealed_nor_read():
    with pytest.raises(ValueError, match="not JSON compliant"):
        seal_line({"score": float("nan")})
    digest = hashlib.sha256(json.dumps({"score": float("nan")}).encode()).hexdigest()[:16]
    with pytest.raises(ValueError, match="not JSON compliant"):
        open_line(json.dumps({"score": float("nan"), "digest": digest}))


@pytest.mark.parametrize(
    ("rest", "damaged"),
    [
        (b"", False),
        (b'{"kind": "ro', False),
        (b'{"kind": "row"}', False),
        (b'{"kind": "row"}{', True),
        (b'{"kind": "row"} ', True),
        (b'{"a": "\xff"}x', True),
        (b"[" * 100_000, False),
    ],
)
def test_a_part_of_a_line_is_a_crash_and_more_is_damage(rest, damaged):
    assert ends_in_damage(rest) is damaged


def test_sealed_arrays_are_read_back_bit_for_bit():
    arrays = {"b": np.arange(6.0).reshape(2, 3)[:, ::-1], "a": np.array([np.nan, -0.0])}
    found = open_arrays(seal_arrays(arrays))
    assert found.keys() == arrays.keys()
    for name, value in arrays.items():
        assert found[name].tobytes() == np.ascontiguousarray(value).tobytes()
        assert found[name].shape == value.shape


def test_a_changed_number_name_or_end_is_refused():
    content = seal_arrays({"first": np.arange(4.0)})
    for bad in (content[:-1] + b"\1", content.replace(b'"first"', b'"other"'), content[:-8], b""):
        with pytest.raises(ValueError, match=r"does not match|not a safetensors file"):
            open_arrays(bad)
