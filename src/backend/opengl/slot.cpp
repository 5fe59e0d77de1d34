#include "backend/opengl/slot.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "backend/launch_checks.hpp"
#include "backend/opengl/egl.hpp"
#include "base/try.hpp"

namespace kiln::opengl {

void Stamps::write() {
  if (count_ == queries_.size()) {
    queries_.push_back(0);
    glGenQueries(1, &queries_.back());
  }
  glQueryCounter(queries_[count_++], GL_TIMESTAMP);
}

std::vector<std::uint64_t> Stamps::read() const {
  std::vector<std::uint64_t> stamps(count_);
  for (std::size_t i = 0; i < count_; ++i) {
    GLuint64 stamp = 0;
    glGetQueryObjectui64v(queries_[i], GL_QUERY_RESULT, &stamp);
    stamps[i] = stamp;
  }
  return stamps;
}

void Stamps::clear() {
  glDeleteQueries(static_cast<GLsizei>(queries_.size()), queries_.data());
  queries_.clear();
  count_ = 0;
}

namespace {

constexpr std::string_view running = "running submitted work";

/// After this time, clocks that differ by some tens of parts per million are as many microseconds apart.
constexpr auto clock_is_good_for = std::chrono::seconds(1);

/// The number of valid bits of timestamps in the current context.
std::uint32_t timestamp_bits() {
  GLint bits = 0;
  glGetQueryiv(GL_TIMESTAMP, GL_QUERY_COUNTER_BITS, &bits);
  return static_cast<std::uint32_t>(std::clamp(bits, 0, 64));
}

}  // namespace

Result<std::unique_ptr<Slot>> GlSlot::open(const std::shared_ptr<ShareGroup>& group, const DeviceInfo& device,
                                           bool tells_resets) {
  auto context = KILN_TRY(group->keep());
  const auto entered = KILN_TRY(context->enter());
  return std::unique_ptr<Slot>(
      std::make_unique<GlSlot>(group, std::move(context), device, tells_resets, Staging::best()));
}

GlSlot::GlSlot(std::shared_ptr<ShareGroup> group, std::unique_ptr<const SlotContext> context,
               const DeviceInfo& device, bool tells_resets, Staging::Kind staging)
    : SlotBase(*group, device),
      group_(std::move(group)),
      context_(std::move(context)),
      tells_resets_(tells_resets),
      staging_(group_, staging),
      clock_(1, timestamp_bits()),
      uniforms_(*group_) {
  set_clock();
}

GlSlot::~GlSlot() {
  const auto entered = context_->enter();
  // If the caller's context is not current, its objects cannot be deleted here; they are destroyed with the
  // context.
  if (!entered) {
    for (ProgramLoan& loan : loans_) loan.discard();
    return;
  }
  if (in_use()) glFinish();
  glDeleteSync(fence_);
  stamps_.clear();
}

void GlSlot::set_clock() {
  if (!clock_.ticks()) return;
  // The shortest round gives the tightest bounds; later rounds only correct the first.
  for (int look = 0; look < 3; ++look) {
    const auto before = backend::Clock::Host::now();
    GLint64 stamp = 0;
    glGetInteger64v(GL_TIMESTAMP, &stamp);
    clock_set_ = backend::Clock::Host::now();
    clock_.learn(before, static_cast<std::uint64_t>(stamp), static_cast<std::uint64_t>(stamp), clock_set_);
  }
}

Result<std::span<std::byte>> GlSlot::allocate_staging(std::size_t bytes) {
  const auto entered = KILN_TRY(context_->enter());
  KILN_TRY(staging_.allocate(bytes));
  return staging_.bytes();
}

Result<void> GlSlot::begin_piece() {
  if (fence_ != nullptr) KILN_TRY(wait());
  if (std::exchange(queued_, true)) return {};
  begun_ = backend::Clock::Host::now();
  stamps_.reset();
  if (clock_.ticks()) stamps_.write();
  return {};
}

template <class Work>
Result<void> GlSlot::queue(std::string_view doing, Work work) {
  KILN_TRY(begin_piece());
  KILN_TRY(work());
  if (clock_.ticks()) {
    stamps_.write();
    pieces_.push_back({stamps_.count() - 2, stamps_.count() - 1});
  }
  return check_gl(doing);
}

Result<void> GlSlot::queue_nothing() {
  const auto entered = KILN_TRY(context_->enter());
  KILN_TRY(begin_piece());
  if (clock_.ticks()) pieces_.push_back({stamps_.count() - 1, stamps_.count() - 1});
  return check_gl(running);
}

Result<void> GlSlot::queue_copy(const Copy& copy) {
  const auto entered = KILN_TRY(context_->enter());
  KILN_TRY(copy.buffer.check());
  return queue(copy.describe(), [&]() -> Result<void> {
    if (copy.direction == Direction::upload)
      staging_.upload(copy.buffer.id(), copy.offset, copy.staged, copy.bytes);
    else
      staging_.download(copy.buffer.id(), copy.offset, copy.staged, copy.bytes);
    return {};
  });
}

Result<void> GlSlot::launch(kiln::Module& module, const Launch& launch) {
  const auto entered = KILN_TRY(context_->enter());
  const auto fitted = KILN_TRY(fit(*group_, device_, module, launch));
  if (!backend::has_work(fitted.groups)) return queue_nothing();
  return queue(fmt::format("launching {}", fitted.program.name()), [&]() -> Result<void> {
    const GLuint program = KILN_TRY(object_of(fitted.program));
    return dispatch(*group_, fitted, program, uniforms_);
  });
}

Result<GLuint> GlSlot::object_of(const LinkedProgram& program) {
  if (!program.interface().sets_state()) return program.id();
  const auto found = std::ranges::find(loans_, program.copies(), &ProgramLoan::copies);
  if (found != loans_.end()) return found->id();
  loans_.push_back(KILN_TRY(program.borrow()));
  return loans_.back().id();
}

Result<void> GlSlot::submit() {
  if (fence_ != nullptr) return {};
  ran_.clear();
  if (!queued_) return {};
  const auto entered = KILN_TRY(context_->enter());
  // Mapped buffers need this barrier in addition to the fence.
  glMemoryBarrier(GL_CLIENT_MAPPED_BUFFER_BARRIER_BIT);
  fence_ = glFenceSync(GL_SYNC_GPU_COMMANDS_COMPLETE, 0);
  glFlush();
  KILN_TRY(check_gl(running));
  queued_ = false;
  if (backend::Clock::Host::now() - clock_set_ > clock_is_good_for) set_clock();
  return {};
}

Result<bool> GlSlot::ended_within(GLuint64 nanoseconds) {
  const GLenum state = glClientWaitSync(fence_, 0, nanoseconds);
  if (state == GL_TIMEOUT_EXPIRED) return false;
  const auto seen = backend::Clock::Host::now();
  if (tells_resets_ && glGetGraphicsResetStatus() != GL_NO_ERROR) return gl_error(GL_CONTEXT_LOST, running);
  KILN_TRY(check_gl(running));
  if (state == GL_WAIT_FAILED)
    return Error(ErrorCode::device_failed, fmt::format("glClientWaitSync failed while {}", running));
  glDeleteSync(std::exchange(fence_, nullptr));
  uniforms_.reuse();
  loans_.clear();
  staging_.collect();
  const std::vector<backend::Piece> pieces = std::exchange(pieces_, {});
  const std::vector<std::uint64_t> stamps = stamps_.read();
  KILN_TRY(check_gl(running));
  if (stamps.empty()) return true;
  clock_.learn(begun_, stamps.front(), stamps.back(), seen);
  ran_ = clock_.ran(pieces, stamps);
  return true;
}

Result<bool> GlSlot::finished() {
  if (fence_ == nullptr) return true;
  const auto entered = KILN_TRY(context_->enter());
  return ended_within(0);
}

Result<void> GlSlot::wait() {
  if (fence_ == nullptr) return {};
  const auto entered = KILN_TRY(context_->enter());
  // Drivers limit the timeout of a wait.
  constexpr GLuint64 a_second = 1'000'000'000;
  while (true) {
    const auto ended = KILN_TRY(ended_within(a_second));
    if (ended) return {};
  }
}

}  // namespace kiln::opengl
