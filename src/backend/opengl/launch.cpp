#include "backend/opengl/launch.hpp"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "backend/launch_checks.hpp"
#include "backend/opengl/bindings.hpp"
#include "backend/opengl/compiler.hpp"
#include "base/try.hpp"

namespace kiln::opengl {
namespace {

/// Blocks end at a multiple of a vec4, whatever is in them.
std::size_t padded(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

Result<Fitting> fit(const ShareGroup& group, const DeviceInfo& device, const kiln::Module& module,
                    const Launch& launch) {
  const auto* program = dynamic_cast<const LinkedProgram*>(&module);
  if (program == nullptr || &program->group() != &group)
    return backend::foreign_program(program != nullptr ? program->name() : "the program", device.name);
  const auto refuse = [](std::string why) { return Error(ErrorCode::invalid_request, std::move(why)); };
  KILN_TRY(backend::check_groups(launch, device.limits, program->name()));
  auto buffers = KILN_TRY(backend::own_buffers<GlBuffer>(launch, group, device.name, program->name()));
  // What a program reads must be there: drivers do not check.
  const LinkedProgram::Signature& takes = program->signature();
  if (launch.buffers.size() != takes.buffers)
    return refuse(fmt::format("{} declares {} buffers; {} were given", program->name(), takes.buffers,
                              launch.buffers.size()));
  if (padded(launch.parameters.size()) != padded(takes.parameter_bytes))
    return refuse(fmt::format("{} declares {} bytes of parameters; {} were given", program->name(),
                              takes.parameter_bytes, launch.parameters.size()));
  return Fitting{*program, std::move(buffers)};
}

void UniformBuffer::bind(std::span<const std::byte> parameters) {
  if (id_ == 0) glGenBuffers(1, &id_);
  glBindBufferBase(GL_UNIFORM_BUFFER, 0, id_);
  // A block that is larger than its buffer is not read, one that is smaller is.
  if (room_ < parameters.size()) {
    room_ = padded(parameters.size());
    glBufferData(GL_UNIFORM_BUFFER, static_cast<GLsizeiptr>(room_), nullptr, GL_DYNAMIC_DRAW);
  }
  glBufferSubData(GL_UNIFORM_BUFFER, 0, static_cast<GLsizeiptr>(parameters.size()), parameters.data());
}

void dispatch(ShareGroup& group, const Fitting& fitted, const Launch& launch, UniformBuffer& parameters) {
  const auto count = static_cast<GLuint>(fitted.buffers.size());
  std::optional<LaunchBindings> callers;
  if (group.in_callers_context()) callers.emplace(count);
  for (GLuint i = 0; i < count; ++i) glBindBufferBase(GL_SHADER_STORAGE_BUFFER, i, fitted.buffers[i]->id());
  if (!launch.parameters.empty()) parameters.bind(launch.parameters);
  {
    std::optional<backend::quirks::MesaProgramDeletion::Launch> quirk;
    if (auto* deletion = group.mesa_program_deletion()) quirk.emplace(*deletion, fitted.program.id());
    glUseProgram(fitted.program.id());
    glDispatchCompute(launch.groups[0], launch.groups[1], launch.groups[2]);
  }
  glMemoryBarrier(GL_ALL_BARRIER_BITS);
  if (callers) return;
  // What stays bound in an idle context would live on after it was deleted.
  glUseProgram(0);
  for (GLuint i = 0; i < count; ++i) glBindBufferBase(GL_SHADER_STORAGE_BUFFER, i, 0);
  glBindBufferBase(GL_UNIFORM_BUFFER, 0, 0);
}

}  // namespace kiln::opengl
