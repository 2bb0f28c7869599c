"""Tests of natsd bench, with fakes and with small loads on natsd itself."""
