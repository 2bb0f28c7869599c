"""RFC 3339 timestamps. The calendar is Howard Hinnant's `civil_from_days`."""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

from natsd.core.decimal cimport natsd_pairs


cdef inline char* put_digits(char* to, int64_t number, int digits) noexcept nogil:
    cdef int place = digits
    while place > 0:
        place -= 1
        to[place] = <char> (c"0" + number % 10)
        number //= 10
    return to + digits


cdef char* put_date(char* to, int64_t days) noexcept nogil:
    """Write the date; `days` since 1970. Years are counted from March, in eras of 400 years."""
    cdef int64_t shifted = days + 719_468
    cdef int64_t era = shifted // 146_097
    cdef int64_t of_era = shifted - era * 146_097
    cdef int64_t year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    cdef int64_t of_year = of_era - (365 * year + year // 4 - year // 100)
    cdef int64_t month = (5 * of_year + 2) // 153
    cdef int64_t day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += era * 400 + (month <= 2)
    to = put_digits(to, year, 4)
    to[0] = c"-"
    to = put_digits(to + 1, month, 2)
    to[0] = c"-"
    return put_digits(to + 1, day, 2)


cdef void write_second(Second* to, int64_t number) noexcept nogil:
    cdef int64_t days = number // 86_400
    cdef int64_t of_day = number - days * 86_400
    cdef char* at = put_date(to.text, days)
    at[0] = c"T"
    at = put_digits(at + 1, of_day // 3600, 2)
    at[0] = c":"
    at = put_digits(at + 1, of_day // 60 % 60, 2)
    at[0] = c":"
    put_digits(at + 1, of_day % 60, 2)
    to.number = number
    to.is_known = True


cdef inline char* put_fraction(char* to, uint32_t nanoseconds) noexcept nogil:
    """Write nine digits."""
    cdef int at
    for at in range(7, 0, -2):
        memcpy(to + at, natsd_pairs + 2 * (nanoseconds % 100), 2)
        nanoseconds //= 100
    to[0] = <char> (c"0" + nanoseconds)
    return to + 9


cdef Py_ssize_t write_timestamp(char* to, int64_t time_ns, Second* last) noexcept nogil:
    cdef char* at = to + SECOND_BYTES
    cdef int64_t number = time_ns // 1_000_000_000
    cdef int64_t fraction = time_ns - number * 1_000_000_000
    if not last.is_known or last.number != number:
        write_second(last, number)
    memcpy(to, last.text, SECOND_BYTES)
    if fraction:
        at[0] = c"."
        at = put_fraction(at + 1, <uint32_t> fraction)
        while at[-1] == c"0":
            at -= 1
    at[0] = c"Z"
    return at + 1 - to


def timestamp(int64_t time_ns) -> str:
    """Return the time (nanoseconds since 1970) in RFC 3339 with nanoseconds, UTC."""
    cdef char[TIMESTAMP_ROOM] text
    cdef Second last
    last.is_known = False
    return text[:write_timestamp(text, time_ns, &last)].decode("ascii")
