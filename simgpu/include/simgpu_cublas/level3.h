/* level3.h: a part of cublas_api.h, which includes it: matrices.
 *
 * Source: cuBLAS 13 headers (names and types).
 */
cublasStatus_t CUBLASWINAPI cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa,
                                           cublasOperation_t transb, int m, int n, int k,
                                           const float *alpha, const float *A, int lda,
                                           const float *B, int ldb, const float *beta, float *C,
                                           int ldc);
cublasStatus_t CUBLASWINAPI cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t transa,
                                           cublasOperation_t transb, int m, int n, int k,
                                           const double *alpha, const double *A, int lda,
                                           const double *B, int ldb, const double *beta, double *C,
                                           int ldc);
cublasStatus_t CUBLASWINAPI cublasCgemm_v2(cublasHandle_t handle, cublasOperation_t transa,
                                           cublasOperation_t transb, int m, int n, int k,
                                           const cuComplex *alpha, const cuComplex *A, int lda,
                                           const cuComplex *B, int ldb, const cuComplex *beta,
                                           cuComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasCgemm3m(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k,
                                          const cuComplex *alpha, const cuComplex *A, int lda,
                                          const cuComplex *B, int ldb, const cuComplex *beta,
                                          cuComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasCgemm3mEx(cublasHandle_t handle, cublasOperation_t transa,
                                            cublasOperation_t transb, int m, int n, int k,
                                            const cuComplex *alpha, const void *A,
                                            cudaDataType Atype, int lda, const void *B,
                                            cudaDataType Btype, int ldb, const cuComplex *beta,
                                            void *C, cudaDataType Ctype, int ldc);
cublasStatus_t CUBLASWINAPI cublasZgemm_v2(cublasHandle_t handle, cublasOperation_t transa,
                                           cublasOperation_t transb, int m, int n, int k,
                                           const cuDoubleComplex *alpha, const cuDoubleComplex *A,
                                           int lda, const cuDoubleComplex *B, int ldb,
                                           const cuDoubleComplex *beta, cuDoubleComplex *C,
                                           int ldc);
cublasStatus_t CUBLASWINAPI cublasZgemm3m(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k,
                                          const cuDoubleComplex *alpha, const cuDoubleComplex *A,
                                          int lda, const cuDoubleComplex *B, int ldb,
                                          const cuDoubleComplex *beta, cuDoubleComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasSgemmEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k,
                                          const float *alpha, const void *A, cudaDataType Atype,
                                          int lda, const void *B, cudaDataType Btype, int ldb,
                                          const float *beta, void *C, cudaDataType Ctype, int ldc);
cublasStatus_t CUBLASWINAPI cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                                         cublasOperation_t transb, int m, int n, int k,
                                         const void *alpha, const void *A, cudaDataType Atype,
                                         int lda, const void *B, cudaDataType Btype, int ldb,
                                         const void *beta, void *C, cudaDataType Ctype, int ldc,
                                         cublasComputeType_t computeType, cublasGemmAlgo_t algo);
cublasStatus_t CUBLASWINAPI cublasCgemmEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k,
                                          const cuComplex *alpha, const void *A, cudaDataType Atype,
                                          int lda, const void *B, cudaDataType Btype, int ldb,
                                          const cuComplex *beta, void *C, cudaDataType Ctype,
                                          int ldc);
cublasStatus_t CUBLASWINAPI cublasSsyrk_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, int n, int k,
                                           const float *alpha, const float *A, int lda,
                                           const float *beta, float *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasDsyrk_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, int n, int k,
                                           const double *alpha, const double *A, int lda,
                                           const double *beta, double *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasCsyrk_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, int n, int k,
                                           const cuComplex *alpha, const cuComplex *A, int lda,
                                           const cuComplex *beta, cuComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasZsyrk_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, int n, int k,
                                           const cuDoubleComplex *alpha, const cuDoubleComplex *A,
                                           int lda, const cuDoubleComplex *beta, cuDoubleComplex *C,
                                           int ldc);
cublasStatus_t CUBLASWINAPI cublasCsyrkEx(cublasHandle_t handle, cublasFillMode_t uplo,
                                          cublasOperation_t trans, int n, int k,
                                          const cuComplex *alpha, const void *A, cudaDataType Atype,
                                          int lda, const cuComplex *beta, void *C,
                                          cudaDataType Ctype, int ldc);
cublasStatus_t CUBLASWINAPI cublasCsyrk3mEx(cublasHandle_t handle, cublasFillMode_t uplo,
                                            cublasOperation_t trans, int n, int k,
                                            const cuComplex *alpha, const void *A,
                                            cudaDataType Atype, int lda, const cuComplex *beta,
                                            void *C, cudaDataType Ctype, int ldc);
cublasStatus_t CUBLASWINAPI cublasCherk_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, int n, int k,
                                           const float *alpha, const cuComplex *A, int lda,
                                           const float *beta, cuComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasZherk_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                           cublasOperation_t trans, int n, int k,
                                           const double *alpha, const cuDoubleComplex *A, int lda,
                                           const double *beta, cuDoubleComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasCherkEx(cublasHandle_t handle, cublasFillMode_t uplo,
                                          cublasOperation_t trans, int n, int k, const float *alpha,
                                          const void *A, cudaDataType Atype, int lda,
                                          const float *beta, void *C, cudaDataType Ctype, int ldc);
cublasStatus_t CUBLASWINAPI cublasCherk3mEx(cublasHandle_t handle, cublasFillMode_t uplo,
                                            cublasOperation_t trans, int n, int k,
                                            const float *alpha, const void *A, cudaDataType Atype,
                                            int lda, const float *beta, void *C, cudaDataType Ctype,
                                            int ldc);
cublasStatus_t CUBLASWINAPI cublasSsyr2k_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                            cublasOperation_t trans, int n, int k,
                                            const float *alpha, const float *A, int lda,
                                            const float *B, int ldb, const float *beta, float *C,
                                            int ldc);
cublasStatus_t CUBLASWINAPI cublasDsyr2k_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                            cublasOperation_t trans, int n, int k,
                                            const double *alpha, const double *A, int lda,
                                            const double *B, int ldb, const double *beta, double *C,
                                            int ldc);
cublasStatus_t CUBLASWINAPI cublasCsyr2k_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                            cublasOperation_t trans, int n, int k,
                                            const cuComplex *alpha, const cuComplex *A, int lda,
                                            const cuComplex *B, int ldb, const cuComplex *beta,
                                            cuComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasZsyr2k_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                            cublasOperation_t trans, int n, int k,
                                            const cuDoubleComplex *alpha, const cuDoubleComplex *A,
                                            int lda, const cuDoubleComplex *B, int ldb,
                                            const cuDoubleComplex *beta, cuDoubleComplex *C,
                                            int ldc);
cublasStatus_t CUBLASWINAPI cublasCher2k_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                            cublasOperation_t trans, int n, int k,
                                            const cuComplex *alpha, const cuComplex *A, int lda,
                                            const cuComplex *B, int ldb, const float *beta,
                                            cuComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasZher2k_v2(cublasHandle_t handle, cublasFillMode_t uplo,
                                            cublasOperation_t trans, int n, int k,
                                            const cuDoubleComplex *alpha, const cuDoubleComplex *A,
                                            int lda, const cuDoubleComplex *B, int ldb,
                                            const double *beta, cuDoubleComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasSsyrkx(cublasHandle_t handle, cublasFillMode_t uplo,
                                         cublasOperation_t trans, int n, int k, const float *alpha,
                                         const float *A, int lda, const float *B, int ldb,
                                         const float *beta, float *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasDsyrkx(cublasHandle_t handle, cublasFillMode_t uplo,
                                         cublasOperation_t trans, int n, int k, const double *alpha,
                                         const double *A, int lda, const double *B, int ldb,
                                         const double *beta, double *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasCsyrkx(cublasHandle_t handle, cublasFillMode_t uplo,
                                         cublasOperation_t trans, int n, int k,
                                         const cuComplex *alpha, const cuComplex *A, int lda,
                                         const cuComplex *B, int ldb, const cuComplex *beta,
                                         cuComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasZsyrkx(cublasHandle_t handle, cublasFillMode_t uplo,
                                         cublasOperation_t trans, int n, int k,
                                         const cuDoubleComplex *alpha, const cuDoubleComplex *A,
                                         int lda, const cuDoubleComplex *B, int ldb,
                                         const cuDoubleComplex *beta, cuDoubleComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasCherkx(cublasHandle_t handle, cublasFillMode_t uplo,
                                         cublasOperation_t trans, int n, int k,
                                         const cuComplex *alpha, const cuComplex *A, int lda,
                                         const cuComplex *B, int ldb, const float *beta,
                                         cuComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasZherkx(cublasHandle_t handle, cublasFillMode_t uplo,
                                         cublasOperation_t trans, int n, int k,
                                         const cuDoubleComplex *alpha, const cuDoubleComplex *A,
                                         int lda, const cuDoubleComplex *B, int ldb,
                                         const double *beta, cuDoubleComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasSsymm_v2(cublasHandle_t handle, cublasSideMode_t side,
                                           cublasFillMode_t uplo, int m, int n, const float *alpha,
                                           const float *A, int lda, const float *B, int ldb,
                                           const float *beta, float *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasDsymm_v2(cublasHandle_t handle, cublasSideMode_t side,
                                           cublasFillMode_t uplo, int m, int n, const double *alpha,
                                           const double *A, int lda, const double *B, int ldb,
                                           const double *beta, double *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasCsymm_v2(cublasHandle_t handle, cublasSideMode_t side,
                                           cublasFillMode_t uplo, int m, int n,
                                           const cuComplex *alpha, const cuComplex *A, int lda,
                                           const cuComplex *B, int ldb, const cuComplex *beta,
                                           cuComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasZsymm_v2(cublasHandle_t handle, cublasSideMode_t side,
                                           cublasFillMode_t uplo, int m, int n,
                                           const cuDoubleComplex *alpha, const cuDoubleComplex *A,
                                           int lda, const cuDoubleComplex *B, int ldb,
                                           const cuDoubleComplex *beta, cuDoubleComplex *C,
                                           int ldc);
cublasStatus_t CUBLASWINAPI cublasChemm_v2(cublasHandle_t handle, cublasSideMode_t side,
                                           cublasFillMode_t uplo, int m, int n,
                                           const cuComplex *alpha, const cuComplex *A, int lda,
                                           const cuComplex *B, int ldb, const cuComplex *beta,
                                           cuComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasZhemm_v2(cublasHandle_t handle, cublasSideMode_t side,
                                           cublasFillMode_t uplo, int m, int n,
                                           const cuDoubleComplex *alpha, const cuDoubleComplex *A,
                                           int lda, const cuDoubleComplex *B, int ldb,
                                           const cuDoubleComplex *beta, cuDoubleComplex *C,
                                           int ldc);
cublasStatus_t CUBLASWINAPI cublasStrsm_v2(cublasHandle_t handle, cublasSideMode_t side,
                                           cublasFillMode_t uplo, cublasOperation_t trans,
                                           cublasDiagType_t diag, int m, int n, const float *alpha,
                                           const float *A, int lda, float *B, int ldb);
cublasStatus_t CUBLASWINAPI cublasDtrsm_v2(cublasHandle_t handle, cublasSideMode_t side,
                                           cublasFillMode_t uplo, cublasOperation_t trans,
                                           cublasDiagType_t diag, int m, int n, const double *alpha,
                                           const double *A, int lda, double *B, int ldb);
cublasStatus_t CUBLASWINAPI cublasCtrsm_v2(cublasHandle_t handle, cublasSideMode_t side,
                                           cublasFillMode_t uplo, cublasOperation_t trans,
                                           cublasDiagType_t diag, int m, int n,
                                           const cuComplex *alpha, const cuComplex *A, int lda,
                                           cuComplex *B, int ldb);
cublasStatus_t CUBLASWINAPI cublasZtrsm_v2(cublasHandle_t handle, cublasSideMode_t side,
                                           cublasFillMode_t uplo, cublasOperation_t trans,
                                           cublasDiagType_t diag, int m, int n,
                                           const cuDoubleComplex *alpha, const cuDoubleComplex *A,
                                           int lda, cuDoubleComplex *B, int ldb);
cublasStatus_t CUBLASWINAPI cublasStrmm_v2(cublasHandle_t handle, cublasSideMode_t side,
                                           cublasFillMode_t uplo, cublasOperation_t trans,
                                           cublasDiagType_t diag, int m, int n, const float *alpha,
                                           const float *A, int lda, const float *B, int ldb,
                                           float *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasDtrmm_v2(cublasHandle_t handle, cublasSideMode_t side,
                                           cublasFillMode_t uplo, cublasOperation_t trans,
                                           cublasDiagType_t diag, int m, int n, const double *alpha,
                                           const double *A, int lda, const double *B, int ldb,
                                           double *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasCtrmm_v2(cublasHandle_t handle, cublasSideMode_t side,
                                           cublasFillMode_t uplo, cublasOperation_t trans,
                                           cublasDiagType_t diag, int m, int n,
                                           const cuComplex *alpha, const cuComplex *A, int lda,
                                           const cuComplex *B, int ldb, cuComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasZtrmm_v2(cublasHandle_t handle, cublasSideMode_t side,
                                           cublasFillMode_t uplo, cublasOperation_t trans,
                                           cublasDiagType_t diag, int m, int n,
                                           const cuDoubleComplex *alpha, const cuDoubleComplex *A,
                                           int lda, const cuDoubleComplex *B, int ldb,
                                           cuDoubleComplex *C, int ldc);
cublasStatus_t CUBLASWINAPI cublasSgemmBatched(cublasHandle_t handle, cublasOperation_t transa,
                                               cublasOperation_t transb, int m, int n, int k,
                                               const float *alpha, const float *const Aarray[],
                                               int lda, const float *const Barray[], int ldb,
                                               const float *beta, float *const Carray[], int ldc,
                                               int batchCount);
cublasStatus_t CUBLASWINAPI cublasDgemmBatched(cublasHandle_t handle, cublasOperation_t transa,
                                               cublasOperation_t transb, int m, int n, int k,
                                               const double *alpha, const double *const Aarray[],
                                               int lda, const double *const Barray[], int ldb,
                                               const double *beta, double *const Carray[], int ldc,
                                               int batchCount);
cublasStatus_t CUBLASWINAPI cublasCgemmBatched(cublasHandle_t handle, cublasOperation_t transa,
                                               cublasOperation_t transb, int m, int n, int k,
                                               const cuComplex *alpha,
                                               const cuComplex *const Aarray[], int lda,
                                               const cuComplex *const Barray[], int ldb,
                                               const cuComplex *beta, cuComplex *const Carray[],
                                               int ldc, int batchCount);
cublasStatus_t CUBLASWINAPI cublasCgemm3mBatched(cublasHandle_t handle, cublasOperation_t transa,
                                                 cublasOperation_t transb, int m, int n, int k,
                                                 const cuComplex *alpha,
                                                 const cuComplex *const Aarray[], int lda,
                                                 const cuComplex *const Barray[], int ldb,
                                                 const cuComplex *beta, cuComplex *const Carray[],
                                                 int ldc, int batchCount);
cublasStatus_t CUBLASWINAPI cublasZgemmBatched(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const cuDoubleComplex *alpha, const cuDoubleComplex *const Aarray[], int lda,
    const cuDoubleComplex *const Barray[], int ldb, const cuDoubleComplex *beta,
    cuDoubleComplex *const Carray[], int ldc, int batchCount);
cublasStatus_t CUBLASWINAPI cublasSgemmStridedBatched(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const float *alpha, const float *A, int lda, long long int strideA, const float *B, int ldb,
    long long int strideB, const float *beta, float *C, int ldc, long long int strideC,
    int batchCount);
cublasStatus_t CUBLASWINAPI cublasDgemmStridedBatched(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const double *alpha, const double *A, int lda, long long int strideA, const double *B, int ldb,
    long long int strideB, const double *beta, double *C, int ldc, long long int strideC,
    int batchCount);
cublasStatus_t CUBLASWINAPI cublasCgemmStridedBatched(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const cuComplex *alpha, const cuComplex *A, int lda, long long int strideA, const cuComplex *B,
    int ldb, long long int strideB, const cuComplex *beta, cuComplex *C, int ldc,
    long long int strideC, int batchCount);
cublasStatus_t CUBLASWINAPI cublasCgemm3mStridedBatched(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const cuComplex *alpha, const cuComplex *A, int lda, long long int strideA, const cuComplex *B,
    int ldb, long long int strideB, const cuComplex *beta, cuComplex *C, int ldc,
    long long int strideC, int batchCount);
cublasStatus_t CUBLASWINAPI cublasZgemmStridedBatched(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const cuDoubleComplex *alpha, const cuDoubleComplex *A, int lda, long long int strideA,
    const cuDoubleComplex *B, int ldb, long long int strideB, const cuDoubleComplex *beta,
    cuDoubleComplex *C, int ldc, long long int strideC, int batchCount);
cublasStatus_t CUBLASWINAPI
cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                    int m, int n, int k, const void *alpha, const void *const Aarray[],
                    cudaDataType Atype, int lda, const void *const Barray[], cudaDataType Btype,
                    int ldb, const void *beta, void *const Carray[], cudaDataType Ctype, int ldc,
                    int batchCount, cublasComputeType_t computeType, cublasGemmAlgo_t algo);
cublasStatus_t CUBLASWINAPI cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const void *alpha, const void *A, cudaDataType Atype, int lda, long long int strideA,
    const void *B, cudaDataType Btype, int ldb, long long int strideB, const void *beta, void *C,
    cudaDataType Ctype, int ldc, long long int strideC, int batchCount,
    cublasComputeType_t computeType, cublasGemmAlgo_t algo);
cublasStatus_t CUBLASWINAPI cublasSgemmGroupedBatched(
    cublasHandle_t handle, const cublasOperation_t transa_array[],
    const cublasOperation_t transb_array[], const int m_array[], const int n_array[],
    const int k_array[], const float alpha_array[], const float *const Aarray[],
    const int lda_array[], const float *const Barray[], const int ldb_array[],
    const float beta_array[], float *const Carray[], const int ldc_array[], int group_count,
    const int group_size[]);
cublasStatus_t CUBLASWINAPI cublasDgemmGroupedBatched(
    cublasHandle_t handle, const cublasOperation_t transa_array[],
    const cublasOperation_t transb_array[], const int m_array[], const int n_array[],
    const int k_array[], const double alpha_array[], const double *const Aarray[],
    const int lda_array[], const double *const Barray[], const int ldb_array[],
    const double beta_array[], double *const Carray[], const int ldc_array[], int group_count,
    const int group_size[]);
cublasStatus_t CUBLASWINAPI cublasGemmGroupedBatchedEx(
    cublasHandle_t handle, const cublasOperation_t transa_array[],
    const cublasOperation_t transb_array[], const int m_array[], const int n_array[],
    const int k_array[], const void *alpha_array, const void *const Aarray[], cudaDataType_t Atype,
    const int lda_array[], const void *const Barray[], cudaDataType_t Btype, const int ldb_array[],
    const void *beta_array, void *const Carray[], cudaDataType_t Ctype, const int ldc_array[],
    int group_count, const int group_size[], cublasComputeType_t computeType);
cublasStatus_t CUBLASWINAPI cublasStrsmBatched(cublasHandle_t handle, cublasSideMode_t side,
                                               cublasFillMode_t uplo, cublasOperation_t trans,
                                               cublasDiagType_t diag, int m, int n,
                                               const float *alpha, const float *const A[], int lda,
                                               float *const B[], int ldb, int batchCount);
cublasStatus_t CUBLASWINAPI cublasDtrsmBatched(cublasHandle_t handle, cublasSideMode_t side,
                                               cublasFillMode_t uplo, cublasOperation_t trans,
                                               cublasDiagType_t diag, int m, int n,
                                               const double *alpha, const double *const A[],
                                               int lda, double *const B[], int ldb, int batchCount);
cublasStatus_t CUBLASWINAPI cublasCtrsmBatched(cublasHandle_t handle, cublasSideMode_t side,
                                               cublasFillMode_t uplo, cublasOperation_t trans,
                                               cublasDiagType_t diag, int m, int n,
                                               const cuComplex *alpha, const cuComplex *const A[],
                                               int lda, cuComplex *const B[], int ldb,
                                               int batchCount);
cublasStatus_t CUBLASWINAPI cublasZtrsmBatched(cublasHandle_t handle, cublasSideMode_t side,
                                               cublasFillMode_t uplo, cublasOperation_t trans,
                                               cublasDiagType_t diag, int m, int n,
                                               const cuDoubleComplex *alpha,
                                               const cuDoubleComplex *const A[], int lda,
                                               cuDoubleComplex *const B[], int ldb, int batchCount);
