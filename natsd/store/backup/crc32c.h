/* CRC-32C, the checksum of snappy's frames. It uses the processor's CRC instructions where there
 * are any, else eight bytes at a time by tables. Integers are little-endian.
 *
 * One CRC instruction takes as long as three independent ones that run side by side. So three lanes
 * of NATSD_CRC_LANE bytes each are summed at once, and joined by a table that tells how a sum
 * changes if NATSD_CRC_LANE zero bytes follow it. */
#ifndef NATSD_CRC32C_H
#define NATSD_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NATSD_CRC_POLYNOMIAL 0x82F63B78u
#define NATSD_CRC_LANE 5456 /* 12 lanes of a frame's 64 KiB leave 64 bytes */

typedef struct {
    uint32_t of_bytes[8][256]; /* sum of each byte value with 0 to 7 zero bytes behind it */
    uint32_t of_lane[4][256];  /* change of each byte of a sum by NATSD_CRC_LANE zero bytes */
    int has_instructions;
} natsd_crc_tables;

static inline uint64_t natsd_crc_read64(const unsigned char *p) {
    uint64_t v;
    memcpy(&v, p, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static inline uint32_t natsd_crc_byte(const natsd_crc_tables *t, uint32_t crc, unsigned char byte) {
    return t->of_bytes[0][(crc ^ byte) & 0xff] ^ (crc >> 8);
}

static inline uint32_t natsd_crc_by_tables(
    const natsd_crc_tables *t, uint32_t crc, const unsigned char *p, size_t n
) {
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v = natsd_crc_read64(p) ^ crc;
        crc = 0;
        for (int byte = 0; byte < 8; byte++) crc ^= t->of_bytes[7 - byte][(v >> (8 * byte)) & 0xff];
    }
    for (; n; n--) crc = natsd_crc_byte(t, crc, *p++);
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#define NATSD_CRC_TARGET __attribute__((target("sse4.2")))
#define natsd_crc_step(crc, v) ((uint32_t)__builtin_ia32_crc32di((crc), (v)))
#define natsd_crc_found() (__builtin_cpu_init(), __builtin_cpu_supports("sse4.2") != 0)
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define NATSD_CRC_TARGET
#define natsd_crc_step(crc, v) __crc32cd((crc), (v))
#define natsd_crc_found() 1
#endif

#ifdef NATSD_CRC_TARGET
static inline uint32_t natsd_crc_behind_lane(const natsd_crc_tables *t, uint32_t crc) {
    return t->of_lane[0][crc & 0xff] ^ t->of_lane[1][(crc >> 8) & 0xff]
         ^ t->of_lane[2][(crc >> 16) & 0xff] ^ t->of_lane[3][crc >> 24];
}

NATSD_CRC_TARGET static uint32_t natsd_crc_by_instructions(
    const natsd_crc_tables *t, uint32_t crc, const unsigned char *p, size_t n
) {
    for (; n >= 3 * NATSD_CRC_LANE; p += 3 * NATSD_CRC_LANE, n -= 3 * NATSD_CRC_LANE) {
        uint32_t second = 0, third = 0;
        for (const unsigned char *q = p, *end = p + NATSD_CRC_LANE; q < end; q += 8) {
            crc = natsd_crc_step(crc, natsd_crc_read64(q));
            second = natsd_crc_step(second, natsd_crc_read64(q + NATSD_CRC_LANE));
            third = natsd_crc_step(third, natsd_crc_read64(q + 2 * NATSD_CRC_LANE));
        }
        crc = natsd_crc_behind_lane(t, natsd_crc_behind_lane(t, crc) ^ second) ^ third;
    }
    for (; n >= 8; p += 8, n -= 8) crc = natsd_crc_step(crc, natsd_crc_read64(p));
    for (; n; n--) crc = natsd_crc_byte(t, crc, *p++);
    return crc;
}
#else
#define natsd_crc_found() 0
#define natsd_crc_by_instructions natsd_crc_by_tables
#endif

static inline void natsd_crc_prepare(natsd_crc_tables *t) {
    static const unsigned char zeros[NATSD_CRC_LANE];
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? NATSD_CRC_POLYNOMIAL : 0);
        t->of_bytes[0][byte] = crc;
    }
    for (int zero = 1; zero < 8; zero++)
        for (int byte = 0; byte < 256; byte++)
            t->of_bytes[zero][byte] = natsd_crc_byte(t, t->of_bytes[zero - 1][byte], 0);
    for (int byte = 0; byte < 4; byte++) { /* CRC is linear: a sum is the XOR of its bits' sums */
        for (int bit = 0; bit < 8; bit++)
            t->of_lane[byte][1 << bit] =
                natsd_crc_by_tables(t, 1u << (8 * byte + bit), zeros, NATSD_CRC_LANE);
        for (int value = 1; value < 256; value++)
            t->of_lane[byte][value] =
                t->of_lane[byte][value & (value - 1)] ^ t->of_lane[byte][value & -value];
    }
    t->has_instructions = natsd_crc_found();
}

static inline uint32_t natsd_crc32c(const natsd_crc_tables *t, const unsigned char *p, size_t n) {
    if (t->has_instructions) return ~natsd_crc_by_instructions(t, 0xffffffffu, p, n);
    return ~natsd_crc_by_tables(t, 0xffffffffu, p, n);
}

#endif
