// SPDX-License-Identifier: Apache-2.0
// A stand-in for NCCL, cuBLASLt, cuDNN, cuSPARSE and cuSPARSELt: the versions that they give.
#include <stddef.h>

int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
size_t cublasLtGetVersion(void) { return 130100; }
size_t cudnnGetVersion(void) { return 91900; }
static int part_of(const int parts[], int part, int* value) {
  if (part < 0 || part > 2) return 3;
  *value = parts[part];
  return 0;
}
int cusparseGetProperty(int part, int* value) {
  static const int parts[] = {12, 6, 3};
  return part_of(parts, part, value);
}
int cusparseLtGetProperty(int part, int* value) {
  static const int parts[] = {0, 10, 0};
  return part_of(parts, part, value);
}
