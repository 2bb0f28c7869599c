"""Real Spark, real failures: processes killed with SIGKILL, and every message accounted for."""
