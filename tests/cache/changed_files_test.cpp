#include <gtest/gtest.h>

#include "fakes/cache_fixture.hpp"
#include "fakes/fake_backend.hpp"
#include "fakes/files.hpp"

// Included files that change while a cache works.
namespace kiln {
namespace {

class ChangedFiles : public fakes::CacheTest {
 protected:
  Request request() const {
    return Request({.name = "conv",
                    .source = "#include <tile.h>\n",
                    .language = Language::opencl,
                    .include_folders = {headers_.path()}});
  }
  void write(std::string_view text) const { fakes::write_file(headers_.path() / "tile.h", text); }

  fakes::TemporaryFolder headers_;
};

TEST_F(ChangedFiles, DuringACompilationAreAnErrorAndNothingIsKept) {
  write("int a;\n");
  // As an editor does while the compiler reads.
  backend_->on_compile = [this](const Request&) { write("int b;\n"); };
  Cache cache(backend_, options());
  const Request before = request();
  const auto outdated = cache.get(before);
  ASSERT_FALSE(outdated);
  EXPECT_EQ(outdated.error().code(), ErrorCode::outdated);
  EXPECT_NE(outdated.error().message().find("tile.h"), std::string::npos) << outdated.error().message();
  EXPECT_EQ(cache.stats().programs, 0U);
  EXPECT_EQ(cache.stats().failures, 1U);
  cache.flush();
  EXPECT_EQ(cache.stats().disk_programs, 0U);
  backend_->on_compile = {};
  ASSERT_TRUE(cache.get(request())) << "the request made again";
}

TEST_F(ChangedFiles, BeforeACompilationAreAnErrorToo) {
  write("int a;\n");
  const Request before = request();
  write("int b;\n");
  Cache cache(backend_, options());
  EXPECT_EQ(cache.get(before).error().code(), ErrorCode::outdated);
  write("int a;\n");
  EXPECT_TRUE(cache.get(before));
}

TEST_F(ChangedFiles, ThatChangeBackDuringACompilationAreAnErrorToo) {
  write("int a;\n");
  Cache cache(backend_, options());
  const Request once = request();
  backend_->on_compile = [this](const Request&) {
    write("int b;\n");
    write("int a;\n");
  };
  const auto outdated = cache.get(once);
  ASSERT_FALSE(outdated) << "the compiler may have read the other contents";
  EXPECT_EQ(outdated.error().code(), ErrorCode::outdated);
  EXPECT_EQ(cache.stats().programs, 0U);
  backend_->on_compile = {};
  EXPECT_TRUE(cache.get(once)) << "the same request";
}

TEST_F(ChangedFiles, ThatAreTouchedMatterOnlyDuringACompilation) {
  write("int a;\n");
  Cache cache(backend_, options());
  const Request once = request();
  const auto touch = [this](int hours) { fakes::set_age(headers_.path() / "tile.h", std::chrono::hours(hours)); };
  backend_->on_compile = [&](const Request&) { touch(1); };
  EXPECT_EQ(cache.get(once).error().code(), ErrorCode::outdated);
  backend_->on_compile = {};
  touch(2);
  EXPECT_TRUE(cache.get(once));
}

TEST_F(ChangedFiles, BesideIncludedOnesDoNotMatter) {
  write("int a;\n");
  Cache cache(backend_, options());
  backend_->on_compile = [this](const Request&) { fakes::write_file(headers_.path() / "other.h", ""); };
  EXPECT_TRUE(cache.get(request()));
}

TEST_F(ChangedFiles, DoNotMatterToAHit) {
  write("int a;\n");
  const Request before = request();
  Cache cache(backend_, options());
  ASSERT_TRUE(cache.get(before));
  write("int b;\n");
  EXPECT_TRUE(cache.get(before)) << "the program of the old header";
  EXPECT_EQ(cache.stats().compiles, 1U);
}

}  // namespace
}  // namespace kiln
