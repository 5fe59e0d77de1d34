#include "backend/opengl/share_group.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "backend/opengl/egl.hpp"
#include "backend/opengl/lent_context.hpp"
#include "base/dynamic_library.hpp"
#include "base/process.hpp"
#include "base/try.hpp"

namespace kiln::opengl {

LentContext::LentContext(std::shared_ptr<ShareGroup> group, std::shared_ptr<const ApiBinding> api,
                         EGLDisplay display, EGLContext context)
    : api_(std::move(api)), group_(std::move(group)), context_(context), current_(display, context) {}

LentContext::~LentContext() {
  // Do not replace a context that the application made current meanwhile.
  if (base::process_ends() || group_->current() != context_) current_.forget();
  if (current_.back() && !stuck_) group_->give_back(context_);
}

void LentContext::step_aside() {
  if (!current_.displaced()) return;
  stuck_ = !current_.back();
  api_.reset();
}

Acquired::~Acquired() {
  if (shown) group->take_back(lent->context());
}

Result<std::unique_ptr<SlotContext::Entered>> SlotContext::enter() const {
  if (base::process_ends()) return process_ending();
  std::unique_ptr<Entered> entered;
  if (group_->current() != context_) {
    if (lent_context_ == nullptr)
      return Error(ErrorCode::device_failed,
                   "the OpenGL context of the slot is not current on this thread; make it current first");
    entered = std::make_unique<Entered>(group_->display(), lent_context_->context());
    if (!entered->there.made())
      return Error(ErrorCode::device_failed, "cannot make the OpenGL context of the slot current on this thread");
  }
  static_cast<void>(take_error());
  return entered;
}

namespace {

using Quirk = backend::quirks::MesaProgramDeletion;

/// The current context of this thread if GLX made it, otherwise null.
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
  // Messages of the shader compiler reach the caller as an Error.
  if (source == GL_DEBUG_SOURCE_SHADER_COMPILER) level = LogLevel::debug;
  const auto& log = *static_cast<const Log*>(user);
  if (!log.enabled(level)) return;
  const std::string_view message(
      text, length < 0 ? std::char_traits<char>::length(text) : static_cast<std::size_t>(length));
  log.write(level, fmt::format("OpenGL {}: {}", id, message));
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

Result<std::shared_ptr<ShareGroup>> ShareGroup::create(EGLDisplay display, const Log& log) {
  auto group = std::make_shared<ShareGroup>(Private{}, display, log);
  auto context = KILN_TRY(group->make_context(EGL_NO_CONTEXT));
  group->root_ = context;
  group->give_back(context);
  const auto current = KILN_TRY(group->acquire());
  if (Quirk::affects_current()) group->mesa_program_deletion_ = std::make_unique<Quirk>(*group);
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
  if (Quirk::affects_current()) group->mesa_program_deletion_ = std::make_unique<Quirk>(*group);
  if (group->pooled()) {
    group->root_ = static_cast<EGLContext>(context);
    // Contexts can share objects only if their configurations match.
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
  // If all contexts belong to Kiln, they destroy the objects. An adopted context would keep them.
  if (adopted_ != nullptr) delete_all();
  const base::MutexLock lock(pool_mutex_);
  for (EGLContext context : members_) eglDestroyContext(display_, context);
}

Result<std::shared_ptr<LentContext>> ShareGroup::borrow(std::shared_ptr<const ApiBinding> api) {
  if (!pooled())
    return Error(ErrorCode::device_failed,
                 "the adopted OpenGL context is not current on this thread and not shared; make it current first");
  auto context = KILN_TRY(take_idle());
  auto lent = std::make_shared<LentContext>(shared_from_this(), std::move(api), display_, context);
  if (!lent->made()) {
    const EGLint error = eglGetError();
    if (error == EGL_CONTEXT_LOST) return Error(ErrorCode::device_failed, "the device was lost; open it again");
    return Error(
        ErrorCode::device_failed,
        fmt::format("cannot make an OpenGL context current on this thread ({}); if a context of another window "
                    "system is current, release it",
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

Result<std::unique_ptr<Acquired>> ShareGroup::acquire() {
  if (base::process_ends()) return process_ending();
  const auto api = std::make_shared<const ApiBinding>();
  auto acquired = std::make_unique<Acquired>(shared_from_this());
  void* present = current();
  if (present != nullptr && present == adopted_) {
    acquired->api = api;
  } else if (present != nullptr && is_member(present)) {
    acquired->lent = lent_as(present);
  } else {
    auto lent = KILN_TRY(borrow(api));
    acquired->lent = std::move(lent);
  }
  delete_doomed();
  if (present = current(); present == nullptr || !is_member(present))
    return Error(ErrorCode::device_failed, "the OpenGL context is no longer current on this thread");
  return acquired;
}

Result<std::unique_ptr<Acquired>> ShareGroup::show() {
  auto acquired = acquire();
  if (!acquired || (*acquired)->lent == nullptr) return acquired;
  std::optional<Quirk::Launch> launch;
  if (mesa_program_deletion_ != nullptr) launch.emplace(*mesa_program_deletion_, 0);
  const base::MutexLock lock(pool_mutex_);
  (*acquired)->shown = shown_.insert((*acquired)->lent->context()).second;
  return acquired;
}

Result<std::unique_ptr<SlotContext>> ShareGroup::keep() {
  void* const before = current();
  auto acquired = KILN_TRY(acquire());
  std::shared_ptr<LentContext> lent = acquired->lent;
  auto context = std::make_unique<SlotContext>(shared_from_this(), lent, current());
  // A context that was lent on this thread before stays current for its borrowers.
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
      return Error(ErrorCode::unsupported, "the driver has no EGL configuration for OpenGL");
  }
  EGLContext context = EGL_NO_CONTEXT;
  // Not every driver reports resets, and contexts can share objects only if all or none of them report resets. The
  // caller's context may do either, so try both.
  for (const bool tell_resets : {true, false}) {
    const std::vector<EGLint> attributes = context_attributes(log_.enabled(LogLevel::debug), tell_resets);
    context = eglCreateContext(display_, config, share, attributes.data());
    if (context != EGL_NO_CONTEXT) break;
  }
  if (context == EGL_NO_CONTEXT)
    return Error(ErrorCode::unsupported,
                 fmt::format("the driver cannot create an OpenGL 4.3 context ({}), which compute shaders need",
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

bool ShareGroup::application_has_other(void* here) const {
  const base::MutexLock lock(pool_mutex_);
  return (adopted_ != nullptr && adopted_ != here) || shown_.size() > shown_.count(here);
}

bool ShareGroup::is_idle(void* context) const {
  const base::MutexLock lock(pool_mutex_);
  return std::find(idle_.begin(), idle_.end(), context) != idle_.end();
}

void ShareGroup::in_each_idle(const std::vector<void*>& contexts, const std::function<void(void*)>& work) {
  std::vector<EGLContext> taken;
  {
    const base::MutexLock lock(pool_mutex_);
    const auto first = std::partition(idle_.begin(), idle_.end(), [&](EGLContext context) {
      return std::find(contexts.begin(), contexts.end(), context) == contexts.end();
    });
    taken.assign(first, idle_.end());
    idle_.erase(first, idle_.end());
  }
  for (EGLContext context : taken) {
    ScopedCurrent there(display_, context);
    if (there.made()) work(context);
    if (there.back()) give_back(context);
  }
}

void ShareGroup::delete_doomed() {
  Doomed doomed;
  {
    const base::MutexLock lock(pool_mutex_);
    if (doomed_.programs.empty() && doomed_.buffers.empty()) return;
    std::swap(doomed, doomed_);
  }
  glDeleteBuffers(static_cast<GLsizei>(doomed.buffers.size()), doomed.buffers.data());
  if (doomed.programs.empty()) return;
  if (mesa_program_deletion_ == nullptr) {
    for (const GLuint program : doomed.programs) glDeleteProgram(program);
    return;
  }
  const std::vector<GLuint> later = mesa_program_deletion_->delete_programs(std::move(doomed.programs));
  const base::MutexLock lock(pool_mutex_);
  doomed_.programs.insert(doomed_.programs.end(), later.begin(), later.end());
}

void ShareGroup::delete_all() {
  std::optional<ScopedCurrent> there;
  Doomed doomed;
  {
    const base::MutexLock lock(pool_mutex_);
    if (current() != adopted_) {
      if (members_.empty()) return;
      there.emplace(display_, *members_.begin());
      // With this quirk, a deletion in this context could crash launches in the caller's context, so leak the
      // objects.
      if (!there->made() || mesa_program_deletion_ != nullptr) return;
    }
    std::swap(doomed, doomed_);
  }
  glDeleteBuffers(static_cast<GLsizei>(doomed.buffers.size()), doomed.buffers.data());
  for (const GLuint program : doomed.programs) glDeleteProgram(program);
  if (mesa_program_deletion_ != nullptr) mesa_program_deletion_->delete_idle_programs();
}

void ShareGroup::watch_debug_output() {
  // Done for every loan: that is cheaper than to track which contexts have the callback.
  glEnable(GL_DEBUG_OUTPUT);
  glDebugMessageCallback(on_debug_message, &log_);
}

}  // namespace kiln::opengl
