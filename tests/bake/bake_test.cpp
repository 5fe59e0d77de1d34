#include <kiln/bake.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <unistd.h>

#include <gtest/gtest.h>

#include <kiln/device.hpp>

#include "backend/offline.hpp"
#include "bake/part_folder.hpp"
#include "bake/recorded_programs.hpp"
#include "bake/working_folder.hpp"
#include "base/event.hpp"
#include "base/file_system.hpp"
#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/forbid_call.hpp"
#include "fakes/temporary_folder.hpp"
#include "key/record_writer.hpp"
#include "store/bundle.hpp"
#include "store/sealed_entry.hpp"

namespace kiln {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using fakes::read_file;
using fakes::write_file;

const Log quiet(LogLevel::off, {});

Request shader(const std::string& name, const std::string& factor = "2.0") {
  return Request({.name = name,
                  .source = "#version 450\n"
                            "layout(local_size_x = 8) in;\n"
                            "layout(std430, set = 0, binding = 0) buffer Data { float data[]; };\n"
                            "void main() { data[gl_GlobalInvocationID.x] *= FACTOR; }\n",
                  .language = Language::vulkan_glsl,
                  .defines = {{"FACTOR", factor}}});
}

Request kernel(const std::string& name, Language language, std::vector<std::string> options = {}) {
  return Request({.name = name,
                  .source = "extern \"C\" __global__ void twice(float* data) { data[threadIdx.x] *= 2.0f; }\n",
                  .entries = {"twice"},
                  .language = language,
                  .options = std::move(options)});
}

/// A disk that is full from fill() on.
class FullDisk final : public base::FileSystem {
 public:
  void fill() const { is_full_ = true; }
  void empty() const { is_full_ = false; }
  ssize_t write(int file, const void* bytes, std::size_t count) const override {
    if (is_full_) return errno = ENOSPC, -1;
    return FileSystem::write(file, bytes, count);
  }

 private:
  mutable std::atomic<bool> is_full_{false};
};

/// Records, and the bundles that are baked of them.
class Bake : public testing::Test {
 protected:
  /// Adds a request to the record app.kilnreq.
  void record(const Request& request, std::string_view api, std::chrono::nanoseconds time = 1ms) const {
    ASSERT_FALSE(request.error()) << request.error()->message();
    key::RecordWriter writer(record_);
    ASSERT_TRUE(writer.add(request, api, time).value());
  }
  void record_shaders(std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i)
      record(shader("shader" + std::to_string(i)), "vulkan", std::chrono::milliseconds(i + 1));
  }

  BakeOptions options(std::vector<std::string> targets, const std::string& output = "app.kiln") const {
    return {
        .records = {record_}, .targets = std::move(targets), .output = folder() / output, .jobs = 2, .log = quiet};
  }
  Result<BakeReport> bake_for(std::vector<std::string> targets, const std::string& output = "app.kiln") const {
    return bake(options(std::move(targets), output));
  }

  std::shared_ptr<const store::BundleFile> bundle(const std::string& name = "app.kiln") const {
    return store::BundleFile::open(folder() / name).value();
  }
  /// The sealed entry of a program for the only target.
  std::optional<store::OpenedEntry> entry_of(const store::BundleFile& file, const Digest& key) const {
    const auto found = file.find(file.targets()[0], key);
    if (!found) return std::nullopt;
    return store::open_entry(file.read(*found).value()).value();
  }

  const fs::path& folder() const { return scratch_.path(); }
  const fakes::TemporaryFolder scratch_;
  const fs::path record_ = scratch_.path() / "app.kilnreq";
};

/// Skips the test if a target has no compiler here.
#define KILN_NEEDS(target)                                                   \
  if (const auto compiler = backend::open_offline(target, quiet); !compiler) \
  GTEST_SKIP() << compiler.error().message()

TEST_F(Bake, WritesTheProgramsOfARecordAndRemovesTheFolder) {
  KILN_NEEDS("vulkan");
  record_shaders(3);
  const auto report = bake_for({"vulkan"}).value();
  EXPECT_EQ(report.programs, 3U);
  EXPECT_EQ(report.compiled, 3U);
  EXPECT_EQ(report.resumed, 0U);
  EXPECT_TRUE(report.failures.empty());
  EXPECT_EQ(report.bytes, fs::file_size(folder() / "app.kiln"));
  ASSERT_EQ(report.targets.size(), 1U);
  EXPECT_EQ(report.targets[0].name, "vulkan");
  EXPECT_EQ(report.targets[0].programs, 3U);
  EXPECT_FALSE(fs::exists(folder() / "app.kiln.baking"));

  const auto file = bundle();
  ASSERT_EQ(file->targets().size(), 1U);
  EXPECT_EQ(file->targets()[0].identity.api, "vulkan");
  const auto entry = entry_of(*file, shader("shader2").key().digest);
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->entry.compile_time, 3ms);
  EXPECT_EQ(entry->entry.created, std::chrono::system_clock::time_point());
  EXPECT_EQ(entry->entry.facts, shader("shader2").describe());
  file->verify([](const std::string& what, const Error& why) { ADD_FAILURE() << what << why.message(); });
}

TEST_F(Bake, AddsTheRequestsOfAllRecordsOnce) {
  KILN_NEEDS("vulkan");
  record_shaders(2);
  record(kernel("twice", Language::cuda), "cuda");
  auto two = options({"vulkan"});
  fs::copy(record_, folder() / "copy.kilnreq");
  two.records.push_back(folder() / "copy.kilnreq");
  EXPECT_EQ(bake(two).value().programs, 2U);
  EXPECT_EQ(bundle()->requests().value().entries().size(), 3U);
  two.adds_requests = false;
  EXPECT_TRUE(bake(two).ok());
  EXPECT_FALSE(bundle()->has_requests());
}

TEST_F(Bake, ReportsTheSizesOfTheProgramsInTheBundle) {
  KILN_NEEDS("vulkan");
  record_shaders(2);
  std::uint64_t before = 0;
  for (const bool compresses : {true, false}) {
    auto two = options({"vulkan"});
    two.compresses = compresses;
    const auto report = bake(two).value();
    const auto file = bundle();
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < file->size(); ++i) bytes += file->read(file->program(i)).value().size();
    EXPECT_EQ(report.targets[0].bytes, bytes) << compresses;
    EXPECT_GT(bytes, before);
    before = bytes;
  }
}

TEST_F(Bake, BeginsWithTheSlowestProgramAndReportsEachOne) {
  KILN_NEEDS("vulkan");
  record_shaders(4);
  auto slow_first = options({"vulkan"});
  slow_first.jobs = 1;
  std::vector<std::string> names;
  const auto report = bake(slow_first, [&](const BakeProgress& progress) {
    names.push_back(progress.name);
    EXPECT_EQ(progress.done, names.size());
    EXPECT_EQ(progress.total, 4U);
    EXPECT_EQ(progress.target, "vulkan");
    EXPECT_EQ(progress.error, nullptr);
    EXPECT_TRUE(progress.remaining);
  });
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(names, (std::vector<std::string>{"shader3", "shader2", "shader1", "shader0"}));
}

TEST_F(Bake, ThrowsWhatTheProgressThrowsAndKeepsTheProgram) {
  KILN_NEEDS("vulkan");
  record_shaders(3);
  auto serial = options({"vulkan"});
  serial.jobs = 1;
  EXPECT_THROW(static_cast<void>(bake(serial, [](const BakeProgress&) { throw std::runtime_error("enough"); })),
               std::runtime_error);
  EXPECT_FALSE(fs::exists(serial.output));
  EXPECT_EQ(bake(serial).value().resumed, 1U);
}

TEST_F(Bake, GivesTheSameBytesInAnotherFolderAndAfterAnInterruption) {
  KILN_NEEDS("vulkan");
  record_shaders(4);
  ASSERT_TRUE(bake_for({"vulkan"}).ok());
  fs::create_directory(folder() / "elsewhere");
  auto second = options({"vulkan"}, "elsewhere/other.kiln");
  second.jobs = 1;
  const base::Event interrupted;
  second.interrupted = interrupted.descriptor();
  const auto half = bake(second, [&](const BakeProgress& progress) {
    if (progress.done == 2) interrupted.set();
  });
  ASSERT_TRUE(half) << half.error().message();
  EXPECT_TRUE(half->was_interrupted);
  EXPECT_EQ(half->programs, 2U);
  EXPECT_FALSE(fs::exists(second.output));
  second.interrupted = -1;
  const auto rest = bake(second).value();
  EXPECT_FALSE(rest.was_interrupted);
  EXPECT_EQ(rest.resumed, 2U);
  EXPECT_EQ(rest.compiled, 2U);
  EXPECT_EQ(rest.programs, 4U);
  EXPECT_EQ(rest.targets[0].programs, 4U);
  EXPECT_EQ(read_file(second.output), read_file(folder() / "app.kiln"));
}

TEST_F(Bake, GoesOnAfterAProcessThatWasKilled) {
  KILN_NEEDS("vulkan");
  record_shaders(3);
  auto serial = options({"vulkan"});
  serial.jobs = 1;
  fakes::Child child([&](const auto& report) {
    static_cast<void>(bake(serial, [&](const BakeProgress& progress) {
      report("done: " + std::to_string(progress.done));
      for (;;) pause();
    }));
  });
  ASSERT_EQ(child.report(), "done: 1");
  child.kill();
  EXPECT_FALSE(fs::exists(serial.output));
  const auto report = bake(serial).value();
  EXPECT_EQ(report.resumed, 1U);
  EXPECT_EQ(report.programs, 3U);
  EXPECT_FALSE(fs::exists(folder() / "app.kiln.baking"));
}

TEST_F(Bake, LeavesTheFileOfAnUnfinishedPullAlone) {
  KILN_NEEDS("vulkan");
  record_shaders(1);
  write_file(folder() / "app.kiln.part", "half a bundle");
  const auto report = bake_for({"vulkan"});
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(read_file(folder() / "app.kiln.part"), "half a bundle");
}

TEST_F(Bake, CompilesAnEntryAgainThatWasDamagedMeanwhile) {
  KILN_NEEDS("vulkan");
  record_shaders(2);
  ASSERT_TRUE(bake_for({"vulkan"}, "good.kiln").ok());
  auto stopped = options({"vulkan"});
  stopped.jobs = 1;
  const base::Event interrupted;
  stopped.interrupted = interrupted.descriptor();
  ASSERT_TRUE(bake(stopped, [&](const BakeProgress&) { interrupted.set(); }).value().was_interrupted);
  for (const auto& file : fs::directory_iterator(folder() / "app.kiln.baking/entries")) {
    std::string bytes = read_file(file.path());
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_file(file.path(), bytes);
  }
  stopped.interrupted = -1;
  const auto report = bake(stopped).value();
  EXPECT_EQ(report.resumed, 0U);
  EXPECT_EQ(report.compiled, 2U);
  EXPECT_EQ(read_file(stopped.output), read_file(folder() / "good.kiln"));
}

TEST_F(Bake, RefusesABundleThatAnotherProcessBakes) {
  KILN_NEEDS("vulkan");
  record_shaders(1);
  fakes::Child child([&](const auto& report) {
    static_cast<void>(bake(options({"vulkan"}), [&](const BakeProgress&) {
      report("locked");
      for (;;) pause();
    }));
  });
  ASSERT_EQ(child.report(), "locked");
  const auto second = bake_for({"vulkan"});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), ErrorCode::timed_out);
  EXPECT_NE(second.error().message().find("another process bakes"), std::string::npos) << second.error().message();
  EXPECT_NE(second.error().message().find("app.kiln"), std::string::npos) << second.error().message();
  EXPECT_TRUE(bake_for({"vulkan"}, "other.kiln").ok());
}

TEST_F(Bake, LeavesOutAndReportsAProgramThatDoesNotCompile) {
  KILN_NEEDS("vulkan");
  record_shaders(2);
  record(shader("wrong", "nonsense"), "vulkan");
  std::set<std::string> failed;
  const auto report = bake(options({"vulkan"}), [&](const BakeProgress& progress) {
                        if (progress.error != nullptr) failed.insert(progress.name);
                      }).value();
  EXPECT_EQ(failed, std::set<std::string>{"wrong"});
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(report.failures[0].name, "wrong");
  EXPECT_EQ(report.failures[0].target, "vulkan");
  EXPECT_EQ(report.failures[0].error.code(), ErrorCode::compile_failed);
  EXPECT_NE(report.failures[0].error.log().find("nonsense"), std::string::npos) << report.failures[0].error.log();
  EXPECT_EQ(report.retriable, 0U);
  EXPECT_FALSE(fs::exists(folder() / "app.kiln.baking"));
  EXPECT_EQ(report.programs, 2U);
  EXPECT_EQ(bundle()->size(), 2U);
  // A device can still try it.
  EXPECT_EQ(bundle()->requests().value().entries().size(), 3U);
}

TEST_F(Bake, EndsWithoutABundleIfAProgramCannotBeKept) {
  KILN_NEEDS("vulkan");
  record_shaders(3);
  write_file(folder() / "app.kiln", "an older bundle");
  auto serial = options({"vulkan"});
  serial.jobs = 1;
  const FullDisk disk;
  const base::ScopedFileSystem scope(disk);
  std::size_t tried = 0;
  const auto failed = bake(serial, [&](const BakeProgress&) {
    if (++tried == 2) disk.fill();
  });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), ErrorCode::io);
  for (const char* part : {"No space left", "app.kiln.baking", "the same command"})
    EXPECT_NE(failed.error().message().find(part), std::string::npos) << failed.error().message();
  EXPECT_EQ(tried, 2U);
  EXPECT_EQ(read_file(folder() / "app.kiln"), "an older bundle");
  disk.empty();
  const auto report = bake(serial).value();
  EXPECT_EQ(report.resumed, 2U);
  EXPECT_EQ(report.compiled, 1U);
  EXPECT_FALSE(fs::exists(folder() / "app.kiln.baking"));
}

TEST_F(Bake, TriesAProgramAgainWhoseCompilerWasKilled) {
  write_file(folder() / "bin/hipcc",
             "#!/bin/sh\n"
             "case \"$*\" in\n"
             "  *--version*) echo 'HIP version: 5.2.0' ;;\n"
             "  *-###*) ;;\n"
             "  *) kill -9 $$ ;;\n"
             "esac\n");
  fs::permissions(folder() / "bin/hipcc", fs::perms::owner_all);
  record(kernel("twice", Language::hip), "hip");
  const std::string path = std::getenv("PATH");
  setenv("PATH", ((folder() / "bin").string() + ":" + path).c_str(), 1);
  const auto report = bake_for({"hip:gfx906"});
  setenv("PATH", path.c_str(), 1);
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_EQ(report->failures.size(), 1U);
  EXPECT_EQ(report->failures[0].error.code(), ErrorCode::device_failed);
  EXPECT_EQ(report->failures[0].error.message(),
            "hipcc was killed while it compiled twice; the machine may have too little memory");
  EXPECT_EQ(report->retriable, 1U);
  EXPECT_TRUE(fs::exists(folder() / "app.kiln"));
  EXPECT_TRUE(fs::exists(folder() / "app.kiln.baking"));
}

TEST_F(Bake, NamesTargetsThatAreNotValidOrNotKnown) {
  record(kernel("twice", Language::cuda), "cuda");
  for (const char* target : {"", "cuda", "cuda:", "cuda:90", "metal:1", "hip:sm_90", "vulkan:sm_90", "opengl",
                             "cuda:sm_90,sm_80", "cuda:sm_x", "vulkan:"}) {
    const auto refused = bake_for({target});
    ASSERT_FALSE(refused) << target;
    EXPECT_TRUE(refused.error().code() == ErrorCode::invalid_request ||
                refused.error().code() == ErrorCode::unsupported)
        << target;
    EXPECT_NE(refused.error().message().find(target), std::string::npos) << refused.error().message();
  }
  EXPECT_EQ(bake_for({}).error().code(), ErrorCode::invalid_request);
  EXPECT_FALSE(fs::exists(folder() / "app.kiln.baking"));
  KILN_NEEDS("sm_90");
  const auto unknown = bake_for({"cuda:sm_7"});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code(), ErrorCode::unsupported);
  EXPECT_NE(unknown.error().message().find("cuda:sm_7"), std::string::npos) << unknown.error().message();
  EXPECT_NE(unknown.error().message().find("sm_90"), std::string::npos) << unknown.error().message();
}

TEST_F(Bake, SaysWhenNoRequestIsForATarget) {
  KILN_NEEDS("vulkan");
  record(kernel("twice", Language::cuda), "cuda");
  const auto refused = bake_for({"vulkan"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::invalid_request);
  for (const char* part : {"vulkan", "cuda (1)", "kiln record add"})
    EXPECT_NE(refused.error().message().find(part), std::string::npos) << refused.error().message();
}

TEST_F(Bake, NamesTheFileThatCannotBeReadOrWritten) {
  record_shaders(1);
  auto wrong = options({"vulkan"});
  wrong.output = folder() / "absent/app.kiln";
  EXPECT_EQ(bake(wrong).error().code(), ErrorCode::io);
  EXPECT_NE(bake(wrong).error().message().find("absent/app.kiln"), std::string::npos)
      << bake(wrong).error().message();
  wrong.output = folder();
  EXPECT_EQ(bake(wrong).error().code(), ErrorCode::io);
  wrong = options({"vulkan"});
  wrong.records = {folder() / "absent.kilnreq"};
  EXPECT_NE(bake(wrong).error().message().find("absent.kilnreq"), std::string::npos)
      << bake(wrong).error().message();
}

TEST_F(Bake, ReportsDamagedItemsOfARecordAndBakesTheOthers) {
  KILN_NEEDS("vulkan");
  record_shaders(2);
  std::string bytes = read_file(record_);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(record_, bytes);
  const auto report = bake_for({"vulkan"}).value();
  EXPECT_EQ(report.programs, 1U);
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(report.failures[0].error.code(), ErrorCode::damaged);
  EXPECT_EQ(report.failures[0].name, record_.string());
}

TEST_F(Bake, SaysThatAHeaderOutsideOfTheRecordIsAnotherOne) {
  KILN_NEEDS("sm_90");
  write_file(folder() / "outside.h", "#define FACTOR 2\n");
  record(Request({.name = "scale",
                  .source = "#include \"" + (folder() / "outside.h").string() +
                            "\"\nextern \"C\" __global__ void scale(int* x) { *x *= FACTOR; }\n",
                  .language = Language::cuda}),
         "cuda");
  write_file(folder() / "outside.h", "#define FACTOR 3\n");
  auto only = options({"cuda:sm_90"});
  only.adds_ptx = false;
  const auto report = bake(only).value();
  EXPECT_EQ(report.programs, 0U);
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(report.failures[0].error.code(), ErrorCode::outdated);
  EXPECT_NE(report.failures[0].error.message().find("outside.h"), std::string::npos)
      << report.failures[0].error.message();
}

TEST_F(Bake, CompilesForSeveralCudaArchitecturesAndAddsPtxOfTheNewest) {
  KILN_NEEDS("sm_90");
  record(kernel("twice", Language::cuda), "cuda");
  record(kernel("special", Language::cuda, {"-arch=sm_90a"}), "cuda");
  const auto report = bake_for({"cuda:sm_80", "cuda:sm_90"}).value();
  ASSERT_TRUE(report.failures.empty()) << report.failures[0].error.describe();
  ASSERT_EQ(report.targets.size(), 3U);
  EXPECT_EQ(report.targets[0].programs, 1U);
  EXPECT_EQ(report.targets[1].programs, 2U);
  EXPECT_EQ(report.targets[2].name, "cuda:compute_90");
  EXPECT_EQ(report.targets[2].programs, 1U);
  EXPECT_EQ(report.skipped, 2U);
  auto without = options({"cuda:sm_80", "cuda:sm_80"}, "without.kiln");
  without.adds_ptx = false;
  EXPECT_EQ(bake(without).value().targets.size(), 1U);
}

TEST_F(Bake, KeepsFoldersOfThisMachineOutOfPrograms) {
  KILN_NEEDS("sm_90");
  write_file(folder() / "sources/lib/factor.h", "#define FACTOR 2.0f\n#define PLACE __FILE__\n");
  record(Request({.name = "scale",
                  .source = "#include <factor.h>\n"
                            "extern \"C\" __global__ void scale(float* x) { *x *= FACTOR; }\n",
                  .entries = {"scale"},
                  .language = Language::cuda,
                  .include_folders = {folder() / "sources/lib"}}),
         "cuda");
  auto one = options({"cuda:sm_90"}, "one.kiln");
  one.adds_ptx = false;
  auto two = one;
  fs::create_directory(folder() / "elsewhere");
  two.output = folder() / "elsewhere/two.kiln";
  ASSERT_EQ(bake(one).value().programs, 1U);
  fs::remove_all(folder() / "sources");
  ASSERT_EQ(bake(two).value().programs, 1U);
  EXPECT_EQ(read_file(one.output), read_file(two.output));
  const auto file = bundle("one.kiln");
  const auto entry = store::open_entry(file->read(file->program(0)).value()).value();
  const auto& names = entry.entry.parts.at(std::string(store::files_part)).bytes;
  const std::string text(reinterpret_cast<const char*>(names.data()), names.size());
  EXPECT_NE(text.find("factor.h"), std::string::npos) << text;
  EXPECT_EQ(text.find(folder().string()), std::string::npos) << text;
  // A machine without CUDA's headers finds it as well.
  EXPECT_EQ(file->digests_without_toolkit().size(), 1U);
}

TEST_F(Bake, CompilesForAmdGpus) {
  KILN_NEEDS("gfx906");
  write_file(folder() / "lib/factor.h", "#define FACTOR 2.0f\n");
  record(Request({.name = "scale",
                  .source = "#include <factor.h>\n"
                            "extern \"C\" __global__ void scale(float* x) { *x *= FACTOR; }\n",
                  .entries = {"scale"},
                  .language = Language::hip,
                  .include_folders = {folder() / "lib"}}),
         "hip");
  const auto report = bake_for({"hip:gfx906"}).value();
  ASSERT_TRUE(report.failures.empty()) << report.failures[0].error.describe();
  EXPECT_EQ(report.programs, 1U);
  // The unpacked header is at another place in each bake.
  const auto file = bundle();
  const auto entry = store::open_entry(file->read(file->program(0)).value()).value();
  EXPECT_EQ(fakes::text_of(entry.entry.binary()->bytes).find(folder().string()), std::string::npos);
}

TEST_F(Bake, CompilesForTheDevicesOfThisMachine) {
  std::size_t devices = 0;
  for (const std::string api : {"opengl", "opencl", "vulkan"}) {
    const auto device = open_device(api, quiet);
    if (!device) continue;
    ++devices;
    const Language language = (*device)->info().language;
    const Request request =
        api == "vulkan" ? shader("here")
        : api == "opencl"
            ? Request(
                  {.name = "here", .source = "kernel void f(global int* x) { *x = 1; }\n", .language = language})
            : Request({.name = "here",
                       .source = "#version 430\nlayout(local_size_x = 1) in;\n"
                                 "layout(std430, binding = 0) buffer Data { int data[]; };\n"
                                 "void main() { data[0] = 1; }\n",
                       .language = language});
    record(request, api);
    const auto report = bake_for({api + ":here"});
    ASSERT_TRUE(report) << report.error().message();
    ASSERT_TRUE(report->failures.empty()) << report->failures[0].error.describe();
    const auto file = bundle();
    ASSERT_EQ(file->size(), 1U);
    EXPECT_EQ(file->targets()[0].digest, (*device)->identity().target_digest());
    const auto entry = entry_of(*file, request.key().digest);
    ASSERT_TRUE(entry);
    const auto loaded = (*device)->load(*entry->entry.binary());
    EXPECT_TRUE(loaded) << api << ": " << loaded.error().message();
  }
  if (devices == 0) GTEST_SKIP() << "there is no device";
}

TEST_F(Bake, FindsTheFilesOfTheWorkingFolderOfARequest) {
  if (const auto device = open_device("opencl", quiet); !device) GTEST_SKIP() << device.error().message();
  const fs::path before = fs::current_path();
  write_file(folder() / "work/inc/factor.h", "#define FACTOR 3\n");
  fs::current_path(folder() / "work");
  record(Request({.name = "scale",
                  .source = "#include \"inc/factor.h\"\nkernel void scale(global int* x) { *x *= FACTOR; }\n",
                  .language = Language::opencl}),
         "opencl");
  fs::current_path(before);
  fs::remove_all(folder() / "work");
  const auto report = bake_for({"opencl:here"}).value();
  ASSERT_TRUE(report.failures.empty()) << report.failures[0].error.describe();
  EXPECT_EQ(report.programs, 1U);
  EXPECT_EQ(fs::current_path(), before);
}

TEST_F(Bake, LeavesTheWorkingFolderOfARequestBeforeItIsRemoved) {
  const fs::path before = fs::current_path();
  record(Request({.name = "scale", .source = "kernel void f() {}\n", .language = Language::opencl}), "opencl");
  const auto programs = baking::RecordedPrograms::read({record_}).value();
  auto part = baking::PartFolder::open(folder() / "app.kiln").value();
  programs->add_user(0);
  fs::path during;
  fs::path after;
  std::jthread([&] {
    const baking::WorkingFolder working_folder;
    if (!working_folder.enter(folder())) return;
    {
      const baking::RecordedPrograms::Use use(*programs, 0, part, working_folder);
      during = fs::current_path();
    }
    part.remove();
    std::error_code error;
    after = fs::current_path(error);
  }).join();
  if (during.empty()) GTEST_SKIP() << "unshare() is not allowed";
  EXPECT_EQ(during, part.empty_folder());
  EXPECT_EQ(after, before);
}

TEST_F(Bake, SaysThatAContainerPermitsNoWorkingFolder) {
  const fs::path before = fs::current_path();
  write_file(folder() / "work/factor.h", "#define FACTOR 3\n");
  fs::current_path(folder() / "work");
  record(Request({.name = "scale", .source = "#include \"factor.h\"\n", .language = Language::opencl}), "opencl");
  fs::current_path(before);
  fakes::Child child([&](const auto& report) {
    if (!fakes::forbid_call(SYS_unshare)) return report("no filter");
    const auto baked = bake_for({"opencl:here"});
    if (!baked) return report(std::string(to_string(baked.error().code())));
    report(baked->failures.empty() ? "no failure" : baked->failures[0].error.message());
  });
  const std::string report = child.report();
  if (report == "no filter" || report == "no_device") GTEST_SKIP() << report;
  EXPECT_NE(report.find("scale is not the recorded program on this machine"), std::string::npos) << report;
  EXPECT_NE(report.find("working folder"), std::string::npos) << report;
}

TEST_F(Bake, NotesTheTimeOfReproducibleBuilds) {
  KILN_NEEDS("vulkan");
  record_shaders(1);
  setenv("SOURCE_DATE_EPOCH", "1700000000", 1);
  ASSERT_TRUE(bake_for({"vulkan"}).ok());
  unsetenv("SOURCE_DATE_EPOCH");
  const auto entry = entry_of(*bundle(), shader("shader0").key().digest);
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->entry.created, std::chrono::system_clock::time_point(std::chrono::seconds(1'700'000'000)));
}

}  // namespace
}  // namespace kiln
