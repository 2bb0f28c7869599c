"""From a client's certificate to the user that it names (`verify_and_map`).

    1 an e-mail address   2 a DNS name   3 a URI       alternative names of the certificate
    4 the subject         CN=derek,OU=CNCF,O=NATS      equal to the name of a user
    5 the subject         the same parts in another order
    6 the subject's text with its domain components behind the rest
    7 the subject's text

The first candidate that is the name of a user decides.

Source: nats-server's `checkClientTLSCertSubject` (server/auth.go), internal/ldap/dn.go;
RFC 4514.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from natsd.core.quoting import quoted

if TYPE_CHECKING:
    from cryptography.x509 import Certificate, Name, NameAttribute, ObjectIdentifier

SHORT_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.5": "SERIALNUMBER",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.17": "POSTALCODE",
}
ORDER: Final = ("SERIALNUMBER", "CN", "POSTALCODE", "STREET", "ST", "L", "OU", "O", "C")
"""The order of attributes in the text of a subject."""
SINGLE: Final = {"SERIALNUMBER", "CN"}
"""Attributes of which the text has only the last one."""
DOMAIN_COMPONENT: Final = "0.9.2342.19200300.100.1.25"
_MATCHED_NAMES: Final = SHORT_NAMES | {DOMAIN_COMPONENT: "DC"}
_PART: Final = re.compile(r" *([^=,+\\]*)=((?:\\.|[^,+\\])*)([,+]?)", re.S)
_ESCAPED: Final = re.compile(rb"\\(?:([0-9a-fA-F]{2})|(.))", re.S)
_SPECIAL: Final = re.compile(r'[,+"\\<>;]|^[# ]| $')

Part = frozenset[tuple[str, str]]
"""One part of a distinguished name: its types, in upper case, and values."""


class FoundUser(NamedTuple):
    """The user that a certificate names."""

    name: str | None  # None: it names none
    steps: tuple[str, ...]  # lines for the log at debug level


def user_of_certificate(der: bytes, names: Collection[str]) -> FoundUser:
    """Return which of the users the certificate names."""
    from cryptography import x509

    try:
        certificate = x509.load_der_x509_certificate(der)
        subject = certificate.subject
        alternatives = list(_alternative_names(certificate))
    except ValueError as error:
        return FoundUser(None, (f"User required in cert, which cannot be read: {error}",))
    if not alternatives and not list(subject):
        return FoundUser(None, ("User required in cert, none found",))
    for kind, value in alternatives:
        if value and value in names:
            return FoundUser(value, (f"Using {kind} found in cert for auth [{quoted(value)}]",))
    return _by_subject(subject, names)


def _alternative_names(certificate: "Certificate") -> Iterator[tuple[str, str]]:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return
    for value in names.get_values_for_type(x509.RFC822Name):
        yield "email", value
    for value in names.get_values_for_type(x509.DNSName):
        yield "SAN", value
    for value in names.get_values_for_type(x509.UniformResourceIdentifier):
        yield "URI", value


def _by_subject(subject: "Name", names: Collection[str]) -> FoundUser:
    """Return which of the users the subject of a certificate names."""
    text = _text(subject)
    steps = []
    parts = _matched_parts(subject)
    if parts is not None:
        reordered = None
        for name in names:
            wanted = parse_distinguished_name(name)
            if wanted == parts:
                return FoundUser(name, (f"Using DistinguishedNameMatch for auth [{quoted(name)}]",))
            if reordered is None and wanted and _sorted(wanted) == _sorted(parts):
                reordered = name
        if reordered is not None:
            used = f"Using DistinguishedNameMatch for auth [{quoted(reordered)}]"
            return FoundUser(reordered, (used,))
        steps.append(f"DistinguishedNameMatch could not be used for auth [{quoted(text)}]")
    domain = [
        f"DC={_value(each)}" for each in subject if each.oid.dotted_string == DOMAIN_COMPONENT
    ]
    if domain:
        whole = ",".join((text, *domain))
        if whole in names:
            return FoundUser(whole, (*steps, f"Using RDNSequence for auth [{quoted(whole)}]"))
        steps.append(f"RDNSequence could not be used for auth [{quoted(whole)}]")
    if text in names:
        return FoundUser(text, (*steps, f"Using certificate subject for auth [{quoted(text)}]"))
    return FoundUser(None, (*steps, f"User in cert [{quoted(text)}], not found"))


def _domain_component() -> "ObjectIdentifier":
    from cryptography.x509 import ObjectIdentifier

    return ObjectIdentifier(DOMAIN_COMPONENT)


def parse_distinguished_name(text: str) -> list[Part] | None:
    """Return the parts of a distinguished name in the form of RFC 4514; None: it is not one."""
    parts: list[Part] = []
    current: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None or not found[1].strip() or found[2].startswith("#"):
            return None
        value = _unescape(found[2])
        if value is None:
            return None
        current.append((found[1].strip().upper(), value))
        if found[3] != "+":
            parts.append(frozenset(current))
            current = []
        at = found.end()
    return parts if parts and not current else None


def _unescape(text: str) -> str | None:
    """Return a value without its escapes and the spaces around it; None: an escape is wrong."""
    kept_space = re.search(r"\\ +$", text) is not None
    trimmed = text.lstrip(" ")
    trimmed = trimmed.rstrip(" ") + " " if kept_space else trimmed.rstrip(" ")
    raw = _ESCAPED.sub(
        lambda found: bytes.fromhex(found[1].decode()) if found[1] else found[2], trimmed.encode()
    )
    return raw.decode(errors="replace")


def _sorted(parts: Iterable[Part]) -> list[list[tuple[str, str]]]:
    return sorted(sorted(part) for part in parts)


def _matched_parts(subject: "Name") -> list[Part] | None:
    """Return the subject's parts, the last one first; None: one of them has no short name."""
    parts: list[Part] = []
    for rdn in reversed(subject.rdns):
        part = set()
        for attribute in rdn:
            kind = _MATCHED_NAMES.get(attribute.oid.dotted_string)
            if kind is None:
                return None
            part.add((kind, _value(attribute)))
        parts.append(frozenset(part))
    return parts


def _value(attribute: "NameAttribute[str | bytes]") -> str:
    value = attribute.value
    return value if isinstance(value, str) else value.decode(errors="replace")


def _text(subject: "Name") -> str:
    """Return the text of a subject as Go writes it: some kinds of attributes, in a fixed order."""
    values: dict[str, list[str]] = {}
    for attribute in subject:
        kind = SHORT_NAMES.get(attribute.oid.dotted_string)
        if kind is not None:
            values.setdefault(kind, []).append(f"{kind}={_escape(_value(attribute))}")
    for kind in SINGLE & values.keys():
        del values[kind][:-1]
    return ",".join("+".join(values[kind]) for kind in ORDER if kind in values)


def _escape(value: str) -> str:
    return _SPECIAL.sub(lambda found: "\\" + found[0], value)
