#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "bundle_fixture.hpp"

namespace kiln::cli {
namespace {

TEST_F(Bundles, AreMerged) {
  const auto other =
      write("other.kiln", {{sm_90, "conv", "conv for sm_90", "conv without"}, {portable, "new", "new"}},
            R"({"maker":"a test","version":2})");
  const auto all = path("all.kiln");
  const auto merged = bundle({"merge", all, path_, other});
  // The entry of conv has the same facts and times, so it is the same bytes.
  EXPECT_EQ(merged.status, 0) << merged.error;
  EXPECT_TRUE(merged.out.starts_with("wrote 6 programs for 2 targets and 2 requests to " + all + ", "))
      << merged.out;
  EXPECT_EQ(programs_of(all).size(), 6U);
  EXPECT_EQ(bundle({"ls", all, "--json"}).json()["facts"], (nlohmann::json{{"maker", "a test"}}));
  const auto json = bundle({"show", all, "conv", "--json"}).json();
  EXPECT_TRUE(
      std::ranges::any_of(json, [](const auto& program) { return !program["key_without_toolkit"].is_null(); }));
  const std::string bytes = contents(all);
  EXPECT_EQ(bundle({"merge", all, all, other}).status, 0) << "a bundle may be merged into itself";
  EXPECT_EQ(bundle({"verify", all}).status, 0);
}

TEST_F(Bundles, WithDifferentBytesAreMergedOnlyIfOneIsPreferred) {
  const auto other = write("other.kiln", {{sm_90, "conv", "another conv"}});
  const auto all = path("all.kiln");
  cli::write(all, "what was there");
  const auto refused = bundle({"merge", all, path_, other});
  EXPECT_EQ(refused.status, 1);
  const std::string message = unwrapped(refused.error);
  EXPECT_TRUE(contains(message, "the program conv with the key " + store::sample_key("conv").digest.hex(12) +
                                    " has different bytes for cuda:sm_90 in " + path_ + " and " + other))
      << message;
  EXPECT_EQ(contents(all), "what was there");
  const auto size_of_conv = [&] {
    const auto shown = bundle({"show", all, "conv", "--json"}).json();
    for (const auto& program : shown)
      if (program["target"] == "cuda:sm_90") return program["parts"][0]["bytes"].get<std::size_t>();
    return std::size_t{0};
  };
  EXPECT_EQ(bundle({"merge", all, path_, other, "--prefer", "first"}).status, 0);
  EXPECT_EQ(size_of_conv(), std::string("conv for sm_90").size());
  EXPECT_EQ(bundle({"merge", all, path_, other, "--prefer", "last"}).status, 0);
  EXPECT_EQ(size_of_conv(), std::string("another conv").size());
  EXPECT_EQ(bundle({"merge", all, path_, other, "--prefer", "both"}).status, 2);
}

TEST_F(Bundles, ThatWereSignedLoseTheirSignaturesWhenMerged) {
  ASSERT_EQ(kiln({"key", "new", "ci"}).status, 0);
  ASSERT_EQ(bundle({"sign", path_}).status, 0);
  const auto merged = bundle({"merge", path("all.kiln"), path_});
  EXPECT_EQ(merged.status, 0);
  EXPECT_TRUE(contains(unwrapped(merged.error), "sign the new bundle with `kiln bundle sign`")) << merged.error;
  EXPECT_TRUE(contains(bundle({"ls", path("all.kiln")}).out, "not signed"));
}

TEST_F(Bundles, AreSplit) {
  const auto out = path("part.kiln");
  const auto split = [&](Words options) {
    options.insert(options.begin(), {"split", path_, out});
    const auto outcome = bundle(options);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return programs_of(out);
  };
  const Words cuda = {"conv for cuda:sm_90", "fft for cuda:sm_90", "gemm for cuda:sm_90"};
  const Words vulkan = {"conv for vulkan", "scan for vulkan"};
  EXPECT_EQ(split({"--target", "cuda:sm_90"}), cuda);
  EXPECT_EQ(split({"--target", "cuda:sm_90,sm_90"}), cuda);
  EXPECT_EQ(split({"--target", "cuda:all"}), cuda);
  EXPECT_EQ(split({"--api", "vulkan"}), vulkan);
  EXPECT_EQ(split({"--target", "vulkan"}), vulkan);
  EXPECT_EQ(split({"--target", "vulkan", "--target", "cuda:sm_90"}).size(), 5U);
  EXPECT_EQ(split({"--program", "conv"}), (Words{"conv for cuda:sm_90", "conv for vulkan"}));
  EXPECT_EQ(split({"--program", "conv", "--program", "fft", "--api", "cuda"}),
            (Words{"conv for cuda:sm_90", "fft for cuda:sm_90"}));
  EXPECT_EQ(bundle({"ls", out, "--json"}).json()["facts"]["maker"], "a test");
  for (const Words& words : {Words{"--target", "cuda:sm_80"}, Words{"--api", "hip"}, Words{"--program", "nobody"},
                             Words{"--target", "cuda"}}) {
    const auto none = bundle({"split", path_, out, words[0], words[1]});
    EXPECT_EQ(none.status, 1) << words[1];
    EXPECT_TRUE(contains(unwrapped(none.error), words[1] + "; its targets are: ")) << none.error;
  }
  EXPECT_EQ(bundle({"split", path_, out}).status, 2) << "nothing is chosen";
}

TEST_F(Bundles, AreNotSplitByWhatSelectsNothing) {
  const auto out = path("part.kiln");
  const auto refusal = [&](Words options) {
    options.insert(options.begin(), {"split", path_, out});
    const auto outcome = bundle(options);
    EXPECT_EQ(outcome.status, 1) << outcome.out;
    EXPECT_FALSE(fs::exists(out));
    return unwrapped(outcome.error);
  };
  for (const char* list : {"cuda:sm_90,sm_123", "cuda:sm_123,sm_90"})
    EXPECT_TRUE(contains(refusal({"--target", list}), "has no program for cuda:sm_123; its targets are: "))
        << refusal({"--target", list});
  const std::string too = " that the other options select too";
  EXPECT_TRUE(contains(refusal({"--api", "vulkan", "--target", "cuda:sm_90"}), "no program for cuda:sm_90" + too));
  EXPECT_TRUE(contains(refusal({"--api", "cuda", "--api", "vulkan", "--target", "cuda:sm_90"}),
                       "no program for vulkan" + too));
  EXPECT_TRUE(contains(refusal({"--program", "fft", "--target", "cuda:sm_90", "--target", "vulkan"}),
                       "no program for vulkan" + too));
}

TEST_F(Bundles, AreSplitByDevicesWithCommasInTheirNames) {
  Identity long_name = sm_90;
  long_name.device = "Pipe (LLVM 15, 256 bits)";
  const auto out = path("part.kiln");
  write("app.kiln", {{long_name, "conv", "1"}, {sm_90, "conv", "2"}});
  for (const std::string& list : {"cuda:" + long_name.device + ",sm_90", "cuda:sm_90," + long_name.device}) {
    const auto split = bundle({"split", path_, out, "--target", list});
    EXPECT_EQ(split.status, 0) << split.error;
    EXPECT_EQ(programs_of(out).size(), 2U);
  }
  EXPECT_EQ(bundle({"split", path_, out, "--target", "cuda:" + long_name.device}).status, 0);
  EXPECT_EQ(programs_of(out).size(), 1U);
}

TEST_F(Bundles, AreMergedInAnyOrderToEqualBytes) {
  const auto write_with = [&](const std::string& name, const Words& requests, const std::string& facts,
                              const std::vector<SampleProgram>& programs) {
    auto contents = store::contents_of(programs);
    contents.facts = facts;
    contents.record = write_record(name + "req", requests);
    EXPECT_TRUE(store::write_bundle(path(name), contents));
    return path(name);
  };
  const auto one = write_with("one.kiln", {"scan", "conv"}, R"({"b":1,"a":{"d":1,"c":2}})",
                              {{sm_90, "conv", "conv", "conv without"}, {portable, "scan", "scan"}});
  const auto other = write_with("other.kiln", {"fft", "conv"}, R"({"a":{"c":2,"d":1},"b":1})",
                                {{sm_90, "conv", "conv"}, {sm_90, "fft", "fft"}});
  const auto all = path("all.kiln");
  ASSERT_EQ(bundle({"merge", all, one, other}).status, 0);
  const std::string bytes = contents(all);
  ASSERT_EQ(bundle({"merge", all, other, one}).status, 0);
  EXPECT_TRUE(contents(all) == bytes);
  const auto listed = bundle({"ls", all, "--json"}).json();
  EXPECT_EQ(listed["requests"], 3);
  EXPECT_EQ(listed["facts"].size(), 2U);
  EXPECT_FALSE(bundle({"show", all, "conv", "--json"}).json()[0]["key_without_toolkit"].is_null());
}

TEST_F(Bundles, WithForgedRequestsAreNotUsed) {
  // The record of another bundle, of equal size.
  std::string bytes = contents(path_);
  const auto header = store::header_of(bytes);
  const std::string record = contents(write_record("forged.kilnreq", {"evil", "scan"}));
  ASSERT_EQ(record.size(), header.record_bytes);
  cli::write(path_, bytes.replace(header.record_offset, record.size(), record));
  const auto out = path("out.kiln");
  for (const Words& words :
       {Words{"ls", path_}, Words{"merge", out, path_}, Words{"split", path_, out, "--api", "cuda"}}) {
    const auto refused = bundle(words);
    EXPECT_EQ(refused.status, 1) << words[0];
    EXPECT_TRUE(contains(unwrapped(refused.error), "its requests do not have the SHA-256 of its index"))
        << refused.error;
    EXPECT_FALSE(fs::exists(out));
  }
  EXPECT_EQ(bundle({"split", path_, out, "--api", "cuda", "--no-requests"}).status, 0);
}

TEST_F(Bundles, LeaveNoUnfinishedFileAfterCtrlC) {
  ASSERT_EQ(kiln({"key", "new", "ci"}).status, 0);
  auto large = store::contents_of({});
  large.identities = {sm_90};
  std::mt19937 random;
  std::string noise(std::size_t{1} << 20, '\0');
  std::ranges::generate(noise, [&random] { return static_cast<char>(random()); });
  for (int i = 0; i < 32; ++i) {
    const Digest key = store::sample_key(std::to_string(i)).digest;
    large.entries.push_back({.key = key, .read = [&noise, key]() -> Result<std::vector<std::byte>> {
                               return store::seal_entry(store::label_of(key, sm_90), store::sample_entry(noise));
                             }});
  }
  const auto folder = home_.path() / "bundles";
  fs::create_directory(folder);
  const std::string from = path("large.kiln");
  ASSERT_TRUE(store::write_bundle(from, large));
  const std::string to = folder / "app.kiln";
  const auto unfinished = [&folder] {
    return std::ranges::any_of(fs::directory_iterator(folder), [](const auto& file) {
      return file.path().filename().string().starts_with(".tmp-");
    });
  };
  for (const Words& words : {Words{"bundle", "merge", to, from},
                             Words{"bundle", "split", from, to, "--api", "cuda"}, Words{"bundle", "sign", to}}) {
    int status = 0;
    // On a slow machine, the command may end before it gets the signal.
    for (int tries = 0; status != 130 && tries < 20; ++tries) {
      fs::copy_file(from, to, fs::copy_options::overwrite_existing);
      const Command::Running running(command_, words, {});
      while (!unfinished() && !running.has_ended()) {
      }
      running.send(SIGINT);
      const auto outcome = running.wait();
      status = outcome.status;
      EXPECT_TRUE(status != 130 || contains(outcome.error, "interrupted; run the same command again"));
      EXPECT_FALSE(unfinished()) << words[1];
    }
    EXPECT_EQ(status, 130) << words[1];
    EXPECT_EQ(fs::file_size(to), fs::file_size(from));
  }
}

TEST_F(Bundles, ThatAreSplitKeepTheRequestsOfTheirPrograms) {
  // A bundle whose programs have the keys of the requests.
  const auto key = [](const std::string& name) {
    return Request({.name = name, .source = name, .language = Language::opencl}).key().digest;
  };
  store::BundleContents contents{.identities = {portable}, .record = path("app.kilnreq")};
  for (const char* name : {"conv", "scan"})
    contents.entries.push_back({.key = key(name), .read = [digest = key(name)]() -> Result<std::vector<std::byte>> {
                                  return store::seal_entry(store::label_of(digest, portable),
                                                           store::sample_entry("binary"));
                                }});
  ASSERT_TRUE(store::write_bundle(path_, contents));
  const auto out = path("part.kiln");
  const auto split = bundle({"split", path_, out, "--program", key("scan").hex(), "--json"});
  EXPECT_EQ(split.json()["requests"], 1) << split.error;
  EXPECT_EQ(bundle({"ls", out, "--json"}).json()["requests"], 1);
  EXPECT_EQ(bundle({"split", path_, out, "--api", "vulkan", "--no-requests", "--json"}).json()["requests"], 0);
  EXPECT_TRUE(bundle({"ls", out, "--json"}).json()["requests"].is_null());
}

}  // namespace
}  // namespace kiln::cli
