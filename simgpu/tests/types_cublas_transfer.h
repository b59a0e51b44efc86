/* types_cublas_transfer.h: a part of types_cublas.h: the functions of simgpu_cublas/transfer.h. */
CHECK(cublasSetVector, cublasStatus_t (*)(int, int, const void *, int, void *, int))
CHECK(cublasGetVector, cublasStatus_t (*)(int, int, const void *, int, void *, int))
CHECK(cublasSetMatrix, cublasStatus_t (*)(int, int, int, const void *, int, void *, int))
CHECK(cublasGetMatrix, cublasStatus_t (*)(int, int, int, const void *, int, void *, int))
CHECK(cublasSetVectorAsync, cublasStatus_t (*)(int, int, const void *, int, void *, int,
      cudaStream_t))
CHECK(cublasGetVectorAsync, cublasStatus_t (*)(int, int, const void *, int, void *, int,
      cudaStream_t))
CHECK(cublasSetMatrixAsync, cublasStatus_t (*)(int, int, int, const void *, int, void *, int,
      cudaStream_t))
CHECK(cublasGetMatrixAsync, cublasStatus_t (*)(int, int, int, const void *, int, void *, int,
      cudaStream_t))
