#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <kiln/identity.hpp>
#include <kiln/store.hpp>

#include "base/sha256.hpp"
#include "fakes/files.hpp"
#include "store/directory.hpp"
#include "store/disk_store.hpp"

namespace kiln::store {

/// An identity with a device of its own for each number.
inline Identity sample_identity(int number = 0) {
  return {"fake", "Kiln", fakes::numbered("device", number), "1.0", "1.0", {7}};
}

/// A key that has nothing in common with those of other names.
inline Key sample_key(const std::string& name) { return {base::sha256(name), name}; }

/// An entry with something in every field; times are whole seconds, as entry files keep them.
inline Entry sample_entry(const std::string& binary) {
  return {.binary = {.format = 7, .bytes = fakes::bytes_of(binary)},
          .compile_time = std::chrono::nanoseconds(123'456'789),
          .created = std::chrono::system_clock::time_point(std::chrono::seconds(1'700'000'000)),
          .gflops = 1.5,
          .gbps = 2.5,
          .facts = R"({"name":"sample","entry":"main"})"};
}

/// Bytes that no codec makes smaller, always the same for one size.
inline std::string incompressible(std::size_t size) {
  std::mt19937 random(static_cast<unsigned>(size));
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random() & 0xffU);
  return text;
}

/// A store that says nothing.
inline std::unique_ptr<DiskStore> open_store(const std::filesystem::path& root,
                                             const Identity& identity = sample_identity()) {
  return DiskStore::open(root, identity, Log(LogLevel::off, {})).value();
}

/// What a store answers: the binary as text, "nothing", or "error: …".
inline std::string answer(Store& store, const Key& key) {
  auto found = store.get(key);
  if (!found) return "error: " + found.error().message();
  return *found ? fakes::text_of((*found)->binary.bytes) : "nothing";
}

/// The code a store answers with; invalid_request where it is no error.
inline ErrorCode code_of_get(Store& store, const Key& key) {
  auto found = store.get(key);
  return found ? ErrorCode::invalid_request : found.error().code();
}

/// Where a store keeps an entry.
inline std::filesystem::path entry_path(const DiskStore& store, const Key& key) {
  return store.path() / entry_file_name(key);
}
inline std::filesystem::path meta_path(const DiskStore& store, const Key& key) {
  return store.path() / meta_file_name(entry_file_name(key));
}

}  // namespace kiln::store
