"""The Spark rows: `natsd bench --spark`."""
