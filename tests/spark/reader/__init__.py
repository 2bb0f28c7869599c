"""What Spark reads with."""
