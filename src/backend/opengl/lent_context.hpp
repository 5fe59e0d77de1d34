#pragma once

#include <memory>

#include "backend/opengl/scoped_current.hpp"
#include "backend/opengl/share_group.hpp"

namespace kiln::opengl {

/// A context lent to a thread, on which it is current. All leases of that thread share it, so that they may end in
/// any order; with the last, things are put back as they were.
class LentContext {
 public:
  LentContext(std::shared_ptr<ShareGroup> group, std::shared_ptr<const ApiBinding> api, EGLDisplay display,
              EGLContext context);
  ~LentContext();
  LentContext(const LentContext&) = delete;
  LentContext& operator=(const LentContext&) = delete;

  /// Whether the context is current by this.
  bool made() const noexcept { return current_.made(); }
  EGLContext context() const noexcept { return context_; }
  /// Puts things back as they were already, where another context was current before.
  void step_aside();

 private:
  // First, so that it is put back last.
  std::shared_ptr<const ApiBinding> api_;
  const std::shared_ptr<ShareGroup> group_;
  const EGLContext context_;
  ScopedCurrent current_;
  // A context that stays current here can be lent to no other thread.
  bool stuck_ = false;
};

/// A context of the group that is current on this thread until this ends.
struct Acquired {
  explicit Acquired(std::shared_ptr<ShareGroup> lender) : group(std::move(lender)) {}
  ~Acquired();
  Acquired(const Acquired&) = delete;
  Acquired& operator=(const Acquired&) = delete;

  const std::shared_ptr<ShareGroup> group;
  // One of these: nothing is on lent where the caller's own context is current.
  std::shared_ptr<const ApiBinding> api;
  std::shared_ptr<LentContext> lent;
  // Whether it was for this one that the application may launch programs in it.
  bool shown = false;
};

/// A context that one thread uses over many calls, and others share with it there. Between the calls it stays
/// current where no other was before; a context of the application's own is left to it.
class SlotContext {
 public:
  SlotContext(std::shared_ptr<ShareGroup> group, std::shared_ptr<LentContext> lent, void* context) noexcept
      : group_(std::move(group)), lent_context_(std::move(lent)), context_(context) {}

  /// Keeps the context current until it ends.
  struct Entered {
    Entered(EGLDisplay display, EGLContext context) : there(display, context) {}
    const ApiBinding api;
    ScopedCurrent there;
  };
  /// Makes the context current for one call; null where it is. Errors of earlier calls are forgotten.
  Result<std::unique_ptr<Entered>> enter() const;

 private:
  const std::shared_ptr<ShareGroup> group_;
  // Nothing for the caller's own context.
  const std::shared_ptr<LentContext> lent_context_;
  void* const context_;
};

}  // namespace kiln::opengl
