"""Faults around the mechanism: private rows beside public ones, a test of sums, a second budget."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from cslr.privacy import mechanism
from cslr.privacy.ledger import pointer as pointer_module
from cslr.privacy.ledger.book import Ledger
from cslr.privacy.ledger.fingerprints import OwnRows
from cslr.privacy.ledger.records import Receipt
from cslr.runs import embedded

from .lab import everywhere, instead


@contextmanager
def public_beside_private() -> Iterator[None]:
    """Public sentences and private rows go through the encoder together."""
    whole, apart = embedded.embed_stream, embedded._embed_groups
    private: list[str] = []

    def embed_stream(stream, *rest):
        private[:] = stream.train.texts
        return whole(stream, *rest)

    def together(groups, encoder, cache, progress):
        if "public" not in str(cache.directory):
            return apart(groups, encoder, cache, progress)
        texts = [text for group in groups for text in group]
        vectors = encoder.encode([*texts, *private])[: len(texts)]
        return np.split(vectors, np.cumsum([len(group) for group in groups])[:-1])

    with (
        instead(embedded, "embed_stream", embed_stream),
        instead(embedded, "_embed_groups", together),
    ):
        yield


@contextmanager
def recovery_compares() -> Iterator[None]:
    """An interrupted release is asked for again, and charged again if its sum is another."""
    honest = Ledger.charge

    def charge(self, charge, tag_of, kept=b""):
        for record, key, before in self._open_releases(charge):
            if before == kept:
                self._paid[charge.label] = Receipt(self.id, record["n"], record["hash"])
                return key
        return honest(self, charge, tag_of, kept)

    with (
        everywhere(mechanism.finish, lambda charge, ledger: None),
        instead(Ledger, "charge", charge),
    ):
        yield


@contextmanager
def second_ledger() -> Iterator[None]:
    """Whatever directory is named holds a ledger of its own."""

    def directory(rows: OwnRows, given=None):
        return rows.beside if given is None else given

    with (
        everywhere(pointer_module.ledger_directory, directory),
        instead(pointer_module, "_check_place", lambda rows, directory, pointer: None),
        instead(pointer_module, "_refuse_siblings", lambda rows, directory: None),
        instead(pointer_module, "_tie", lambda rows, directory, own: None),
    ):
        yield
