// A stand-in for NCCL, cuBLASLt, cuDNN and cuSPARSE: the versions that they give.
#include <stddef.h>

int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
size_t cublasLtGetVersion(void) { return 130100; }
size_t cudnnGetVersion(void) { return 91900; }
int cusparseGetProperty(int part, int* value) {
  static const int parts[] = {12, 6, 3};
  if (part < 0 || part > 2) return 3;
  *value = parts[part];
  return 0;
}
