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
