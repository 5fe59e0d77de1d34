#include "backend/opengl/lent_context.hpp"

#include <utility>

#include "backend/opengl/errors.hpp"
#include "base/process_end.hpp"

namespace kiln::opengl {

LentContext::LentContext(std::shared_ptr<ShareGroup> group, std::shared_ptr<const ApiBinding> api,
                         EGLDisplay display, EGLContext context)
    : api_(std::move(api)), group_(std::move(group)), context_(context), current_(display, context) {}

LentContext::~LentContext() {
  // What an application made current meanwhile is its own.
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
                   "the OpenGL context a slot was opened in is not current on this thread");
    entered = std::make_unique<Entered>(group_->display(), lent_context_->context());
    if (!entered->there.made())
      return Error(ErrorCode::device_failed, "the OpenGL context of a slot cannot be made current on this thread");
  }
  static_cast<void>(take_error());
  return entered;
}

}  // namespace kiln::opengl
