#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "backend/held.hpp"
#include "backend/launch_checks.hpp"
#include "backend/opengl/device.hpp"
#include "backend/opengl/egl.hpp"
#include "backend/opengl/launch.hpp"
#include "backend/opengl/lent_context.hpp"
#include "base/try.hpp"

namespace kiln::opengl {
namespace {

/// A place in the work of the current context.
class Fence {
 public:
  Fence() : sync_(glFenceSync(GL_SYNC_GPU_COMMANDS_COMPLETE, 0)) {}
  ~Fence() { glDeleteSync(sync_); }
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;

  bool passed() const { return glClientWaitSync(sync_, 0, 0) != GL_TIMEOUT_EXPIRED; }
  void wait() const {
    // Drivers limit the timeout of a wait.
    constexpr GLuint64 a_second = 1'000'000'000;
    while (glClientWaitSync(sync_, GL_SYNC_FLUSH_COMMANDS_BIT, a_second) == GL_TIMEOUT_EXPIRED) {
    }
  }

 private:
  const GLsync sync_;
};

/// Launches in a context that the caller keeps current.
class ContextStream final : public Stream {
 public:
  ContextStream(std::shared_ptr<ShareGroup> group, DeviceInfo info)
      : group_(std::move(group)), info_(std::move(info)), context_(group_->current()) {}
  ~ContextStream() override {
    // Every context of the group can wait for the fences. Without one, the held things leak.
    const auto current = group_->acquire();
    if (is_current())
      hold(std::move(copies_));
    else
      // The end of their work is unknown.
      for (auto& [of, copy] : *copies_) copy.discard();
    if (!current) static_cast<void>(held_.release());
    held_.reset();
  }

  Result<void> launch(kiln::Module& module, const Launch& launch) override {
    if (!is_current())
      return Error(ErrorCode::invalid_request,
                   fmt::format("the context of {} with which the stream was made is not current on this thread",
                               info_.name));
    const auto current = KILN_TRY(group_->acquire());
    static_cast<void>(take_error());
    const auto fitted = KILN_TRY(fit(*group_, info_, module, launch));
    if (!backend::has_work(fitted.groups)) return {};
    const LinkedProgram& program = fitted.program;
    // OpenGL keeps deleted buffers as long as queued commands use them.
    UniformBuffers uniforms(*group_);
    if (!program.interface().sets_state()) return dispatch(*group_, fitted, program.id(), uniforms);
    const GLuint copy = KILN_TRY(copy_of(program));
    return dispatch(*group_, fitted, copy, uniforms);
  }

  void hold(std::shared_ptr<const void> thing) override {
    held_->add(is_current() ? std::make_unique<Fence>() : nullptr, std::move(thing));
  }

 private:
  /// A context orders changes of a program object after earlier launches of it, so one copy suffices for all
  /// launches. It outlives the module.
  using Copies = std::map<const ProgramCopies*, ProgramLoan>;
  static constexpr std::size_t most_copies = 64;

  bool is_current() const noexcept { return group_->current() == context_; }

  Result<GLuint> copy_of(const LinkedProgram& program) {
    const auto found = copies_->find(program.copies());
    if (found != copies_->end()) return found->second.id();
    if (copies_->size() == most_copies) {
      // The stream may still use them.
      hold(std::move(copies_));
      copies_ = std::make_shared<Copies>();
    }
    auto copy = KILN_TRY(program.borrow());
    const GLuint id = copy.id();
    copies_->emplace(program.copies(), std::move(copy));
    return id;
  }

  const std::shared_ptr<ShareGroup> group_;
  const DeviceInfo info_;
  void* const context_;
  std::shared_ptr<Copies> copies_ = std::make_shared<Copies>();
  std::unique_ptr<backend::Held<Fence>> held_ = std::make_unique<backend::Held<Fence>>();
};

}  // namespace

Result<std::unique_ptr<Stream>> stream(Device& device) {
  auto* own = dynamic_cast<GlDevice*>(&device);
  if (own == nullptr)
    return Error(ErrorCode::invalid_request, fmt::format("{} is not an OpenGL device", device.info().name));
  if (!own->group().has_current())
    return Error(
        ErrorCode::invalid_request,
        fmt::format("no context of {} is current on this thread; see opengl::make_current()", device.info().name));
  return std::unique_ptr<Stream>(std::make_unique<ContextStream>(own->group().shared_from_this(), device.info()));
}

}  // namespace kiln::opengl
