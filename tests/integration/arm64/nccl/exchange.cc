// Sends bytes over NCCL's socket transport, which needs no GPU. It is linked with the objects of the library.
//
// receive COUNT BYTES: prints the handle of a listener in hexadecimal, then the sum of COUNT messages.
// send COUNT BYTES HANDLE: prints the sum of its messages.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "debug.h"
#include "nccl_net.h"

extern ncclNet_t ncclNetSocket;

// A stub: the transport asks for the device of its thread, and this machine has none. Linked with --wrap.
extern "C" int __wrap_cudaGetDevice(int* device) { return *device = 0; }
extern "C" int __wrap_cudaSetDevice(int) { return 0; }

static void check(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) {
    fprintf(stderr, "%s returned %d\n", call, result);
    exit(1);
  }
}

#define CHECK(call) check(call, #call)

// The next message takes the same buffer, so each one is complete before its successor.
static void complete(void* request, int bytes) {
  int done = 0, size = 0;
  while (!done) CHECK(ncclNetSocket.test(request, &done, &size));
  if (size != bytes) {
    fprintf(stderr, "%d of %d bytes\n", size, bytes);
    exit(1);
  }
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const bool sends = !strcmp(argv[1], "send");
  const int count = atoi(argv[2]), bytes = atoi(argv[3]);
  ncclNetCommConfig_t config = {};
  void *context = nullptr, *listener = nullptr, *connection = nullptr;
  char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
  CHECK(ncclNetSocket.init(&context, 1, &config, ncclDebugLog, nullptr));
  if (sends) {
    for (size_t each = 0; each < sizeof(handle); each++) {
      handle[each] = static_cast<char>(std::stoi(std::string(argv[4] + 2 * each, 2), nullptr, 16));
    }
    while (!connection) CHECK(ncclNetSocket.connect(context, 0, handle, &connection, nullptr));
  } else {
    CHECK(ncclNetSocket.listen(context, 0, handle, &listener));
    for (unsigned char each : handle) printf("%02x", each);
    printf("\n");
    fflush(stdout);
    while (!connection) CHECK(ncclNetSocket.accept(listener, &connection, nullptr));
  }
  std::vector<unsigned char> message(bytes);
  unsigned long long sum = 0;
  for (int number = 0; number < count; number++) {
    for (int each = 0; each < bytes; each++) message[each] = sends ? (each * 31 + number * 17) >> 3 : 0;
    void *request = nullptr, *data = message.data(), *none = nullptr;
    size_t size = bytes;
    int tag = 0;
    while (!request) {
      CHECK(sends ? ncclNetSocket.isend(connection, data, size, tag, none, none, &request)
                  : ncclNetSocket.irecv(connection, 1, &data, &size, &tag, &none, &none, &request));
    }
    complete(request, bytes);
    for (unsigned char each : message) sum = sum * 1099511628211ULL + each;
  }
  printf("%llx\n", sum);
  CHECK(sends ? ncclNetSocket.closeSend(connection) : ncclNetSocket.closeRecv(connection));
  return 0;
}
