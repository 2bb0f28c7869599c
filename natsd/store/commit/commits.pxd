"""The declarations of commits.pyx."""

include "commit_source.pxd"
