"""Tests of JetStream: streams, consumers, the API, and their behaviour in crashes."""
