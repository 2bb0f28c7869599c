"""XXH64, the checksum of everything that the store writes: 64 bits over any bytes, with a seed.

It is compiled here because the `xxhash` package exports no C API, and inlined where records are
written and read: for half of the records a call through Python would take longer than the checksum.
It equals that package for every length and seed; tests/store/codec/test_record.py checks this.

Source: the xxHash specification, "XXH64 algorithm description". Bytes are read as little-endian.
"""

from libc.stdint cimport uint64_t


cdef extern from *:
    """
    #ifndef NATSD_XXH64_H
    #define NATSD_XXH64_H
    #include <stdint.h>
    #include <string.h>

    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define natsd_little64(v) __builtin_bswap64(v)
    #define natsd_little32(v) __builtin_bswap32(v)
    #else
    #define natsd_little64(v) (v)
    #define natsd_little32(v) (v)
    #endif

    #define NATSD_XXH_P1 0x9E3779B185EBCA87ULL
    #define NATSD_XXH_P2 0xC2B2AE3D27D4EB4FULL
    #define NATSD_XXH_P3 0x165667B19E3779F9ULL
    #define NATSD_XXH_P4 0x85EBCA77C2B2AE63ULL
    #define NATSD_XXH_P5 0x27D4EB2F165667C5ULL

    static inline uint64_t natsd_xxh_read64(const unsigned char *p) {
        uint64_t v; memcpy(&v, p, 8); return natsd_little64(v);
    }
    static inline uint64_t natsd_xxh_read32(const unsigned char *p) {
        uint32_t v; memcpy(&v, p, 4); return natsd_little32(v);
    }
    static inline uint64_t natsd_xxh_rotl(uint64_t v, int bits) {
        return (v << bits) | (v >> (64 - bits));
    }
    static inline uint64_t natsd_xxh_round(uint64_t lane, uint64_t input) {
        return natsd_xxh_rotl(lane + input * NATSD_XXH_P2, 31) * NATSD_XXH_P1;
    }
    static inline uint64_t natsd_xxh_merge(uint64_t hash, uint64_t lane) {
        return (hash ^ natsd_xxh_round(0, lane)) * NATSD_XXH_P1 + NATSD_XXH_P4;
    }

    /* Four lanes of eight bytes each, for as long as 32 bytes are left. */
    static inline uint64_t natsd_xxh_stripes(
        const unsigned char *p, const unsigned char *end, uint64_t seed
    ) {
        uint64_t a = seed + NATSD_XXH_P1 + NATSD_XXH_P2, b = seed + NATSD_XXH_P2;
        uint64_t c = seed, d = seed - NATSD_XXH_P1, hash;
        for (; end - p >= 32; p += 32) {
            a = natsd_xxh_round(a, natsd_xxh_read64(p));
            b = natsd_xxh_round(b, natsd_xxh_read64(p + 8));
            c = natsd_xxh_round(c, natsd_xxh_read64(p + 16));
            d = natsd_xxh_round(d, natsd_xxh_read64(p + 24));
        }
        hash = natsd_xxh_rotl(a, 1) + natsd_xxh_rotl(b, 7) + natsd_xxh_rotl(c, 12)
             + natsd_xxh_rotl(d, 18);
        hash = natsd_xxh_merge(hash, a);
        hash = natsd_xxh_merge(hash, b);
        hash = natsd_xxh_merge(hash, c);
        return natsd_xxh_merge(hash, d);
    }

    static inline uint64_t xxh64(const unsigned char *p, size_t n, uint64_t seed) {
        const unsigned char *end = p + n;
        uint64_t hash = n >= 32 ? natsd_xxh_stripes(p, end, seed) : seed + NATSD_XXH_P5;
        hash += n;
        p += n & ~(size_t)31;
        for (; end - p >= 8; p += 8) {
            hash ^= natsd_xxh_round(0, natsd_xxh_read64(p));
            hash = natsd_xxh_rotl(hash, 27) * NATSD_XXH_P1 + NATSD_XXH_P4;
        }
        if (end - p >= 4) {
            hash ^= natsd_xxh_read32(p) * NATSD_XXH_P1;
            hash = natsd_xxh_rotl(hash, 23) * NATSD_XXH_P2 + NATSD_XXH_P3;
            p += 4;
        }
        for (; p < end; p++) {
            hash ^= *p * NATSD_XXH_P5;
            hash = natsd_xxh_rotl(hash, 11) * NATSD_XXH_P1;
        }
        hash = (hash ^ (hash >> 33)) * NATSD_XXH_P2;
        hash = (hash ^ (hash >> 29)) * NATSD_XXH_P3;
        return hash ^ (hash >> 32);
    }
    #endif
    """
    uint64_t xxh64(const unsigned char* data, size_t n, uint64_t seed) noexcept nogil
    uint64_t natsd_little64(uint64_t value) noexcept nogil
