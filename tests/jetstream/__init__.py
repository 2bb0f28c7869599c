"""JetStream: streams, consumers, and what drives them."""
