"""Coverage-guided fuzzing of the envelope, with atheris.

    python tests/trust/fuzz_codec.py -max_total_time=20

Bytes as they come, and bytes as a header in an envelope that fits it. Anything but a
``MessageError``, and a message whose spelling is not its own, is a crash.
"""

from __future__ import annotations

import struct
import sys

import numpy as np


def main() -> None:
    import atheris

    with atheris.instrument_imports(include=["cslr.federation.wire.codec"]):
        from cslr.federation.wire import codec
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from cslr.errors import MessageError

    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    limits = codec.Limits(body=64)
    body = bytes(24)

    def check(data: bytes) -> None:
        try:
            message = codec.decode(data, limits)
        except MessageError:
            return
        spelt = codec.encode(message.header, np.array(message.rows), key)
        if spelt[: -codec.SIGNATURE_BYTES] != data[: -codec.SIGNATURE_BYTES]:
            raise RuntimeError("a message has two spellings")

    def one_input(data: bytes) -> None:
        check(data)
        lengths = struct.pack("<4sHII", b"CSLR", codec.VERSION, len(data), len(body))
        check(lengths + data + body + bytes(codec.SIGNATURE_BYTES))

    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
