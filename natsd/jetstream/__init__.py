"""JetStream: streams, consumers and the API that manages them."""
