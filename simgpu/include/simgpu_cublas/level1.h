/* level1.h: a part of cublas_api.h, which includes it: vectors.
 *
 * Source: cuBLAS 13 headers (names and types).
 */
cublasStatus_t CUBLASWINAPI cublasNrm2Ex(cublasHandle_t handle, int n, const void *x,
                                         cudaDataType xType, int incx, void *result,
                                         cudaDataType resultType, cudaDataType executionType);
cublasStatus_t CUBLASWINAPI cublasSnrm2_v2(cublasHandle_t handle, int n, const float *x, int incx,
                                           float *result);
cublasStatus_t CUBLASWINAPI cublasDnrm2_v2(cublasHandle_t handle, int n, const double *x, int incx,
                                           double *result);
cublasStatus_t CUBLASWINAPI cublasScnrm2_v2(cublasHandle_t handle, int n, const cuComplex *x,
                                            int incx, float *result);
cublasStatus_t CUBLASWINAPI cublasDznrm2_v2(cublasHandle_t handle, int n, const cuDoubleComplex *x,
                                            int incx, double *result);
cublasStatus_t CUBLASWINAPI cublasDotEx(cublasHandle_t handle, int n, const void *x,
                                        cudaDataType xType, int incx, const void *y,
                                        cudaDataType yType, int incy, void *result,
                                        cudaDataType resultType, cudaDataType executionType);
cublasStatus_t CUBLASWINAPI cublasDotcEx(cublasHandle_t handle, int n, const void *x,
                                         cudaDataType xType, int incx, const void *y,
                                         cudaDataType yType, int incy, void *result,
                                         cudaDataType resultType, cudaDataType executionType);
cublasStatus_t CUBLASWINAPI cublasSdot_v2(cublasHandle_t handle, int n, const float *x, int incx,
                                          const float *y, int incy, float *result);
cublasStatus_t CUBLASWINAPI cublasDdot_v2(cublasHandle_t handle, int n, const double *x, int incx,
                                          const double *y, int incy, double *result);
cublasStatus_t CUBLASWINAPI cublasCdotu_v2(cublasHandle_t handle, int n, const cuComplex *x,
                                           int incx, const cuComplex *y, int incy,
                                           cuComplex *result);
cublasStatus_t CUBLASWINAPI cublasCdotc_v2(cublasHandle_t handle, int n, const cuComplex *x,
                                           int incx, const cuComplex *y, int incy,
                                           cuComplex *result);
cublasStatus_t CUBLASWINAPI cublasZdotu_v2(cublasHandle_t handle, int n, const cuDoubleComplex *x,
                                           int incx, const cuDoubleComplex *y, int incy,
                                           cuDoubleComplex *result);
cublasStatus_t CUBLASWINAPI cublasZdotc_v2(cublasHandle_t handle, int n, const cuDoubleComplex *x,
                                           int incx, const cuDoubleComplex *y, int incy,
                                           cuDoubleComplex *result);
cublasStatus_t CUBLASWINAPI cublasScalEx(cublasHandle_t handle, int n, const void *alpha,
                                         cudaDataType alphaType, void *x, cudaDataType xType,
                                         int incx, cudaDataType executionType);
cublasStatus_t CUBLASWINAPI cublasSscal_v2(cublasHandle_t handle, int n, const float *alpha,
                                           float *x, int incx);
cublasStatus_t CUBLASWINAPI cublasDscal_v2(cublasHandle_t handle, int n, const double *alpha,
                                           double *x, int incx);
cublasStatus_t CUBLASWINAPI cublasCscal_v2(cublasHandle_t handle, int n, const cuComplex *alpha,
                                           cuComplex *x, int incx);
cublasStatus_t CUBLASWINAPI cublasCsscal_v2(cublasHandle_t handle, int n, const float *alpha,
                                            cuComplex *x, int incx);
cublasStatus_t CUBLASWINAPI cublasZscal_v2(cublasHandle_t handle, int n,
                                           const cuDoubleComplex *alpha, cuDoubleComplex *x,
                                           int incx);
cublasStatus_t CUBLASWINAPI cublasZdscal_v2(cublasHandle_t handle, int n, const double *alpha,
                                            cuDoubleComplex *x, int incx);
cublasStatus_t CUBLASWINAPI cublasAxpyEx(cublasHandle_t handle, int n, const void *alpha,
                                         cudaDataType alphaType, const void *x, cudaDataType xType,
                                         int incx, void *y, cudaDataType yType, int incy,
                                         cudaDataType executiontype);
cublasStatus_t CUBLASWINAPI cublasSaxpy_v2(cublasHandle_t handle, int n, const float *alpha,
                                           const float *x, int incx, float *y, int incy);
cublasStatus_t CUBLASWINAPI cublasDaxpy_v2(cublasHandle_t handle, int n, const double *alpha,
                                           const double *x, int incx, double *y, int incy);
cublasStatus_t CUBLASWINAPI cublasCaxpy_v2(cublasHandle_t handle, int n, const cuComplex *alpha,
                                           const cuComplex *x, int incx, cuComplex *y, int incy);
cublasStatus_t CUBLASWINAPI cublasZaxpy_v2(cublasHandle_t handle, int n,
                                           const cuDoubleComplex *alpha, const cuDoubleComplex *x,
                                           int incx, cuDoubleComplex *y, int incy);
cublasStatus_t CUBLASWINAPI cublasCopyEx(cublasHandle_t handle, int n, const void *x,
                                         cudaDataType xType, int incx, void *y, cudaDataType yType,
                                         int incy);
cublasStatus_t CUBLASWINAPI cublasScopy_v2(cublasHandle_t handle, int n, const float *x, int incx,
                                           float *y, int incy);
cublasStatus_t CUBLASWINAPI cublasDcopy_v2(cublasHandle_t handle, int n, const double *x, int incx,
                                           double *y, int incy);
cublasStatus_t CUBLASWINAPI cublasCcopy_v2(cublasHandle_t handle, int n, const cuComplex *x,
                                           int incx, cuComplex *y, int incy);
cublasStatus_t CUBLASWINAPI cublasZcopy_v2(cublasHandle_t handle, int n, const cuDoubleComplex *x,
                                           int incx, cuDoubleComplex *y, int incy);
cublasStatus_t CUBLASWINAPI cublasSswap_v2(cublasHandle_t handle, int n, float *x, int incx,
                                           float *y, int incy);
cublasStatus_t CUBLASWINAPI cublasDswap_v2(cublasHandle_t handle, int n, double *x, int incx,
                                           double *y, int incy);
cublasStatus_t CUBLASWINAPI cublasCswap_v2(cublasHandle_t handle, int n, cuComplex *x, int incx,
                                           cuComplex *y, int incy);
cublasStatus_t CUBLASWINAPI cublasZswap_v2(cublasHandle_t handle, int n, cuDoubleComplex *x,
                                           int incx, cuDoubleComplex *y, int incy);
cublasStatus_t CUBLASWINAPI cublasSwapEx(cublasHandle_t handle, int n, void *x, cudaDataType xType,
                                         int incx, void *y, cudaDataType yType, int incy);
cublasStatus_t CUBLASWINAPI cublasIsamax_v2(cublasHandle_t handle, int n, const float *x, int incx,
                                            int *result);
cublasStatus_t CUBLASWINAPI cublasIdamax_v2(cublasHandle_t handle, int n, const double *x, int incx,
                                            int *result);
cublasStatus_t CUBLASWINAPI cublasIcamax_v2(cublasHandle_t handle, int n, const cuComplex *x,
                                            int incx, int *result);
cublasStatus_t CUBLASWINAPI cublasIzamax_v2(cublasHandle_t handle, int n, const cuDoubleComplex *x,
                                            int incx, int *result);
cublasStatus_t CUBLASWINAPI cublasIamaxEx(cublasHandle_t handle, int n, const void *x,
                                          cudaDataType xType, int incx, int *result);
cublasStatus_t CUBLASWINAPI cublasIsamin_v2(cublasHandle_t handle, int n, const float *x, int incx,
                                            int *result);
cublasStatus_t CUBLASWINAPI cublasIdamin_v2(cublasHandle_t handle, int n, const double *x, int incx,
                                            int *result);
cublasStatus_t CUBLASWINAPI cublasIcamin_v2(cublasHandle_t handle, int n, const cuComplex *x,
                                            int incx, int *result);
cublasStatus_t CUBLASWINAPI cublasIzamin_v2(cublasHandle_t handle, int n, const cuDoubleComplex *x,
                                            int incx, int *result);
cublasStatus_t CUBLASWINAPI cublasIaminEx(cublasHandle_t handle, int n, const void *x,
                                          cudaDataType xType, int incx, int *result);
cublasStatus_t CUBLASWINAPI cublasAsumEx(cublasHandle_t handle, int n, const void *x,
                                         cudaDataType xType, int incx, void *result,
                                         cudaDataType resultType, cudaDataType executiontype);
cublasStatus_t CUBLASWINAPI cublasSasum_v2(cublasHandle_t handle, int n, const float *x, int incx,
                                           float *result);
cublasStatus_t CUBLASWINAPI cublasDasum_v2(cublasHandle_t handle, int n, const double *x, int incx,
                                           double *result);
cublasStatus_t CUBLASWINAPI cublasScasum_v2(cublasHandle_t handle, int n, const cuComplex *x,
                                            int incx, float *result);
cublasStatus_t CUBLASWINAPI cublasDzasum_v2(cublasHandle_t handle, int n, const cuDoubleComplex *x,
                                            int incx, double *result);
cublasStatus_t CUBLASWINAPI cublasSrot_v2(cublasHandle_t handle, int n, float *x, int incx,
                                          float *y, int incy, const float *c, const float *s);
cublasStatus_t CUBLASWINAPI cublasDrot_v2(cublasHandle_t handle, int n, double *x, int incx,
                                          double *y, int incy, const double *c, const double *s);
cublasStatus_t CUBLASWINAPI cublasCrot_v2(cublasHandle_t handle, int n, cuComplex *x, int incx,
                                          cuComplex *y, int incy, const float *c,
                                          const cuComplex *s);
cublasStatus_t CUBLASWINAPI cublasCsrot_v2(cublasHandle_t handle, int n, cuComplex *x, int incx,
                                           cuComplex *y, int incy, const float *c, const float *s);
cublasStatus_t CUBLASWINAPI cublasZrot_v2(cublasHandle_t handle, int n, cuDoubleComplex *x,
                                          int incx, cuDoubleComplex *y, int incy, const double *c,
                                          const cuDoubleComplex *s);
cublasStatus_t CUBLASWINAPI cublasZdrot_v2(cublasHandle_t handle, int n, cuDoubleComplex *x,
                                           int incx, cuDoubleComplex *y, int incy, const double *c,
                                           const double *s);
cublasStatus_t CUBLASWINAPI cublasRotEx(cublasHandle_t handle, int n, void *x, cudaDataType xType,
                                        int incx, void *y, cudaDataType yType, int incy,
                                        const void *c, const void *s, cudaDataType csType,
                                        cudaDataType executiontype);
cublasStatus_t CUBLASWINAPI cublasSrotg_v2(cublasHandle_t handle, float *a, float *b, float *c,
                                           float *s);
cublasStatus_t CUBLASWINAPI cublasDrotg_v2(cublasHandle_t handle, double *a, double *b, double *c,
                                           double *s);
cublasStatus_t CUBLASWINAPI cublasCrotg_v2(cublasHandle_t handle, cuComplex *a, cuComplex *b,
                                           float *c, cuComplex *s);
cublasStatus_t CUBLASWINAPI cublasZrotg_v2(cublasHandle_t handle, cuDoubleComplex *a,
                                           cuDoubleComplex *b, double *c, cuDoubleComplex *s);
cublasStatus_t CUBLASWINAPI cublasRotgEx(cublasHandle_t handle, void *a, void *b,
                                         cudaDataType abType, void *c, void *s, cudaDataType csType,
                                         cudaDataType executiontype);
cublasStatus_t CUBLASWINAPI cublasSrotm_v2(cublasHandle_t handle, int n, float *x, int incx,
                                           float *y, int incy, const float *param);
cublasStatus_t CUBLASWINAPI cublasDrotm_v2(cublasHandle_t handle, int n, double *x, int incx,
                                           double *y, int incy, const double *param);
cublasStatus_t CUBLASWINAPI cublasRotmEx(cublasHandle_t handle, int n, void *x, cudaDataType xType,
                                         int incx, void *y, cudaDataType yType, int incy,
                                         const void *param, cudaDataType paramType,
                                         cudaDataType executiontype);
cublasStatus_t CUBLASWINAPI cublasSrotmg_v2(cublasHandle_t handle, float *d1, float *d2, float *x1,
                                            const float *y1, float *param);
cublasStatus_t CUBLASWINAPI cublasDrotmg_v2(cublasHandle_t handle, double *d1, double *d2,
                                            double *x1, const double *y1, double *param);
cublasStatus_t CUBLASWINAPI cublasRotmgEx(cublasHandle_t handle, void *d1, cudaDataType d1Type,
                                          void *d2, cudaDataType d2Type, void *x1,
                                          cudaDataType x1Type, const void *y1, cudaDataType y1Type,
                                          void *param, cudaDataType paramType,
                                          cudaDataType executiontype);
