"""The few atomic accesses of the trie: acquire loads, release stores, compare-and-swap, fences."""

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from * nogil:
    """
    #if __has_include("../trie/atomics.h")
    #include "../trie/atomics.h"
    #else /* from a package within a room */
    #include "../../trie/atomics.h"
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
