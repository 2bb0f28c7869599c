/* HighwayHash-64, the checksum of nats-server's records and small files. Integers are
 * little-endian. `natsd_highway` hashes bytes that come in pieces: begin, add …, end.
 *
 * Source: Alakuijala, Cox, Wassenberg, "Fast keyed hash/pseudo-random function using SIMD
 * multiply and permute", 2016; its test vectors are in the tests. */
#ifndef NATSD_HIGHWAY_HASH_H
#define NATSD_HIGHWAY_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint64_t v0[4], v1[4], mul0[4], mul1[4];
    unsigned char held[32]; /* bytes of a packet that is not whole yet */
    size_t held_bytes;
} natsd_highway;

static inline uint64_t natsd_highway_read(const unsigned char *p) {
    uint64_t v;
    memcpy(&v, p, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static inline uint64_t natsd_highway_swap(uint64_t v) { return (v >> 32) | (v << 32); }

static inline void natsd_highway_begin(natsd_highway *h, const unsigned char *key) {
    static const uint64_t init0[4] = {
        0xdbe6d5d5fe4cce2fu, 0xa4093822299f31d0u, 0x13198a2e03707344u, 0x243f6a8885a308d3u};
    static const uint64_t init1[4] = {
        0x3bd39e10cb0ef593u, 0xc0acf169b5f18a8cu, 0xbe5466cf34e90c6cu, 0x452821e638d01377u};
    for (int i = 0; i < 4; i++) {
        uint64_t lane = natsd_highway_read(key + 8 * i);
        h->mul0[i] = init0[i];
        h->mul1[i] = init1[i];
        h->v0[i] = init0[i] ^ lane;
        h->v1[i] = init1[i] ^ natsd_highway_swap(lane);
    }
    h->held_bytes = 0;
}

static inline void natsd_highway_zip(uint64_t b, uint64_t a, uint64_t *add1, uint64_t *add0) {
    *add0 += (((a & 0xff000000u) | (b & 0xff00000000u)) >> 24)
           | (((a & 0xff0000000000u) | (b & 0xff000000000000u)) >> 16) | (a & 0xff0000u)
           | ((a & 0xff00u) << 32) | ((b & 0xff00000000000000u) >> 8) | (a << 56);
    *add1 += (((b & 0xff000000u) | (a & 0xff00000000u)) >> 24) | (b & 0xff0000u)
           | ((b & 0xff0000000000u) >> 16) | ((b & 0xff00u) << 24)
           | ((a & 0xff000000000000u) >> 8) | ((b & 0xffu) << 48) | (a & 0xff00000000000000u);
}

static inline void natsd_highway_update(natsd_highway *h, const uint64_t *lanes) {
    for (int i = 0; i < 4; i++) {
        h->v1[i] += h->mul0[i] + lanes[i];
        h->mul0[i] ^= (h->v1[i] & 0xffffffffu) * (h->v0[i] >> 32);
        h->v0[i] += h->mul1[i];
        h->mul1[i] ^= (h->v0[i] & 0xffffffffu) * (h->v1[i] >> 32);
    }
    natsd_highway_zip(h->v1[1], h->v1[0], &h->v0[1], &h->v0[0]);
    natsd_highway_zip(h->v1[3], h->v1[2], &h->v0[3], &h->v0[2]);
    natsd_highway_zip(h->v0[1], h->v0[0], &h->v1[1], &h->v1[0]);
    natsd_highway_zip(h->v0[3], h->v0[2], &h->v1[3], &h->v1[2]);
}

static inline void natsd_highway_packet(natsd_highway *h, const unsigned char *p) {
    uint64_t lanes[4];
    for (int i = 0; i < 4; i++) lanes[i] = natsd_highway_read(p + 8 * i);
    natsd_highway_update(h, lanes);
}

static inline void natsd_highway_add(natsd_highway *h, const unsigned char *p, size_t n) {
    if (h->held_bytes) {
        size_t some = 32 - h->held_bytes < n ? 32 - h->held_bytes : n;
        memcpy(h->held + h->held_bytes, p, some);
        h->held_bytes += some;
        p += some;
        n -= some;
        if (h->held_bytes < 32) return;
        natsd_highway_packet(h, h->held);
        h->held_bytes = 0;
    }
    for (; n >= 32; p += 32, n -= 32) natsd_highway_packet(h, p);
    memcpy(h->held, p, n);
    h->held_bytes = n;
}

static inline uint64_t natsd_highway_end(natsd_highway *h) {
    const size_t n = h->held_bytes, tail = n & 3;
    if (n) {
        const unsigned char *rest = h->held + (n & ~(size_t)3);
        unsigned char packet[32] = {0};
        for (int i = 0; i < 4; i++) {
            uint32_t low = (uint32_t)h->v1[i], high = (uint32_t)(h->v1[i] >> 32);
            h->v0[i] += ((uint64_t)n << 32) + n;
            low = (low << n) | (low >> (32 - n));
            high = (high << n) | (high >> (32 - n));
            h->v1[i] = ((uint64_t)high << 32) | low;
        }
        memcpy(packet, h->held, n & ~(size_t)3);
        if (n & 16) {
            memcpy(packet + 28, rest + tail - 4, 4);
        } else if (tail) {
            packet[16] = rest[0];
            packet[17] = rest[tail >> 1];
            packet[18] = rest[tail - 1];
        }
        natsd_highway_packet(h, packet);
    }
    for (int round = 0; round < 4; round++) {
        const uint64_t lanes[4] = {
            natsd_highway_swap(h->v0[2]), natsd_highway_swap(h->v0[3]),
            natsd_highway_swap(h->v0[0]), natsd_highway_swap(h->v0[1])};
        natsd_highway_update(h, lanes);
    }
    return h->v0[0] + h->v1[0] + h->mul0[0] + h->mul1[0];
}

#endif
