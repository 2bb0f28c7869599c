"""Reading and writing of decimal numbers, inlined because every message needs both."""

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
    READ_DIGITS_MAX = 19        # every number of 19 digits fits into a uint64_t


cdef inline char* put_decimal(char* to, uint64_t number) noexcept nogil:
    """Write `number` at `to`, two digits at a time; return the address behind the last digit.

    At most DECIMAL_BYTES_MAX bytes are written.
    """
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


cdef inline bint read_decimal(const char* text, size_t length, uint64_t* to) noexcept nogil:
    """Read `length` bytes of text as a number into `to`.

    False: the text is not 1 to READ_DIGITS_MAX digits, and `to` is unchanged.
    """
    cdef size_t at
    cdef uint64_t value = 0
    if length == 0 or length > READ_DIGITS_MAX:
        return False
    for at in range(length):
        if not c"0" <= text[at] <= c"9":
            return False
        value = 10 * value + <uint64_t> (text[at] - c"0")
    to[0] = value
    return True
