"""Monitoring: `/varz`, `/connz`, `/healthz` and others, over HTTP and over NATS."""
