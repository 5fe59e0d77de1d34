#include <fstream>

#include <kiln/cache.hpp>
#include <kiln/kernels.hpp>
#include <kiln/tune.hpp>

#include "cli_fixture.hpp"

namespace kiln::cli {
namespace {

class CliTune : public Cli {
 protected:
  void SetUp() override {
    auto opened = open_device("opengl", quiet);
    if (!opened) GTEST_SKIP() << opened.error().message();
    device_ = std::move(*opened);
  }
  Outcome tune(Words words) const {
    words.insert(words.begin(), "tune");
    words.insert(words.end(), {"--device", "opengl"});
    return kiln(std::move(words));
  }

  std::shared_ptr<Device> device_;
};

TEST_F(CliTune, FindsAVariantAndKeepsIt) {
  const auto tuned = tune({"softmax", "--shape", "8x64", "--budget", "1s", "--json"});
  ASSERT_EQ(tuned.status, 0) << tuned.error;
  const auto record = tuned.json();
  EXPECT_EQ(record["kernel"], "softmax");
  EXPECT_EQ(record["sizes"], (nlohmann::json{{"rows", 8}, {"width", 64}}));
  ASSERT_FALSE(record["trials"].empty());
  EXPECT_GT(record["trials"][0]["us"].get<double>(), 0);
  const auto listed = tune({"ls", "--json"}).json();
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0]["trials"], record["trials"]);
  const auto table = tune({"ls"});
  EXPECT_TRUE(contains(table.out, "rows=8 width=64")) << table.out;
}

TEST_F(CliTune, GoesFromOneDirectoryToAnother) {
  ASSERT_EQ(tune({"softmax", "--shape", "8x64", "--budget", "1s"}).status, 0);
  const std::string file = home_.path() / "tuned.json";
  EXPECT_EQ(tune({"export", file}).status, 0);
  const auto before = tune({"ls", "--json"}).json();
  fs::remove_all(cache());
  EXPECT_TRUE(tune({"ls", "--json"}).json().empty());
  EXPECT_EQ(tune({"import", file}).status, 0);
  EXPECT_EQ(tune({"ls", "--json"}).json(), before);
  std::ofstream(file) << "{}";
  const auto refused = tune({"import", file});
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.error, file)) << refused.error;
}

TEST_F(CliTune, WritesAReport) {
  for (const char* name : {"report.html", "report.svg"}) {
    const fs::path file = home_.path() / name;
    ASSERT_EQ(tune({"softmax", "--shape", "8x64", "--budget", "1s", "--report", file.string()}).status, 0);
    std::ifstream in(file);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    EXPECT_TRUE(contains(text, "<svg")) << name;
  }
}

TEST_F(CliTune, TunesWhatWasCalled) {
  EXPECT_TRUE(contains(tune({"--from-profile"}).out + tune({"--from-profile"}).error, "No call"));
  {
    Cache kept(device_, {.directory = cache(), .log = quiet});
    const auto tuner = Tuner::create(device_, kept).value();
    const auto x = Tensor::from(device_, {4, 32}, std::vector<float>(128, 0.5F)).value();
    for (int i = 0; i < 3; ++i) softmax(Runner(kept).tuned_by(*tuner), x).value();
  }
  const auto tuned = tune({"--from-profile", "--budget", "1s", "--json"});
  ASSERT_EQ(tuned.status, 0) << tuned.error;
  ASSERT_EQ(tuned.json().size(), 1U) << tuned.out;
  EXPECT_EQ(tuned.json()[0]["kernel"], "softmax");
  EXPECT_EQ(tune({"ls", "--json"}).json()[0]["calls"], 3);
}

TEST_F(CliTune, WhatItCannotDoIsOneClearSentence) {
  for (const Words& words :
       {Words{}, Words{"gemm"}, Words{"gemm", "--shape", "8xx8"}, Words{"gemm", "--shape", "8x8"},
        Words{"forge", "--shape", "8x8"}, Words{"gemm", "--shape", "8x8x8", "--budget", "soon"},
        Words{"gemm", "--from-profile"}, Words{"import", "/no/such/file"}}) {
    const auto outcome = tune(words);
    EXPECT_NE(outcome.status, 0);
    EXPECT_TRUE(outcome.error.starts_with("kiln: ")) << outcome.error;
    EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
  }
}

}  // namespace
}  // namespace kiln::cli
