"""What the certificate of a peer says about its right to be a route.

Source: nats-server's `isRouterAuthorized` and `dnsAltNameMatches` (server/auth.go).
"""

from collections.abc import Iterable

from natsd.auth.certificate_users import user_of_certificate


def names_user(certificate: bytes, user: str) -> bool:
    """Return whether a certificate names the user of the cluster."""
    return user_of_certificate(certificate, {user}).name == user


def names_host_of(certificate: bytes, hosts: Iterable[str]) -> bool:
    """Return whether a DNS name of a certificate is that of one of the hosts.

    The first label of the name may be `*`, for one label.
    """
    names = [_labels(name) for name in _dns_names(certificate)]
    return any(_matches(name, _labels(host)) for host in hosts for name in names)


def _labels(name: str) -> list[str]:
    return name.lower().removesuffix(".").split(".")


def _matches(name: list[str], host: list[str]) -> bool:
    if len(name) != len(host):
        return False
    return name[0] in ("*", host[0]) and name[1:] == host[1:]


def _dns_names(certificate: bytes) -> list[str]:
    from cryptography import x509

    try:
        extensions = x509.load_der_x509_certificate(certificate).extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return []
    return list(names.get_values_for_type(x509.DNSName))
