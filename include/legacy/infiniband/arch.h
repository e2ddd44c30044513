/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Byte order and memory barriers by the names of MLNX_OFED's header. rdma-core's has the first pair
 * with a warning, and no barriers.
 */
#ifndef INFINIBAND_ARCH_H
#define INFINIBAND_ARCH_H

#include <endian.h>
#include <stdint.h>

#ifndef htonll
static inline uint64_t htonll(uint64_t x)
{
	return htobe64(x);
}
#define htonll htonll
#endif
#ifndef ntohll
static inline uint64_t ntohll(uint64_t x)
{
	return be64toh(x);
}
#define ntohll ntohll
#endif

/*
 * mb() orders all accesses, rmb() loads and wmb() stores, as seen by a device; wc_wmb() also sends
 * out stores to write-combining memory, as doorbell registers are.
 */
#define mb() __sync_synchronize()
#if defined(__x86_64__) || defined(__i386__)
#define rmb() __asm__ __volatile__("" ::: "memory")
#define wmb() __asm__ __volatile__("" ::: "memory")
#define wc_wmb() __asm__ __volatile__("sfence" ::: "memory")
#elif defined(__aarch64__)
#define rmb() __asm__ __volatile__("dsb ld" ::: "memory")
#define wmb() __asm__ __volatile__("dsb st" ::: "memory")
#define wc_wmb() wmb()
#else
#define rmb() mb()
#define wmb() mb()
#define wc_wmb() mb()
#endif

#endif
