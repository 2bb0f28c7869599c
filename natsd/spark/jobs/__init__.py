"""Ready-made jobs over streams, each a function that takes a SparkSession and a `natsd pipeline`
command: `archive`, `replay`, `audit`, `report`, `transform`."""
