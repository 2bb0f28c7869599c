"""Sums of whole numbers of any length, written in decimal."""


cdef struct Number:
    const char* digits          # the first one is no zero, but for 0 itself
    Py_ssize_t length
    bint is_negative            # 0 is not

# A sign or none, then digits and nothing else. False: it is no number.
cdef bint read_number(const char* text, Py_ssize_t length, Number* out) noexcept nogil
cdef Number negated(const Number* number) noexcept nogil
# Writes the sum, which may not overlap either; `out` has room for the longer one and two more.
# How long it is.
cdef Py_ssize_t put_sum(const Number* one, const Number* other, char* out) noexcept nogil
