"""Parser of RFC 3339 times in UTC with nanoseconds (`Nats-Time-Stamp`), without Python objects."""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcmp, memcpy


cdef enum:
    SECOND_BYTES = 19           # 2026-11-21T12:51:54


cdef struct ParsedSecond:       # last parsed second: consecutive messages often share it
    char[SECOND_BYTES] text
    int64_t begin_ns
    bint is_known


cdef inline int64_t digits(const char* at, int count) noexcept nogil:
    """Parse `count` decimal digits; return -1 for any other character."""
    cdef int64_t value = 0
    cdef int place
    for place in range(count):
        if not c"0" <= at[place] <= c"9":
            return -1
        value = 10 * value + (at[place] - c"0")
    return value


cdef inline int64_t day_number(int64_t year, int64_t month, int64_t day) noexcept nogil:
    """Return the days since 1970-01-01 (Howard Hinnant's `days_from_civil`)."""
    cdef int64_t from_march = (month + 9) % 12
    cdef int64_t of_year = (153 * from_march + 2) // 5 + day - 1
    cdef int64_t era
    cdef int64_t of_era
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - era * 400
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


cdef inline bint read_second(const char* text, ParsedSecond* to) noexcept nogil:
    cdef int64_t year = digits(text, 4)
    cdef int64_t month = digits(text + 5, 2)
    cdef int64_t of_month = digits(text + 8, 2)
    cdef int64_t hour = digits(text + 11, 2)
    cdef int64_t minute = digits(text + 14, 2)
    cdef int64_t second = digits(text + 17, 2)
    if (
        year < 0 or not 1 <= month <= 12 or not 1 <= of_month <= 31
        or hour < 0 or minute < 0 or second < 0
        or text[4] != c"-" or text[7] != c"-" or text[10] != c"T"
        or text[13] != c":" or text[16] != c":"
    ):
        return False
    second += day_number(year, month, of_month) * 86_400 + hour * 3600 + minute * 60
    to.begin_ns = second * 1_000_000_000
    memcpy(to.text, text, SECOND_BYTES)
    to.is_known = True
    return True


cdef inline bint read_time_stamp(
    const char* text, size_t length, ParsedSecond* last, int64_t* time_ns
) noexcept nogil:
    """Parse `2026-11-21T12:51:54[.734214913]Z` to ns since the epoch; return False if malformed."""
    cdef uint32_t fraction = 0
    cdef size_t at
    if length <= SECOND_BYTES or length > SECOND_BYTES + 11 or text[length - 1] != c"Z":
        return False
    if not (last.is_known and memcmp(last.text, text, SECOND_BYTES) == 0):
        if not read_second(text, last):
            return False
    if length > SECOND_BYTES + 1:
        if text[SECOND_BYTES] != c".":
            return False
        for at in range(SECOND_BYTES + 1, length - 1):
            if not c"0" <= text[at] <= c"9":
                return False
            fraction = 10 * fraction + <uint32_t> (text[at] - c"0")
        while length < SECOND_BYTES + 11:
            fraction *= 10
            length += 1
    time_ns[0] = last.begin_ns + fraction
    return True
