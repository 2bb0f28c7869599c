"""JetStream: streams keep messages, consumers deliver them. This package opens no socket."""
