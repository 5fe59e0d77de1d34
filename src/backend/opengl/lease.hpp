#pragma once

#include <memory>

#include "backend/opengl/share_group.hpp"
#include "backend/opengl/switch.hpp"

namespace kiln::opengl {

/// A context lent to a thread, on which it is current. All leases of that thread share it, so that they may end in
/// any order; with the last, things are put back as they were.
class Loan {
 public:
  Loan(std::shared_ptr<ShareGroup> group, std::shared_ptr<const ApiBinding> api, EGLDisplay display,
       EGLContext context);
  ~Loan();
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  /// Whether the context is current by this.
  bool made() const noexcept { return switch_.made(); }
  EGLContext context() const noexcept { return context_; }
  /// Puts things back as they were already, where another context was current before.
  void step_aside();

 private:
  // First, so that it is put back last.
  std::shared_ptr<const ApiBinding> api_;
  const std::shared_ptr<ShareGroup> group_;
  const EGLContext context_;
  Switch switch_;
  // A context that stays current here can be lent to no other thread.
  bool stuck_ = false;
};

/// A context of the group lent for a while; see Current.
struct Current::Lease {
  explicit Lease(std::shared_ptr<ShareGroup> lender) : group(std::move(lender)) {}
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  const std::shared_ptr<ShareGroup> group;
  // One of these: nothing is on loan where the caller's own context is current.
  std::shared_ptr<const ApiBinding> api;
  std::shared_ptr<Loan> loan;
  // Whether it was for this one that the application may launch programs in it.
  bool shown = false;
};

/// A context that one thread uses over many calls, and others share with it there. Between the calls it stays
/// current where no other was before; a context of the application's own is left to it.
class Kept {
 public:
  Kept(std::shared_ptr<ShareGroup> group, std::shared_ptr<Loan> loan, void* context) noexcept
      : group_(std::move(group)), loan_(std::move(loan)), context_(context) {}

  /// Keeps the context current until it ends.
  struct Visit {
    Visit(EGLDisplay display, EGLContext context) : there(display, context) {}
    const ApiBinding api;
    Switch there;
  };
  /// Makes the context current for one call; null where it is. Errors of earlier calls are forgotten.
  Result<std::unique_ptr<Visit>> enter() const;

 private:
  const std::shared_ptr<ShareGroup> group_;
  // Nothing for the caller's own context.
  const std::shared_ptr<Loan> loan_;
  void* const context_;
};

}  // namespace kiln::opengl
