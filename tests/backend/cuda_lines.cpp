// Prints what the CUDA driver found by LD_LIBRARY_PATH leads to, a line each; what to do is the argument.

#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>

#include <fmt/format.h>

#include <kiln/cache.hpp>
#include <kiln/cuda.hpp>
#include <kiln/device.hpp>
#include <kiln/hip.hpp>
#include <kiln/slot.hpp>

#include "backend/cuda/cuda.hpp"
#include "backend/cuda_samples.hpp"
#include "backend/small_cubin.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln {
namespace {

using fakes::cuda_launch;
using fakes::cuda_scale;
using fakes::cuda_scales;

template <class T>
std::string told(const Result<T>& result) {
  return result ? "ok" : std::string(to_string(result.error().code())) + ": " + result.error().message();
}

void print(const std::vector<DeviceInfo>& infos) {
  for (const DeviceInfo& info : infos)
    std::cout << info.name << '|' << info.label << '|' << info.identity.device << '|' << info.identity.driver << '|'
              << (info.identity.formats.empty() ? 0U : info.identity.formats[0]) << '|' << info.problem << '\n';
}

void list_traits() {
  for (const DeviceInfo& info : cuda::list(cuda::platform())) {
    const DeviceTraits& traits = info.traits;
    std::cout << info.name << '|' << traits.vendor << '|' << traits.architecture << '|' << traits.subgroup_width
              << '|' << traits.compute_units << '|' << traits.fp16 << '|' << traits.matrix_units << '\n';
  }
}

/// CUDA on a machine without NVRTC.
const cuda::Platform& without_compiler() {
  static const cuda::Platform platform = [] {
    cuda::Platform changed = cuda::platform();
    changed.open_rtc = [](const cuda::Driver&) -> Result<std::shared_ptr<const cuda::Rtc>> {
      return Error(ErrorCode::unsupported, "NVRTC is missing: install it");
    };
    return changed;
  }();
  return platform;
}

/// An image that is whole, and whose only kernel is scale.
Binary small_image(cuda::ImageKind kind) {
  cuda::Image image{{}, {{"scale", "scale"}}};
  if (kind == cuda::ImageKind::ptx) {
    static constexpr char text[] = ".version 8.0\n.target sm_80\n.entry scale() {}\n";
    const auto bytes = std::as_bytes(std::span(text));
    image.bytes.assign(bytes.begin(), bytes.end());
  } else {
    const fakes::SmallCubin cubin;
    image.bytes.resize(sizeof cubin);
    std::memcpy(image.bytes.data(), &cubin, sizeof cubin);
  }
  return cuda::to_binary(kind, image, "scale_2");
}

Identity target(std::string device, std::string driver, cuda::ImageKind kind) {
  return {.api = "cuda",
          .vendor = "NVIDIA",
          .device = std::move(device),
          .driver = std::move(driver),
          .formats = {static_cast<std::uint32_t>(kind)}};
}

/// What a device without NVRTC loads that was compiled elsewhere.
void adapt() {
  const auto device = cuda::open(without_compiler(), 0).value();
  const auto adapt = [&](cuda::ImageKind kind) {
    const auto adapted = device->adapt(target("other", "", kind), small_image(kind));
    if (!adapted) return told(adapted);
    return fmt::format("scales {}, own binary {}", cuda_scales(*device, *adapted->module, 2, 1),
                       adapted->binary ? std::to_string(adapted->binary->format) : "none");
  };
  const auto with = [&](const char* variable, const char* status, cuda::ImageKind kind) {
    setenv(variable, status, 1);
    std::cout << variable << '=' << status << ' ' << adapt(kind) << '\n';
    unsetenv(variable);
  };
  std::cout << "info " << device->identity().compiler << '|' << device->info().problem << '|'
            << device->info().compiler_problem << '\n'
            << "source " << told(device->compile(cuda_scale(2))) << '\n'
            << "cubin " << adapt(cuda::ImageKind::cubin) << '\n'
            << "ptx " << adapt(cuda::ImageKind::ptx) << '\n';
  with("FAKE_LOAD", "209", cuda::ImageKind::cubin);
  with("FAKE_LINK", "222", cuda::ImageKind::ptx);
  with("FAKE_LOAD", "222", cuda::ImageKind::ptx);
  with("FAKE_LOAD", "2", cuda::ImageKind::cubin);
}

/// The targets whose programs suit device 0, an sm_90 with a driver of CUDA 13, from the best on.
void print_ranks() {
  const auto device = cuda::open(without_compiler(), 0).value();
  using enum cuda::ImageKind;
  std::map<unsigned, std::string, std::greater<>> ranks;
  for (const Identity& each :
       {target("sm_90", "CUDA 13", cubin), target("sm_90", "CUDA 12", cubin), target("sm_90", "CUDA 14", cubin),
        target("sm_90a", "CUDA 13", cubin), target("sm_91", "CUDA 13", cubin), target("sm_89", "CUDA 13", cubin),
        target("sm_100", "CUDA 13", cubin), target("compute_90", "CUDA 13", ptx),
        target("compute_90", "CUDA 14", ptx), target("compute_75", "CUDA 13", ptx),
        target("compute_100", "CUDA 13", ptx), target("compute_90a", "CUDA 13", ptx),
        target("compute_90", "CUDA 13", cubin), target("sm_90", "CUDA 13", ptx),
        target("sm_90", "CUDA 13.0", cubin), target("sm_90", "", cubin), Identity{}})
    if (const unsigned rank = device->accepts(each); rank != 0)
      ranks[rank] += fmt::format("{} {}, ", each.device, each.driver);
  for (const auto& [rank, names] : ranks) std::cout << names;
  std::cout << '\n';
}

/// The compiler for a driver of CUDA 12.
void print_compiler() {
  const auto rtc = cuda::open_nvrtc(12080);
  std::cout << (rtc ? (*rtc)->version() : told(rtc)) << '\n';
}

void run(Device& device) {
  auto compiled = device.compile(cuda_scale(2));
  std::cout << "compile " << told(compiled) << '\n';
  if (!compiled) return;
  Module& module = *compiled->module;
  std::cout << "scales " << cuda_scales(device, module, 2, 0.5F) << '\n';
  const auto loaded = device.load(*compiled->binary).value();
  std::cout << "loaded scales " << cuda_scales(device, *loaded, 2, 1) << '\n';

  const auto buffer = device.allocate(1024).value();
  Launch launch = cuda_launch(*buffer, 1);
  const auto with = [&](auto change) {
    Launch changed = launch;
    change(changed);
    return told(device.launch(module, changed));
  };
  std::cout << "no size " << with([](Launch& l) {
    l.group_size = {0, 0, 0};
  }) << '\n' << "zero size "
            << with([](Launch& l) {
                 l.group_size = {64, 0, 1};
               })
            << '\n'
            << "big group " << with([](Launch& l) {
                 l.group_size = {1024, 1024, 1};
               })
            << '\n'
            << "too big for it " << with([](Launch& l) {
                 l.group_size = {1024, 1, 1};
               })
            << '\n'
            << "many groups " << with([](Launch& l) {
                 l.groups = {1, 65536, 1};
               })
            << '\n'
            << "no groups " << with([](Launch& l) {
                 l.groups = {0, 1, 1};
               })
            << '\n'
            << "long parameters " << with([](Launch& l) { l.arguments[1] = 1.0; }) << '\n'
            << "no parameters " << with([](Launch& l) { l.arguments.pop_back(); }) << '\n'
            << "two buffers " << with([](Launch& l) { l.arguments.insert(l.arguments.begin(), l.arguments[0]); })
            << '\n'
            << "no buffer " << with([](Launch& l) { l.arguments[0] = static_cast<const Buffer*>(nullptr); })
            << '\n';
  std::cout << "address " << (cuda::memory(*buffer) != 0) << (hip::memory(*buffer) != nullptr) << '\n';
  std::vector<std::byte> bytes(100);
  std::cout << "write " << told(device.write(*buffer, bytes, 1000)) << '\n'
            << "read " << told(device.read(*buffer, bytes, 924)) << '\n'
            << "huge " << told(device.allocate(std::size_t{1} << 62)) << '\n'
            << "nothing " << told(device.allocate(0)) << '\n';
  const auto other = open_device("cuda:0").value();
  std::cout << "foreign " << told(other->write(*buffer, bytes)) << '\n'
            << "foreign program " << told(other->launch(module, launch)) << '\n'
            << "no entry "
            << told(device.compile(Request({.name = "conv",
                                            .source = "__global__ void conv(float* x) { *x = 1; }\n",
                                            .entries = {"convolve"},
                                            .language = Language::cuda})))
            << '\n';
}

Request crashing() {
  return Request({.name = "crash_1",
                  .source = "extern \"C\" __global__ void crash() { *(volatile int*)16 = 1; }\n",
                  .entries = {"crash"},
                  .language = Language::cuda});
}

void crash(Device& device) {
  const auto compiled = device.compile(crashing());
  const auto stream = cuda::stream(device, nullptr).value();
  std::cout << "crash " << told(device.launch(*compiled.value().module, {.group_size = {1, 1, 1}})) << '\n'
            << "after " << told(device.allocate(4)) << '\n'
            << "stream " << told(stream->launch(*compiled.value().module, {.group_size = {1, 1, 1}})) << '\n';
  stream->hold(std::make_shared<int>(1));
}

/// What is put on a stream by a submission of each kind of work, and what comes of it.
void submit_to_slot(Device& device, Module& module) {
  const auto buffer = device.allocate(1024).value();
  const auto slot = device.open_slot().value();
  const auto staged = slot->staging(2048).value();
  const float three = 3;
  for (std::size_t i = 0; i < 256; ++i) std::memcpy(staged.data() + i * sizeof three, &three, sizeof three);
  Launch nothing = cuda_launch(*buffer, 1);
  nothing.groups = {0, 1, 1};
  setenv("FAKE_TRACE", "", 1);
  std::cout << "work ";
  slot->launch(module, nothing).value();
  slot->upload(*buffer, 0, 0, 1024).value();
  slot->upload(*buffer, 1024, 2048, 0).value();
  slot->launch(module, cuda_launch(*buffer, 1)).value();
  slot->launch(module, cuda_launch(*buffer, 2)).value();
  slot->download(*buffer, 0, 1024, 1024).value();
  slot->submit().value();
  static_cast<void>(slot->finished().value());
  static_cast<void>(slot->finished().value());
  unsetenv("FAKE_TRACE");
  float result = 0;
  std::memcpy(&result, staged.data() + 2044, sizeof result);
  std::cout << "\nresult " << result << "\ntimes";
  for (const Ran& piece : slot->times()) std::cout << ' ' << (piece.begin < piece.end);
  std::cout << "\nstaged " << told(slot->upload(*buffer, 0, 2000, 49)) << '\n';
}

/// What a slot says, and leaves, where a call of the stand-in's fails.
void fail_in_slot(Device& device, Module& module) {
  const auto buffer = device.allocate(1024).value();
  const auto with = [](const std::string& setting, auto work) {
    const std::size_t sign = setting.find('=');
    setenv(setting.substr(0, sign).c_str(), setting.substr(sign + 1).c_str(), 1);
    std::cout << setting << ' ' << work() << '\n';
    unsetenv(setting.substr(0, sign).c_str());
  };
  for (const char* setting : {"FAKE_PUSH=3", "FAKE_EVENT=2", "FAKE_RECORD=999"})
    with(setting, [&] { return told(device.open_slot()); });
  const auto with_work = [&](const std::string& setting, auto work) {
    const auto slot = device.open_slot().value();
    static_cast<void>(slot->staging(1024).value());
    slot->launch(module, cuda_launch(*buffer, 1)).value();
    slot->submit().value();
    with(setting, [&] { return work(*slot); });
  };
  with_work("FAKE_PINNED=2", [](Slot& slot) {
    slot.wait().value();
    return told(slot.staging(4096));
  });
  with_work("FAKE_COPY=999", [&](Slot& slot) { return told(slot.upload(*buffer, 0, 0, 4)); });
  with_work("FAKE_QUERY=600", [](Slot& slot) { return slot.finished().value() ? "has ended" : "has not ended"; });
  with_work("FAKE_QUERY=719", [](Slot& slot) { return told(slot.finished()); });
  with_work("FAKE_WAIT=700", [](Slot& slot) { return told(slot.wait()); });
  with_work("FAKE_ELAPSED=1", [](Slot& slot) {
    slot.wait().value();
    return std::to_string(slot.times().size()) + " times";
  });
}

/// What staging memory says that is to grow before, during and after work that copies from and to it.
void grow_staging(Device& device) {
  const auto buffer = device.allocate(1024).value();
  const auto slot = device.open_slot().value();
  std::cout << "idle " << told(slot->staging(1024)) << '\n';
  slot->upload(*buffer, 0, 0, 1024).value();
  slot->download(*buffer, 0, 0, 1024).value();
  std::cout << "queued " << told(slot->staging(4096)) << std::endl;
  slot->submit().value();
  std::cout << "under way " << told(slot->staging(4096)) << std::endl;
  slot->wait().value();
  std::cout << "ended " << told(slot->staging(4096)) << '\n';
}

/// Work that takes the device with it, in a slot that nobody waits for.
void crash_in_slot(Device& device) {
  const auto compiled = device.compile(crashing()).value();
  const auto slot = device.open_slot().value();
  // The driver may say so at once, or when asked next.
  auto result = slot->launch(*compiled.module, {.group_size = {1, 1, 1}});
  if (result) result = slot->submit();
  if (result) result = slot->wait();
  std::cout << "crash " << told(result) << '\n' << "next " << told(device.open_slot()) << '\n';
}

void use_slots(Device& device) {
  const auto compiled = device.compile(cuda_scale(2)).value();
  submit_to_slot(device, *compiled.module);
  fail_in_slot(device, *compiled.module);
  crash_in_slot(device);
}

/// What a binary on disk leads to, once while a call of the stand-in's fails, and once after.
void fail_to_load(const std::shared_ptr<Device>& device) {
  const fakes::TemporaryFolder folder;
  const auto get = [&](const char* when) {
    Cache cache(device, {.directory = folder.path() / "cache"});
    const auto program = cache.get(cuda_scale(2));
    std::cout << when << told(program) << ", compiled " << cache.stats().compiles << ", replaced "
              << cache.stats().replaced << '\n';
  };
  get("first ");
  for (const auto& [variable, status] :
       {std::pair("FAKE_PUSH", "3"), std::pair("FAKE_LOAD", "999"), std::pair("FAKE_LOAD", "200")}) {
    setenv(variable, status, 1);
    get((std::string(variable) + "=" + status + " ").c_str());
    unsetenv(variable);
    get((std::string("after ") + variable + "=" + status + " ").c_str());
  }
}

/// What is said of a cubin that the driver refuses, as one of another architecture.
void refuse_given(Device& device) {
  const Binary binary = cuda::compile_for(cuda_scale(2), "sm_90").value();
  const auto image = cuda::parts_of(binary, cuda::ImageKind::cubin).value().image;
  const Request request({.name = "scale",
                         .source = std::string(reinterpret_cast<const char*>(image.data()), image.size()),
                         .language = Language::cubin});
  std::cout << "given " << told(device.compile(request)) << '\n';
  setenv("FAKE_LOAD", "209", 1);
  std::cout << "refused " << told(device.compile(request)) << '\n';
  unsetenv("FAKE_LOAD");
}

/// A fatbin whose only entry is text.
std::string small_fatbin() {
  std::string header(80, '\0');
  const auto put = [&header](std::size_t at, auto number) {
    std::memcpy(header.data() + at, &number, sizeof number);
  };
  put(0, std::uint32_t{0xBA55ED50});
  put(6, std::uint16_t{16});
  put(8, std::uint64_t{72});
  put(16, std::uint16_t{1});
  put(20, std::uint32_t{64});
  put(24, std::uint64_t{8});
  return header + ".version";
}

/// What becomes of the entry points of a fatbin, whether the driver lists them or not.
void choose_in_fatbin(Device& device) {
  const auto get = [&](std::vector<std::string> entries) -> std::string {
    const auto compiled = device.compile(Request(
        {.name = "fat", .source = small_fatbin(), .entries = std::move(entries), .language = Language::fatbin}));
    if (!compiled) return told(compiled);
    std::string names;
    for (const std::string& name : compiled->module->entries()) names += name + ' ';
    return names + "ok";
  };
  setenv("FAKE_LISTED", "", 1);
  std::cout << "all " << get({}) << '\n'
            << "by name " << get({"scale"}) << '\n'
            << "by symbol " << get({"_Z5scalePff"}) << '\n'
            << "missing " << get({"nothing"}) << '\n';
  unsetenv("FAKE_LISTED");
  std::cout << "unlisted " << get({}) << '\n'
            << "unlisted by symbol " << get({"crash"}) << '\n'
            << "unlisted and missing " << get({"nothing"}) << '\n';
}

/// What is said of requests that are invalid, and of a language of other devices.
void refuse_invalid(Device& device) {
  for (const Language language : {Language::cuda, Language::ptx, Language::cubin, Language::fatbin})
    std::cout << to_string(language) << ' '
              << told(device.compile(Request({.name = "empty", .source = "", .language = language}))) << '\n';
  std::cout << "spirv "
            << told(device.compile(Request({.name = "x", .source = "12345678", .language = Language::spirv})))
            << '\n';
}

/// What a program may have at namespace scope; destroyed when the driver has ended.
std::shared_ptr<Device> static_device;
std::unique_ptr<Buffer> static_buffer;
std::unique_ptr<Slot> static_slot;
Compiled static_program;

void hold_in_statics(const std::shared_ptr<Device>& device) {
  static_device = device;
  static_buffer = device->allocate(1024).value();
  static_slot = device->open_slot().value();
  static_program = device->compile(cuda_scale(2)).value();
  static_slot->launch(*static_program.module, cuda_launch(*static_buffer, 1)).value();
  static_slot->submit().value();
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "list";
  if (what == "list") kiln::print(kiln::cuda::list_cuda_devices({}));
  if (what == "list_traits") kiln::list_traits();
  if (what == "list_uuids")
    for (const auto& info : kiln::cuda::list_cuda_devices({})) std::cout << info.uuid << '\n';
  if (what == "list_without_compiler") kiln::print(kiln::cuda::list(kiln::without_compiler()));
  if (what == "adapt") kiln::adapt();
  if (what == "ranks") kiln::print_ranks();
  if (what == "compiler") kiln::print_compiler();
  if (what.starts_with("list") || what == "adapt" || what == "ranks" || what == "compiler") return 0;
  const std::string uuid = argc > 2 ? argv[2] : "";
  const auto device = kiln::open_device(what == "best" ? "" : uuid.empty() ? "cuda" : "cuda:" + uuid);
  if (!device) {
    std::cout << kiln::told(device) << '\n';
    return 0;
  }
  if (what == "open" || what == "best") {
    std::cout << (*device)->info().name << "\nend\n";
    return 0;
  }
  if (const std::string& problem = (*device)->info().compiler_problem; !problem.empty()) {
    std::cout << "unsupported: " << problem << '\n';
    return 0;
  }
  if (what == "run") kiln::run(**device);
  if (what == "crash") kiln::crash(**device);
  if (what == "slots") kiln::use_slots(**device);
  if (what == "grow") kiln::grow_staging(**device);
  if (what == "fail_to_load") kiln::fail_to_load(*device);
  if (what == "refuse_given") kiln::refuse_given(**device);
  if (what == "choose_in_fatbin") kiln::choose_in_fatbin(**device);
  if (what == "refuse_invalid") kiln::refuse_invalid(**device);
  if (what == "statics") kiln::hold_in_statics(*device);
  std::cout << "end\n";
}
