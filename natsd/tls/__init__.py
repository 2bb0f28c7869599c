"""TLS: contexts from settings, what a peer presented, and the texts of failures.

Encrypting and decrypting is `TlsFraming` (natsd/core/tls.pyx). This room uses only the settings
and Python's `ssl` module; `cryptography` is imported where a certificate's fields are read.
"""
