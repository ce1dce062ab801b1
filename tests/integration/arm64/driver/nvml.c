/* FIXTURE of gb10.cluster's lab, not NVIDIA's library: reports a GB10 to vLLM's choice of a platform.
   SPDX-License-Identifier: GPL-3.0-or-later */

enum { SUCCESS, NOT_SUPPORTED = 3 };

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == SUCCESS ? "Success" : "Not Supported"; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 1, SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { return *device = (void *)1, SUCCESS; }
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { return *major = 12, *minor = 1, SUCCESS; }
int nvmlDeviceGetName(void *device, char *name, unsigned length) {
  __builtin_strncpy(name, "NVIDIA GB10", length);
  return SUCCESS;
}
/* The memory is unified. */
int nvmlDeviceGetMemoryInfo(void *device, void *memory) { return NOT_SUPPORTED; }
