#include <fstream>

#include <kiln/cache.hpp>
#include <kiln/kernels/kernels.hpp>
#include <kiln/kernels/tuner.hpp>

#include "cli_fixture.hpp"
#include "fakes/mounted_disk.hpp"
#include "kernels/tune/records.hpp"

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

TEST_F(CliTune, ListsLongRecordsWithinEightyColumns) {
  const TuneRecord record{.kernel = "flash_attention_causal",
                          .types = "f16",
                          .sizes = {{"batch", 8}, {"heads", 32}, {"queries", 4096}, {"keys", 4096}, {"depth", 128}},
                          .parameters = {"tile_m", "tile_n", "tile_k", "registers", "vector", "stages", "split"},
                          .trials = {{.variant = {64, 128, 32, 8, 4, 2, 16}, .time = 12345us}},
                          .calls = 1234567};
  Cache(device_, {.directory = cache(), .log = quiet});
  fs::create_directories(cache() / device_->identity().folder());
  tune::write_records(cache() / device_->identity().folder(), device_->identity(), {record}).value();
  for (const Words& words : {Words{"ls"}, Words{"ls", "--long"}}) {
    const auto listed = tune(words);
    ASSERT_EQ(listed.status, 0) << listed.error;
    EXPECT_LE(widest(listed.out), 80U) << listed.out;
    for (const char* part : {"flash_attention_causal", "batch=8", "depth=128", "split=16", "1234567", "12.3 ms"})
      EXPECT_TRUE(contains(listed.out, part)) << part << " is not in\n" << listed.out;
  }
  EXPECT_TRUE(contains(tune({"ls", "-l"}).out, "not complete"));
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
  EXPECT_TRUE(contains(tune({"--from-profile"}).out + tune({"--from-profile"}).error, "No calls"));
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

TEST_F(CliTune, PrintsOneJsonValueWhateverIsAskedFor) {
  EXPECT_EQ(tune({"--from-profile", "--json"}).json(), nlohmann::json::array());
  ASSERT_EQ(tune({"softmax", "--shape", "8x64", "--budget", "1s"}).status, 0);
  const std::string file = home_.path() / "tuned.json";
  const nlohmann::json expected = {{"device", device_->identity().device}, {"file", file}, {"records", 1}};
  EXPECT_EQ(tune({"export", file, "--json"}).json(), expected);
  EXPECT_EQ(tune({"import", file, "--json"}).json(), expected);
}

TEST_F(CliTune, FailsWhereWhatItFindsCannotBeKept) {
  ASSERT_EQ(tune({"softmax", "--shape", "8x64", "--budget", "1s"}).status, 0);
  const std::string file = home_.path() / "tuned.json";
  ASSERT_EQ(tune({"export", file}).status, 0);
  // Nothing can take the place of a folder, not even for root.
  const fs::path records = cache() / device_->identity().folder() / store::tuning_name;
  fs::remove(records);
  fs::create_directories(records / "full");
  write(home_.path() / "file", "not a directory");
  for (const Words& words : {Words{"softmax", "--shape", "8x64", "--budget", "1s"}, Words{"import", file}}) {
    const auto outcome = tune(words);
    EXPECT_EQ(outcome.status, 1) << words[0];
    EXPECT_TRUE(contains(outcome.error, "kiln: cannot ") && contains(outcome.error, records.string()))
        << outcome.error;
    Words below = {"tune"};
    below.insert(below.end(), words.begin(), words.end());
    below.insert(below.end(), {"--device", "opengl", "--dir", (home_.path() / "file" / "cache").string()});
    const auto unreachable = command_.run(below);
    EXPECT_EQ(unreachable.status, 1) << words[0];
    EXPECT_TRUE(contains(unreachable.error, "Not a directory")) << unreachable.error;
  }
}

TEST_F(CliTune, FailsOnAFullDisk) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can mount a disk";
  const fakes::MountedDisk disk(cache(), "64k", false);
  if (!disk.mounted()) GTEST_SKIP() << "this container cannot mount a disk";
  write(cache() / "filler", std::string(std::size_t{1} << 20, 'x'));
  const auto outcome = tune({"softmax", "--shape", "8x64", "--budget", "1s"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(contains(outcome.error, "No space left on device")) << outcome.error;
}

TEST_F(CliTune, AnAbsurdShapeIsRefusedInPlainWords) {
  const std::string largest = "9223372036854775807";
  for (const std::string& shape :
       {largest + "x8x8", std::string("99999999999999999999x8x8"), std::string("2000000000x2000000000x2000000000"),
        std::string("100000x8x100000"), std::string("1000000000x1x1000000000x1000000000")}) {
    const auto outcome = tune({"gemm", "--shape", shape, "--budget", "1s"});
    EXPECT_EQ(outcome.status, 2) << shape;
    EXPECT_TRUE(outcome.error.starts_with("kiln: --shape ")) << outcome.error;
    EXPECT_FALSE(contains(outcome.error, "std::") || contains(outcome.error, "vector")) << outcome.error;
  }
  EXPECT_EQ(tune({"gemm", "--shape", "8x8x8", "--budget", std::string(400, '9') + "y"}).status, 2);
  EXPECT_EQ(tune({"gemm", "--shape", "8x8x8", "--seed", std::string(40, '9')}).status, 2);
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
