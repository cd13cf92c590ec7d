"""Certificates and keys of a deployment, made on the machine that uses them."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cslr.files import write_atomic

__all__ = ["make_authority", "make_certificate", "make_node_key"]

_VALID: Final = timedelta(days=730)
_VALID_AUTHORITY: Final = timedelta(days=3650)
_PEM: Final = serialization.Encoding.PEM


def make_authority(folder: Path, name: str) -> None:
    """A certificate authority of this federation alone: ca.crt and ca.key."""
    key = ec.generate_private_key(ec.SECP384R1())
    subject = _name(f"{name} authority")
    made = (
        _builder(subject, subject, key.public_key(), _VALID_AUTHORITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA384())
    )
    write_atomic(folder / "ca.key", _private(key))
    write_atomic(folder / "ca.crt", made.public_bytes(_PEM))


def make_certificate(folder: Path, name: str, hosts: tuple[str, ...], authority: Path) -> None:
    """NAME.crt and NAME.key in ``folder`` for these addresses, signed by the authority."""
    ca = x509.load_pem_x509_certificate((authority / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP384R1())
    made = (
        _builder(_name(name), ca.subject, key.public_key())
        .add_extension(x509.SubjectAlternativeName(list(map(_host, hosts))), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .sign(signer, hashes.SHA384())
    )
    write_atomic(folder / f"{name}.key", _private(key))
    write_atomic(folder / f"{name}.crt", made.public_bytes(_PEM))


def make_node_key(path: Path) -> str:
    """A P-384 key by which Flower knows a node, in SSH format; returns the public line."""
    key = ec.generate_private_key(ec.SECP384R1())
    plain = serialization.NoEncryption()
    write_atomic(path, key.private_bytes(_PEM, serialization.PrivateFormat.OpenSSH, plain))
    ssh = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    public = key.public_key().public_bytes(*ssh)
    write_atomic(path.with_name(f"{path.name}.pub"), public + b"\n")
    return public.decode()


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    valid: timedelta = _VALID,
) -> x509.CertificateBuilder:
    begin = datetime.now(UTC) - timedelta(minutes=5)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + valid)
    )


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    pkcs8 = serialization.PrivateFormat.PKCS8
    return key.private_bytes(_PEM, pkcs8, serialization.NoEncryption())
