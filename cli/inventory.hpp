#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <kiln/identity.hpp>

#include "context.hpp"
#include "store/directory.hpp"

namespace kiln::cli {

/// A stored program: its file, and the data of its entry without the binary.
struct StoredProgram {
  /// Its device folder, as an index into Inventory::folders.
  std::size_t folder = 0;
  store::StoredFile file;
  /// Why the entry cannot be used; empty if it can. The members below are set only if this is empty.
  std::string damage = {};
  std::uint32_t format = 0;
  std::uint64_t binary_bytes = 0;
  std::chrono::nanoseconds compile_time = {};
  std::chrono::system_clock::time_point created = {};
  double gflops = 0;
  double gbps = 0;
  /// Request::describe() as a JSON object; empty if the entry has none.
  Json facts = Json::object();

  /// The full name if the entry is sound, else the part of it that the file name holds.
  std::string name() const;
  /// The measured performance, as in "12.5 GFLOP/s, 3.0 GB/s"; "not measured" if there is none.
  std::string performance() const;
};

/// The contents of a cache directory.
struct Inventory {
  std::vector<store::DeviceFolder> folders;
  std::vector<StoredProgram> programs;
  /// Errors of device folders that could not be read.
  std::vector<std::string> problems;

  std::string folder_name(const StoredProgram& program) const;
  /// The API that the program was compiled for; empty if the manifest of its folder is missing or wrong.
  std::string api(const StoredProgram& program) const;
};

/// Selects the device folders, and the files in them, that take_inventory() reads.
struct InventoryFilter {
  std::function<bool(const store::DeviceFolder&)> folder = {};
  std::function<bool(const store::StoredFile&)> file = {};
};

/// Reads and checks the entries of a cache directory, damaged ones included. Entries that another process removes
/// meanwhile are left out. A directory that does not exist is empty. Throws Failure if the directory cannot be
/// read.
Inventory take_inventory(const std::filesystem::path& root, const InventoryFilter& filter = {});

/// A device folder and its entry files, which are listed but not read.
struct FolderListing {
  store::DeviceFolder folder;
  std::vector<store::StoredFile> files;
  /// Why the folder cannot be read; empty if it can.
  std::string problem = {};

  std::uint64_t bytes() const;
};
std::vector<FolderListing> list_folders(const std::filesystem::path& root);

/// Prints the problems to standard error, and sets the exit status to failure if there are any.
void report_problems(Context& context, const std::vector<std::string>& problems);

/// Remarks that the cache directory holds no programs, and how to add some.
void remark_empty(const Context& context, const std::filesystem::path& root);

/// The name of the device of a folder; the name of the folder if its manifest is missing or wrong.
std::string device_of(const store::DeviceFolder& folder);
/// The API of a folder; empty if its manifest is missing or wrong.
std::string api_of(const store::DeviceFolder& folder);

Json identity_json(const Identity& identity);

/// A string field of a JSON object; empty if it is missing or not a string.
std::string text_of(const Json& object, const std::string& field);

/// Calls `work(i)` for every i below `count` in any order, on all processors. Rethrows an exception of `work` once
/// all threads have ended.
template <class Work>
void for_each_parallel(std::size_t count, const Work& work) {
  std::atomic<std::size_t> next{0};
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  // Starting a thread takes longer than reading a few entries.
  constexpr std::size_t per_thread = 16;
  const std::size_t processors = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t threads = std::min(processors, count / per_thread + 1);
  std::vector<std::future<void>> others;
  for (std::size_t i = 1; i < threads; ++i) others.push_back(std::async(std::launch::async, run));
  run();
  for (auto& other : others) other.get();
}

}  // namespace kiln::cli
