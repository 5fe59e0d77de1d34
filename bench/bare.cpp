#include "bare.hpp"

#include <utility>

#include <epoxy/gl.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kiln/cuda.hpp>
#include <kiln/hip.hpp>
#include <kiln/opencl.hpp>
#include <kiln/opengl.hpp>
#include <kiln/vulkan.hpp>

#include "backend/cuda/cuda.hpp"
#include "backend/cuda/loaded_image.hpp"
#include "backend/hip/hip.hpp"
#include "backend/opencl/program.hpp"
#include "backend/sections.hpp"
#include "backend/vulkan/context.hpp"
#include "backend/vulkan/module.hpp"

namespace kiln::bench {
namespace {

std::vector<std::byte> section(const Binary& binary, std::size_t count, std::size_t index) {
  const auto bytes = backend::split_sections(binary.bytes, count).value().at(index);
  return {bytes.begin(), bytes.end()};
}

std::string text(const std::vector<std::byte>& bytes) { return std::string(backend::as_text(bytes)); }

/// Of a binary that Kiln seals.
std::vector<std::byte> sealed_section(const Binary& binary, std::size_t count, std::size_t index) {
  const auto bytes = backend::unseal_sections(binary.bytes, count).value().at(index);
  return {bytes.begin(), bytes.end()};
}

/// A context of the device is current.
class BareOpenGl final : public Bare {
 public:
  BareOpenGl(std::shared_ptr<Module> module, const Binary& binary)
      : Bare(std::move(module), section(binary, 2, 0)), format_(binary.format) {}

  bool load(std::span<const std::byte> image) override {
    program_ = glCreateProgram();
    glProgramBinary(program_, format_, image.data(), static_cast<GLsizei>(image.size()));
    GLint linked = 0;
    glGetProgramiv(program_, GL_LINK_STATUS, &linked);
    return linked != 0;
  }
  void unload() override { glDeleteProgram(program_); }

 private:
  GLenum format_;
  GLuint program_ = 0;
};

class BareOpenCl final : public Bare {
 public:
  BareOpenCl(std::shared_ptr<Module> module, const Binary& binary)
      : Bare(std::move(module), sealed_section(binary, 4, 3)),
        entry_(text(sealed_section(binary, 4, 1))),
        program_(dynamic_cast<const opencl::ProgramModule&>(*module_).built()) {}

  bool load(std::span<const std::byte> image) override {
    const opencl::Library& cl = program_.context().cl();
    cl_device_id device = program_.context().device();
    const auto* bytes = reinterpret_cast<const unsigned char*>(image.data());
    const std::size_t size = image.size();
    cl_int error = CL_SUCCESS;
    loaded_ =
        cl.clCreateProgramWithBinary(program_.context().context(), 1, &device, &size, &bytes, nullptr, &error);
    if (loaded_ == nullptr || cl.clBuildProgram(loaded_, 1, &device, "", nullptr, nullptr) != CL_SUCCESS)
      return false;
    kernel_ = cl.clCreateKernel(loaded_, entry_.c_str(), &error);
    return kernel_ != nullptr;
  }
  void unload() override {
    program_.context().cl().clReleaseKernel(kernel_);
    program_.context().cl().clReleaseProgram(loaded_);
  }

 private:
  std::string entry_;
  const opencl::BuiltProgram& program_;
  cl_program loaded_ = nullptr;
  cl_kernel kernel_ = nullptr;
};

/// HIP too.
class BareCuda final : public Bare {
 public:
  BareCuda(std::shared_ptr<Module> module, const Binary& binary, const cuda::LoadedImage& kernel)
      : Bare(std::move(module), section(binary, 3, 0)),
        entry_(text(section(binary, 3, 2))),
        driver_(kernel.context().driver()),
        scope_(kernel.context()) {}

  bool load(std::span<const std::byte> image) override {
    cuda::Handle function = nullptr;
    return driver_->module_load(&loaded_, image.data()) == cuda::status::success &&
           driver_->module_function(&function, loaded_, entry_.c_str()) == cuda::status::success;
  }
  void unload() override { driver_->module_unload(loaded_); }

 private:
  std::string entry_;
  const cuda::Driver& driver_;
  cuda::Context::ScopedCurrent scope_;
  cuda::Handle loaded_ = nullptr;
};

class BareVulkan final : public Bare {
 public:
  BareVulkan(std::shared_ptr<Module> module, const Binary& binary)
      : Bare(std::move(module), joined(sealed_section(binary, 4, 0), sealed_section(binary, 4, 2))),
        code_bytes_(sealed_section(binary, 4, 0).size()),
        context_(dynamic_cast<const vulkan::PipelineModule&>(*module_).context()),
        layout_(dynamic_cast<const vulkan::Module&>(*module_).layout()) {}

  bool load(std::span<const std::byte> image) override {
    VkShaderModuleCreateInfo code{};
    code.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
    code.codeSize = code_bytes_;
    code.pCode = reinterpret_cast<const std::uint32_t*>(image.data());
    VkPipelineCacheCreateInfo kept{};
    kept.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
    kept.initialDataSize = image.size() - code_bytes_;
    kept.pInitialData = image.data() + code_bytes_;
    VkShaderModule shader = nullptr;
    VkPipelineCache cache = nullptr;
    const auto& vk = context_.vk;
    if (vk->CreateShaderModule(context_.device, &code, nullptr, &shader) != VK_SUCCESS) return false;
    if (vk->CreatePipelineCache(context_.device, &kept, nullptr, &cache) != VK_SUCCESS) return false;
    VkComputePipelineCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
    info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
    info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
    info.stage.module = shader;
    info.stage.pName = "main";
    info.layout = layout_;
    const VkResult result = vk->CreateComputePipelines(context_.device, cache, 1, &info, nullptr, &loaded_);
    vk->DestroyPipelineCache(context_.device, cache, nullptr);
    vk->DestroyShaderModule(context_.device, shader, nullptr);
    return result == VK_SUCCESS;
  }
  void unload() override { context_.vk->DestroyPipeline(context_.device, loaded_, nullptr); }

 private:
  static std::vector<std::byte> joined(std::vector<std::byte> code, const std::vector<std::byte>& kept) {
    code.insert(code.end(), kept.begin(), kept.end());
    return code;
  }

  std::size_t code_bytes_;
  const vulkan::Context& context_;
  VkPipelineLayout layout_;
  VkPipeline loaded_ = nullptr;
};

}  // namespace

Bare::Bare(std::shared_ptr<Module> module, std::vector<std::byte> image)
    : module_(std::move(module)), image_(std::move(image)) {}

std::unique_ptr<Bare> Bare::make(const std::string& api, std::shared_ptr<Module> module, const Binary& binary) {
  if (api == "opengl") return std::make_unique<BareOpenGl>(std::move(module), binary);
  if (api == "opencl") return std::make_unique<BareOpenCl>(std::move(module), binary);
  if (api == "vulkan") return std::make_unique<BareVulkan>(std::move(module), binary);
  const cuda::Platform& platform = api == "cuda" ? cuda::platform() : hip::platform();
  const cuda::LoadedImage& kernel = *platform.image_of(*module);
  return std::make_unique<BareCuda>(std::move(module), binary, kernel);
}

void prepare_launch(Module& module) {
  if (auto* cuda = dynamic_cast<cuda::Module*>(&module)) (void)cuda->function();
  if (auto* hip = dynamic_cast<hip::Module*>(&module)) (void)hip->function();
}

std::vector<std::byte> read_whole(const std::filesystem::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  struct stat status = {};
  std::vector<std::byte> bytes(fstat(file, &status) == 0 ? static_cast<std::size_t>(status.st_size) : 0);
  const ssize_t got = read(file, bytes.data(), bytes.size());
  close(file);
  bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return bytes;
}

}  // namespace kiln::bench
