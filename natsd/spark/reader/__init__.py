"""What Spark reads with: batches, streams and queues, planned into partitions."""
