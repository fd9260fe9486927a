// The part of cuda.h that the cases use, as cuda.h declares it. Programs of the cases need no CUDA
// toolkit: they find the functions in the driver's library.

#ifndef __cuda_cuda_h__
#define __cuda_cuda_h__

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmipmappedArray_st *CUmipmappedArray;

#endif
