#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "fakes/temporary_folder.hpp"
#include "key/record_writer.hpp"
#include "store/bundle_samples.hpp"

namespace kiln::store {

namespace fs = std::filesystem;

/// A bundle in a folder of its own.
class BundleTest : public testing::Test {
 protected:
  /// With the samples and a record of one request.
  std::string write_samples(std::span<const SigningKey> keys = {}) const {
    BundleContents contents = contents_of(sample_programs());
    contents.record = record_path();
    contents.facts = R"({"made":"in a test"})";
    const auto written = write_bundle(path_, contents, keys);
    EXPECT_TRUE(written) << written.error().message();
    return fakes::read_file(path_);
  }
  fs::path record_path() const {
    const auto path = folder_.path() / "app.kilnreq";
    key::RecordWriter writer(path);
    EXPECT_TRUE(writer.add(
        Request({.name = "conv", .source = "kernel void conv() {}", .language = Language::opencl}), "opencl", {}));
    return path;
  }
  std::shared_ptr<const BundleFile> open(const TrustList* trust = nullptr) const {
    auto opened = BundleFile::open(path_, trust);
    EXPECT_TRUE(opened) << opened.error().message();
    return opened ? *opened : nullptr;
  }
  /// Why the file is refused.
  std::string refusal(const TrustList* trust = nullptr) const {
    const auto opened = BundleFile::open(path_, trust);
    return opened ? "it is opened"
                  : std::string(to_string(opened.error().code())) + ": " + opened.error().message();
  }
  std::string refusal_of(const std::string& bytes) const {
    fakes::write_file(path_, bytes);
    return refusal();
  }

  const fakes::TemporaryFolder folder_{fakes::memory_place()};
  const fs::path path_ = folder_.path() / "app.kiln";
};

inline const BundledTarget& target_of(const BundleFile& bundle, const Identity& identity) {
  const auto found = std::ranges::find(bundle.targets(), identity.target_digest(), &BundledTarget::digest);
  EXPECT_NE(found, bundle.targets().end());
  return *found;
}

/// The binary of a sealed entry, or why there is none.
inline std::string binary_of(const Result<std::vector<std::byte>>& sealed) {
  if (!sealed) return std::string(to_string(sealed.error().code())) + ": " + sealed.error().message();
  const auto opened = open_entry(*sealed);
  return opened ? fakes::text_of(opened->entry.binary()->bytes) : opened.error().message();
}

inline std::string answer_of(const BundleFile& bundle, const Identity& identity, const std::string& name) {
  const auto found = bundle.find(target_of(bundle, identity), sample_key(name).digest);
  return found ? binary_of(bundle.read(*found)) : "nothing";
}

}  // namespace kiln::store
