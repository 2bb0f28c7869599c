"""Tests with real Spark and real failures: processes killed with SIGKILL, every message counted."""
