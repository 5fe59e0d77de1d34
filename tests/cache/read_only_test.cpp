#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <kiln/bake.hpp>
#include <kiln/cache.hpp>
#include <kiln/device.hpp>

#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"

// A container image that is mounted read-only, with a bundle and without permission to compile. Real drivers, which
// are loaded in child processes only.
namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr int program_count = 5;

Request scale_by(int factor, Language language) {
  return Request({.name = fakes::numbered("scale", factor),
                  .source = "#version 450\nlayout(local_size_x = 8) in;\n"
                            "layout(std430, binding = 0) buffer Values { float values[]; };\n"
                            "void main() { values[gl_GlobalInvocationID.x] *= " +
                            std::to_string(factor) + ".0; }\n",
                  .language = language});
}

/// Whether a program of the cache computes what it should.
bool runs(Device& device, Program& program, float factor) {
  const std::vector<float> ones(8, 1.0F);
  auto buffer = device.allocate(ones.size() * sizeof(float)).value();
  device.write(*buffer, std::as_bytes(std::span(ones))).value();
  device.launch(program.module(), {.groups = {1}, .arguments = {*buffer}}).value();
  std::vector<float> result(8);
  device.read(*buffer, std::as_writable_bytes(std::span(result))).value();
  return result == std::vector<float>(8, factor);
}

/// Makes every file system of this process read-only, except for an empty one at `writable`. Returns what is wrong.
std::string make_read_only(const fs::path& writable) {
  mount_attr read_only{};
  read_only.attr_set = MOUNT_ATTR_RDONLY;
  if (unshare(CLONE_NEWNS) != 0) return std::string("unshare: ") + std::strerror(errno);
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &read_only, sizeof read_only) != 0 ||
      mount("tmpfs", writable.c_str(), "tmpfs", 0, nullptr) != 0)
    return std::string("mount: ") + std::strerror(errno);
  return "";
}

std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> files;
  for (const auto& item : fs::recursive_directory_iterator(folder)) files.push_back(item.path().string());
  return files;
}

struct Case {
  std::string name;
  Language language;
  /// What is baked.
  std::string target;
  /// Whether the default directory of caches can be written to.
  bool has_writable_home;
};

class ReadOnlyImage : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    fs::create_directories(writable_);
    fakes::Child maker([&](const auto& report) {
      const auto device = open_device(GetParam().name);
      if (!device) return report("skip " + device.error().message());
      CacheOptions options;
      options.directory = folder_.path() / "builder";
      options.record = folder_.path() / "app.kilnreq";
      {
        Cache cache(*device, options);
        for (int i = 1; i <= program_count; ++i) cache.get(scale_by(i, GetParam().language)).value();
      }
      const auto baked =
          bake({.records = {*options.record}, .targets = {GetParam().target}, .output = bundle_}).value();
      report("baked " + std::to_string(baked.programs));
    });
    const std::string report = maker.report();
    if (report.starts_with("skip ")) GTEST_SKIP() << report;
    ASSERT_EQ(report, fakes::numbered("baked", program_count).replace(5, 1, " "));
  }

  fakes::TemporaryFolder folder_;
  const fs::path bundle_ = folder_.path() / "app.kiln";
  const fs::path writable_ = folder_.path() / "writable";
};

TEST_P(ReadOnlyImage, RunsEveryProgramAndWritesNoFile) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can mount file systems";
  fakes::Child image([&](const auto& report) {
    if (const auto problem = make_read_only(writable_); !problem.empty()) return report("skip " + problem);
    const std::string home = GetParam().has_writable_home ? writable_.string() : folder_.path().string();
    setenv("HOME", home.c_str(), 1);
    setenv("TMPDIR", writable_.c_str(), 1);
    // Mesa's own files are not Kiln's.
    setenv("MESA_SHADER_CACHE_DIR", folder_.path().c_str(), 1);
    setenv("KILN_BUNDLES", bundle_.c_str(), 1);
    setenv("KILN_COMPILE", "never", 1);
    for (const char* variable : {"XDG_CACHE_HOME", "KILN_CACHE_DIR", "KILN_RECORD", "KILN_SHARED"})
      unsetenv(variable);
    std::string warnings;
    {
      const auto device = open_device(GetParam().name).value();
      CacheOptions options;
      options.log = Log(LogLevel::warning, [&](const LogRecord& record) { warnings += record.message + "; "; });
      Cache cache(device, options);
      for (int i = 1; i <= program_count; ++i) {
        auto program = cache.get(scale_by(i, GetParam().language)).value();
        if (program.origin() != Origin::bundle || !runs(*device, program, static_cast<float>(i)))
          return report("a program is wrong, or not from the bundle");
      }
      cache.flush();
      if (cache.stats().compiles != 0) return report("programs were compiled");
      if (cache.get(scale_by(99, GetParam().language)).error().code() != ErrorCode::not_compiled)
        return report("a missing program is no error");
    }
    if (!warnings.empty()) return report("there were warnings: " + warnings);
    for (const std::string& file : files_below(writable_)) report("written: " + file);
    report("done");
  });
  const std::string report = image.report();
  if (report.starts_with("skip ")) GTEST_SKIP() << report;
  EXPECT_EQ(report, "done");
}

INSTANTIATE_TEST_SUITE_P(Drivers, ReadOnlyImage,
                         testing::Values(Case{"opengl", Language::glsl, "opengl:here", false},
                                         Case{"opengl", Language::glsl, "opengl:here", true},
                                         Case{"vulkan", Language::vulkan_glsl, "vulkan", false},
                                         Case{"vulkan", Language::vulkan_glsl, "vulkan:here", true}),
                         [](const auto& one) {
                           return one.param.name + (one.param.has_writable_home ? "_WithAHome" : "_WithoutAHome");
                         });

}  // namespace
}  // namespace kiln
