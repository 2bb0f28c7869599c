"""The tests of the sample project run in a directory of their own (test_sample_project.py)."""

collect_ignore = ["sample_project"]
