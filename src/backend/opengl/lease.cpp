#include "backend/opengl/lease.hpp"

#include <utility>

#include "backend/opengl/errors.hpp"
#include "base/process_end.hpp"

namespace kiln::opengl {

Loan::Loan(std::shared_ptr<ShareGroup> group, std::shared_ptr<const ApiBinding> api, EGLDisplay display,
           EGLContext context)
    : api_(std::move(api)), group_(std::move(group)), context_(context), switch_(display, context) {}

Loan::~Loan() {
  // What an application made current meanwhile is its own.
  if (base::process_ends() || group_->current() != context_) switch_.forget();
  if (switch_.back() && !stuck_) group_->give_back(context_);
}

void Loan::step_aside() {
  if (!switch_.displaced()) return;
  stuck_ = !switch_.back();
  api_.reset();
}

Current::Lease::~Lease() {
  if (shown) group->take_back(loan->context());
}

Result<std::unique_ptr<Kept::Visit>> Kept::enter() const {
  if (base::process_ends()) return process_ending();
  std::unique_ptr<Visit> visit;
  if (group_->current() != context_) {
    if (loan_ == nullptr)
      return Error(ErrorCode::device_failed,
                   "the OpenGL context a slot was opened in is not current on this thread");
    visit = std::make_unique<Visit>(group_->display(), loan_->context());
    if (!visit->there.made())
      return Error(ErrorCode::device_failed, "the OpenGL context of a slot cannot be made current on this thread");
  }
  static_cast<void>(take_error());
  return visit;
}

}  // namespace kiln::opengl
