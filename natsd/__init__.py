"""natsd: a NATS server you can pip install."""

__version__ = "0.1.0"
