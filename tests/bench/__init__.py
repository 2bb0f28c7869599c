"""Tests of natsd bench, over fakes and over small loads on natsd itself."""
