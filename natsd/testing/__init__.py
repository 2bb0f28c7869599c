"""What tests of programs that use NATS need: certificates, and operators with their accounts."""
