"""JetStream: streams that keep messages, consumers that deliver them. It never touches a socket."""
