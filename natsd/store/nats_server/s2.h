/* Decoding of one S2 block: a Snappy block in which a copy may repeat the last offset.
 *
 * Source: klauspost/compress, s2/README.md ("Format extensions"). */
#ifndef NATSD_S2_H
#define NATSD_S2_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t natsd_s2_number(const unsigned char *p, size_t n) {
    uint32_t v = 0;
    for (size_t i = 0; i < n; i++) v |= (uint32_t)p[i] << (8 * i);
    return v;
}

/* Decode the n bytes behind a block's length into exactly `size` bytes; return 0 if they are
 * no such block. */
static inline int natsd_s2_decode(
    const unsigned char *p, size_t n, unsigned char *to, size_t size
) {
    const unsigned char *end = p + n;
    unsigned char *const start = to, *const full = to + size;
    size_t offset = 0, length;
    while (p < end) {
        const unsigned tag = *p & 3, high = *p >> 2;
        p++;
        if (tag == 0) {
            const size_t extra = high < 60 ? 0 : high - 59;
            if ((size_t)(end - p) < extra) return 0;
            length = (extra ? (size_t)natsd_s2_number(p, extra) : high) + 1;
            p += extra;
            if (length > (size_t)(end - p) || length > (size_t)(full - to)) return 0;
            memcpy(to, p, length);
            to += length;
            p += length;
            continue;
        }
        if (tag == 1) {
            if (p == end) return 0;
            const size_t of_copy = ((size_t)(high >> 3) << 8) | *p++;
            length = high & 7;
            if (of_copy == 0) { /* a repeat: the offset stays, and the length may be longer */
                const size_t extra = length < 5 ? 0 : length - 4;
                if ((size_t)(end - p) < extra) return 0;
                if (extra) {
                    static const uint32_t base[4] = {0, 4, 1u << 8, 1u << 16};
                    length = natsd_s2_number(p, extra) + (size_t)base[extra];
                    p += extra;
                }
            } else {
                offset = of_copy;
            }
            length += 4;
        } else {
            const size_t width = tag == 2 ? 2 : 4;
            if ((size_t)(end - p) < width) return 0;
            offset = natsd_s2_number(p, width);
            p += width;
            length = (size_t)high + 1;
        }
        if (offset == 0 || offset > (size_t)(to - start) || length > (size_t)(full - to)) return 0;
        if (offset >= length) {
            memcpy(to, to - offset, length);
            to += length;
        } else {
            for (; length; length--, to++) *to = to[-(ptrdiff_t)offset];
        }
    }
    return to == full;
}

#endif
