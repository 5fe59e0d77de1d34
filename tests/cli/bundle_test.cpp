#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include <sys/stat.h>

#include "bundle_fixture.hpp"
#include "fakes/child.hpp"

namespace kiln::cli {
namespace {

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
  if (fakes::is_root()) {
    ASSERT_EQ(chown(path_.c_str(), 4242, 4242), 0);
    const auto of_another = bundle({"sign", path_});
    EXPECT_EQ(of_another.status, 1);
    EXPECT_TRUE(
        contains(unwrapped(of_another.error), path_ + " belongs to another user (uid 4242), so it is not signed"))
        << of_another.error;
    ASSERT_EQ(chown(path_.c_str(), 0, 0), 0);
  }
  damage_a_program();
  const auto damaged = bundle({"sign", path_});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_TRUE(contains(damaged.error, path_ + " is not signed: the program with the key ")) << damaged.error;
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
