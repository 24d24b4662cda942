// SPDX-License-Identifier: Apache-2.0
// A stand-in for libnvidia-ml.so.1: a GPU at 0000:65:00.0, and a slower one where NVML_BUS_ID says. NVML_REFUSES names
// a function that fails with "Not Supported", or with "Driver Not Loaded" where that is nvmlInit_v2. With WITHOUT_NEW_NAMES it is the library of an older driver.
// Calls must be balanced: nvmlShutdown without a start ends the process.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, MISMATCH = 25 };
static int started = 0, gpu = 0, slower = 0;

static int refuses(const char* function) {
  const char* name = getenv("NVML_REFUSES");
  return name && strcmp(name, function) == 0;
}
static int text(const char* value, char* to, unsigned bytes) {
  snprintf(to, bytes, "%s", value);
  return SUCCESS;
}
static int is_here(void* device) { return device == (void*)&gpu || device == (void*)&slower; }
static int is_slower(void* device) { return device == (void*)&slower; }
#define GIVE(value)                                                  \
  if (!started || !is_here(device)) return INVALID_ARGUMENT;        \
  if (refuses(__func__)) return NOT_SUPPORTED;                       \
  *to = value;                                                       \
  return SUCCESS

int nvmlInit_v2(void) {
  if (refuses(__func__)) return DRIVER_NOT_LOADED;
  ++started;
  return SUCCESS;
}
int nvmlShutdown(void) {
  if (started-- <= 0) abort();
  return SUCCESS;
}
const char* nvmlErrorString(int result) {
  return result == NOT_SUPPORTED       ? "Not Supported"
         : result == NOT_FOUND         ? "Not Found"
         : result == DRIVER_NOT_LOADED ? "Driver Not Loaded"
                                       : "Unknown Error";
}
int nvmlSystemGetNVMLVersion(char* to, unsigned bytes) { return text("13.580.65", to, bytes); }
int nvmlSystemGetDriverVersion(char* to, unsigned bytes) { return text("580.65.06", to, bytes); }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  const char* other = getenv("NVML_BUS_ID");
  if (strcmp(id, "0000:65:00.0") == 0)
    *device = &gpu;
  else if (other && strcmp(id, other) == 0)
    *device = &slower;
  else
    return NOT_FOUND;
  return SUCCESS;
}
int nvmlDeviceGetClockInfo(void* device, int kind, unsigned* to) { GIVE(kind != 1 ? 0 : is_slower(device) ? 1410 : 1755); }
int nvmlDeviceGetPowerUsage(void* device, unsigned* to) { GIVE(is_slower(device) ? 300500 : 412500); }
#ifdef WITHOUT_NEW_NAMES
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* to) { GIVE(sensor == 0 ? 51 : 0); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* to) { GIVE(0x4); }
#else
struct temperature {
  unsigned version;
  int sensor, celsius;
};
int nvmlDeviceGetTemperatureV(void* device, struct temperature* t) {
  int* to = &t->celsius;
  if (t->version != (sizeof(struct temperature) | 1u << 24) || t->sensor != 0) return MISMATCH;
  GIVE(63);
}
int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* to) { GIVE(is_slower(device) ? 0x1 | 0x80 : 0x4 | 0x40); }
#endif
