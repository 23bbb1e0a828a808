/* SPDX-License-Identifier: Apache-2.0 */
/* runtime: a program of the CUDA runtime; gpu.sh compiles it with the machine's nvcc, once with the static libcudart, once shared. */
#include <cstdio>
#include <cuda_runtime.h>

#define CHECK(call)                                                                                                \
	do {                                                                                                       \
		cudaError_t failed = (call);                                                                       \
		if (failed != cudaSuccess) {                                                                       \
			printf("{\"error\": \"%s: %s\"}\n", #call, cudaGetErrorName(failed));                      \
			return 1;                                                                                  \
		}                                                                                                  \
	} while (0)

__global__ void add(float *x, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		x[i] += 1;
}

int main()
{
	const int n = 1 << 20;
	size_t shown = 0, total = 0;
	float *x = nullptr, *y = nullptr, last = 0;
	int runtime = 0, driver = 0;
	cudaStream_t stream;
	CHECK(cudaRuntimeGetVersion(&runtime));
	CHECK(cudaDriverGetVersion(&driver));
	CHECK(cudaMemGetInfo(&shown, &total));
	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaMalloc(&x, n * sizeof *x));
	CHECK(cudaMemset(x, 0, n * sizeof *x));
	for (int i = 0; i < 100; i++)
		add<<<n / 256, 256, 0, stream>>>(x, n);
	CHECK(cudaGetLastError());
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaMemcpy(&last, x + n - 1, sizeof last, cudaMemcpyDeviceToHost));
	CHECK(cudaMallocAsync(&y, n * sizeof *y, stream));
	CHECK(cudaFreeAsync(y, stream));
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaFree(x));
	printf("{\"runtime\": %d, \"driver\": %d, \"free_bytes\": %zu, \"total_bytes\": %zu, \"result\": %.0f}\n", runtime, driver, shown,
	       total, last);
	return last == 100 ? 0 : 1;
}
