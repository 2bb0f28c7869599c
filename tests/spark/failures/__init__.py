"""Real Spark, real failures: whole processes, killed with SIGKILL, and every message accounted for."""
