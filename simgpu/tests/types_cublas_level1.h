/* types_cublas_level1.h: a part of types_cublas.h: the functions of simgpu_cublas/level1.h. */
CHECK(cublasNrm2Ex, cublasStatus_t (*)(cublasHandle_t, int, const void *, cudaDataType, int, void
      *, cudaDataType, cudaDataType))
CHECK(cublasSnrm2_v2, cublasStatus_t (*)(cublasHandle_t, int, const float *, int, float *))
CHECK(cublasDnrm2_v2, cublasStatus_t (*)(cublasHandle_t, int, const double *, int, double *))
CHECK(cublasScnrm2_v2, cublasStatus_t (*)(cublasHandle_t, int, const cuComplex *, int, float *))
CHECK(cublasDznrm2_v2, cublasStatus_t (*)(cublasHandle_t, int, const cuDoubleComplex *, int, double
      *))
CHECK(cublasDotEx, cublasStatus_t (*)(cublasHandle_t, int, const void *, cudaDataType, int, const
      void *, cudaDataType, int, void *, cudaDataType, cudaDataType))
CHECK(cublasDotcEx, cublasStatus_t (*)(cublasHandle_t, int, const void *, cudaDataType, int, const
      void *, cudaDataType, int, void *, cudaDataType, cudaDataType))
CHECK(cublasSdot_v2, cublasStatus_t (*)(cublasHandle_t, int, const float *, int, const float *,
      int, float *))
CHECK(cublasDdot_v2, cublasStatus_t (*)(cublasHandle_t, int, const double *, int, const double *,
      int, double *))
CHECK(cublasCdotu_v2, cublasStatus_t (*)(cublasHandle_t, int, const cuComplex *, int, const
      cuComplex *, int, cuComplex *))
CHECK(cublasCdotc_v2, cublasStatus_t (*)(cublasHandle_t, int, const cuComplex *, int, const
      cuComplex *, int, cuComplex *))
CHECK(cublasZdotu_v2, cublasStatus_t (*)(cublasHandle_t, int, const cuDoubleComplex *, int, const
      cuDoubleComplex *, int, cuDoubleComplex *))
CHECK(cublasZdotc_v2, cublasStatus_t (*)(cublasHandle_t, int, const cuDoubleComplex *, int, const
      cuDoubleComplex *, int, cuDoubleComplex *))
CHECK(cublasScalEx, cublasStatus_t (*)(cublasHandle_t, int, const void *, cudaDataType, void *,
      cudaDataType, int, cudaDataType))
CHECK(cublasSscal_v2, cublasStatus_t (*)(cublasHandle_t, int, const float *, float *, int))
CHECK(cublasDscal_v2, cublasStatus_t (*)(cublasHandle_t, int, const double *, double *, int))
CHECK(cublasCscal_v2, cublasStatus_t (*)(cublasHandle_t, int, const cuComplex *, cuComplex *, int))
CHECK(cublasCsscal_v2, cublasStatus_t (*)(cublasHandle_t, int, const float *, cuComplex *, int))
CHECK(cublasZscal_v2, cublasStatus_t (*)(cublasHandle_t, int, const cuDoubleComplex *,
      cuDoubleComplex *, int))
CHECK(cublasZdscal_v2, cublasStatus_t (*)(cublasHandle_t, int, const double *, cuDoubleComplex *,
      int))
CHECK(cublasAxpyEx, cublasStatus_t (*)(cublasHandle_t, int, const void *, cudaDataType, const void
      *, cudaDataType, int, void *, cudaDataType, int, cudaDataType))
CHECK(cublasSaxpy_v2, cublasStatus_t (*)(cublasHandle_t, int, const float *, const float *, int,
      float *, int))
CHECK(cublasDaxpy_v2, cublasStatus_t (*)(cublasHandle_t, int, const double *, const double *, int,
      double *, int))
CHECK(cublasCaxpy_v2, cublasStatus_t (*)(cublasHandle_t, int, const cuComplex *, const cuComplex *,
      int, cuComplex *, int))
CHECK(cublasZaxpy_v2, cublasStatus_t (*)(cublasHandle_t, int, const cuDoubleComplex *, const
      cuDoubleComplex *, int, cuDoubleComplex *, int))
CHECK(cublasCopyEx, cublasStatus_t (*)(cublasHandle_t, int, const void *, cudaDataType, int, void
      *, cudaDataType, int))
CHECK(cublasScopy_v2, cublasStatus_t (*)(cublasHandle_t, int, const float *, int, float *, int))
CHECK(cublasDcopy_v2, cublasStatus_t (*)(cublasHandle_t, int, const double *, int, double *, int))
CHECK(cublasCcopy_v2, cublasStatus_t (*)(cublasHandle_t, int, const cuComplex *, int, cuComplex *,
      int))
CHECK(cublasZcopy_v2, cublasStatus_t (*)(cublasHandle_t, int, const cuDoubleComplex *, int,
      cuDoubleComplex *, int))
CHECK(cublasSswap_v2, cublasStatus_t (*)(cublasHandle_t, int, float *, int, float *, int))
CHECK(cublasDswap_v2, cublasStatus_t (*)(cublasHandle_t, int, double *, int, double *, int))
CHECK(cublasCswap_v2, cublasStatus_t (*)(cublasHandle_t, int, cuComplex *, int, cuComplex *, int))
CHECK(cublasZswap_v2, cublasStatus_t (*)(cublasHandle_t, int, cuDoubleComplex *, int,
      cuDoubleComplex *, int))
CHECK(cublasSwapEx, cublasStatus_t (*)(cublasHandle_t, int, void *, cudaDataType, int, void *,
      cudaDataType, int))
CHECK(cublasIsamax_v2, cublasStatus_t (*)(cublasHandle_t, int, const float *, int, int *))
CHECK(cublasIdamax_v2, cublasStatus_t (*)(cublasHandle_t, int, const double *, int, int *))
CHECK(cublasIcamax_v2, cublasStatus_t (*)(cublasHandle_t, int, const cuComplex *, int, int *))
CHECK(cublasIzamax_v2, cublasStatus_t (*)(cublasHandle_t, int, const cuDoubleComplex *, int, int
      *))
CHECK(cublasIamaxEx, cublasStatus_t (*)(cublasHandle_t, int, const void *, cudaDataType, int, int
      *))
CHECK(cublasIsamin_v2, cublasStatus_t (*)(cublasHandle_t, int, const float *, int, int *))
CHECK(cublasIdamin_v2, cublasStatus_t (*)(cublasHandle_t, int, const double *, int, int *))
CHECK(cublasIcamin_v2, cublasStatus_t (*)(cublasHandle_t, int, const cuComplex *, int, int *))
CHECK(cublasIzamin_v2, cublasStatus_t (*)(cublasHandle_t, int, const cuDoubleComplex *, int, int
      *))
CHECK(cublasIaminEx, cublasStatus_t (*)(cublasHandle_t, int, const void *, cudaDataType, int, int
      *))
CHECK(cublasAsumEx, cublasStatus_t (*)(cublasHandle_t, int, const void *, cudaDataType, int, void
      *, cudaDataType, cudaDataType))
CHECK(cublasSasum_v2, cublasStatus_t (*)(cublasHandle_t, int, const float *, int, float *))
CHECK(cublasDasum_v2, cublasStatus_t (*)(cublasHandle_t, int, const double *, int, double *))
CHECK(cublasScasum_v2, cublasStatus_t (*)(cublasHandle_t, int, const cuComplex *, int, float *))
CHECK(cublasDzasum_v2, cublasStatus_t (*)(cublasHandle_t, int, const cuDoubleComplex *, int, double
      *))
CHECK(cublasSrot_v2, cublasStatus_t (*)(cublasHandle_t, int, float *, int, float *, int, const
      float *, const float *))
CHECK(cublasDrot_v2, cublasStatus_t (*)(cublasHandle_t, int, double *, int, double *, int, const
      double *, const double *))
CHECK(cublasCrot_v2, cublasStatus_t (*)(cublasHandle_t, int, cuComplex *, int, cuComplex *, int,
      const float *, const cuComplex *))
CHECK(cublasCsrot_v2, cublasStatus_t (*)(cublasHandle_t, int, cuComplex *, int, cuComplex *, int,
      const float *, const float *))
CHECK(cublasZrot_v2, cublasStatus_t (*)(cublasHandle_t, int, cuDoubleComplex *, int,
      cuDoubleComplex *, int, const double *, const cuDoubleComplex *))
CHECK(cublasZdrot_v2, cublasStatus_t (*)(cublasHandle_t, int, cuDoubleComplex *, int,
      cuDoubleComplex *, int, const double *, const double *))
CHECK(cublasRotEx, cublasStatus_t (*)(cublasHandle_t, int, void *, cudaDataType, int, void *,
      cudaDataType, int, const void *, const void *, cudaDataType, cudaDataType))
CHECK_ONE(cublasSrotg_v2, cublasStatus_t (*)(cublasHandle_t, float *, float *, float *, float *))
CHECK_ONE(cublasDrotg_v2, cublasStatus_t (*)(cublasHandle_t, double *, double *, double *, double
      *))
CHECK_ONE(cublasCrotg_v2, cublasStatus_t (*)(cublasHandle_t, cuComplex *, cuComplex *, float *,
      cuComplex *))
CHECK_ONE(cublasZrotg_v2, cublasStatus_t (*)(cublasHandle_t, cuDoubleComplex *, cuDoubleComplex *,
      double *, cuDoubleComplex *))
CHECK_ONE(cublasRotgEx, cublasStatus_t (*)(cublasHandle_t, void *, void *, cudaDataType, void *,
      void *, cudaDataType, cudaDataType))
CHECK(cublasSrotm_v2, cublasStatus_t (*)(cublasHandle_t, int, float *, int, float *, int, const
      float *))
CHECK(cublasDrotm_v2, cublasStatus_t (*)(cublasHandle_t, int, double *, int, double *, int, const
      double *))
CHECK(cublasRotmEx, cublasStatus_t (*)(cublasHandle_t, int, void *, cudaDataType, int, void *,
      cudaDataType, int, const void *, cudaDataType, cudaDataType))
CHECK_ONE(cublasSrotmg_v2, cublasStatus_t (*)(cublasHandle_t, float *, float *, float *, const float
      *, float *))
CHECK_ONE(cublasDrotmg_v2, cublasStatus_t (*)(cublasHandle_t, double *, double *, double *, const
      double *, double *))
CHECK_ONE(cublasRotmgEx, cublasStatus_t (*)(cublasHandle_t, void *, cudaDataType, void *,
      cudaDataType, void *, cudaDataType, const void *, cudaDataType, void *, cudaDataType,
      cudaDataType))
