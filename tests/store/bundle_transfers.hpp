#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fakes/files.hpp"
#include "fakes/registries.hpp"
#include "fakes/temporary_folder.hpp"
#include "store/bundle_samples.hpp"
#include "store/bundle_transfer.hpp"

namespace kiln::store {

/// "CODE: MESSAGE", or "no error". Fails the test if the message contains a secret or a control character.
template <class T>
std::string transfer_failure(const Result<T>& result) {
  if (result.ok()) return "no error";
  const std::string& message = result.error().message();
  for (const char* secret : {fakes::registry_password, "bearer-token", "identity-token", "\x1b", "\n"})
    EXPECT_EQ(message.find(secret), std::string::npos) << message;
  return fmt::format("{}: {}", to_string(result.error().code()), message);
}

inline bool has_text(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A bundle to push, and a place to pull it to.
class BundleTransfers : public testing::Test {
 protected:
  void SetUp() override { make_bundle(1000); }

  std::filesystem::path bundle() const { return folder_.path() / "app.kiln"; }
  std::filesystem::path copy() const { return folder_.path() / "copy.kiln"; }
  std::filesystem::path part() const { return folder_.path() / "copy.kiln.part"; }

  /// A bundle with a program of so many bytes.
  void make_bundle(std::size_t bytes) const {
    std::vector<SampleProgram> programs = sample_programs();
    programs.push_back({sm_90, "large", incompressible(bytes)});
    static_cast<void>(write_bundle(bundle(), contents_of(programs)).value());
  }

  static BundlePlace place(const std::string& url, const std::string& name = "app.kiln") {
    return BundlePlace::parse(url, name).value();
  }
  Result<TransferredBundle> push(const std::string& url, const BundleTransfer& transfer = {}) const {
    return push_bundle(bundle(), place(url), transfer);
  }
  Result<TransferredBundle> pull(const std::string& url, const BundleTransfer& transfer = {}) const {
    return pull_bundle(place(url), copy(), transfer);
  }
  void expect_copied() const {
    EXPECT_EQ(fakes::read_file(copy()), fakes::read_file(bundle()));
    EXPECT_FALSE(std::filesystem::exists(part()));
  }

  const fakes::TemporaryFolder folder_;
  /// No test reads the files of the person who runs it.
  const fakes::DockerEnvironment nobody_;
};

}  // namespace kiln::store
