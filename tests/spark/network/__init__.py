"""Reads from servers, natsd and nats-server."""
