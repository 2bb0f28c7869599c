"""Tests of natsd. A directory tests the package of its name; `source` tests the source itself."""
