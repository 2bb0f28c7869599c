"""What a client sees of JetStream; each test holds of nats-server too (NATSD_TEST_SERVER)."""
