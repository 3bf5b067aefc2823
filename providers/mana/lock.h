/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef MANA_LOCK_H
#define MANA_LOCK_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Spinlock of a queue. A critical section is a few hundred instructions and
 * never a system call. With a single-threaded parent domain it costs a branch.
 */
struct mana_lock {
	uint32_t word;
	bool elided;
};

#define MANA_LOCK_SPINS 1000u /* then the holder is probably not running */

/* Leaves the core's other thread alone while this one waits. */
static inline void mana_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#else
	__asm__ volatile("" ::: "memory");
#endif
}

static inline void mana_lock_init(struct mana_lock *lock, bool single_threaded)
{
	lock->word = 0;
	lock->elided = single_threaded;
}

static inline void mana_lock(struct mana_lock *lock)
{
	unsigned int spins = 0;

	if (lock->elided)
		return;
	while (__atomic_exchange_n(&lock->word, 1, __ATOMIC_ACQUIRE)) {
		while (__atomic_load_n(&lock->word, __ATOMIC_RELAXED)) {
			if (++spins % MANA_LOCK_SPINS == 0)
				sched_yield();
			else
				mana_relax();
		}
	}
}

static inline void mana_unlock(struct mana_lock *lock)
{
	if (!lock->elided)
		__atomic_store_n(&lock->word, 0, __ATOMIC_RELEASE);
}

#endif
