"""The benchmark's rows of streams with three replicas, on three servers of one machine."""
