"""Certificates of one deployment.

An authority of its own, one for each host's agent, one for the service.

An agent's certificate opens no other agent: it may only be shown by a server, the service's only by a client.
"""

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from runtime.errors import EngineStartError

AUTHORITY = "authority.pem"
LIFE = timedelta(days=365)
"""Of a certificate."""
RENEWED = timedelta(days=30)
"""Before its end, when a certificate is made anew."""
_SLACK = timedelta(minutes=5)
"""Clocks of hosts differ."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """The authority, with its key."""

    key: EllipticCurvePrivateKey
    certificate: x509.Certificate


def write(folder: Path, hosts: tuple[str, ...], now: datetime | None = None) -> list[Path]:
    """Make what is missing or ends within ``RENEWED``.

    The authority, the service's file and one for each host.

    Returns the files written. Each holds a key: only its owner may read it.

    Raises:
        EngineStartError: a file that is there cannot be used.
        OSError: the folder cannot be written.
    """
    now = now or datetime.now(UTC)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    written = list[Path]()
    authority = folder / AUTHORITY
    if is_new := not _lasts(authority, now):
        _issue_authority(authority, now)
        written.append(authority)
    issuer = _read(authority)
    for name in ("service", *hosts):
        file = folder / f"{name}.pem"
        if is_new or not _lasts(file, now):
            usage = ExtendedKeyUsageOID.CLIENT_AUTH if name == "service" else ExtendedKeyUsageOID.SERVER_AUTH
            issue(file, name, usage, issuer, now)
            written.append(file)
    return written


def ends(file: Path) -> dict[str, float]:
    """When the certificate of a file ends, and that of its authority: Unix seconds by the files' names.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no two certificates.
    """
    ours, authority = x509.load_pem_x509_certificates(file.read_bytes())
    return {file.name: ours.not_valid_after_utc.timestamp(), AUTHORITY: authority.not_valid_after_utc.timestamp()}


def issue(file: Path, name: str, usage: x509.ObjectIdentifier, issuer: Issuer, now: datetime) -> None:
    """Write a key, its certificate for ``name``, and the authority's certificate."""
    key = generate_private_key(SECP256R1())
    signed = (
        _builder(name, key, now)
        .issuer_name(issuer.certificate.subject)
        .not_valid_after(min(now + LIFE, issuer.certificate.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key()), critical=False)
        .sign(issuer.key, SHA256())
    )
    _save(file, key, signed, issuer.certificate)


def _issue_authority(file: Path, now: datetime) -> None:
    key = generate_private_key(SECP256R1())
    name = "intentctl authority"
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    signed = (
        _builder(name, key, now)
        .issuer_name(_named(name))
        .not_valid_after(now + 10 * LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    _save(file, key, signed)


def _builder(name: str, key: EllipticCurvePrivateKey, now: datetime) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(_named(name)).public_key(key.public_key())
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now - _SLACK)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _save(file: Path, key: EllipticCurvePrivateKey, *certificates: x509.Certificate) -> None:
    """Whole or not at all, and never readable by others."""
    parts = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
    parts += [certificate.public_bytes(Encoding.PEM) for certificate in certificates]
    unfinished = file.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as target:
        target.write(b"".join(parts))
    unfinished.replace(file)


def _read(file: Path) -> Issuer:
    """The key of a file, and its first certificate."""
    try:
        data = file.read_bytes()
        key = load_pem_private_key(data, None)
        certificate = x509.load_pem_x509_certificate(data)
    except (OSError, ValueError) as error:
        what = f"{file} cannot be read ({error}); restore it, or remove its folder and make all files anew"
        raise EngineStartError(what) from error
    assert isinstance(key, EllipticCurvePrivateKey)
    return Issuer(key, certificate)


def _lasts(file: Path, now: datetime) -> bool:
    return file.exists() and _read(file).certificate.not_valid_after_utc > now + RENEWED
