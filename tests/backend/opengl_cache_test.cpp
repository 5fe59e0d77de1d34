#include <fstream>
#include <thread>

#include <unistd.h>

#include "backend/gl_fixture.hpp"
#include "backend/opengl/device.hpp"
#include "fakes/child.hpp"
#include "fakes/stores.hpp"

namespace kiln {
namespace {

using fakes::scale;

class OpenGlCache : public fakes::GlTest {};

TEST_F(OpenGlCache, AProgramFromDiskComputesWhatTheCompiledOneDid) {
  {
    Cache cache(device_, options());
    const Program program = cache.get(scale(5)).value();
    EXPECT_EQ(program.origin(), Origin::compiled);
    EXPECT_TRUE(scales(*device_, program.module(), 5, 0.25F));
  }
  const auto again = open_device("opengl", book_.log()).value();
  Cache cache(again, options());
  const Program program = cache.get(scale(5)).value();
  EXPECT_EQ(program.origin(), Origin::disk);
  EXPECT_TRUE(scales(*again, program.module(), 5, 0.25F));
  EXPECT_NE(program.as<opengl::Module>().id(), 0U);
}

// Not of OpenGlCache, whose driver would be forked: Mesa reads the variable when it is loaded.
TEST(OpenGlIdentity, AProgramOfAnotherDriverVersionInASharedStoreIsCompiledAgain) {
  const fakes::TemporaryFolder folder;
  const auto run = [&](const std::string& version) {
    return fakes::in_child([&]() -> std::string {
      setenv("MESA_GL_VERSION_OVERRIDE", version.c_str(), 1);
      const Log quiet(LogLevel::off, {});
      const auto device = open_device("opengl", quiet);
      if (!device) return device.error().message();
      if ((*device)->identity().driver.find("Mesa") == std::string::npos) return "not Mesa";
      CacheOptions options{.directory = folder.path() / version, .log = quiet};
      options.stores =
          std::vector<SharedStore>{std::make_shared<fakes::CarelessFolderStore>(folder.path() / "shared")};
      Cache cache(*device, options);
      const Program program = cache.get(fakes::scale(5)).value();
      return program.origin() == Origin::compiled ? "compiled" : "not compiled";
    });
  };
  const std::string first = run("4.5");
  if (first == "not Mesa") GTEST_SKIP() << "only Mesa can claim another version";
  EXPECT_EQ(first, "compiled");
  EXPECT_EQ(run("4.3"), "compiled");
}

TEST_F(OpenGlCache, ABinaryThatIsNotTheDriversIsCompiledAnew) {
  { static_cast<void>(Cache(device_, options()).get(scale(5)).value()); }
  // A well-formed entry around bytes that the driver must refuse.
  Cache first(device_, options());
  first.trim();
  const Compiled other = device_->compile(scale(6)).value();
  Binary nonsense = other.binary.value();
  for (std::byte& byte : nonsense.bytes) byte ^= std::byte{0x5a};
  ASSERT_TRUE(first.clear());
  ASSERT_TRUE(first.add(scale(5), Compiled{device_->compile(scale(5)).value().module, nonsense}));
  first.flush();
  Cache second(device_, options());
  const Program program = second.get(scale(5)).value();
  EXPECT_EQ(program.origin(), Origin::compiled);
  EXPECT_EQ(second.stats().replaced, 1U);
  EXPECT_TRUE(scales(*device_, program.module(), 5, 0));
}

TEST_F(OpenGlCache, ThreadsCompileLoadAndEvictTogether) {
  CacheOptions options = this->options();
  options.max_programs = 4;
  Cache cache(device_, options);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 6; ++round) {
        const int factor = 1 + (t + round) % 8;
        const Program program = cache.get(scale(factor)).value();
        if (!scales(*device_, program.module(), factor, static_cast<float>(t))) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(cache.stats().compiles, 8U);
}

TEST_F(OpenGlCache, PreloadCompilesInParallelAndWarmLoadsThemAll) {
  std::vector<Request> requests;
  for (int i = 1; i <= 6; ++i) requests.push_back(scale(i));
  {
    Cache cache(device_, options());
    EXPECT_EQ(cache.preload(requests).ready, 6U);
  }
  Cache cache(device_, options());
  EXPECT_EQ(cache.warm().ready, 6U);
  for (int i = 1; i <= 6; ++i) EXPECT_TRUE(scales(*device_, cache.get(scale(i)).value().module(), i, 0));
  EXPECT_EQ(cache.stats().compiles, 0U);
}

TEST_F(OpenGlCache, HandlesOutliveCacheAndDevice) {
  Program program;
  {
    Cache cache(device_, options());
    program = cache.get(scale(2)).value();
    device_.reset();
  }
  EXPECT_NE(program.as<opengl::Module>().id(), 0U);
  std::thread([&] { program = {}; }).join();
}

/// These begin in a process of their own, whose environment they change before a driver is loaded.
class OpenGlFromTheStart : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(OpenGlFromTheStart, ADriverWithoutBinariesWorksWithoutPersistenceAndSaysSoOnce) {
  const auto work = [] {
    setenv("MESA_SHADER_CACHE_DISABLE", "true", 1);
    const fakes::TemporaryFolder folder;
    fakes::LogBook book;
    const auto device = open_device("opengl", book.log()).value();
    if (!device->info().software) return 0;  // Only Mesa can be made to have none.
    if (!device->identity().formats.empty()) return 2;
    Cache cache(device, {.directory = folder.path() / "cache", .log = book.log()});
    if (!cache.get(scale(2)) || !cache.get(scale(3))) return 3;
    cache.flush();
    if (std::filesystem::exists(folder.path() / "cache")) return 4;
    return book.records().size() == 1 ? 0 : 5;
  };
  EXPECT_EXIT(_exit(work()), testing::ExitedWithCode(0), "");
}

TEST_F(OpenGlFromTheStart, ADriverWithoutBinariesLaunchesProgramsWithUniforms) {
  const auto work = [] {
    setenv("MESA_SHADER_CACHE_DISABLE", "true", 1);
    const auto device = open_device("opengl", Log(LogLevel::off, {})).value();
    const Compiled compiled = device
                                  ->compile(Request({.name = "plain", .source = R"(#version 430
layout(local_size_x = 1) in;
uniform float plain;
layout(std430, binding = 0) buffer Out { float result; };
void main() { result = plain; }
)"}))
                                  .value();
    const auto out = device->allocate(4).value();
    for (const float number : {1.0F, 2.0F}) {
      device->launch(*compiled.module, {.arguments = {*out, named("plain", number)}}).value();
      if (download<float>(*device, *out).value()[0] != number) return 2;
    }
    return 0;
  };
  EXPECT_EXIT(_exit(work()), testing::ExitedWithCode(0), "");
}

TEST_F(OpenGlFromTheStart, NoDriverBehindEglIsOneClearSentence) {
  const auto work = [] {
    setenv("__EGL_VENDOR_LIBRARY_FILENAMES", "/nonexistent.json", 1);
    setenv("__EGL_VENDOR_LIBRARY_DIRS", "/nonexistent", 1);
    const auto device = open_device("opengl");
    if (device || device.error().code() != ErrorCode::no_device) return 2;
    const auto listed = opengl::list_gl_devices({});
    return listed.size() == 1 && !listed[0].problem.empty() ? 0 : 3;
  };
  EXPECT_EXIT(_exit(work()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace kiln
