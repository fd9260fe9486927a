// The part of cuda_runtime.h that docs/c.md uses, as the CUDA runtime declares it.

#ifndef CUDA_RUNTIME_PART_H
#define CUDA_RUNTIME_PART_H

typedef enum { cudaSuccess = 0 } cudaError_t;
typedef struct CUstream_st *cudaStream_t;

#endif
