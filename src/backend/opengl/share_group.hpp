#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <epoxy/egl.h>
#include <epoxy/gl.h>

#include <kiln/log.hpp>
#include <kiln/opengl.hpp>
#include <kiln/result.hpp>

#include "backend/opengl/launch_gate.hpp"
#include "base/mutex.hpp"

namespace kiln::opengl {

class ApiBinding;
class SlotContext;
class LentContext;

/// A group of contexts that share their objects, and the pool of them that is lent to threads. A context is
/// current on at most one thread; objects made in one are seen in all.
class ShareGroup : public std::enable_shared_from_this<ShareGroup> {
  struct Private {};

 public:
  /// A group of Kiln's own on `display`.
  static Result<std::shared_ptr<ShareGroup>> create(EGLDisplay display, const Log& log);
  /// The group of the context that is current on this thread; see adopt_current().
  static Result<std::shared_ptr<ShareGroup>> adopt(const Log& log, bool share);

  ShareGroup(Private, EGLDisplay display, Log log) : display_(display), log_(std::move(log)) {}
  ~ShareGroup();

  /// Makes a context of the group current on this thread until the Current is destroyed. Where one is current
  /// already, that one is used.
  Result<Current> acquire();
  /// The same for an application, which may launch programs of its own accord until the Current is destroyed.
  Result<Current> show();
  /// A context for this thread to use over many calls: that which is current, if it is the group's.
  Result<std::unique_ptr<SlotContext>> keep();

  /// Deletes a program or a buffer; at a later acquire() where that cannot be done now.
  void delete_program(GLuint id) noexcept;
  void delete_buffer(GLuint id) noexcept;

  /// Whether any thread can be lent a context.
  bool pooled() const noexcept { return display_ != EGL_NO_DISPLAY; }
  EGLDisplay display() const noexcept { return display_; }
  /// The context current on this thread, as far as it can be one of this group.
  void* current() const noexcept;
  /// Whether the context current on this thread is the caller's own, whose bindings are not Kiln's to change.
  bool in_callers_context() const noexcept;
  const Log& log() const noexcept { return log_; }
  /// Every launch in a context of the group goes through it.
  LaunchGate& gate() noexcept { return gate_; }
  /// Makes the context that is current ready to launch `program`; within the gate.
  ///
  /// When a program is deleted in one context, Mesa 22.3 cleans up in the others at their next flush, unbinds what
  /// they launched last, and does not remember that: launched again, it is no program at all, and crashes. So after
  /// a deletion a context is flushed and launches something else first. And a context holds on to what it launched
  /// last: a program goes only when every context has launched another.
  ///
  /// What an application launches itself is not known here. A deletion does no harm in the context in which it is
  /// made; so none is made while an application has another context, adopted or shown to it.
  void prepare_launch(GLuint program);

 private:
  friend class Current;
  friend struct Current::State;
  friend class LentContext;

  struct Doomed {
    std::vector<GLuint> programs;
    std::vector<GLuint> buffers;
  };

  Result<EGLContext> make_context(EGLContext share);
  Result<EGLContext> take_idle();
  void give_back(EGLContext context);
  void take_back(EGLContext shown);
  Result<std::shared_ptr<LentContext>> borrow(std::shared_ptr<const ApiBinding> api);
  /// The lent context that is current on this thread.
  std::shared_ptr<LentContext> lent_as(void* context);
  bool is_member(void* context) const;
  /// Deletes what is doomed, as far as that can be done from here.
  void delete_doomed();
  /// Whether a program deleted here could be missed by an application elsewhere; see prepare_launch().
  bool would_unbind(void* here) const KILN_REQUIRES(pool_mutex_);
  /// What is doomed, less the programs launched last in a context that another thread has.
  Doomed take_doomed(void* here) KILN_REQUIRES(pool_mutex_);
  /// The idle contexts that launched one of the programs last.
  std::vector<EGLContext> take_idle_with(const std::vector<GLuint>& programs) KILN_REQUIRES(pool_mutex_);
  /// Makes the context that is current launch what it should, after deletions elsewhere; see prepare_launch().
  void recover() KILN_REQUIRES(pool_mutex_);
  /// Makes the context that is current hold on to none of the programs that can be deleted.
  void let_go(void* context) KILN_REQUIRES(pool_mutex_);
  void delete_all() KILN_REQUIRES(pool_mutex_);
  void launch_idle_programs() KILN_REQUIRES(pool_mutex_);
  void watch_debug_output();

  // Where new contexts come from; EGL_NO_DISPLAY for a lone adopted context.
  const EGLDisplay display_;
  const Log log_;
  // The caller's context in an adopted group: EGL's, or another window system's.
  void* adopted_ = nullptr;
  bool adopted_is_egl_ = false;
  EGLContext root_ = EGL_NO_CONTEXT;
  // What new contexts are made with: EGL_NO_CONFIG_KHR, or the adopted context's own.
  EGLConfig config_ = nullptr;

  LaunchGate gate_;
  mutable base::Mutex pool_mutex_;
  std::set<EGLContext> members_ KILN_GUARDED_BY(pool_mutex_);
  std::vector<EGLContext> idle_ KILN_GUARDED_BY(pool_mutex_);
  std::map<void*, std::weak_ptr<LentContext>> lent_ KILN_GUARDED_BY(pool_mutex_);
  // Those lent to applications.
  std::set<void*> shown_ KILN_GUARDED_BY(pool_mutex_);
  Doomed doomed_ KILN_GUARDED_BY(pool_mutex_);
  // How many programs were deleted in all; and in each context, the program launched last, and how many were
  // deleted before that.
  std::uint64_t deletions_ KILN_GUARDED_BY(pool_mutex_) = 0;
  struct Last {
    GLuint program = 0;
    std::uint64_t deletions = 0;
  };
  std::map<void*, Last> launched_last_ KILN_GUARDED_BY(pool_mutex_);
  // Programs that do nothing, made when first needed. Two: what a context launched last may have been unbound.
  std::array<GLuint, 2> idle_programs_ KILN_GUARDED_BY(pool_mutex_) = {};
};

}  // namespace kiln::opengl
