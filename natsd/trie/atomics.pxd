"""The atomic operations of the trie: acquire loads, release stores, compare-and-swap, fences."""

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from * nogil:
    """
    /* The few atomic accesses of the trie, by the builtins that gcc and clang share.
     * A write that attaches is a release store, a read that follows it an acquire load. */
    #ifndef NATSD_TRIE_ATOMICS_H
    #define NATSD_TRIE_ATOMICS_H

    #include <stdint.h>

    static inline int32_t natsd_acquire_i32(const void *from) {
        return __atomic_load_n((const int32_t *)from, __ATOMIC_ACQUIRE);
    }
    static inline void natsd_release_i32(void *to, int32_t value) {
        __atomic_store_n((int32_t *)to, value, __ATOMIC_RELEASE);
    }
    static inline uint16_t natsd_acquire_u16(const void *from) {
        return __atomic_load_n((const uint16_t *)from, __ATOMIC_ACQUIRE);
    }
    static inline void natsd_release_u16(void *to, uint16_t value) {
        __atomic_store_n((uint16_t *)to, value, __ATOMIC_RELEASE);
    }
    static inline uint8_t natsd_relaxed_u8(const void *from) {
        return __atomic_load_n((const uint8_t *)from, __ATOMIC_RELAXED);
    }
    static inline uint32_t natsd_relaxed_u32(const void *from) {
        return __atomic_load_n((const uint32_t *)from, __ATOMIC_RELAXED);
    }
    static inline uint32_t natsd_acquire_u32(const void *from) {
        return __atomic_load_n((const uint32_t *)from, __ATOMIC_ACQUIRE);
    }
    static inline void natsd_relaxed_store_u32(void *to, uint32_t value) {
        __atomic_store_n((uint32_t *)to, value, __ATOMIC_RELAXED);
    }
    static inline void natsd_release_u32(void *to, uint32_t value) {
        __atomic_store_n((uint32_t *)to, value, __ATOMIC_RELEASE);
    }
    static inline uint64_t natsd_acquire_u64(const void *from) {
        return __atomic_load_n((const uint64_t *)from, __ATOMIC_ACQUIRE);
    }
    static inline void natsd_release_u64(void *to, uint64_t value) {
        __atomic_store_n((uint64_t *)to, value, __ATOMIC_RELEASE);
    }
    static inline int natsd_swap_if_u64(void *at, uint64_t expected, uint64_t value) {
        return __atomic_compare_exchange_n((uint64_t *)at, &expected, value, 0, __ATOMIC_SEQ_CST,
                                           __ATOMIC_ACQUIRE);
    }
    static inline void *natsd_acquire_pointer(const void *from) {
        return __atomic_load_n((void *const *)from, __ATOMIC_ACQUIRE);
    }
    static inline int natsd_swap_if_pointer(void *at, void *expected, void *value) {
        return __atomic_compare_exchange_n((void **)at, &expected, value, 0, __ATOMIC_SEQ_CST,
                                           __ATOMIC_ACQUIRE);
    }
    static inline void natsd_acquire_fence(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
    static inline void natsd_release_fence(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
    static inline void natsd_full_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

    /* Between an announcement by compare-and-swap and the loads it is to protect. */
    static inline void natsd_fence_after_swap(void) {
    #if defined(__x86_64__) || defined(__i386__)
        __atomic_signal_fence(__ATOMIC_SEQ_CST); /* a locked instruction is a full fence there */
    #else
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    #endif
    }

    /* floor(log2(value)) of a value that is not 0. */
    static inline uint32_t natsd_log2(uint32_t value) {
        return 31u - (uint32_t)__builtin_clz(value);
    }

    #define natsd_prefetch_cell(address) __builtin_prefetch(address)

    #endif
    """
    int32_t acquire_i32 "natsd_acquire_i32"(const void* address) noexcept
    void release_i32 "natsd_release_i32"(void* address, int32_t value) noexcept
    uint16_t acquire_u16 "natsd_acquire_u16"(const void* address) noexcept
    void release_u16 "natsd_release_u16"(void* address, uint16_t value) noexcept
    uint8_t relaxed_u8 "natsd_relaxed_u8"(const void* address) noexcept
    uint32_t relaxed_u32 "natsd_relaxed_u32"(const void* address) noexcept
    uint32_t acquire_u32 "natsd_acquire_u32"(const void* address) noexcept
    void relaxed_store_u32 "natsd_relaxed_store_u32"(void* address, uint32_t value) noexcept
    void release_u32 "natsd_release_u32"(void* address, uint32_t value) noexcept
    uint64_t acquire_u64 "natsd_acquire_u64"(const void* address) noexcept
    void release_u64 "natsd_release_u64"(void* address, uint64_t value) noexcept
    bint swap_if_u64 "natsd_swap_if_u64"(void* at, uint64_t expected, uint64_t value) noexcept
    void* acquire_pointer "natsd_acquire_pointer"(const void* address) noexcept
    bint swap_if_pointer "natsd_swap_if_pointer"(void* at, void* expected, void* value) noexcept
    void acquire_fence "natsd_acquire_fence"() noexcept
    void release_fence "natsd_release_fence"() noexcept
    void full_fence "natsd_full_fence"() noexcept
    void fence_after_swap "natsd_fence_after_swap"() noexcept
    uint32_t log2_u32 "natsd_log2"(uint32_t value) noexcept
    void prefetch_cell "natsd_prefetch_cell"(const void* address) noexcept
