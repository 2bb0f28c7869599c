"""The files of nats-server's file store, as this server reads and writes them."""
