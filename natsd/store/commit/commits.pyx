"""The commits of one store, and its place among the stores that the committer serves."""

include "commit_source.pyx"
include "file_commits.pyx"
