#include "resident.hpp"

#include <cstdio>
#include <fstream>
#include <stdexcept>

#include <fmt/format.h>

#include <kiln/cache.hpp>
#include <kiln/device.hpp>

#include "child.hpp"
#include "fixtures.hpp"
#include "programs.hpp"
#include "store/disk_store.hpp"

namespace kiln::bench {
namespace {

constexpr std::string_view child_flag = "--kiln_resident";

double resident_megabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kilobytes = 0;
    if (word == "VmRSS:" && status >> kilobytes) return kilobytes / 1000;
  }
  return 0;
}

/// Calls `load_all` and looks at what it took while its result is still alive.
Resident measure(const auto& load_all) {
  const double before = resident_megabytes();
  const auto kept = load_all();
  const double after = resident_megabytes();
  return {after - before, after};
}

std::unique_ptr<Cache> load_into_cache(const std::shared_ptr<Backend>& backend,
                                       const std::vector<Request>& requests,
                                       const std::filesystem::path& directory) {
  auto cache =
      std::make_unique<Cache>(backend, CacheOptions{.directory = directory, .max_programs = requests.size()});
  for (const Request& request : requests) cache->get(request).value();
  cache->flush();
  return cache;
}

std::vector<std::unique_ptr<Module>> load_bare(Device& device, const std::vector<Request>& requests,
                                               const std::filesystem::path& directory) {
  const auto store = store::DiskStore::open(directory, device.identity(), Log()).value();
  std::vector<std::unique_ptr<Module>> modules;
  modules.reserve(requests.size());
  for (const Request& request : requests)
    modules.push_back(device.load(stored_binary(*store, device.identity(), request.key())).value());
  return modules;
}

Resident measure_here(const ResidentCase& which) {
  if (which.kind == "empty") {
    const auto backend = std::make_shared<EmptyBackend>();
    const auto requests = made_up_requests(which.count);
    return measure([&] { return load_into_cache(backend, requests, which.directory); });
  }
  // The driver's usual cache would stand in for compiling.
  use_driver_cache(which.directory.string() + ".driver");
  const auto device = open_device("opengl").value();
  std::vector<Request> requests;
  for (const Kernel& kernel : programs(which.count)) requests.push_back(kernel.request(*device).value());
  if (which.kind == "bare") return measure([&] { return load_bare(*device, requests, which.directory); });
  return measure([&] {
    auto cache = load_into_cache(device, requests, which.directory);
    if (which.kind == "disk" && cache->stats().disk_hits != requests.size())
      throw std::runtime_error("the programs did not come from disk");
    return cache;
  });
}

}  // namespace

Result<Resident> measure_resident(const ResidentCase& which) {
  const auto output = run_child(
      {this_program(), std::string(child_flag), which.kind, std::to_string(which.count), which.directory.string()});
  if (!output) return output.error();
  Resident resident;
  if (std::sscanf(output->c_str(), "%lf %lf", &resident.growth, &resident.total) != 2)
    return Error(ErrorCode::device_failed, *output);
  return resident;
}

std::optional<int> resident_process(int argc, char** argv) {
  if (argc != 5 || argv[1] != child_flag) return {};
  try {
    const Resident resident = measure_here({argv[2], std::stoul(argv[3]), argv[4]});
    fmt::print("{} {}", resident.growth, resident.total);
    return 0;
  } catch (const std::exception& failure) {
    fmt::print("{}", failure.what());
    return 1;
  }
}

}  // namespace kiln::bench
