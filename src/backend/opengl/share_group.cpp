#include "backend/opengl/share_group.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "backend/opengl/display.hpp"
#include "backend/opengl/errors.hpp"
#include "backend/opengl/lent_context.hpp"
#include "base/dynamic_library.hpp"
#include "base/process_end.hpp"
#include "base/try.hpp"

namespace kiln::opengl {
namespace {

/// The context current on this thread that a window system other than EGL made.
void* current_foreign_context() {
  for (const char* name : {"libGLX.so.0", "libGL.so.1"})
    if (const auto library = base::DynamicLibrary::loaded(name))
      if (auto* query = library.function<void*()>("glXGetCurrentContext")) return query();
  return nullptr;
}

void GLAPIENTRY on_debug_message(GLenum source, GLenum type, GLuint id, GLenum severity, GLsizei length,
                                 const GLchar* text, const void* user) {
  LogLevel level = LogLevel::debug;
  if (severity == GL_DEBUG_SEVERITY_MEDIUM) level = LogLevel::info;
  if (severity == GL_DEBUG_SEVERITY_HIGH || type == GL_DEBUG_TYPE_ERROR) level = LogLevel::warning;
  // What the shader compiler complains of reaches the caller as an Error.
  if (source == GL_DEBUG_SOURCE_SHADER_COMPILER) level = LogLevel::debug;
  const auto& log = *static_cast<const Log*>(user);
  if (!log.enabled(level)) return;
  const std::string_view message(
      text, length < 0 ? std::char_traits<char>::length(text) : static_cast<std::size_t>(length));
  log.write(level, fmt::format("OpenGL {}: {}", id, message));
}

/// A program that does nothing.
GLuint make_idle_program() {
  const char* source = "#version 430\nlayout(local_size_x = 1) in;\nvoid main() {}\n";
  return glCreateShaderProgramv(GL_COMPUTE_SHADER, 1, &source);
}

/// Whether the context that is current is one of Mesa's.
bool on_mesa() {
  const auto* version = reinterpret_cast<const char*>(glGetString(GL_VERSION));
  return version != nullptr && std::string_view(version).find("Mesa") != std::string_view::npos;
}

std::vector<EGLint> context_attributes(bool debug, bool tell_resets) {
  std::vector<EGLint> attributes = {EGL_CONTEXT_MAJOR_VERSION,       4,
                                    EGL_CONTEXT_MINOR_VERSION,       3,
                                    EGL_CONTEXT_OPENGL_PROFILE_MASK, EGL_CONTEXT_OPENGL_CORE_PROFILE_BIT,
                                    EGL_CONTEXT_OPENGL_DEBUG,        debug ? EGL_TRUE : EGL_FALSE};
  if (tell_resets)
    attributes.insert(attributes.end(),
                      {EGL_CONTEXT_OPENGL_RESET_NOTIFICATION_STRATEGY, EGL_LOSE_CONTEXT_ON_RESET});
  attributes.push_back(EGL_NONE);
  return attributes;
}

}  // namespace

Current::Current(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Current::Current(Current&& other) noexcept = default;
Current::~Current() = default;

Result<std::shared_ptr<ShareGroup>> ShareGroup::create(EGLDisplay display, const Log& log) {
  auto group = std::make_shared<ShareGroup>(Private{}, display, log);
  auto context = KILN_TRY(group->make_context(EGL_NO_CONTEXT));
  group->root_ = context;
  group->give_back(context);
  return group;
}

Result<std::shared_ptr<ShareGroup>> ShareGroup::adopt(const Log& log, bool share) {
  KILN_TRY(find_libraries());
  const ApiBinding api;
  void* context = eglGetCurrentContext();
  const bool is_egl = context != EGL_NO_CONTEXT;
  if (!is_egl) context = current_foreign_context();
  if (context == nullptr)
    return Error(ErrorCode::no_device, "no OpenGL context is current on this thread; make yours current first");
  const EGLDisplay display = share && is_egl ? eglGetCurrentDisplay() : EGL_NO_DISPLAY;
  auto group = std::make_shared<ShareGroup>(Private{}, display, log);
  group->adopted_ = context;
  group->adopted_is_egl_ = is_egl;
  if (group->pooled()) {
    group->root_ = static_cast<EGLContext>(context);
    // Contexts share only where their configurations agree.
    EGLint id = 0;
    EGLint count = 0;
    if (eglQueryContext(display, context, EGL_CONFIG_ID, &id) == EGL_TRUE && id != 0) {
      const EGLint attributes[] = {EGL_CONFIG_ID, id, EGL_NONE};
      eglChooseConfig(display, attributes, &group->config_, 1, &count);
    }
    auto first = KILN_TRY(group->make_context(group->root_));
    group->give_back(first);
  }
  return group;
}

ShareGroup::~ShareGroup() {
  if (base::process_ends()) return;
  const ApiBinding api;
  const base::MutexLock lock(pool_mutex_);
  // Objects of a group of Kiln's own go with its contexts; the caller's contexts would keep them.
  if (adopted_ != nullptr) delete_all();
  for (EGLContext context : members_) eglDestroyContext(display_, context);
}

Result<std::shared_ptr<LentContext>> ShareGroup::borrow(std::shared_ptr<const ApiBinding> api) {
  if (!pooled())
    return Error(ErrorCode::device_failed,
                 "the adopted OpenGL context is not current on this thread, and cannot be shared with it");
  auto context = KILN_TRY(take_idle());
  auto lent = std::make_shared<LentContext>(shared_from_this(), std::move(api), display_, context);
  if (!lent->made()) {
    const EGLint error = eglGetError();
    if (error == EGL_CONTEXT_LOST) return Error(ErrorCode::device_failed, "the device was lost; open it anew");
    return Error(
        ErrorCode::device_failed,
        fmt::format("an OpenGL context cannot be made current on this thread ({}); is a context of another "
                    "window system current on it?",
                    egl_error_name(error)));
  }
  watch_debug_output();
  const base::MutexLock lock(pool_mutex_);
  lent_[context] = lent;
  return lent;
}

std::shared_ptr<LentContext> ShareGroup::lent_as(void* context) {
  const base::MutexLock lock(pool_mutex_);
  return lent_[context].lock();
}

Result<Current> ShareGroup::acquire() {
  if (base::process_ends()) return process_ending();
  const auto api = std::make_shared<const ApiBinding>();
  auto state = std::make_unique<Current::State>(shared_from_this());
  void* present = current();
  if (present != nullptr && present == adopted_) {
    state->api = api;
  } else if (present != nullptr && is_member(present)) {
    state->lent = lent_as(present);
  } else {
    auto lent = KILN_TRY(borrow(api));
    state->lent = std::move(lent);
  }
  delete_doomed();
  if (present = current(); present == nullptr || !is_member(present))
    return Error(ErrorCode::device_failed, "the OpenGL context that was current on this thread is gone");
  return Current(std::move(state));
}

Result<Current> ShareGroup::show() {
  auto current = acquire();
  if (!current || current->state_->lent == nullptr) return current;
  const LaunchGate::Launching launching(gate_);
  const base::MutexLock lock(pool_mutex_);
  recover();
  current->state_->shown = shown_.insert(current->state_->lent->context()).second;
  return current;
}

Result<std::unique_ptr<SlotContext>> ShareGroup::keep() {
  void* const before = current();
  auto acquired = KILN_TRY(acquire());
  std::shared_ptr<LentContext> lent = acquired.state_->lent;
  auto context = std::make_unique<SlotContext>(shared_from_this(), lent, current());
  // What was lent before stays current for those it was lent to.
  if (lent != nullptr && lent->context() != before) lent->step_aside();
  return context;
}

void ShareGroup::take_back(EGLContext context) {
  const base::MutexLock lock(pool_mutex_);
  shown_.erase(context);
}

void ShareGroup::delete_program(GLuint id) noexcept {
  {
    const base::MutexLock lock(pool_mutex_);
    doomed_.programs.push_back(id);
  }
  static_cast<void>(acquire());
}

void ShareGroup::delete_buffer(GLuint id) noexcept {
  if (auto current = acquire()) {
    glDeleteBuffers(1, &id);
    return;
  }
  const base::MutexLock lock(pool_mutex_);
  doomed_.buffers.push_back(id);
}

bool ShareGroup::in_callers_context() const noexcept { return adopted_ != nullptr && current() == adopted_; }

void* ShareGroup::current() const noexcept {
  return adopted_ == nullptr || adopted_is_egl_ ? eglGetCurrentContext() : current_foreign_context();
}

Result<EGLContext> ShareGroup::make_context(EGLContext share) {
  const ApiBinding api;
  EGLConfig config = config_;
  if (config == nullptr && !epoxy_has_egl_extension(display_, "EGL_KHR_no_config_context")) {
    const EGLint wanted[] = {EGL_RENDERABLE_TYPE, EGL_OPENGL_BIT, EGL_SURFACE_TYPE, 0, EGL_NONE};
    EGLint count = 0;
    if (eglChooseConfig(display_, wanted, &config, 1, &count) != EGL_TRUE || count == 0)
      return Error(ErrorCode::unsupported, "the driver has no configuration for OpenGL");
  }
  EGLContext context = EGL_NO_CONTEXT;
  // Not every driver tells of resets, and contexts share only where all are told or none: the caller's may be
  // either.
  for (const bool tell_resets : {true, false}) {
    const std::vector<EGLint> attributes = context_attributes(log_.enabled(LogLevel::debug), tell_resets);
    context = eglCreateContext(display_, config, share, attributes.data());
    if (context != EGL_NO_CONTEXT) break;
  }
  if (context == EGL_NO_CONTEXT)
    return Error(ErrorCode::unsupported,
                 fmt::format("the driver makes no OpenGL 4.3 context ({}); compute shaders need one",
                             egl_error_name(eglGetError())));
  const base::MutexLock lock(pool_mutex_);
  members_.insert(context);
  return context;
}

Result<EGLContext> ShareGroup::take_idle() {
  {
    const base::MutexLock lock(pool_mutex_);
    if (!idle_.empty()) {
      EGLContext context = idle_.back();
      idle_.pop_back();
      return context;
    }
  }
  return make_context(root_);
}

void ShareGroup::give_back(EGLContext context) {
  const base::MutexLock lock(pool_mutex_);
  idle_.push_back(context);
}

bool ShareGroup::is_member(void* context) const {
  if (context == adopted_) return true;
  const base::MutexLock lock(pool_mutex_);
  return members_.contains(static_cast<EGLContext>(context));
}

void ShareGroup::prepare_launch(GLuint program) {
  const base::MutexLock lock(pool_mutex_);
  recover();
  launched_last_[current()].program = program;
}

void ShareGroup::recover() {
  Last& last = launched_last_[current()];
  if (last.deletions == deletions_) return;
  if (on_mesa()) {
    glFinish();
    launch_idle_programs();
  }
  last = {0, deletions_};
}

void ShareGroup::launch_idle_programs() {
  // The context may be the caller's.
  GLint before = 0;
  glGetIntegerv(GL_CURRENT_PROGRAM, &before);
  for (GLuint& program : idle_programs_) {
    if (program == 0) program = make_idle_program();
    glUseProgram(program);
    glDispatchCompute(1, 1, 1);
  }
  glUseProgram(static_cast<GLuint>(before));
}

bool ShareGroup::would_unbind(void* here) const {
  const bool applications = (adopted_ != nullptr && adopted_ != here) || shown_.size() > shown_.count(here);
  return applications && on_mesa();
}

ShareGroup::Doomed ShareGroup::take_doomed(void* here) {
  Doomed ripe;
  std::swap(ripe.buffers, doomed_.buffers);
  if (would_unbind(here)) return ripe;
  const auto busy_elsewhere = [&](GLuint program) KILN_REQUIRES(pool_mutex_) {
    return std::any_of(launched_last_.begin(), launched_last_.end(),
                       [&](const auto& launched) KILN_REQUIRES(pool_mutex_) {
                         return launched.second.program == program && launched.first != here &&
                                std::find(idle_.begin(), idle_.end(), launched.first) == idle_.end();
                       });
  };
  const auto first = std::partition(doomed_.programs.begin(), doomed_.programs.end(), busy_elsewhere);
  ripe.programs.assign(first, doomed_.programs.end());
  doomed_.programs.erase(first, doomed_.programs.end());
  return ripe;
}

std::vector<EGLContext> ShareGroup::take_idle_with(const std::vector<GLuint>& programs) {
  const auto other = [&](EGLContext context) KILN_REQUIRES(pool_mutex_) {
    const auto last = launched_last_.find(context);
    return last == launched_last_.end() ||
           std::find(programs.begin(), programs.end(), last->second.program) == programs.end();
  };
  const auto first = std::partition(idle_.begin(), idle_.end(), other);
  std::vector<EGLContext> taken(first, idle_.end());
  idle_.erase(first, idle_.end());
  return taken;
}

void ShareGroup::let_go(void* context) {
  launch_idle_programs();
  launched_last_[context].program = 0;
}

void ShareGroup::delete_doomed() {
  void* here = current();
  Doomed doomed;
  std::vector<EGLContext> holding;
  {
    const base::MutexLock lock(pool_mutex_);
    if (doomed_.programs.empty() && doomed_.buffers.empty()) return;
    doomed = take_doomed(here);
    holding = take_idle_with(doomed.programs);
  }
  if (!doomed.buffers.empty()) glDeleteBuffers(static_cast<GLsizei>(doomed.buffers.size()), doomed.buffers.data());
  if (doomed.programs.empty()) return;
  const LaunchGate::Deleting deleting(gate_);
  if (!deleting.granted()) {
    const base::MutexLock lock(pool_mutex_);
    idle_.insert(idle_.end(), holding.begin(), holding.end());
    doomed_.programs.insert(doomed_.programs.end(), doomed.programs.begin(), doomed.programs.end());
    return;
  }
  for (EGLContext context : holding) {
    ScopedCurrent there(display_, context);
    if (there.made()) {
      const base::MutexLock lock(pool_mutex_);
      let_go(context);
    }
    if (there.back()) give_back(context);
  }
  const base::MutexLock lock(pool_mutex_);
  // An application may have been shown a context meanwhile; or this one did not come back, its surface being gone.
  if (current() != here || would_unbind(here)) {
    doomed_.programs.insert(doomed_.programs.end(), doomed.programs.begin(), doomed.programs.end());
    return;
  }
  if (std::find(doomed.programs.begin(), doomed.programs.end(), launched_last_[here].program) !=
      doomed.programs.end())
    let_go(here);
  for (const GLuint program : doomed.programs) glDeleteProgram(program);
  deletions_ += doomed.programs.size();
}

void ShareGroup::delete_all() {
  std::optional<ScopedCurrent> there;
  if (current() != adopted_) {
    if (members_.empty()) return;
    there.emplace(display_, *members_.begin());
    // What the caller launches there is worth more than the memory.
    if (!there->made() || on_mesa()) return;
  }
  glDeleteBuffers(static_cast<GLsizei>(doomed_.buffers.size()), doomed_.buffers.data());
  for (const GLuint program : doomed_.programs) glDeleteProgram(program);
  for (const GLuint program : idle_programs_) glDeleteProgram(program);
}

void ShareGroup::watch_debug_output() {
  // The same for every lent context: cheaper than to remember which contexts have it already.
  glEnable(GL_DEBUG_OUTPUT);
  glDebugMessageCallback(on_debug_message, &log_);
}

}  // namespace kiln::opengl
