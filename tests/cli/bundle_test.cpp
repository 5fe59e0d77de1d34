#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include <sys/stat.h>

#include "cli_fixture.hpp"
#include "key/record_writer.hpp"
#include "store/bundle_samples.hpp"

namespace kiln::cli {
namespace {

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

TEST_F(Bundles, AreListed) {
  const auto listed = bundle({"ls", path_});
  EXPECT_EQ(listed.status, 0) << listed.error;
  EXPECT_LE(widest(listed.out), 80U) << listed.out;
  const std::string line = line_with(listed.out, "fft");
  for (const std::string& text : {std::string("cuda"), std::string("sm_90"), std::string("NVRTC 13.1"),
                                  std::string("123.5 ms"), store::sample_key("fft").digest.hex(12)})
    EXPECT_TRUE(contains(line, text)) << line;
  EXPECT_TRUE(contains(listed.out, "cuda:sm_90: 3 programs, ")) << listed.out;
  EXPECT_TRUE(contains(listed.out, "vulkan: 2 programs, ")) << listed.out;
  EXPECT_TRUE(contains(listed.out, "not signed, with 2 requests\n")) << listed.out;
  const auto json = bundle({"ls", path_, "--json"}).json();
  EXPECT_EQ(json["file"], path_);
  EXPECT_EQ(json["bytes"], fs::file_size(path_));
  EXPECT_EQ(json["facts"], (nlohmann::json{{"maker", "a test"}, {"version", 1}}));
  EXPECT_EQ(json["requests"], 2);
  EXPECT_EQ(json["targets"].size(), 2U);
  EXPECT_EQ(json["programs"].size(), 5U);
  EXPECT_EQ(programs_of(path_), (Words{"conv for cuda:sm_90", "conv for vulkan", "fft for cuda:sm_90",
                                       "gemm for cuda:sm_90", "scan for vulkan"}));
}

TEST_F(Bundles, ShowAProgramByNameAndByKey) {
  const auto shown = bundle({"show", path_, "conv"});
  EXPECT_EQ(shown.status, 0) << shown.error;
  EXPECT_LE(widest(shown.out), 80U) << shown.out;
  for (const char* text : {"sm_90", "SPIR-V", "NVRTC 13.0", "123.5 ms", "binary", "second key", "bytes at byte"})
    EXPECT_TRUE(contains(shown.out, text)) << shown.out;
  EXPECT_EQ(bundle({"show", path_, store::sample_key("conv").digest.hex(6)}).out, shown.out);
  const auto json = bundle({"show", path_, "gemm", "--json"}).json();
  ASSERT_EQ(json.size(), 1U);
  EXPECT_EQ(json[0]["key"], store::sample_key("gemm").digest.hex());
  EXPECT_EQ(json[0]["key_without_toolkit"], base::sha256(std::string_view("gemm without")).hex());
  EXPECT_EQ(json[0]["identity"]["compiler"], "NVRTC 13.0");
  const auto unknown = bundle({"show", path_, "nobody"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_TRUE(contains(unknown.error, "no program in " + path_)) << unknown.error;
}

TEST_F(Bundles, AreVerified) {
  const auto sound = bundle({"verify", path_});
  EXPECT_EQ(sound.status, 0) << sound.error;
  EXPECT_EQ(sound.out, path_ + ": 5 programs checked, all sound\n");
  damage_a_program();
  const auto damaged = bundle({"verify", path_, path("absent.kiln")});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_TRUE(contains(damaged.error, path_ + ": the program with the key ")) << damaged.error;
  EXPECT_TRUE(contains(damaged.error, "absent.kiln: No such file")) << damaged.error;
  const auto json = bundle({"verify", path_, "--json"});
  EXPECT_EQ(json.status, 1);
  EXPECT_EQ(json.json()[0]["ok"], false);
  EXPECT_EQ(json.json()[0]["problems"].size(), 1U);
  const auto listed = bundle({"ls", path_});
  EXPECT_EQ(listed.status, 1);
  EXPECT_TRUE(contains(listed.out, "damaged")) << listed.out;
  EXPECT_TRUE(contains(listed.out, "gemm")) << "the others are listed: " << listed.out;
}

TEST_F(Bundles, AreSignedAndNeedATrustedKeyIfAsked) {
  EXPECT_EQ(bundle({"verify", "--signed", path_}).status, 1);
  EXPECT_TRUE(contains(bundle({"sign", path_}).error, "there is no private key"));
  ASSERT_EQ(kiln({"key", "new", "ci"}).status, 0);
  const std::string before = contents(path_);
  const auto first = bundle({"sign", path_});
  EXPECT_EQ(first.status, 0) << first.error;
  EXPECT_EQ(first.out, "signed 1 bundle with 1 key, 0 signed before\n");
  EXPECT_EQ(bundle({"sign", path_, "--json"}).json(),
            (nlohmann::json{{"keys", {"ci"}}, {"signed", 0}, {"signed_before", 1}, {"failed", 0}}));
  EXPECT_TRUE(contains(bundle({"ls", path_}).out, "signed by ci, with 2 requests"));
  const auto verified = bundle({"verify", "--signed", path_});
  EXPECT_EQ(verified.status, 0) << verified.error;
  EXPECT_EQ(verified.out, path_ + ": 5 programs checked, all sound, signed by ci\n");
  ASSERT_EQ(kiln({"key", "revoke", "ci"}).status, 0);
  const auto revoked = bundle({"verify", "--signed", path_});
  EXPECT_EQ(revoked.status, 1);
  EXPECT_TRUE(contains(revoked.error, path_ + " is not trusted: it is signed by ci, which is not trusted"))
      << revoked.error;
}

TEST_F(Bundles, ThatMayBeOfOthersAreNotSigned) {
  ASSERT_EQ(kiln({"key", "new", "ci"}).status, 0);
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  const auto writable = bundle({"sign", path_});
  EXPECT_EQ(writable.status, 1);
  EXPECT_TRUE(contains(writable.error, "other users can write to " + path_)) << writable.error;
  ASSERT_EQ(chmod(path_.c_str(), 0644), 0);
  damage_a_program();
  const auto damaged = bundle({"sign", path_});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_TRUE(contains(damaged.error, path_ + " is not signed: the program with the key ")) << damaged.error;
}

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
  EXPECT_EQ(split({"--target", "cuda:sm_90,sm_80"}), cuda);
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

TEST_F(Bundles, AreCompared) {
  const auto same = write("same.kiln", store::sample_programs());
  const auto equal = bundle({"diff", path_, same});
  EXPECT_EQ(equal.status, 0) << equal.error;
  EXPECT_EQ(equal.out, "both have the same 5 programs\n");
  const auto other = write("other.kiln", {{sm_90, "conv", "another conv"},
                                          {sm_90_by_another, "fft", "fft for sm_90"},
                                          {portable, "new", "new in SPIR-V"}});
  const auto different = bundle({"diff", path_, other});
  EXPECT_EQ(different.status, 1);
  for (const std::string& text : {"only in " + path_ + ": gemm cuda:sm_90 ", "only in " + path_ + ": scan vulkan ",
                                  "only in " + other + ": new vulkan ", std::string("different: conv cuda:sm_90 ")})
    EXPECT_TRUE(contains(different.out, text)) << different.out;
  const auto json = bundle({"diff", path_, other, "--json"}).json();
  EXPECT_EQ(json["only_in_first"].size(), 3U);
  EXPECT_EQ(json["only_in_second"].size(), 1U);
  ASSERT_EQ(json["different"].size(), 1U);
  EXPECT_EQ(json["different"][0]["name"], "conv");
}

TEST_F(Bundles, ThatAreWrongAreNamed) {
  const auto absent = path("absent.kiln");
  const auto text = path("text");
  cli::write(text, "some text of another program");
  for (const Words& words :
       {Words{"ls"}, Words{"show", "conv"}, Words{"verify"}, Words{"merge"}, Words{"split"}, Words{"diff"}}) {
    const auto with = [&](const std::string& file) {
      if (words[0] == "show") return bundle({"show", file, "conv"});
      if (words[0] == "merge") return bundle({"merge", path("out"), path_, file});
      if (words[0] == "split") return bundle({"split", file, path("out"), "--api", "cuda"});
      if (words[0] == "diff") return bundle({"diff", path_, file});
      return bundle({words[0], file});
    };
    EXPECT_EQ(with(absent).status, 1) << words[0];
    EXPECT_TRUE(contains(with(absent).error, absent + ": No such file")) << with(absent).error;
    EXPECT_EQ(with(text).status, 1) << words[0];
    EXPECT_TRUE(contains(with(text).error, text + " cannot be used: it does not begin as bundles do"))
        << with(text).error;
    EXPECT_FALSE(fs::exists(path("out")));
  }
  for (const Words& words : {Words{}, Words{"bake"}, Words{"ls"}, Words{"show", path_}, Words{"merge", path_},
                             Words{"verify"}, Words{"diff", path_}, Words{"sign"}})
    EXPECT_EQ(bundle(words).status, 2);
}

TEST_F(Bundles, AreDocumentedAndCompleted) {
  for (const Words& words :
       {Words{"--help"}, Words{"ls", "--help"}, Words{"show", "--help"}, Words{"verify", "--help"},
        Words{"merge", "--help"}, Words{"split", "--help"}, Words{"diff", "--help"}, Words{"sign", "--help"}}) {
    const auto help = bundle(words);
    EXPECT_EQ(help.status, 0) << words[0];
    EXPECT_LE(widest(help.out), 80U) << help.out;
  }
  for (const char* shell : {"bash", "zsh", "fish"})
    EXPECT_TRUE(contains(command_.run({"completions", shell}).out, "ls show verify merge split diff sign"))
        << shell;
}

}  // namespace
}  // namespace kiln::cli
