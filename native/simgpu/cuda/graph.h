/* SPDX-License-Identifier: Apache-2.0 */
/* graph.h: what the files about graphs share. */
#ifndef ALIQUOT_SIMGPU_CUDA_GRAPH_H
#define ALIQUOT_SIMGPU_CUDA_GRAPH_H

#include "simgpu/cuda/internal.h"

/* Begin a call on a graph, or on a node of a kind (-1: any); on success the lock is held. */
CUresult enter_graph(CUgraph g);
CUresult enter_node(CUgraphNode n, int kind);

/* Work from a node's parameters. */
CUresult kernel_work(struct work *w, const CUDA_KERNEL_NODE_PARAMS *p);
CUresult copy_work(struct work *w, const CUDA_MEMCPY3D *p);
CUresult set_work(struct work *w, const CUDA_MEMSET_NODE_PARAMS *p);
CUDA_KERNEL_NODE_PARAMS kernel_params_from_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *p);

/* Puts `with` in the place of what is at `at` if it could be made, and leaves. */
CUresult work_replace(struct work *at, struct work *with, CUresult made);

#endif
