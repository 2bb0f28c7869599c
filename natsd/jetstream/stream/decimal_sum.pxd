"""Sums of whole numbers of any length, written in decimal."""


cdef struct Number:
    const char* digits          # without leading zeros; `0` itself is one zero
    Py_ssize_t length
    bint is_negative            # False for 0

# Read an optional sign and digits. False: the text is no number.
cdef bint read_number(const char* text, Py_ssize_t length, Number* out) noexcept nogil
cdef Number negated(const Number* number) noexcept nogil
# Write the sum and return its length. `out` overlaps neither number, and has room for the longer
# one and two more bytes.
cdef Py_ssize_t put_sum(const Number* one, const Number* other, char* out) noexcept nogil
