"""Certificates that TLS accepts for the right host, and node keys as Flower wants them."""

from __future__ import annotations

import ssl

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from cslr.federation.flower.certificates import make_authority, make_certificate, make_node_key


def handshake(folder, host: str) -> str:
    """What a client that trusts the authority says to the server's certificate."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    client = ssl.create_default_context(cafile=folder / "ca.crt")
    there, here = (ssl.MemoryBIO(), ssl.MemoryBIO()), (ssl.MemoryBIO(), ssl.MemoryBIO())
    one = client.wrap_bio(*here, server_hostname=host)
    two = server.wrap_bio(*there, server_side=True)
    for _ in range(4):
        for side, out, to in ((one, here[1], there[0]), (two, there[1], here[0])):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
            to.write(out.read())
    return one.version() or ""


def test_a_certificate_is_for_its_hosts_alone(tmp_path):
    make_authority(tmp_path, "clinics")
    make_certificate(tmp_path, "server", ("127.0.0.1", "fed.example.org"), tmp_path)
    assert handshake(tmp_path, "127.0.0.1").startswith("TLS")
    assert handshake(tmp_path, "fed.example.org").startswith("TLS")
    assert "mismatch" in handshake(tmp_path, "other.example.org")
    made = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes())
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert (tmp_path / "server.key").stat().st_mode & 0o077 == 0


def test_node_keys_are_p384_in_ssh_format(tmp_path):
    line = make_node_key(tmp_path / "flower.key")
    public = load_ssh_public_key(line.encode())
    private = load_ssh_private_key((tmp_path / "flower.key").read_bytes(), None)
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert public.curve.name == "secp384r1"
    assert private.public_key().public_numbers() == public.public_numbers()
