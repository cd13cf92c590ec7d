"""How the server removes the masks: shares give secrets, and secrets give masks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from cslr.errors import SumAborted
from cslr.privacy.secure_sum.masks import Context, MaskSum, agree, commitment_of, public_of
from cslr.privacy.secure_sum.messages import Shares
from cslr.privacy.secure_sum.shamir import combine

__all__ = ["recover_secrets", "remove_masks"]


def recover_secrets(
    shared: Mapping[int, Shares],
    alive: Collection[int],
    answers: Mapping[int, Sequence[bytes]],
    threshold: int,
) -> dict[int, bytes]:
    """The seed of every survivor and the mask secret of the others, by member.

    shared: the public part of what each member shared, in order. answers: by member that answered,
    the shares that it holds, in the same order; those of the first ``threshold`` members are used.
    """
    chosen = sorted(answers)[:threshold]
    combined = combine([answers[member] for member in chosen], [member + 1 for member in chosen])
    secrets = {}
    for (member, published), secret in zip(shared.items(), combined, strict=True):
        if secret is None or not _fits(secret, published, member in alive):
            raise SumAborted(
                f"the shares of member {member}'s secret do not fit together: it shared badly, or "
                f"one of members {chosen} answered badly. Start a new session"
            )
        secrets[member] = secret
    return secrets


def _fits(secret: bytes, published: Shares, alive: bool) -> bool:
    if alive:
        return commitment_of(secret) == published.commitment
    return public_of(secret) == published.mask_key


def remove_masks(
    total: MaskSum,
    context: Context,
    secrets: Mapping[int, bytes],
    mask_keys: Mapping[int, bytes],
    alive: Collection[int],
) -> None:
    """Subtract the survivors' own masks and those they have in common with the dropped."""
    for member in alive:
        total.add_mask(context.self_key(secrets[member], member), -1)
    for member in secrets.keys() - set(alive):
        secret = X25519PrivateKey.from_private_bytes(secrets[member])
        for survivor in alive:
            key = context.pair_key(agree(secret, mask_keys[survivor]), member, survivor)
            total.add_mask(key, -1 if survivor < member else 1)
