#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <map>
#include <sstream>

#include <kiln/cuda.hpp>

#include "backend/cuda/cuda.hpp"
#include "backend/cuda/rtc.hpp"
#include "backend/hip/hipcc.hpp"
#include "backend/quirks/nvrtc_cache.hpp"
#include "fakes/crashing_drivers.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln {
namespace {

/// What cuda_lines prints where the loader looks in a folder first, with further variables set.
std::string lines_with(const std::string& folder, const std::string& what,
                       std::map<std::string, std::string> environment = {}, const std::string& uuid = "") {
  const fakes::TemporaryFolder scratch;
  if (!folder.empty()) environment["LD_LIBRARY_PATH"] = folder;
  // Beside this program, also where that was copied to.
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "cuda_lines";
  const auto status = hip::run_process({program, what, uuid}, environment, scratch.path() / "out");
  std::string text = fakes::read_file(scratch.path() / "out");
  if (status.value() != 0) text += "it ended with " + std::to_string(*status);
  return text;
}

/// What it prints with a stand-in for the driver; `variant` "" is the machine's own.
std::string lines(const std::string& variant, const std::string& what,
                  std::map<std::string, std::string> environment = {}, const std::string& uuid = "") {
  return lines_with(variant.empty() ? "" : std::string(KILN_FAKE_CUDA) + "/" + variant, what,
                    std::move(environment), uuid);
}

/// The lines of `cuda_lines run` by their first words.
class Report {
 public:
  explicit Report(std::string text) : text_(std::move(text)) {}
  bool skipped() const { return text_.starts_with("unsupported: "); }
  const std::string& text() const { return text_; }
  /// What follows `start` on its line.
  std::string operator[](const std::string& start) const {
    std::istringstream stream(text_);
    for (std::string line; std::getline(stream, line);)
      if (line.starts_with(start + " ")) return line.substr(start.size() + 1);
    return "no such line in:\n" + text_;
  }

 private:
  std::string text_;
};

TEST(StandInDriver, IsListedDeviceByDevice) {
  std::istringstream text(lines("two", "list"));
  std::string first;
  std::string second;
  std::getline(text, first);
  std::getline(text, second);
  EXPECT_EQ(first, "cuda:0|Stand-in 0|sm_90|CUDA 13|1|");
  if (const auto rtc = cuda::open_nvrtc(13000); !rtc) GTEST_SKIP() << rtc.error().message();
  EXPECT_EQ(second, "cuda:1|Stand-in 1|sm_990|CUDA 13.0|2|") << "which only the driver can compile for";
}

TEST(StandInDriver, TellsWhatItsDevicesAre) {
  EXPECT_EQ(lines("two", "list_traits"), "cuda:0|NVIDIA|sm_90|32|132|1|1\ncuda:1|NVIDIA|sm_990|32|0|1|1\n");
}

TEST(StandInDriver, IsOpenedByTheUuidOfADevice) {
  EXPECT_EQ(lines("two", "list_uuids"),
            "a0a100a3-a4a5-a6a7-a8a9-aaabacadaeaf\na0a101a3-a4a5-a6a7-a8a9-aaabacadaeaf\n");
  for (const char* uuid : {"a0a101a3-a4a5-a6a7-a8a9-aaabacadaeaf", "GPU-a0a101a3", "MIG-A0A101", "1"})
    EXPECT_EQ(lines("two", "open", {}, uuid), "cuda:1\nend\n") << uuid;
  const std::string known =
      "a0a100a3-a4a5-a6a7-a8a9-aaabacadaeaf (cuda:0), a0a101a3-a4a5-a6a7-a8a9-aaabacadaeaf (cuda:1)";
  EXPECT_EQ(lines("two", "open", {}, "GPU-a0a1"),
            "no_device: \"cuda:GPU-a0a1\" is the beginning of the UUIDs of several devices: " + known + "\n");
  const std::string none = " names no device: write cuda, cuda:0, or cuda: and a UUID; the UUIDs here are " + known;
  EXPECT_EQ(lines("two", "open", {}, "steam"), "no_device: \"cuda:steam\"" + none + "\n");
  EXPECT_EQ(
      lines("two", "open", {}, "MIG-bbbb"),
      "no_device: \"cuda:MIG-bbbb\"" + none + "; to use a MIG instance, set CUDA_VISIBLE_DEVICES to its UUID\n");
  EXPECT_EQ(lines("two", "open", {{"CUDA_VISIBLE_DEVICES", "0"}}, "GPU-bbbb"),
            "no_device: \"cuda:GPU-bbbb\"" + none + "; CUDA_VISIBLE_DEVICES is \"0\"\n");
}

TEST(StandInDriver, WithoutACompilerIsListedWithWhatToInstall) {
  const std::string text = lines("two", "list_without_compiler");
  EXPECT_EQ(text, "cuda:0|Stand-in 0|sm_90|CUDA 13|1|\ncuda:1|Stand-in 1|sm_990|CUDA 13|1|\n");
}

TEST(StandInDriver, WithoutACompilerRunsWhatWasCompiledElsewhere) {
  const Report report(lines("two", "adapt"));
  EXPECT_EQ(report["info"], "||NVRTC is missing: install it");
  EXPECT_EQ(
      report["source"],
      "unsupported: scale_2 cannot be compiled on cuda:0, which runs only programs that are compiled already: "
      "NVRTC is missing: install it");
  EXPECT_EQ(report["cubin"], "scales true, own binary none");
  EXPECT_EQ(report["ptx"], "scales true, own binary 1") << "the cubin that the driver made of it";
}

TEST(StandInDriver, RefusesCodeThatDoesNotFitByAnErrorOfLoading) {
  const Report report(lines("two", "adapt"));
  EXPECT_EQ(report["FAKE_LINK=222"],
            "load_failed: the driver does not compile the PTX of scale_2: CUDA_ERROR_OF_THE_STAND_IN");
  for (const char* setting : {"FAKE_LOAD=209", "FAKE_LOAD=222"})
    EXPECT_EQ(report[setting], "load_failed: the driver refuses the binary of scale_2: CUDA_ERROR_OF_THE_STAND_IN");
  EXPECT_TRUE(report["FAKE_LOAD=2"].starts_with("out_of_memory: ")) << report["FAKE_LOAD=2"];
}

TEST(StandInDriver, AcceptsTheClosestMachineCodeFirstAndThenPtx) {
  EXPECT_EQ(lines("two", "ranks"),
            "sm_90 CUDA 13, sm_90 CUDA 12, compute_90 CUDA 14, compute_90 CUDA 13, compute_75 CUDA 13, \n");
}

TEST(StandInDriver, ThatIsTooOldIsNamedWithWhatItLacks) {
  EXPECT_EQ(
      lines("old", "list"),
      "cuda||||0|the NVIDIA driver is too old: version 13000 has no cuDevicePrimaryCtxRetain; install a newer "
      "one\n");
}

TEST(StandInDriver, WithoutADeviceSaysSo) {
  EXPECT_EQ(lines("none", "list"), "cuda||||0|the NVIDIA driver is installed, but there is no NVIDIA device\n");
}

TEST(StandInDriver, IsOpenedAtTheFirstDeviceThatWorks) {
  EXPECT_EQ(lines("two", "open", {{"FAKE_RETAIN_0", "46"}}), "cuda:1\nend\n");
  EXPECT_TRUE(lines("two", "open", {{"FAKE_RETAIN_0", "46"}, {"FAKE_RETAIN_1", "2"}})
                  .starts_with("device_failed: cuda:0: "))
      << "what is wrong with the first";
}

TEST(StandInDriver, WhoseDevicesCannotBeOpenedLeavesTheProcessGuardedFromOthers) {
  const fakes::TemporaryFolder folder;
  auto environment = fakes::crashing_drivers(folder.path(), KILN_CRASHING_DRIVER);
  environment["FAKE_RETAIN_0"] = "2";
  environment["FAKE_RETAIN_1"] = "2";
  environment["KILN_DEVICE"] = "";
  const std::string text = lines("two", "best", environment);
  // A CPU's device, or the list of all that is wrong where there is none.
  EXPECT_TRUE(text.ends_with("\nend\n") || text.starts_with("no_device: ")) << text;
}

/// What is said of launches whose arguments are not the program's.
void expect_wrong_arguments(const Report& report) {
  EXPECT_EQ(report["long parameters"],
            "invalid_request: scale_2: argument 1 takes 4 bytes; the launch has a value of 8 bytes");
  EXPECT_EQ(report["no parameters"], "invalid_request: scale_2: scale takes 2 arguments; the launch has 1");
  EXPECT_EQ(report["two buffers"], "invalid_request: scale_2: argument 1 takes 4 bytes; the launch has a buffer");
}

TEST(StandInDriver, RunsProgramsAndSaysWhatIsWrongWithLaunches) {
  const Report report(lines("two", "run"));
  if (report.skipped()) GTEST_SKIP() << report.text();
  EXPECT_EQ(report["compile"], "ok");
  EXPECT_EQ(report["scales"], "1");
  EXPECT_EQ(report["loaded scales"], "1");
  EXPECT_EQ(report["no size"],
            "invalid_request: scale_2: CUDA programs do not declare a group size; set Launch::group_size");
  EXPECT_EQ(report["zero size"],
            "invalid_request: scale_2: 0 work items in dimension 1 of a group; the device allows 1 to 1024");
  EXPECT_EQ(report["big group"],
            "invalid_request: scale_2: 1048576 work items in a group; the device allows at most 1024");
  EXPECT_EQ(report["too big for it"],
            "invalid_request: scale_2: 1024 work items in a group; this kernel allows at most 512");
  EXPECT_EQ(report["many groups"],
            "invalid_request: scale_2: 65536 work groups in dimension 1; the device allows at most 65535");
  EXPECT_EQ(report["no groups"], "ok");
  expect_wrong_arguments(report);
  EXPECT_EQ(report["no buffer"], "invalid_request: scale_2: argument 0 is a null buffer");
  EXPECT_EQ(report["write"], "invalid_request: 100 bytes at offset 1000 do not fit in a buffer of 1024 bytes");
  EXPECT_EQ(report["read"], "ok");
  EXPECT_TRUE(report["huge"].starts_with("out_of_memory: ")) << report["huge"];
  EXPECT_EQ(report["nothing"], "ok");
  EXPECT_EQ(report["address"], "10") << "of CUDA's, and of HIP's";
  EXPECT_EQ(report["foreign"], "invalid_request: the buffer belongs to another device; allocate it on cuda:0");
  EXPECT_EQ(report["foreign program"],
            "invalid_request: scale_2 belongs to another device; compile or load it on cuda:0");
  EXPECT_EQ(
      report["no entry"],
      "compile_failed: conv has no kernel called convolve; name a __global__ function of the source, with the "
      "arguments of a template, as in scale<float>");
  EXPECT_TRUE(report.text().ends_with("end\n")) << report.text();
}

TEST(StandInDriver, ThatDoesNotTellWhatKernelsTakeIsNotHandedTooFewArguments) {
  const Report report(lines("silent", "run"));
  if (report.skipped()) GTEST_SKIP() << report.text();
  EXPECT_EQ(report["scales"], "1");
  EXPECT_EQ(report["loaded scales"], "1");
  expect_wrong_arguments(report);
}

/// What a program does to the device that it loses.
void expect_loss(const Report& report) {
  EXPECT_TRUE(report["crash"].starts_with("device_failed: the device was lost while running crash_1: "))
      << report.text();
  EXPECT_TRUE(report["after"].starts_with("device_failed: the device was lost while allocating 4 bytes"))
      << report.text();
  EXPECT_TRUE(report["stream"].starts_with("device_failed: the device was lost while launching crash_1: "))
      << report.text();
  EXPECT_TRUE(report.text().ends_with("end\n")) << report.text();
}

TEST(StandInDriver, LosesItsDeviceToAnIllegalAddress) {
  const Report report(lines("two", "crash"));
  if (report.skipped()) GTEST_SKIP() << report.text();
  expect_loss(report);
}

TEST(StandInDriver, IsGivenTheWorkOfASlotInOrderWithItsTimes) {
  const Report report(lines("two", "slots"));
  if (report.skipped()) GTEST_SKIP() << report.text();
  EXPECT_EQ(report["work"], "event upload event event launch event event launch event event download event query ");
  EXPECT_EQ(report["result"], "16");
  EXPECT_EQ(report["times"], "0 1 0 1 1 1") << "of every piece, also where it was no work";
  EXPECT_EQ(report["staged"],
            "invalid_request: 49 bytes at offset 2000 do not fit in staging memory of 2048 bytes");
}

TEST(StandInDriver, IsNotAskedToFreePinnedMemoryThatCopiesUse) {
  const Report report(lines("two", "grow"));
  if (report.skipped()) GTEST_SKIP() << report.text();
  const std::string refused = "invalid_request: staging memory cannot grow while work is queued or in flight";
  EXPECT_EQ(report["idle"], "ok");
  EXPECT_EQ(report["queued"], refused);
  EXPECT_EQ(report["under way"], refused);
  EXPECT_EQ(report["ended"], "ok");
  // The stand-in aborts if pinned memory is freed while a copy may use it.
  EXPECT_TRUE(report.text().ends_with("end\n")) << report.text();
}

TEST(StandInDriver, ThatFailsInASlotIsQuotedAndKeepsNothing) {
  const Report report(lines("two", "slots"));
  if (report.skipped()) GTEST_SKIP() << report.text();
  EXPECT_EQ(report["FAKE_PUSH=3"], "device_failed: CUDA_ERROR_OF_THE_STAND_IN while opening a slot");
  EXPECT_EQ(report["FAKE_EVENT=2"], "out_of_memory: the device ran out of memory while creating an event");
  EXPECT_EQ(report["FAKE_RECORD=999"], "device_failed: CUDA_ERROR_OF_THE_STAND_IN while opening a slot");
  EXPECT_EQ(report["FAKE_PINNED=2"],
            "out_of_memory: the device ran out of memory while allocating 4096 bytes of host memory");
  EXPECT_EQ(report["FAKE_COPY=999"], "device_failed: CUDA_ERROR_OF_THE_STAND_IN while uploading 4 bytes");
  EXPECT_EQ(report["FAKE_QUERY=600"], "has not ended");
  EXPECT_EQ(report["FAKE_ELAPSED=1"], "0 times");
  const std::string lost = "device_failed: the device was lost while running submitted work: ";
  EXPECT_TRUE(report["FAKE_QUERY=719"].starts_with(lost)) << report.text();
  EXPECT_TRUE(report["FAKE_WAIT=700"].starts_with(lost)) << report.text();
  EXPECT_TRUE(report["crash"].starts_with("device_failed: the device was lost ")) << report.text();
  EXPECT_TRUE(report["next"].starts_with("device_failed: the device was lost ")) << report.text();
  // The stand-in aborts where something outlives its context.
  EXPECT_TRUE(report.text().ends_with("end\n")) << report.text();
}

TEST(StandInDriver, KeepsWhatIsOnDiskWhereTheDeviceIsAtFault) {
  const Report report(lines("two", "fail_to_load"));
  if (report.skipped()) GTEST_SKIP() << report.text();
  EXPECT_EQ(report["first"], "ok, compiled 1, replaced 0");
  for (const std::string call : {"FAKE_PUSH=3", "FAKE_LOAD=999"}) {
    EXPECT_EQ(report[call],
              "device_failed: CUDA_ERROR_OF_THE_STAND_IN while loading scale_2, compiled 0, replaced 0");
    EXPECT_EQ(report["after " + call], "ok, compiled 0, replaced 0");
  }
  EXPECT_TRUE(report["FAKE_LOAD=200"].starts_with("load_failed: the driver refuses the binary of scale_2"))
      << report.text();
  EXPECT_TRUE(report["FAKE_LOAD=200"].ends_with("replaced 1")) << report.text();
  EXPECT_EQ(report["after FAKE_LOAD=200"], "ok, compiled 1, replaced 0");
}

TEST(StandInDriver, ThatRefusesAGivenProgramIsQuotedWithWhatTheDeviceNeeds) {
  const Report report(lines("two", "refuse_given"));
  if (report.skipped()) GTEST_SKIP() << report.text();
  EXPECT_EQ(report["given"], "ok");
  EXPECT_EQ(
      report["refused"],
      "load_failed: the driver refuses the binary of scale: CUDA_ERROR_OF_THE_STAND_IN; this device needs code "
      "for sm_90, or PTX");
}

TEST(StandInDriver, ListsTheKernelsOfAFatbinWhichAreNamedAsInACubin) {
  const Report report(lines("two", "choose_in_fatbin"));
  if (report.skipped()) GTEST_SKIP() << report.text();
  EXPECT_EQ(report["all"], "scale crash ok");
  EXPECT_EQ(report["by name"], "scale ok");
  EXPECT_EQ(report["by symbol"], "_Z5scalePff ok");
  EXPECT_EQ(report["missing"], "compile_failed: fat has no kernel called nothing");
}

TEST(StandInDriver, ThatListsNoKernelsOfAFatbinTakesTheirSymbols) {
  const Report report(lines("two", "choose_in_fatbin"));
  if (report.skipped()) GTEST_SKIP() << report.text();
  EXPECT_EQ(report["unlisted by symbol"], "crash ok");
  EXPECT_EQ(report["unlisted and missing"], "compile_failed: fat has no kernel called nothing");
  EXPECT_TRUE(report.text().find("unlisted unsupported: the driver does not list the kernels of fat; name them in "
                                 "Request::Fields::entries\n") != std::string::npos)
      << report.text();
}

TEST(StandInDriver, IsGivenNoInvalidRequest) {
  const Report report(lines("two", "refuse_invalid"));
  if (report.skipped()) GTEST_SKIP() << report.text();
  for (const char* language : {"cuda", "ptx", "cubin", "fatbin"})
    EXPECT_EQ(report[language], "invalid_request: the request for \"empty\" has an empty source");
  EXPECT_EQ(report["spirv"], "invalid_request: x is in spirv; this device takes cuda, ptx, cubin or fatbin");
  EXPECT_TRUE(report.text().ends_with("end\n")) << report.text();
}

TEST(CudaDriver, LosesItsDeviceToAnIllegalAddress) {
  const Report report(lines("", "crash"));
  if (report.skipped() || report.text().starts_with("no_device: ")) GTEST_SKIP() << report.text();
  expect_loss(report);
}

TEST(NvrtcCacheQuirk, AppliesFrom12_9On) {
  using backend::quirks::NvrtcCache;
  EXPECT_FALSE(NvrtcCache::affects(11, 8));
  EXPECT_FALSE(NvrtcCache::affects(12, 8));
  EXPECT_TRUE(NvrtcCache::affects(12, 9));
  EXPECT_TRUE(NvrtcCache::affects(13, 0));
}

TEST(RunTimeCompiler, ThatIsMissingIsNamedWithWhatProvidesIt) {
  static constexpr std::array nowhere = {"libkiln_nowhere.so"};
  const cuda::RtcNames names{
      .title = "NVRTC", .libraries = nowhere, .provider = "libnvrtc", .symbols = cuda::SymbolSet::cuda};
  const auto missing = cuda::Rtc::open(names, {"/nowhere"});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ErrorCode::unsupported);
  EXPECT_EQ(missing.error().message(), "NVRTC is missing: install libnvrtc");
}

TEST(RunTimeCompiler, ThatLacksAFunctionIsTooOld) {
  static constexpr std::array libc = {"libc.so.6"};
  const cuda::RtcNames names{
      .title = "NVRTC", .libraries = libc, .provider = "libnvrtc", .symbols = cuda::SymbolSet::cuda};
  const auto old = cuda::Rtc::open(names, {});
  ASSERT_FALSE(old);
  EXPECT_EQ(old.error().message(), "NVRTC is too old: it has no nvrtcVersion; install libnvrtc");
}

TEST(StandInCompiler, ThatIsTooOldIsPassedOverForTheNext) {
  static constexpr std::array libraries = {"libc.so.6", KILN_FAKE_NVRTC_12};
  const cuda::RtcNames names{
      .title = "NVRTC", .libraries = libraries, .provider = "libnvrtc", .symbols = cuda::SymbolSet::cuda};
  EXPECT_EQ(cuda::Rtc::open(names, {}).value()->version(), "NVRTC 12.3");
}

TEST(StandInDriver, IsAskedForNothingWhenItHasEndedWithTheProcess) {
  const std::string text = lines("two", "statics");
  if (text.starts_with("unsupported: ")) GTEST_SKIP() << text;
  EXPECT_EQ(text, "end\n");
}

/// The compiler for a driver of CUDA 12 where the loader finds these stand-ins under these names.
std::string compiler_among(const std::vector<std::pair<std::string, std::string>>& libraries) {
  const fakes::TemporaryFolder folder;
  for (const auto& [name, file] : libraries) std::filesystem::create_symlink(file, folder.path() / name);
  return lines_with(folder.path(), "compiler", {{"CUDA_HOME", folder.path()}});
}

TEST(StandInCompiler, ThatIsNewerThanTheDriverIsPassedOver) {
  EXPECT_EQ(compiler_among({{"libnvrtc.so.13", KILN_FAKE_NVRTC_13}, {"libnvrtc.so.12", KILN_FAKE_NVRTC_12}}),
            "NVRTC 12.3\n");
  EXPECT_EQ(compiler_among({{"libnvrtc.so.12", KILN_FAKE_NVRTC_13}, {"libnvrtc.so.11.2", KILN_FAKE_NVRTC_12}}),
            "NVRTC 12.3\n")
      << "its version counts, not its name";
}

TEST(StandInCompiler, ThatIsNewerThanTheDriverIsNamedWithWhatToInstall) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"})
    all.emplace_back(name, KILN_FAKE_NVRTC_13);
  const std::string text = compiler_among(all);
  if (text.starts_with("NVRTC")) GTEST_SKIP() << "/usr/local/cuda has " << text;
  EXPECT_EQ(text,
            "unsupported: NVRTC 13 is newer than the driver (CUDA 12): install libnvrtc of CUDA 12 or a newer "
            "driver\n");
}

}  // namespace
}  // namespace kiln
