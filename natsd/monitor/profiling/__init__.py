"""Profiles of the running process, which `go tool pprof` and browsers read."""
