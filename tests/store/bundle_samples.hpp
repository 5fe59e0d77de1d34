#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/sha256.hpp"
#include "fakes/files.hpp"
#include "store/bundle.hpp"
#include "store/bundle_layout.hpp"
#include "store/samples.hpp"

/// Bundles for tests, also damaged ones with right checksums.
namespace kiln::store {

inline const Identity sm_90{"cuda", "NVIDIA", "sm_90", "CUDA 13", "NVRTC 13.0", {7}};
inline const Identity sm_90_by_another{"cuda", "NVIDIA", "sm_90", "CUDA 13", "NVRTC 13.1", {7}};
inline const Identity portable{"vulkan", "", "SPIR-V", "", "shaderc 2023.2", {9, 8}};

/// A program of a bundle, whose binary is `contents`.
struct SampleProgram {
  Identity identity = sm_90;
  std::string name = {};
  std::string contents = {};
  /// The name of its digest without a toolkit; empty if it has none.
  std::string without_toolkit = {};
};

inline std::vector<SampleProgram> sample_programs() {
  return {{sm_90, "conv", "conv for sm_90", "conv without"},
          {sm_90, "gemm", "gemm for sm_90", "gemm without"},
          {sm_90_by_another, "fft", "fft for sm_90"},
          {portable, "conv", "conv in SPIR-V"},
          {portable, "scan", "scan in SPIR-V"}};
}

inline std::vector<std::byte> seal_sample(const SampleProgram& program) {
  Entry entry = sample_entry(program.contents);
  entry.facts = R"({"name":")" + program.name + R"(","options":[],"defines":[]})";
  return seal_entry(label_of(sample_key(program.name).digest, program.identity), entry);
}

inline BundleContents contents_of(const std::vector<SampleProgram>& programs) {
  BundleContents contents;
  for (const SampleProgram& program : programs) {
    auto known = std::ranges::find(contents.identities, program.identity);
    if (known == contents.identities.end()) known = contents.identities.insert(known, program.identity);
    EntryToBundle entry;
    entry.identity = static_cast<std::size_t>(known - contents.identities.begin());
    entry.key = sample_key(program.name).digest;
    if (!program.without_toolkit.empty()) entry.without_toolkit = base::sha256(program.without_toolkit);
    entry.read = [program]() -> Result<std::vector<std::byte>> { return seal_sample(program); };
    contents.entries.push_back(std::move(entry));
  }
  return contents;
}

inline std::span<const std::byte> bytes_in(const std::string& text) { return std::as_bytes(std::span(text)); }

inline BundleHeader header_of(const std::string& bundle) {
  return BundleHeader::from_bytes(bytes_in(bundle)).value();
}

/// The bundle with another header, which has its checksum.
inline std::string with_header(std::string bundle, const std::function<void(BundleHeader&)>& change) {
  BundleHeader header = header_of(bundle);
  change(header);
  const auto bytes = header.to_bytes();
  return bundle.replace(0, bytes.size(), fakes::text_of(bytes));
}

/// The bundle with another index, which has its checksums.
inline std::string with_index(const std::string& bundle, const std::function<void(std::string&)>& change) {
  const BundleHeader before = header_of(bundle);
  std::string index = bundle.substr(before.index_offset, before.index_bytes);
  change(index);
  std::string changed = bundle;
  changed.replace(before.index_offset, before.index_bytes, index);
  return with_header(std::move(changed), [&index](BundleHeader& header) {
    header.index_bytes = index.size();
    header.index_checksum = xxh3_128(bytes_in(index));
    header.index_digest = base::sha256(index);
  });
}

template <class T>
T number_in(const std::string& bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
template <class T>
void set_number(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

/// Where the tables of an index begin.
struct IndexPlaces {
  std::size_t targets = 0;
  std::size_t rows = 0;
  std::size_t second_rows = 0;

  explicit IndexPlaces(const std::string& index)
      : targets(index_begin_bytes + number_in<std::uint64_t>(index, 16)),
        rows(targets + index_target_bytes * number_in<std::uint32_t>(index, 4)),
        second_rows(rows + index_row_bytes * number_in<std::uint32_t>(index, 8)) {}
  std::size_t row(std::size_t number) const { return rows + index_row_bytes * number; }
  std::size_t second_row(std::size_t number) const { return second_rows + index_second_row_bytes * number; }
};

}  // namespace kiln::store
