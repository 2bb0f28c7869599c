"""The behaviour of the client protocol, the same for natsd and nats-server."""
