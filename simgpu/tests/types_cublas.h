/* types_cublas.h: the same of cuBLAS. */
#ifdef VALUE
VALUE(MAJOR_VERSION, 0)
VALUE(MINOR_VERSION, 1)
VALUE(PATCH_LEVEL, 2)
VALUE(sizeof(cuComplex), 8)
VALUE(_Alignof(cuComplex), 8)
VALUE(sizeof(cuDoubleComplex), 16)
VALUE(_Alignof(cuDoubleComplex), 16)
#endif
