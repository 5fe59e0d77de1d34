#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cli_fixture.hpp"
#include "key/record_writer.hpp"
#include "store/bundle_samples.hpp"

namespace kiln::cli {

using store::portable;
using store::SampleProgram;
using store::sm_90;
using store::sm_90_by_another;

/// The command `bundle`, with a bundle of five programs for two targets and the requests of two of them.
class Bundles : public Cli {
 protected:
  Bundles() {
    auto contents = store::contents_of(store::sample_programs());
    contents.facts = R"({"maker":"a test","version":1})";
    contents.record = write_record("app.kilnreq", {"conv", "scan"});
    EXPECT_TRUE(store::write_bundle(path_, contents));
  }

  std::string path(const std::string& name) const { return (home_.path() / name).string(); }

  std::string write_record(const std::string& name, const Words& programs) const {
    key::RecordWriter writer(path(name));
    for (const std::string& program : programs)
      EXPECT_TRUE(
          writer.add(Request({.name = program, .source = program, .language = Language::opencl}), "opencl", {}));
    return path(name);
  }
  std::string write(const std::string& name, const std::vector<SampleProgram>& programs,
                    const std::string& facts = "{}") const {
    auto contents = store::contents_of(programs);
    contents.facts = facts;
    EXPECT_TRUE(store::write_bundle(path(name), contents));
    return path(name);
  }
  Outcome bundle(Words words, const Environment& environment = {}) const {
    words.insert(words.begin(), "bundle");
    return kiln(words, environment);
  }
  /// "NAME for TARGET" of each program, sorted.
  Words programs_of(const std::string& file) const {
    Words programs;
    const auto listed = bundle({"ls", file, "--json"}).json();
    for (const auto& program : listed["programs"])
      programs.push_back(program["name"].get<std::string>() + " for " + program["target"].get<std::string>());
    std::ranges::sort(programs);
    return programs;
  }
  void damage_a_program() const {
    std::string bytes = contents(path_);
    bytes[store::BundleFile::open(path_).value()->program(1).offset + 200] ^= 1;
    cli::write(path_, bytes);
  }

  const std::string path_ = path("app.kiln");
};

}  // namespace kiln::cli
