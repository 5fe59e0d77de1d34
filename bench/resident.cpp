#include "resident.hpp"

#include <array>
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/cache.hpp>
#include <kiln/device.hpp>

#include "fixtures.hpp"
#include "shaders.hpp"
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
    modules.push_back(device.load(store->get(request.key()).value().value().binary).value());
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
  for (const Shader& shader : shaders(which.count))
    requests.emplace_back(Request::Fields{.name = shader.name, .source = shader.source});
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
  std::array<int, 2> ends = {};
  if (pipe(ends.data()) != 0) return Error(ErrorCode::io, "cannot make a pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  std::string flag(child_flag);
  std::string kind = which.kind;
  std::string count = std::to_string(which.count);
  std::string directory = which.directory.string();
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::array<char*, 6> arguments = {flag.data(), flag.data(), kind.data(), count.data(), directory.data(), nullptr};
  pid_t child = 0;
  const int spawned = posix_spawn(&child, self.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string output;
  std::array<char, 256> part = {};
  for (ssize_t got = 0; (got = read(ends[0], part.data(), part.size())) > 0;)
    output.append(part.data(), static_cast<std::size_t>(got));
  close(ends[0]);
  if (spawned != 0) return Error(ErrorCode::io, "cannot start " + self);
  int status = 0;
  waitpid(child, &status, 0);
  Resident resident;
  if (status != 0 || std::sscanf(output.c_str(), "%lf %lf", &resident.growth, &resident.total) != 2)
    return Error(ErrorCode::device_failed, output.empty() ? "the process failed" : output);
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
