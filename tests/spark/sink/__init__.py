"""What Spark writes with: each row once."""
