"""Ready-made jobs over streams: `archive`, `replay`, `audit`, `report`, `transform`.

Each job is a function that takes a SparkSession, and a `natsd pipeline` command.
"""
