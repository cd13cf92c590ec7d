"""Faults that would cost privacy, each put in on purpose and each caught.

``caught`` runs the attack or measurement against the protocol as it is, where it must fail to see
anything, and with the fault, where it must succeed.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy import stats

from cslr.errors import NoiseShareReused, SplitView, SumRefused
from cslr.privacy.noise_shares import share_scale
from cslr.privacy.secure_sum import client as client_module
from cslr.privacy.secure_sum import terms as terms_module
from cslr.privacy.secure_sum.client import SumClient
from cslr.privacy.secure_sum.masks import Context, MaskSum
from cslr.privacy.secure_sum.messages import ConsentRequest, Masked, UnmaskRequest
from cslr.privacy.secure_sum.recover import recover_secrets, remove_masks

from .parties import SIGMA, Parties, exact, release, summed

ROWS = np.random.default_rng(6).normal(size=(20, 3))


def split_view(n: int, t: int, c: int) -> bool:
    """A hostile server tells members different sets of survivors; whether it gets a sum it should
    not: of fewer than t members (after ENGINE's attack on n = 20, t = 14: the sum of 12)."""
    parties = Parties(n, t, c)
    parties.join()
    parties.share()
    requests = parties.server.ask_masks(release())
    masked: dict[int, Masked] = {}
    for i, client in enumerate(parties.clients):
        key = os.urandom(32)
        masked[i] = client.mask(requests[i], release(), summed(ROWS[i]), key)
        parties.noise[i] = client_module.draw_share(parties.terms.share_scale(release()), 3, key)
    wanted, told = views(n, t)
    consents = {}
    for i, client in enumerate(parties.clients):
        gone = tuple(sorted(set(range(n)) - told[i]))
        consents[i] = client.consent(ConsentRequest(1, tuple(sorted(told[i])), gone))
    shares = {}
    for i, client in enumerate(parties.clients):
        signed = tuple((j, tag_for(consents[j], told[j], i)) for j in sorted(told[i] - {i}))
        shares[i] = client.unmask(UnmaskRequest(1, signed, False)).shares
    return adds_up(parties, masked, shares, (wanted, told))


def tag_for(consent, alive: set[int], receiver: int) -> bytes:
    """The tag for ``receiver`` of a consent to ``alive``; without one, sixteen zeros."""
    tags = dict(zip(sorted(alive - {consent.sender}), consent.tags, strict=True))
    return tags.get(receiver, bytes(16))


def views(n: int, t: int) -> tuple[set[int], dict[int, set[int]]]:
    """The set whose sum is wanted, t − 2 members, and what each member is told: t, itself among."""
    wanted, outside = set(range(t - 2)), list(range(t - 2, n))
    count, told = dict.fromkeys(outside, 0), {}
    for i in range(n):
        extra = [i] if i in count else []
        for other in sorted(outside, key=lambda each: count[each]):
            if len(extra) < 2 and other not in extra:
                extra.append(other)
        for each in extra:
            count[each] += 1
        told[i] = wanted | set(extra)
    return wanted, told


def adds_up(parties: Parties, masked, shares, view) -> bool:
    wanted, told = view
    published, t = parties.server._round.shared, parties.t
    secrets = {}
    for place, (j, each) in enumerate(published.items()):
        who = [i for i in range(parties.n) if (j in told[i]) == (j in wanted)][:t]
        answers = {i: (shares[i][place],) for i in who}
        alive = {j} if j in wanted else set()
        secrets |= recover_secrets({j: each}, alive, answers, t)
    total = MaskSum(3)
    for i in wanted:
        total.add_words(np.frombuffer(masked[i].vector, dtype="<u8"))
    keys = {j: each.mask_key for j, each in published.items()}
    context = Context(parties.terms.digest, 1, release().digest)
    remove_masks(total, context, secrets, keys, wanted)
    return total.total.view(np.int64).tolist() == parties.expected(ROWS, wanted)


def test_a_split_view_is_refused_as_it_is():
    with pytest.raises(SplitView, match="did not sign the set of survivors"):
        split_view(20, 14, 4)


def test_mutant_consent_skipped_gives_the_sum_of_twelve_of_twenty(monkeypatch):
    """With the check of consents gone the attack above succeeds: it is the check that stops it."""
    monkeypatch.setattr(client_module, "check_consents", lambda *_: None)
    assert split_view(20, 14, 4)


def isolated(parties: Parties) -> bool:
    """n = 5, t = 3, one colluder: {0, 1, 4} and {2, 3, 4} each sign; is member 0 seen alone?"""
    parties.join()
    parties.share()
    requests = parties.server.ask_masks(release())
    for i in range(5):
        key = os.urandom(32)
        one = parties.clients[i].mask(requests[i], release(), summed(ROWS[i]), key)
        parties.noise[i] = client_module.draw_share(parties.terms.share_scale(release()), 3, key)
        if i == 0:
            masked = one
    published, shares = parties.server._round.shared, {}
    colluder = parties.clients[4]
    held = colluder._state.session.held
    for alive in ((0, 1, 4), (2, 3, 4)):
        request = ConsentRequest(1, alive, tuple(sorted(set(range(5)) - set(alive))))
        signed = [parties.clients[i].consent(request) for i in alive[:2]]
        digest = signed[0].digest
        for i in alive[:2]:
            honest = ((e.sender, tag_for(e, set(alive), i)) for e in signed if e.sender != i)
            tags = (*honest, (4, colluder._tag(1, (4, i), digest)))
            shares[i] = parties.clients[i].unmask(UnmaskRequest(1, tags, False)).shares
    seeds = {0: (shares[0][0],), 1: (shares[1][0],), 4: (held[0].seed_share,)}
    keys = {2: (shares[2][0],), 3: (shares[3][0],), 4: (held[0].key_share,)}
    one = {0: published[0]}
    seed = recover_secrets(one, {0}, seeds, 3)[0]
    secret = recover_secrets(one, set(), keys, 3)[0]
    context = Context(parties.terms.digest, 1, release().digest)
    total = MaskSum(3)
    total.add_words(np.frombuffer(masked.vector, dtype="<u8"))
    total.add_mask(context.self_key(seed, 0), -1)
    own = client_module.X25519PrivateKey.from_private_bytes(secret)
    for j in range(1, 5):
        total.add_mask(context.pair_key(client_module.agree(own, published[j].mask_key), 0, j), -1)
    return total.total.view(np.int64).tolist() == parties.expected(ROWS, [0])


def test_two_halves_with_one_colluder_cannot_both_consent():
    with pytest.raises(SumRefused, match="at least 4"):
        isolated(Parties(5, 3, 1))


def test_mutant_a_quorum_of_t_alone_shows_a_single_member(monkeypatch):
    """With n = 5, t = 3 and one colluder, t signatures would let two sets be signed."""
    monkeypatch.setattr(terms_module.SumTerms, "quorum", property(lambda self: self.threshold))
    assert isolated(Parties(5, 3, 1))


def difference_without_noise(parties: Parties) -> bool:
    """The same noise keys in a retry without member 4: is the difference its bare vector?"""
    keys = [os.urandom(32) for _ in range(5)]
    sums = []
    parties.join()
    for session, present in ((1, range(5)), (2, range(4))):
        parties.share(session=session)
        for i, request in parties.server.ask_masks(release()).items():
            if i in present:
                one = parties.clients[i].mask(request, release(), summed(ROWS[i]), keys[i])
                parties.server.take(one)
        parties.consent()
        sums.append(exact(parties.unmask(prepare=False)))
    scale = parties.terms.share_scale(release())
    own = client_module.draw_share(scale, 3, keys[4]) + summed(ROWS[4])._total
    return (np.array(sums[0]) - np.array(sums[1])).tolist() == own.tolist()


def test_a_share_in_two_sessions_is_refused_as_it_is():
    with pytest.raises(NoiseShareReused, match="used in another session"):
        difference_without_noise(Parties(5, 4))


def test_mutant_share_reused_shows_one_member_under_one_share(monkeypatch):
    monkeypatch.setattr(SumClient, "_unused", lambda self, key: key[:16])
    assert difference_without_noise(Parties(5, 4))


def enough_noise(parties: Parties, coordinates: int = 4000) -> bool:
    """Zeros in, one member of five lost: is the variance of the sum at least the claimed?"""
    wanted = release(coordinates=coordinates)
    noised = parties.session(np.zeros((5, coordinates)), wanted, {"masked": [2]})
    honest = np.array(exact(noised), dtype=float)
    honest -= parties.noise[0]  # a colluder gives its share away
    claimed = SIGMA * wanted.grid.steps
    return bool((honest**2).mean() > claimed**2 * stats.chi2.ppf(1e-7, coordinates) / coordinates)


def test_noise_suffices_with_one_lost_and_one_colluding():
    assert enough_noise(Parties(5, 4))


def test_mutant_dropped_members_noise_not_compensated_is_seen(monkeypatch):
    """Shares of σ²/n: enough if all stay and are honest, too little otherwise."""

    def too_little(sigma, steps, threshold, colluders):
        return share_scale(sigma, steps, 2, 1) / np.sqrt(5)

    monkeypatch.setattr(terms_module, "share_scale", too_little)
    assert not enough_noise(Parties(5, 4))
