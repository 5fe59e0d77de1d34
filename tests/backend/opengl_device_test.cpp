#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <limits>
#include <thread>

#include <epoxy/gl.h>

#include "backend/gl_fixture.hpp"
#include "backend/opengl/egl.hpp"
#include "backend/quirks/mesa_program_deletion.hpp"
#include "backend/quirks/mesa_spirv_binary.hpp"
#include "backend/source_text.hpp"
#include "backend/vulkan_modules.hpp"
#include "base/dynamic_library.hpp"

namespace kiln {
namespace {

using fakes::scale;

class OpenGlDevice : public fakes::GlTest {
 protected:
  Error compile_error(Request::Fields fields) {
    auto result = device_->compile(Request(std::move(fields)));
    EXPECT_FALSE(result);
    return result ? Error(ErrorCode::io, "compiled") : std::move(result).error();
  }
};

TEST_F(OpenGlDevice, KnowsWhatItIs) {
  const Identity& identity = device_->identity();
  EXPECT_EQ(identity.api, "opengl");
  EXPECT_FALSE(identity.vendor.empty());
  EXPECT_FALSE(identity.device.empty());
  EXPECT_FALSE(identity.driver.empty());
  EXPECT_FALSE(identity.formats.empty());
  EXPECT_EQ(open_device("opengl").value()->identity(), identity);
}

TEST_F(OpenGlDevice, CompilesLaunchesAndReadsBack) {
  const Compiled compiled = device_->compile(scale(3)).value();
  EXPECT_TRUE(scales(*device_, *compiled.module, 3, 0.5F));
}

TEST_F(OpenGlDevice, ABinaryLoadsToTheSameProgram) {
  const Compiled compiled = device_->compile(scale(3)).value();
  ASSERT_TRUE(compiled.binary);
  const auto loaded = device_->load(*compiled.binary).value();
  EXPECT_TRUE(scales(*device_, *loaded, 3, 1));
}

TEST_F(OpenGlDevice, RefusesABinaryOfAnotherFormatOrNoBinaryAtAll) {
  Binary binary = device_->compile(scale(3)).value().binary.value();
  Binary other = binary;
  other.format += 1;
  EXPECT_EQ(device_->load(other).error().code(), ErrorCode::load_failed);
  binary.bytes.assign(binary.bytes.size(), std::byte{0});
  EXPECT_EQ(device_->load(binary).error().code(), ErrorCode::load_failed);
  binary.bytes.clear();
  EXPECT_EQ(device_->load(binary).error().code(), ErrorCode::load_failed);
}

TEST_F(OpenGlDevice, CompileErrorsNameTheProgramAndTheLineAndCarryTheLog) {
  const Error error = compile_error(
      {.name = "conv", .source = "#version 430\nlayout(local_size_x = 1) in;\nvoid main() { nonsense; }\n"});
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  EXPECT_NE(error.message().find("conv"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("line 3"), std::string::npos) << error.message();
  EXPECT_NE(error.log().find("nonsense"), std::string::npos) << error.log();
  EXPECT_TRUE(book_.records().empty()) << "what the caller is told needs no log";
}

TEST_F(OpenGlDevice, DefinesDoNotShiftTheLinesOfErrors) {
  const Error error =
      compile_error({.name = "conv",
                     .source = "#version 430\nlayout(local_size_x = 1) in;\nvoid main() { nonsense; }\n",
                     .defines = {{"A", "1"}, {"B", "2"}}});
  EXPECT_NE(error.message().find("line 3"), std::string::npos) << error.message();
}

TEST_F(OpenGlDevice, ErrorsInAnIncludedFileNameThatFile) {
  const Error error = compile_error(
      {.name = "conv",
       .source = "#version 430\n#include \"tile.glsl\"\nlayout(local_size_x = 1) in;\nvoid main() {}\n",
       .headers = {{"tile.glsl", "float a;\n\nfloat tile() { return vec4(1); }\n"}}});
  EXPECT_NE(error.message().find("tile.glsl line 3"), std::string::npos) << error.message();
  const Error after = compile_error(
      {.name = "conv",
       .source = "#version 430\n#include \"tile.glsl\"\nlayout(local_size_x = 1) in;\nvoid main() { nonsense; }\n",
       .headers = {{"tile.glsl", "float a;\n\n"}}});
  EXPECT_NE(after.message().find("line 4"), std::string::npos) << after.message();
}

TEST_F(OpenGlDevice, ReadsTheLogsOfBothKindsOfDriver) {
  const Request request({.name = "conv", .source = "#include \"a.glsl\"\nx", .headers = {{"a.glsl", "y"}}});
  EXPECT_EQ(backend::compile_message(request, "0:12(5): error: `foo' undeclared\n"),
            "conv does not compile, line 12 (of the source or of an included file): error: `foo' undeclared");
  EXPECT_EQ(backend::compile_message(request, "1(7) : error C1503: undefined variable \"foo\"\n"),
            "conv does not compile, a.glsl line 7: error C1503: undefined variable \"foo\"");
  EXPECT_EQ(backend::compile_message(request, "warning: odd\nerror: no main\n"),
            "conv does not compile: error: no main");
  EXPECT_EQ(backend::compile_message(request, ""), "conv does not compile");
}

TEST_F(OpenGlDevice, AnEntryPointThatIsNotThereIsAClearError) {
  const Error named = compile_error({.name = "conv", .source = scale(1).source(), .entries = {"conv_main"}});
  EXPECT_NE(named.message().find("conv_main"), std::string::npos);
  const Error none =
      compile_error({.name = "conv", .source = "#version 430\nlayout(local_size_x = 1) in;\nvoid f() {}\n"});
  EXPECT_EQ(none.code(), ErrorCode::compile_failed);
}

TEST_F(OpenGlDevice, LaunchesThatCannotBeAreErrors) {
  const Compiled compiled = device_->compile(scale(1)).value();
  const auto buffer = device_->allocate(256).value();
  Module& module = *compiled.module;
  const auto code = [&](const Launch& launch) { return device_->launch(module, launch).error().code(); };
  EXPECT_EQ(code({.groups = {1U << 31, 1, 1}, .arguments = {buffer.get()}}), ErrorCode::invalid_request);
  EXPECT_EQ(code({.arguments = {nullptr}}), ErrorCode::invalid_request);
  const auto other = open_device("opengl").value();
  const auto foreign = other->allocate(256).value();
  EXPECT_EQ(code({.arguments = {foreign.get()}}), ErrorCode::invalid_request);
  const Compiled strange = other->compile(scale(1)).value();
  EXPECT_EQ(device_->launch(*strange.module, {.arguments = {buffer.get()}}).error().code(),
            ErrorCode::invalid_request);
  std::vector<std::byte> bytes(100);
  EXPECT_FALSE(device_->write(*buffer, bytes, 200));
  EXPECT_FALSE(device_->read(*buffer, bytes, 1U << 30));
  EXPECT_TRUE(device_->read(*buffer, bytes, 156));
}

TEST_F(OpenGlDevice, LaunchErrorsNameTheProgramAndTheArgument) {
  const Compiled compiled = device_->compile(scale(7)).value();
  const auto loaded = device_->load(compiled.binary.value()).value();
  const auto buffer = device_->allocate(256).value();
  const auto foreign = open_device("opengl").value()->allocate(256).value();
  const std::vector<std::byte> offset(4);
  for (Module* module : {compiled.module.get(), loaded.get()}) {
    const auto message = [&](const Launch& launch) { return device_->launch(*module, launch).error().message(); };
    EXPECT_EQ(message({.arguments = {by_value(offset)}}), "scale_7 declares 1 buffers; 0 were given");
    EXPECT_EQ(message({.arguments = {buffer.get(), buffer.get(), by_value(offset)}}),
              "scale_7 declares 1 buffers; 2 were given");
    EXPECT_EQ(message({.arguments = {buffer.get(), nullptr, by_value(offset)}}),
              "scale_7: argument 1 is a null buffer");
    EXPECT_TRUE(message({.arguments = {foreign.get(), by_value(offset)}})
                    .starts_with("scale_7: argument 0 belongs to another device"));
    EXPECT_NE(message({.arguments = {buffer.get()}}).find("bytes of parameters; 0 were given"), std::string::npos);
    EXPECT_EQ(message({.arguments = {buffer.get(), by_value(std::vector<std::byte>(32))}}),
              "scale_7: the parameter offset takes a value of 4 bytes; a value of 32 bytes was given");
    EXPECT_NE(message({.groups = {1, 1, 0xffffffff}, .arguments = {buffer.get()}}).find("scale_7"),
              std::string::npos);
  }
}

TEST_F(OpenGlDevice, ABufferThatIsDeclaredAndNotUsedIsGivenLikeTheOthers) {
  const Compiled compiled = device_
                                ->compile(Request({.name = "first", .source = R"(#version 430
layout(local_size_x = 1) in;
layout(std430, binding = 0) buffer First { float first[]; };
layout(std430, binding = 1) buffer Second { float second[]; };
layout(std140, binding = 0) uniform Parameters { float a; float b[4]; };
void main() { first[0] = 1.0; }
)"}))
                                .value();
  const auto buffer = device_->allocate(256).value();
  const auto result = device_->launch(
      *compiled.module, {.arguments = {buffer.get(), buffer.get(), by_value(std::vector<std::byte>(80))}});
  EXPECT_TRUE(result) << result.error().message();
}

TEST_F(OpenGlDevice, RefusesABinaryWithoutItsNameOrWithMoreThanThat) {
  const Binary good = device_->compile(scale(3)).value().binary.value();
  for (const std::size_t left_out : {1U, 7U, 15U}) {
    Binary part = good;
    part.bytes.erase(part.bytes.end() - static_cast<std::ptrdiff_t>(left_out), part.bytes.end());
    EXPECT_EQ(device_->load(part).error().code(), ErrorCode::load_failed) << left_out;
  }
  Binary more = good;
  more.bytes.push_back(std::byte{0});
  EXPECT_EQ(device_->load(more).error().code(), ErrorCode::load_failed);
  // As the driver gave it out, without Kiln's parts around it.
  Binary bare = good;
  bare.bytes.erase(bare.bytes.begin(), bare.bytes.begin() + 8);
  EXPECT_EQ(device_->load(bare).error().code(), ErrorCode::load_failed);
}

TEST_F(OpenGlDevice, ContextsAreToldOfResetsWhereTheDriverTellsOfThem) {
  const auto current = opengl::make_current(*device_).value();
  GLint strategy = 0;
  glGetIntegerv(GL_RESET_NOTIFICATION_STRATEGY, &strategy);
  if (glGetError() != GL_NO_ERROR) GTEST_SKIP() << "the driver knows of no resets";
  EXPECT_EQ(strategy, GL_LOSE_CONTEXT_ON_RESET);
}

TEST(OpenGlErrors, ALostDeviceIsToBeOpenedAnew) {
  const Error error = opengl::gl_error(GL_CONTEXT_LOST, "running conv");
  EXPECT_EQ(error.code(), ErrorCode::device_failed);
  EXPECT_EQ(error.message(), "the device was lost while running conv; open it again");
}

TEST_F(OpenGlDevice, AnAllocationThatCannotBeIsOutOfMemory) {
  const auto result = device_->allocate(std::size_t{1} << 50);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::out_of_memory) << result.error().message();
  const auto negative = device_->allocate(std::numeric_limits<std::size_t>::max());
  ASSERT_FALSE(negative);
  EXPECT_EQ(negative.error().code(), ErrorCode::out_of_memory) << negative.error().message();
  EXPECT_TRUE(device_->allocate(0));
  if (!device_->info().software) return;
  const auto large = device_->allocate(std::size_t{1} << 31);
  ASSERT_FALSE(large) << "programs find something else from there on";
  EXPECT_EQ(large.error().message(),
            "allocating 2147483648 bytes: a buffer can have at most 2147483644 on opengl:0");
  EXPECT_EQ(large.error().code(), ErrorCode::out_of_memory);
}

TEST_F(OpenGlDevice, LaunchesFromSixteenThreadsAtOnceAreRight) {
  const Compiled compiled = device_->compile(scale(2)).value();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 3; ++round)
        if (!scales(*device_, *compiled.module, 2, static_cast<float>(t))) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(OpenGlDevice, ProgramsLaunchedLastInIdleContextsAreDeleted) {
  Compiled compiled[] = {device_->compile(scale(2)).value(), device_->compile(scale(3)).value()};
  std::barrier both(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      const auto current = opengl::make_current(*device_).value();
      both.arrive_and_wait();
      EXPECT_TRUE(scales(*device_, *compiled[t].module, 2 + t, 0));
    });
  for (std::thread& thread : threads) thread.join();
  for (Compiled& program : compiled) {
    const GLuint id = dynamic_cast<opengl::Module&>(*program.module).id();
    program.module.reset();
    const auto current = opengl::make_current(*device_).value();
    EXPECT_EQ(glIsProgram(id), GL_FALSE);
  }
  const Compiled other = device_->compile(scale(4)).value();
  threads.clear();
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      const auto current = opengl::make_current(*device_).value();
      both.arrive_and_wait();
      EXPECT_TRUE(scales(*device_, *other.module, 4, 0)) << "the contexts are as good as before";
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(OpenGlDevice, ALentContextDispatchesWhileOtherProgramsAreDestroyed) {
  const auto current = opengl::make_current(*device_).value();
  dispatch_while_others_are_destroyed(*device_);
}

TEST_F(OpenGlDevice, AModuleOutlivesItsDevice) {
  auto compiled = device_->compile(scale(2)).value();
  device_.reset();
  std::thread([module = std::move(compiled.module)]() mutable { module.reset(); }).join();
}

/// A request for SPIR-V.
Request::Fields spirv(const fakes::DoublingModule& module) {
  return {.name = "double", .source = module.bytes(), .language = Language::spirv};
}

TEST_F(OpenGlDevice, SpirvIsReadBeforeTheDriverGetsIt) {
  const Compiled compiled = device_->compile(Request(spirv({}))).value();
  const auto buffer = upload(*device_, std::vector<std::uint32_t>(64, 21)).value();
  device_->launch(*compiled.module, {.groups = {1, 1, 1}, .arguments = {buffer.get()}}).value();
  EXPECT_EQ(download<std::uint32_t>(*device_, *buffer).value(), std::vector<std::uint32_t>(64, 42));
  const auto message = [&](const fakes::DoublingModule& module, ErrorCode code) {
    const Error error = compile_error(spirv(module));
    EXPECT_EQ(error.code(), code) << error.message();
    return error.message();
  };
  // Mesa crashes on the first when it compiles it, and on the second when it is launched.
  EXPECT_EQ(message({.array_stride = 0}, ErrorCode::compile_failed),
            "double: the SPIR-V is damaged: an array or matrix has a stride of 0");
  EXPECT_TRUE(message({.group_size = {{65535, 65535, 65535}}}, ErrorCode::unsupported)
                  .starts_with("double has work groups of 65535 items in dimension 0; the device allows at most "));
  EXPECT_TRUE(message({.group_size = {{1024, 1024, 1}}}, ErrorCode::unsupported)
                  .starts_with("double has work groups of 1024x1024x1 items; the device allows at most "));
  for (const fakes::DoublingModule& module :
       {fakes::DoublingModule{.group_size = {{0, 1, 1}}}, fakes::DoublingModule{.group_size = {}}})
    EXPECT_EQ(message(module, ErrorCode::compile_failed),
              "double: the SPIR-V is damaged: it does not declare the size of a work group");
  EXPECT_EQ(message({.group_sizes = 2}, ErrorCode::compile_failed),
            "double: the SPIR-V is damaged: it declares the size of a work group twice");
  // Drivers ignore the stride of shared arrays.
  EXPECT_TRUE(message({.shared_numbers = 1U << 28}, ErrorCode::unsupported)
                  .starts_with("double uses 1073741824 bytes of shared memory in a work group"));
  EXPECT_TRUE(message({.binding = 100'000}, ErrorCode::unsupported)
                  .starts_with("double declares a storage buffer with binding 100000; the device allows bindings "
                               "below "));
}

TEST_F(OpenGlDevice, SpirvIsCheckedByALibraryThatIsLoadedOnce) {
  const auto is_loaded = [] { return bool{base::DynamicLibrary::loaded("libkiln_shaderc.so.0")}; };
  ASSERT_FALSE(is_loaded());
  ASSERT_TRUE(device_->compile(Request(spirv({}))));
  EXPECT_TRUE(is_loaded());
  device_.reset();
  EXPECT_FALSE(is_loaded());
}

TEST_F(OpenGlDevice, SpirvThatCannotBeCheckedIsRefusedWithWhatIsMissing) {
  setenv("KILN_SHADERC", "/nowhere/libkiln_shaderc.so.0", 1);
  const Error error = compile_error(spirv({}));
  unsetenv("KILN_SHADERC");
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_TRUE(
      error.message().starts_with("double is SPIR-V, which libkiln_shaderc.so.0 must check before the driver gets "
                                  "it; shaderc is missing: there is "
                                  "no /nowhere/libkiln_shaderc.so.0; set KILN_SHADERC"))
      << error.message();
}

TEST_F(OpenGlDevice, SpirvThatNeedsMoreThanOpenGlHasIsRefusedByCapability) {
  const Error error = compile_error(spirv({.capabilities = {spv::Capability::Shader, spv::Capability::Groups}}));
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_NE(error.message().find("double declares the SPIR-V capability Groups"), std::string::npos)
      << error.message();
}

TEST(MesaSpirvBinary, IsNotAskedForByVersion) {
  using Quirk = backend::quirks::MesaSpirvBinary;
  EXPECT_TRUE(Quirk::affects("4.5 (Core Profile) Mesa 22.3.6"));
  EXPECT_FALSE(Quirk::affects("4.6.0 NVIDIA 580.65.06"));
}

TEST(MesaQuirks, ApplyToTheReleasesAndDriversThatHaveTheBug) {
  using Quirk = backend::quirks::MesaProgramDeletion;
  const auto mesa = [](const char* release) { return std::string("4.5 (Core Profile) Mesa ") + release; };
  const char* llvmpipe = "llvmpipe (LLVM 15.0.6, 256 bits)";
  EXPECT_TRUE(Quirk::affects(mesa("22.3.6"), llvmpipe));
  EXPECT_TRUE(Quirk::affects(mesa("24.1.1"), llvmpipe));
  EXPECT_FALSE(Quirk::affects(mesa("24.1.2"), llvmpipe));
  EXPECT_FALSE(Quirk::affects(mesa("24.2.0-devel (git-95828d8901)"), llvmpipe));
  EXPECT_FALSE(Quirk::affects(mesa("25.0"), llvmpipe));
  EXPECT_TRUE(Quirk::affects(mesa("unknown"), llvmpipe)) << "assume the bug if in doubt";
  EXPECT_TRUE(Quirk::affects(mesa("22.3.6"), "softpipe"));
  EXPECT_TRUE(Quirk::affects(mesa("22.3.6"), "SVGA3D; build: RELEASE;  LLVM;"));
  EXPECT_TRUE(Quirk::affects(mesa("22.3.6"), "virgl (AMD Radeon RX 6800 XT (radeonsi, navi21, LLVM 15.0.6))"));
  EXPECT_TRUE(Quirk::affects(mesa("22.3.6"), "virgl (NVIDIA GeForce RTX 3080/PCIe/SSE2)"));
  EXPECT_TRUE(Quirk::affects(mesa("22.3.6"), "AMD CEDAR (DRM 2.50.0 / 6.1.0-13-amd64, LLVM 15.0.6)")) << "r600";
  EXPECT_FALSE(Quirk::affects(mesa("22.3.6"), "AMD Radeon RX 6800 XT (radeonsi, navi21, LLVM 15.0.6, DRM 3.49)"));
  EXPECT_FALSE(Quirk::affects(mesa("22.3.6"), "Mesa Intel(R) UHD Graphics 620 (KBL GT2)"));
  EXPECT_FALSE(Quirk::affects(mesa("22.3.6"), "NV137"));
  EXPECT_FALSE(Quirk::affects("4.6.0 NVIDIA 560.35.03", "NVIDIA H200/PCIe/SSE2"));
  EXPECT_FALSE(Quirk::affects("", ""));
}

TEST(OpenDevice, SaysWhatIsWrongWithAName) {
  for (const char* name : {"opengl:99", "opengl:x", "opengl:", "metal", "opengl:-1", ":"}) {
    const auto result = open_device(name);
    ASSERT_FALSE(result) << name;
    EXPECT_EQ(result.error().code(), ErrorCode::no_device);
    EXPECT_NE(result.error().message().find(name), std::string::npos) << result.error().message();
  }
}

TEST(OpenDevice, ListsAtLeastTheDeviceItOpens) {
  const auto devices = list_devices();
  const auto first = std::find_if(devices.begin(), devices.end(),
                                  [](const DeviceInfo& device) { return device.name == "opengl:0"; });
  ASSERT_NE(first, devices.end());
  EXPECT_TRUE(open_device(first->name)) << first->problem;
}

}  // namespace
}  // namespace kiln
