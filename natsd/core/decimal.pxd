"""Numbers in decimal, for what is written for each message: two digits at a time."""

from libc.stdint cimport uint64_t
from libc.string cimport memcpy


cdef extern from *:
    """
    static const char natsd_pairs[201] =
        "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243"
        "4445464748495051525354555657585960616263646566676869707172737475767778798081828384858687"
        "888990919293949596979899";
    """
    const char* natsd_pairs


cdef enum:
    DECIMAL_BYTES_MAX = 20


cdef inline char* put_decimal(char* to, uint64_t number) noexcept nogil:
    """Behind it."""
    cdef char[20] digits
    cdef int at = 20
    while number >= 100:
        at -= 2
        memcpy(&digits[at], natsd_pairs + 2 * (number % 100), 2)
        number //= 100
    if number >= 10:
        at -= 2
        memcpy(&digits[at], natsd_pairs + 2 * number, 2)
    else:
        at -= 1
        digits[at] = <char> (c"0" + number)
    memcpy(to, &digits[at], 20 - at)
    return to + (20 - at)
