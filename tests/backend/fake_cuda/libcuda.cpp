// A stand-in for the NVIDIA driver: FAKE_DEVICES devices whose memory is the host's, and which know two kernels,
// whatever the image says: scale(float* data, float offset) and crash(). With FAKE_OLD it lacks what CUDA 7
// brought, with FAKE_SILENT what tells what kernels take. What the variables FAKE_PUSH, FAKE_LOAD, FAKE_RETAIN_0,
// FAKE_PINNED, FAKE_QUERY, FAKE_WAIT, FAKE_EVENT, FAKE_RECORD, FAKE_ELAPSED and FAKE_COPY hold is what making a
// context current, loading a module, making the context of device 0, allocating pinned memory, asking for or
// waiting for the end of a stream, making, recording and comparing events and copying to the device answer. Where
// FAKE_TRACE is set, work put on a stream is printed. Where FAKE_LISTED is set, the symbol of scale is _Z5scalePff,
// and the driver lists both kernels. It compiles every PTX to the same empty cubin, unless FAKE_LINK holds another
// answer; with FAKE_SILENT it cannot compile PTX but only load it. It aborts if pinned memory is freed while a copy
// may use it.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backend/small_cubin.hpp"

namespace {

enum class Function : std::uintptr_t { scale = 1, crash = 2 };

const char* symbol_of(Function function) {
  if (function == Function::crash) return "crash";
  return std::getenv("FAKE_LISTED") != nullptr ? "_Z5scalePff" : "scale";
}

std::atomic<int> lost{0};
std::atomic<int> objects{0};
std::atomic<int> retained{0};
thread_local std::vector<void*> current;
int contexts[8];

/// The driver ends with the process, and what calls it afterwards crashes, as with the real one.
bool ended = false;
struct End {
  ~End() { ended = true; }
} end_of_driver;
void check_running() {
  if (ended) std::abort();
}

/// The number in a variable of the environment.
int number_in(const std::string& variable, int otherwise = 0) {
  const char* text = std::getenv(variable.c_str());
  return text != nullptr ? std::atoi(text) : otherwise;
}

/// What every call in a context answers unless it has an answer of its own.
int in_context() {
  check_running();
  if (current.empty()) return 201;
  return lost;
}

/// The same, where a variable holds the answer it has.
int in_context(const char* variable) {
  if (const int status = in_context()) return status;
  return number_in(variable);
}

void trace(const char* work) {
  if (std::getenv("FAKE_TRACE") != nullptr) std::printf("%s ", work);
}

/// Pinned memory, and the streams with copies from or to it whose end nobody has asked for.
class Pinned {
 public:
  void add(const void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    sizes_[static_cast<const std::byte*>(memory)] = bytes;
  }
  void copied(const void* host, const void* stream) {
    const std::lock_guard lock(mutex_);
    copies_.emplace(stream, static_cast<const std::byte*>(host));
  }
  void ended(const void* stream) {
    const std::lock_guard lock(mutex_);
    copies_.erase(stream);
  }
  void remove(const void* memory) {
    const std::lock_guard lock(mutex_);
    const auto* begin = static_cast<const std::byte*>(memory);
    const std::byte* end = begin + sizes_[begin];
    for (const auto& [stream, host] : copies_)
      if (begin <= host && host < end) std::abort();
    sizes_.erase(begin);
  }

 private:
  std::mutex mutex_;
  std::map<const std::byte*, std::size_t> sizes_;
  std::multimap<const void*, const std::byte*> copies_;
} pinned;

/// What asking for the end of a stream answers. Once a context is lost, nothing is under way in it.
int end_of(const void* stream, const char* variable) {
  constexpr int not_ready = 600;
  const int status = in_context(variable);
  if (status != not_ready) pinned.ended(stream);
  return status;
}

/// When it was recorded, by the clock of the host; nothing yet where 0.
struct Event {
  std::int64_t nanoseconds = 0;
};

}  // namespace

extern "C" {

int cuInit(unsigned) { return FAKE_DEVICES > 0 ? 0 : 100; }
// NVRTC asks for tables of the driver's own, and does without them where it gets an error.
int cuGetExportTable(const void**, const void*) { return 500; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuDeviceGetCount(int* count) { return *count = FAKE_DEVICES, 0; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetName(char* name, int length, int device) {
  std::strncpy(name, ("Stand-in " + std::to_string(device)).c_str(), static_cast<std::size_t>(length));
  return 0;
}
#ifndef FAKE_OLD
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<unsigned char>(0xA0 + i);
  uuid[2] = static_cast<unsigned char>(device);
  return 0;
}
#endif
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  switch (attribute) {
    case 1:
    case 2:
    case 3: *value = 1024; return 0;
    case 4: *value = 64; return 0;
    case 5: *value = 2147483647; return 0;
    case 6:
    case 7: *value = 65535; return 0;
    case 8: *value = 49152; return 0;
    case 10: *value = 32; return 0;
    // The second does not tell.
    case 16: *value = 132; return device == 0 ? 0 : 1;
    // The second is of a kind that no compiler knows yet.
    case 75: *value = device == 0 ? 9 : 99; return 0;
    case 76: *value = 0; return 0;
    default: return 1;
  }
}
int cuDeviceGetPCIBusId(char* id, int, int) { return *id = '\0', 0; }
#ifndef FAKE_OLD
int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (const int status = number_in("FAKE_RETAIN_" + std::to_string(device))) return status;
  ++retained;
  *context = &contexts[device];
  return 0;
}
#endif
int cuDevicePrimaryCtxRelease_v2(int) {
  check_running();
  // Whatever lived in the context must have ended before it.
  if (--retained == 0 && objects != 0) std::abort();
  return 0;
}
int cuCtxPushCurrent_v2(void* context) {
  check_running();
  if (const int status = number_in("FAKE_PUSH")) return status;
  current.push_back(context);
  return 0;
}
int cuCtxPopCurrent_v2(void** context) {
  check_running();
  if (current.empty()) return 201;
  *context = current.back();
  current.pop_back();
  return 0;
}
int cuCtxGetDevice(int* device) {
  if (current.empty()) return 201;
  *device = static_cast<int>(static_cast<int*>(current.back()) - contexts);
  return 0;
}
int cuModuleLoadData(void** module, const void*) {
  if (const int status = in_context()) return status;
  if (const int status = number_in("FAKE_LOAD")) return status;
  ++objects;
  *module = std::malloc(1);
  return 0;
}
#ifndef FAKE_SILENT
int cuLinkCreate_v2(unsigned, int*, void**, void** link) {
  *link = std::malloc(1);
  return in_context();
}
int cuLinkAddData_v2(void*, int, const void*, std::size_t, const char*, unsigned, int*, void**) {
  return in_context("FAKE_LINK");
}
int cuLinkComplete(void*, void** image, std::size_t* bytes) {
  static const kiln::fakes::SmallCubin cubin;
  *image = const_cast<void*>(static_cast<const void*>(&cubin));
  *bytes = sizeof cubin;
  return in_context();
}
int cuLinkDestroy(void* link) {
  std::free(link);
  return 0;
}
#endif
int cuModuleUnload(void* module) {
  if (current.empty()) std::abort();
  --objects;
  std::free(module);
  return 0;
}
int cuModuleGetFunction(void** function, void*, const char* name) {
  if (const int status = in_context()) return status;
  for (const Function known : {Function::scale, Function::crash})
    if (std::strcmp(name, symbol_of(known)) == 0) return *function = reinterpret_cast<void*>(known), 0;
  return 500;
}
int cuModuleGetFunctionCount(unsigned* count, void*) {
  if (std::getenv("FAKE_LISTED") == nullptr) return 801;
  return *count = 2, in_context();
}
int cuModuleEnumerateFunctions(void** functions, unsigned count, void*) {
  for (unsigned i = 0; i < count; ++i) functions[i] = reinterpret_cast<void*>(std::uintptr_t{i} + 1);
  return in_context();
}
int cuFuncGetName(const char** name, void* function) {
  *name = symbol_of(static_cast<Function>(reinterpret_cast<std::uintptr_t>(function)));
  return in_context();
}
int cuFuncGetAttribute(int* value, int, void*) { return *value = 512, 0; }
#ifndef FAKE_SILENT
int cuFuncGetParamInfo(void* function, std::size_t index, std::size_t* offset, std::size_t* bytes) {
  if (reinterpret_cast<std::uintptr_t>(function) != static_cast<std::uintptr_t>(Function::scale) || index > 1)
    return 1;
  *offset = 8 * index;
  *bytes = index == 0 ? 8 : 4;
  return 0;
}
#endif
int cuMemAlloc_v2(void** address, std::size_t bytes) {
  if (const int status = in_context()) return status;
  if (bytes == 0) return 1;
  if (bytes > std::size_t{1} << 30) return 2;
  ++objects;
  *address = std::malloc(bytes);
  return 0;
}
int cuMemFree_v2(void* address) {
  if (current.empty()) std::abort();
  --objects;
  std::free(address);
  return 0;
}
int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  if (const int status = in_context("FAKE_PINNED")) return status;
  if (bytes > std::size_t{1} << 30) return 2;
  ++objects;
  *memory = std::malloc(bytes);
  pinned.add(*memory, bytes);
  return 0;
}
int cuMemFreeHost(void* memory) {
  pinned.remove(memory);
  return cuMemFree_v2(memory);
}
int cuMemcpyHtoDAsync_v2(void* to, const void* from, std::size_t bytes, void* stream) {
  if (const int status = in_context("FAKE_COPY")) return status;
  trace("upload");
  pinned.copied(from, stream);
  std::memcpy(to, from, bytes);
  return 0;
}
int cuMemcpyDtoHAsync_v2(void* to, const void* from, std::size_t bytes, void* stream) {
  if (const int status = in_context()) return status;
  trace("download");
  pinned.copied(to, stream);
  std::memcpy(to, from, bytes);
  return 0;
}
int cuStreamCreate(void** stream, unsigned) {
  if (const int status = in_context()) return status;
  ++objects;
  *stream = std::malloc(1);
  return 0;
}
int cuStreamQuery(void* stream) {
  trace("query");
  return end_of(stream, "FAKE_QUERY");
}
int cuStreamSynchronize(void* stream) {
  trace("wait");
  return end_of(stream, "FAKE_WAIT");
}
int cuStreamDestroy_v2(void* stream) {
  if (current.empty()) std::abort();
  pinned.ended(stream);
  --objects;
  std::free(stream);
  return 0;
}
int cuEventCreate(void** event, unsigned flags) {
  if (const int status = in_context("FAKE_EVENT")) return status;
  // Without CU_EVENT_DEFAULT they would have no time.
  if (flags != 0) return 1;
  ++objects;
  *event = new Event;
  return 0;
}
int cuEventRecord(void* event, void*) {
  if (const int status = in_context("FAKE_RECORD")) return status;
  trace("event");
  static_cast<Event*>(event)->nanoseconds = std::chrono::steady_clock::now().time_since_epoch().count();
  return 0;
}
int cuEventQuery(void* event) {
  if (const int status = in_context("FAKE_QUERY")) return status;
  return static_cast<Event*>(event)->nanoseconds == 0 ? 400 : 0;
}
int cuEventSynchronize(void* event) {
  trace("wait");
  static_cast<void>(event);
  return in_context("FAKE_WAIT");
}
int cuEventElapsedTime(float* milliseconds, void* from, void* to) {
  if (const int status = in_context("FAKE_ELAPSED")) return status;
  const std::int64_t begin = static_cast<Event*>(from)->nanoseconds;
  const std::int64_t end = static_cast<Event*>(to)->nanoseconds;
  if (begin == 0 || end == 0) return 400;
  *milliseconds = static_cast<float>(end - begin) / 1e6F;
  return 0;
}
int cuEventDestroy_v2(void* event) {
  if (current.empty()) std::abort();
  --objects;
  delete static_cast<Event*>(event);
  return 0;
}
int cuLaunchKernel(void* function, unsigned groups, unsigned, unsigned, unsigned size, unsigned, unsigned, unsigned,
                   void*, void** arguments, void**) {
  if (const int status = in_context()) return status;
  trace("launch");
  if (reinterpret_cast<std::uintptr_t>(function) == static_cast<std::uintptr_t>(Function::crash)) {
    lost = 700;
    return 0;
  }
  float* data = *static_cast<float**>(arguments[0]);
  const float offset = *static_cast<float*>(arguments[1]);
  for (unsigned i = 0; i < groups * size; ++i) data[i] = 2 * data[i] + offset;
  return 0;
}
int cuGetErrorName(int error, const char** name) {
  switch (error) {
    case 700: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; return 0;
    default: *name = "CUDA_ERROR_OF_THE_STAND_IN"; return 0;
  }
}

}  // extern "C"
