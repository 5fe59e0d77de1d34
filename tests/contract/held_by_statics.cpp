// Opens a device and leaves all that was made with it to static variables, whose destructors run when the process
// ends: held_by_statics API early|late idle|busy FOLDER. Early ones were constructed before any driver was loaded,
// and go last. A busy executor still has work then.

#include <cstring>
#include <iostream>
#include <memory>

#include <unistd.h>

#include <kiln/cache.hpp>
#include <kiln/executor.hpp>
#include <kiln/slot.hpp>

#include "contract/kernels.hpp"

namespace kiln::contract {
namespace {

/// In an order that is none of a careful program's: handles outlive the cache, and all outlive the device.
struct Held {
  std::unique_ptr<Buffer> buffer;
  Program program;
  std::unique_ptr<Cache> cache;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<Slot> slot;
  std::shared_ptr<Device> device;
};

Held hold(std::shared_ptr<Device> device, bool busy, const std::filesystem::path& folder) {
  Held held;
  held.device = std::move(device);
  held.cache = std::make_unique<Cache>(held.device, CacheOptions{.directory = folder});
  const Request request = scale(3).request(*held.device).value();
  held.program = held.cache->get(request).value();
  held.executor = Executor::create(held.device, *held.cache).value();
  held.slot = held.device->open_slot().value();
  held.buffer = held.device->allocate(4000).value();
  const auto y = held.device->allocate(4000).value();
  const Launch launch = scale(3).launch({16, 1, 1}, {held.buffer.get(), y.get()}, {1000, 1.0F}).value();
  held.device->launch(held.program.module(), launch).value();
  held.slot->launch(held.program.module(), launch).value();
  held.slot->submit().value();
  held.slot->wait().value();
  Job job{.name = "scale", .memory = {{.bytes = 4000}, {.bytes = 4000}}};
  job.steps.push_back({.request = request,
                       .launch = {.groups = {16},
                                  .group_size = launch.group_size,
                                  .arguments = {job_memory(0), job_memory(1), launch.arguments.back()}}});
  held.executor->submit(job).get().value();
  for (int i = 0; busy && i < 100; ++i) held.executor->submit(job);
  held.program.note_gflops(1);
  return held;
}

Held early;

int run(const char* api, bool is_early, bool busy, const char* folder) {
  auto device = open_device(api);
  if (!device) {
    std::cout << device.error().message() << '\n';
    return 77;
  }
  if (is_early) {
    early = hold(*std::move(device), busy, folder);
  } else {
    static std::shared_ptr<Device> first = *std::move(device);
    static Held late = hold(first, busy, folder);
  }
  std::cout << "held\n" << std::flush;
  return 0;
}

}  // namespace
}  // namespace kiln::contract

int main(int argc, char** argv) {
  alarm(60);
  if (argc != 5) return 2;
  return kiln::contract::run(argv[1], std::strcmp(argv[2], "early") == 0, std::strcmp(argv[3], "busy") == 0,
                             argv[4]);
}
