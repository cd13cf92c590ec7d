"""Keys between two members: the same on both sides, different everywhere else; masks uniform."""

from __future__ import annotations

import os

import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from scipy import stats

from cslr.privacy.secure_sum.masks import (
    Context,
    MaskSum,
    agree,
    body_digest,
    consent_tag,
    public_of,
    seal,
    sign,
    unseal,
    verifies,
)

TERMS, OTHER = bytes(32), b"\1" * 32


def test_two_members_have_the_same_secret_and_a_third_another():
    a, b, c = (X25519PrivateKey.generate() for _ in range(3))
    public = [each.public_key().public_bytes_raw() for each in (a, b, c)]
    assert agree(a, public[1]) == agree(b, public[0])
    assert agree(c, public[0]) != agree(b, public[0])
    assert public_of(a.private_bytes_raw()) == public[0]


def test_a_point_of_small_order_is_refused():
    with pytest.raises(ValueError, match="shared key"):
        agree(X25519PrivateKey.generate(), bytes(32))


def test_a_key_is_used_in_one_place_only():
    keys = {
        Context(terms, session, release).pair_key(bytes(32), *pair)
        for terms in (TERMS, OTHER)
        for session in (1, 2)
        for release in (TERMS, OTHER)
        for pair in ((0, 1), (0, 2), (1, 2))
    }
    context = Context(TERMS, 1, TERMS)
    keys |= {context.self_key(bytes(32), member) for member in range(3)}
    assert len(keys) == 24 + 3
    assert context.pair_key(bytes(32), 0, 1) == context.pair_key(bytes(32), 1, 0)


def test_keys_are_derived_as_rfc_5869_says():
    """Against another implementation of HKDF-SHA256."""
    for secret in (bytes(32), os.urandom(32)):
        info = Context(TERMS, 5, OTHER).pair(b"self", 3, 3)
        expected = HKDF(hashes.SHA256(), 32, None, info).derive(secret)
        assert Context(TERMS, 5, OTHER).self_key(secret, 3) == expected


def test_a_consent_tag_is_for_one_set_one_way_and_one_pair():
    digest, shared = os.urandom(32), os.urandom(32)
    there = Context(TERMS, 1).pair(b"consent", 0, 1)
    tags = {
        consent_tag(secret, name, each)
        for secret in (shared, os.urandom(32))
        for name in (there, Context(TERMS, 1).pair(b"consent", 1, 0), b"another")
        for each in (digest, os.urandom(32))
    }
    assert len(tags) == 12
    assert {len(tag) for tag in tags} == {16}
    assert consent_tag(shared, there, digest) in tags


def test_a_mask_is_uniform_in_every_byte():
    total = MaskSum(40_000)
    total.add_mask(os.urandom(32), 1)
    octets = total.total.view(np.uint8).reshape(-1, 8)
    for column in octets.T:
        assert stats.chisquare(np.bincount(column, minlength=256)).pvalue > 1e-6


def test_masked_vectors_of_two_very_different_rows_look_alike():
    """Two-sample χ² over the highest byte, which a vector without mask would fill with 0 or 255."""
    rows = np.array([[0] * 40_000, [2**20] * 40_000], dtype=np.uint64)
    counts = []
    for row in rows:
        total = MaskSum(row.size)
        total.add_words(row)
        total.add_mask(os.urandom(32), 1)
        counts.append(np.bincount((total.total >> np.uint64(56)).astype(int), minlength=256))
    assert stats.chi2_contingency(np.array(counts)).pvalue > 1e-6


def test_masks_cancel_modulo_two_to_the_64():
    total, key = MaskSum(100), os.urandom(32)
    row = np.arange(100, dtype=np.uint64) - np.uint64(50)
    total.add_words(row)
    total.add_mask(key, 1)
    assert (total.total != row).sum() > 90
    total.add_mask(key, -1)
    assert total.total.tolist() == row.tolist()


def test_what_is_sealed_opens_under_its_own_name_and_secret_only():
    context = Context(TERMS, 1)
    name, shared = context.pair(b"share", 0, 1), os.urandom(32)
    sealed = seal(shared, name, b"shares", b"mask key")
    assert unseal(shared, name, sealed, b"mask key") == b"shares"
    assert unseal(shared, name, sealed, b"another key") is None
    assert unseal(os.urandom(32), name, sealed, b"mask key") is None
    for wrong in (context.pair(b"share", 1, 0), Context(TERMS, 2).pair(b"share", 0, 1)):
        assert unseal(shared, wrong, sealed, b"mask key") is None
    for place in range(len(sealed)):
        flipped = bytearray(sealed)
        flipped[place] ^= 1
        assert unseal(shared, name, bytes(flipped), b"mask key") is None


def test_a_signature_holds_for_its_terms_signer_and_bytes():
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    signature = sign(key, TERMS, b"body")
    digest = body_digest(b"body")
    assert verifies(public, signature, TERMS, digest)
    assert not verifies(public, signature, OTHER, digest)
    assert not verifies(public, signature, TERMS, body_digest(b"bodz"))
    stranger = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    assert not verifies(stranger, signature, TERMS, digest)
