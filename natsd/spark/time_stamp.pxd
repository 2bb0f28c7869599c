"""RFC 3339 with nanoseconds, UTC, as `Nats-Time-Stamp` says it, read without a Python object."""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp, memcpy


cdef enum:
    DAY_BYTES = 11              # 2026-11-21T


cdef struct Day:                # the last one seen: messages come in the order of time
    char[DAY_BYTES] text
    int64_t begin_s
    bint is_known


cdef inline int64_t digits(const char* at, int count) noexcept nogil:
    """-1: something else is there."""
    cdef int64_t value = 0
    cdef int place
    for place in range(count):
        if not c"0" <= at[place] <= c"9":
            return -1
        value = 10 * value + (at[place] - c"0")
    return value


cdef inline int64_t day_number(int64_t year, int64_t month, int64_t day) noexcept nogil:
    """Since 1970: Howard Hinnant's `days_from_civil`."""
    cdef int64_t from_march = (month + 9) % 12
    cdef int64_t of_year = (153 * from_march + 2) // 5 + day - 1
    cdef int64_t era
    cdef int64_t of_era
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - era * 400
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


cdef inline bint read_day(const char* text, Day* day) noexcept nogil:
    cdef int64_t year = digits(text, 4)
    cdef int64_t month = digits(text + 5, 2)
    cdef int64_t of_month = digits(text + 8, 2)
    if (
        year < 0 or not 1 <= month <= 12 or not 1 <= of_month <= 31
        or text[4] != c"-" or text[7] != c"-" or text[10] != c"T"
    ):
        return False
    day.begin_s = day_number(year, month, of_month) * 86_400
    memcpy(day.text, text, DAY_BYTES)
    day.is_known = True
    return True


cdef inline bint read_time_stamp(
    const char* text, size_t length, Day* day, int64_t* time_ns
) noexcept nogil:
    """False: it is none. `2026-11-21T12:51:54[.734214913]Z`"""
    cdef int64_t hour
    cdef int64_t minute
    cdef int64_t second
    cdef int64_t fraction = 0
    cdef size_t at = 20
    cdef int64_t unit = 100_000_000
    if length < 20 or text[length - 1] != c"Z":
        return False
    if not (day.is_known and memcmp(day.text, text, DAY_BYTES) == 0) and not read_day(text, day):
        return False
    hour = digits(text + 11, 2)
    minute = digits(text + 14, 2)
    second = digits(text + 17, 2)
    if hour < 0 or minute < 0 or second < 0 or text[13] != c":" or text[16] != c":":
        return False
    if length > 20:
        if text[19] != c"." or length > 30:
            return False
        while at < length - 1:
            if not c"0" <= text[at] <= c"9":
                return False
            fraction += unit * (text[at] - c"0")
            unit //= 10
            at += 1
    time_ns[0] = (day.begin_s + hour * 3600 + minute * 60 + second) * 1_000_000_000 + fraction
    return True
