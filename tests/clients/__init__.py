"""Tests of the client protocol; they hold for natsd and for nats-server."""
