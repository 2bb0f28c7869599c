"""The source reader that the other tests here use."""

from tests.source.reading import Function, source_of

SAMPLE = '''"""Opens with import os, in a string."""
from libc.string cimport memcpy, memchr  # import that
from natsd.core.subscription cimport (
    Sink,
    Subscription as Sub,
)
import asyncio, json as j
from . import subject
from ..accounts cimport account
cdef extern from "simd.h":
    """
    #define import 1
    """
    int scan(const char* p) nogil
cdef struct Frame:
    int x
cdef class Parser:
    cdef inline int feed(
        self, const char* p,
        Py_ssize_t n,
    ) except -1:
        text = """
def not_a_function():
"""
        # the last line is the one below

        return 1
    def tail(self): return lambda: 1
cpdef object f(int[:] view): # comment
    if view:
        pass
'''


def test_imports_and_cimports_are_absolute_names() -> None:
    assert [(found.line, found.module) for found in source_of(SAMPLE).imports] == [
        (2, "libc.string.memcpy"),
        (2, "libc.string.memchr"),
        (3, "natsd.core.subscription.Sink"),
        (3, "natsd.core.subscription.Subscription"),
        (7, "asyncio"),
        (7, "json"),
        (8, "natsd.core.subject"),
        (9, "natsd.accounts.account"),
    ]


def test_functions_are_measured_from_header_to_last_line() -> None:
    assert source_of(SAMPLE).functions == [
        Function(line=18, name="feed", line_count=10),
        Function(line=29, name="f", line_count=3),
    ]


def test_comments_are_told_from_strings() -> None:
    comments = [text for _, text in source_of(SAMPLE).comments]
    assert comments == ["# import that", "# the last line is the one below", "# comment"]


def test_module_names() -> None:
    assert source_of("", "natsd/core/subject.pyx").module == "natsd.core.subject"
    assert source_of("", "natsd/core/__init__.py").module == "natsd.core"
