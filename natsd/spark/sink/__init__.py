"""What Spark writes with: each row once, whatever is tried again."""
