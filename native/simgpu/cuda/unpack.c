/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decompression by the device's engine, which devices from Blackwell on have. Of the formats that real ones know, this one knows blocks of LZ4. What is
 * no such block writes 0 bytes.
 */
#include "simgpu/cuda/internal.h"

/* The rest of a length whose first part is all ones: bytes up to one that is not. False: the block ends first. */
static bool longer(const uint8_t **in, const uint8_t *end, size_t *length)
{
	uint8_t more = 255;
	while (more == 255) {
		if (*in == end)
			return false;
		more = *(*in)++;
		*length += more;
	}
	return true;
}

/* The bytes written; 0: it is no block, or has more than there is room for. */
static size_t lz4(const uint8_t *in, size_t bytes, uint8_t *out, size_t room)
{
	const uint8_t *end = in + bytes;
	size_t at = 0;
	while (in != end) {
		uint8_t token = *in++;
		size_t plain = token >> 4, again = token & 15u;
		if (plain == 15 && !longer(&in, end, &plain))
			return 0;
		if (plain > (size_t)(end - in) || plain > room - at)
			return 0;
		memcpy(out + at, in, plain);
		in += plain;
		at += plain;
		if (in == end)
			return at; /* the last has nothing to repeat */
		if (end - in < 2)
			return 0;
		size_t back = in[0] | (size_t)in[1] << 8;
		in += 2;
		if (back == 0 || back > at || (again == 15 && !longer(&in, end, &again)))
			return 0;
		again += 4;
		if (again > room - at)
			return 0;
		for (; again != 0; again--, at++) /* byte by byte: it may repeat what it writes */
			out[at] = out[at - back];
	}
	return 0;
}

void unpack_bytes(const struct unpack *u)
{
	*u->actual = (uint32_t)lz4(u->src, u->bytes, u->dst, u->room);
}

uint64_t unpack_ns(uint32_t device, const struct unpack *u)
{
	return api.copy_start_ns + (uint64_t)((double)u->expected * 1e9 / (double)api.info[device].unpack_bps);
}

static CUresult unpack_of(const CUmemDecompressParams *p, struct unpack *u)
{
	struct range *to = range_find((uintptr_t)p->dst);
	if (p->algo != CU_MEM_DECOMPRESS_ALGORITHM_LZ4)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!p->srcNumBytes || !to || !device_range((CUdeviceptr)(uintptr_t)p->src, p->srcNumBytes) ||
	    !device_range((CUdeviceptr)(uintptr_t)p->dstActBytes, sizeof *p->dstActBytes))
		return CUDA_ERROR_INVALID_VALUE;
	*u = (struct unpack){.src = p->src, .dst = p->dst, .bytes = p->srcNumBytes, .room = to->size - ((uintptr_t)p->dst - to->start),
			     .expected = p->dstNumBytes ? p->dstNumBytes : p->srcNumBytes, .actual = p->dstActBytes};
	return u->expected <= u->room ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemBatchDecompressAsync(CUmemDecompressParams *params, size_t count, unsigned int flags, size_t *error_index, CUstream h)
{
	CUcontext c;
	CUstream s;
	TRY(enter_context(&c));
	if (!params || !count || flags)
		return leave(CUDA_ERROR_INVALID_VALUE);
	CUresult r = stream_of(h, &s);
	if (r == CUDA_SUCCESS && !api.info[s->context->device].unpack_bps)
		r = CUDA_ERROR_NOT_SUPPORTED;
	if (r == CUDA_SUCCESS && s->capture) /* there is no such node */
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	for (size_t i = 0; i < 2 * count && r == CUDA_SUCCESS; i++) { /* all are looked at before the first is begun */
		struct work w = {.kind = W_UNPACK};
		r = unpack_of(&params[i % count], &w.unpack);
		if (r == CUDA_SUCCESS && i >= count)
			r = issue(s, &w);
		if (r != CUDA_SUCCESS && error_index)
			*error_index = i % count;
	}
	return leave(r);
}
