"""Jobs over streams, with a real SparkSession."""
