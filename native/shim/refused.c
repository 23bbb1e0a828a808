/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refused.c: what would go around the share and that no program of today needs, see paths.def. Outside of Aliquot it is the driver's own;
 * none takes more than six words, so six are handed on.
 */
#include "driver.h"

static bool refuse(const char *name, const char *why, uint32_t *said)
{
	if (get_acquire(&task.state) == SHIM_OFF || get_acquire(&task.state) == SHIM_NEW)
		return false;
	if (__atomic_exchange_n(said, 1, __ATOMIC_RELAXED) == 0)
		say("%s is refused in a share: %s; build the program for a later CUDA", name, why);
	return true;
}

#define HOOK(symbol, base, version, per_thread, kind)
#define REFUSED(symbol, base, version, why)                                                                                        \
	EXPORT CUresult symbol(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)                             \
	{                                                                                                                          \
		static uint32_t said;                                                                                              \
		return refuse(#symbol, why, &said) ? CUDA_ERROR_NOT_SUPPORTED : REAL(symbol, a, b, c, d, e, f);                    \
	}
#include "paths.def"
