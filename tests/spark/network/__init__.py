"""Tests of reads from servers, natsd and nats-server."""
